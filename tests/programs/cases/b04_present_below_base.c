// Below the base of a mapping is outside of the extended range: a zero-length section there with the present modifier
// is an error.
// stock: the same
// flags: -fopenmp-version=51
// abort: yes
// stderr: device mapping required by 'present' map type modifier does not exist
// stderr: failure of target construct while offloading is mandatory
#include <stdlib.h>

int main(void) {
  int *all = malloc(30 * sizeof *all), *a = all + 1;
#pragma omp target enter data map(alloc: a[10:10])
#pragma omp target map(present, alloc: all[0:0])
  ;
  return 0;
}
