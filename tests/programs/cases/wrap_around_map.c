// The length of a section is so large that its end wraps around the address space: it cannot be mapped, although begin
// and wrapped end both lie inside of a mapping.
// stock: takes the range for a part of the mapping; the program goes on
// abort: yes
// stderr: failure of target construct while offloading is mandatory
#include <stdint.h>
#include <stdlib.h>

int main(void) {
  char *a = calloc(16, 1), *p = a + 8;
  size_t wraps = SIZE_MAX - 7;
#pragma omp target enter data map(to: a[0:16])
#pragma omp target enter data map(alloc: p[0:wraps])
  return 0;
}
