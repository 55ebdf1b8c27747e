// A declare target pointer is the base of mapped sections, each at another address than the one before: it is attached
// anew each time, and the host's own value stays.
// stock: the same
// expect: PASS
#include "../check.h"
#include <stdlib.h>

#pragma omp declare target
int *array;
#pragma omp end declare target

int main(void) {
  for (int k = 1; k < 5; ++k) {
    int n = 6 * k, *gap = malloc(100 * k);
    array = calloc(n, sizeof(int));
    int *before = array;
#pragma omp target map(tofrom: array[:n])
    for (int i = 0; i < n; ++i)
      array[i] = i + k;
    CHECK(array == before);
    for (int i = 0; i < n; ++i)
      CHECK(array[i] == i + k);
    free(array);
    CHECK(gap != NULL);
  }
  return VERDICT();
}
