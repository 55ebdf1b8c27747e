// Updates: whole and in part, of a non-contiguous section, of what is not mapped, and of a struct with an attached
// pointer, which keeps its value on either side.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g -fopenmp-version=50
// expect: PASS
// pointers: yes
#include "../check.h"

static struct {
  int *p;
  int n;
} s;

static int a[8], unmapped[4], pointee[4];

int main(void) {
  s.p = pointee;
#pragma omp target enter data map(to: a) map(to: s) map(to: s.p[0:4])
  a[1] = 1;
#pragma omp target update to(a)
#pragma omp target
  a[5] = a[1] + 1;
#pragma omp target update from(a[4:4])
  CHECK(a[5] == 2);
#pragma omp target update from(a[0:4:2])
#pragma omp target update to(unmapped)
  s.n = 7;
#pragma omp target update to(s)
#pragma omp target
  s.p[3] = s.n;
#pragma omp target update from(s)
  CHECK(s.p == pointee);
#pragma omp target exit data map(release: a) map(from: s.p[0:4]) map(from: s)
  CHECK(s.p == pointee && pointee[3] == 7);
  return VERDICT();
}
