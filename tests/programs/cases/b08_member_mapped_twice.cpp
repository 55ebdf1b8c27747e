// The same member section is listed twice on one construct: the pointer is attached once, the data comes back, and the
// host pointer is as before.
// stock: the same
// expect: PASS
#include "../check.h"
#include <cstdlib>

struct S {
  int *mem;
  int n;
};

int main() {
  S s;
  s.n = 10;
  s.mem = (int *)calloc(10, sizeof(int));
  int *before = s.mem;
  void *seen = nullptr;
#pragma omp target map(tofrom: s.mem[0:10]) map(tofrom: s.mem[0:10]) map(from: seen)
  {
    seen = s.mem;
    if (s.mem)
      s.mem[3] = 7;
  }
  CHECK(seen != nullptr && seen != before);
  CHECK(s.mem == before && s.mem[3] == 7);
  return VERDICT();
}
