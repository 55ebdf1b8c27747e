// A region that says nothing: run with settings that are no numbers. LLVM 14 aborts on them.
#include "../check.h"

int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 7;
  CHECK(x == 7);
  return VERDICT();
}
