// Transfer reports of attached pointers: the 8 bytes come from a place of the runtime's own, not from mapped data, both
// when the pointer is attached and when an update restores it on the device. So the name is unknown.
// stock: prints the name of an entry beside the runtime's own place
// env: LIBOMPTARGET_INFO=32
// flags: -g
// expect: PASS
// stderr: Size=8, Name=unknown
// not-stderr: Size=8, Name=s
#include "../check.h"
#include <stdlib.h>

struct with_pointer {
  int *p;
  int n[3];
};

int main(void) {
  struct with_pointer *s = malloc(sizeof *s);
  int *pointee = calloc(10, sizeof(int)), seen = -1;
  s->p = pointee;
  s->n[0] = 5;
#pragma omp target enter data map(to: s[0:1]) map(to: s->p[0:10])
#pragma omp target update to(s[0:1])
#pragma omp target map(from: seen)
  {
    s->p[3] = s->n[0];
    seen = s->p[3];
  }
  CHECK(seen == 5 && s->p == pointee);
#pragma omp target exit data map(from: s->p[0:10]) map(from: s[0:1])
  CHECK(s->p == pointee && pointee[3] == 5);
  return VERDICT();
}
