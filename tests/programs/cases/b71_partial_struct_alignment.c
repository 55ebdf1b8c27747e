// A struct is mapped in part, from a member at a 4-byte offset on: the members keep their alignment on the device.
// stock: the same
// expect: PASS
#include "../check.h"
#include <stdint.h>
#include <stdlib.h>

struct S {
  int a, b;
  int *p;
  double d;
};

int main(void) {
  struct S s = {1, 2, calloc(4, sizeof(int)), 4.0};
  uintptr_t address_p = 1, address_d = 1;
  int *before = s.p;
#pragma omp target map(tofrom: s.b, s.p[0:4], s.d) map(from: address_p, address_d)
  {
    s.b += 1;
    s.p[2] = 7;
    s.d *= 2;
    address_p = (uintptr_t)&s.p;
    address_d = (uintptr_t)&s.d;
  }
  CHECK(address_p % 8 == 0 && address_d % 8 == 0);
  CHECK(s.a == 1 && s.b == 3 && s.d == 8.0);
  CHECK(s.p == before && s.p[2] == 7);
  return VERDICT();
}
