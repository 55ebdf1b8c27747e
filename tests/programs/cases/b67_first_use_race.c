// The very first target regions of the process are started by several threads at once: the device is initialised once,
// its globals are mapped once, and each region sees them.
// stock: the same
// expect: PASS
// repeat: 10
#include "../check.h"

#pragma omp declare target
int g = 11;
#pragma omp end declare target

int main(void) {
  int wrong = 0;
#pragma omp parallel num_threads(8) reduction(+ : wrong)
  {
    int x = 0;
#pragma omp target map(tofrom: x)
    x = g + 1;
    wrong += x != 12;
  }
  CHECK(wrong == 0);
  return VERDICT();
}
