// Threads map and unmap the same struct with an attached pointer over and over: the pointer is attached in every
// region, and the host's own is as before at the end.
// stock: the same
// expect: PASS
// repeat: 3
#include "../check.h"
#include <cstdlib>

struct S {
  int *p;
  int count;
};

int main() {
  S s;
  s.p = (int *)calloc(64, sizeof(int));
  s.count = 0;
  int *before = s.p;
  int lost = 0;
#pragma omp parallel for num_threads(4) schedule(static, 1) reduction(+: lost)
  for (int i = 0; i < 4000; ++i) {
    int attached = 0;
#pragma omp target map(to: s, s.p[0:64]) map(from: attached)
    attached = s.p != 0;
    lost += !attached;
  }
  CHECK(lost == 0);
  CHECK(s.p == before);
  return VERDICT();
}
