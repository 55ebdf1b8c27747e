// Mappings that begin at their base have no extended range: a zero-length section in the gap between two of them, or
// beside them, matches nothing.
// stock: the same
// expect: PASS
#include "../check.h"
#include <stdint.h>
#include <stdlib.h>

static intptr_t in_region(int *p) {
  intptr_t address = -1;
#pragma omp target map(from: address)
  address = (intptr_t)p;
  return address;
}

int main(void) {
  int *all = malloc(40 * sizeof *all), *below = all + 5, *above = all + 20;
#pragma omp target enter data map(alloc: below[0:5], above[0:5])
  for (int i = 0; i < 30; ++i)
    CHECK((in_region(all + i) != 0) == ((i >= 5 && i < 10) || (i >= 20 && i < 25)));
#pragma omp target exit data map(release: below[0:5], above[0:5])
  return VERDICT();
}
