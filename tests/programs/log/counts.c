// The life of one mapping: made, found again, counted up and down, moved to and fro, removed.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// expect: PASS
#include "../check.h"

int main(void) {
  int a[8] = {0};
#pragma omp target enter data map(to: a)
#pragma omp target enter data map(alloc: a[2:3])
#pragma omp target map(tofrom: a)
  a[2] = 5;
#pragma omp target map(always, from: a)
  a[3] = 6;
  CHECK(a[2] == 5 && a[3] == 6);
#pragma omp target exit data map(release: a[2:3])
#pragma omp target exit data map(from: a)
#pragma omp target exit data map(release: a)
  return VERDICT();
}
