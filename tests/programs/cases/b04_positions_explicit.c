// The same places as b04_positions_implicit.c, as explicit zero-length sections p[0:0] with each map type.
// stock: null at the base and between base and begin
// expect: PASS
#include "../check.h"
#include <stdint.h>
#include <stdlib.h>

static intptr_t with_alloc(int *p) {
  intptr_t address = -1;
#pragma omp target map(from: address) map(alloc: p[0:0])
  address = (intptr_t)p;
  return address;
}

static intptr_t with_to(int *p) {
  intptr_t address = -1;
#pragma omp target map(from: address) map(to: p[0:0])
  address = (intptr_t)p;
  return address;
}

static intptr_t with_tofrom(int *p) {
  intptr_t address = -1;
#pragma omp target map(from: address) map(tofrom: p[0:0])
  address = (intptr_t)p;
  return address;
}

static intptr_t (*const in_region[])(int *) = {with_alloc, with_to, with_tofrom};

int main(void) {
  int *all = malloc(40 * sizeof *all), *a = all + 10;
#pragma omp target enter data map(alloc: a[10:10])
  for (int kind = 0; kind < 3; ++kind) {
    intptr_t begin = in_region[kind](a + 10);
    CHECK(begin != 0);
    for (int i = 0; i < 20; ++i)
      CHECK(in_region[kind](a + i) == begin + (i - 10) * (intptr_t)sizeof *a);
    CHECK(in_region[kind](a + 20) == 0);
    CHECK(in_region[kind](a - 1) == 0);
  }
#pragma omp target exit data map(release: a[10:10])
  CHECK(!omp_target_is_present(a + 10, omp_get_default_device()));
  return VERDICT();
}
