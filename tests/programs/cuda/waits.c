// Maps data once and launches many regions on it: how often a queue waits for the first copy is in the driver's trace.
#include "../check.h"

enum { REGIONS = 10000 };
static int a[64];

int main(void) {
#pragma omp target enter data map(to: a)
  for (int region = 0; region < REGIONS; ++region) {
#pragma omp target map(tofrom: a)
    a[region % 64] += 1;
  }
#pragma omp target exit data map(from: a)
  long sum = 0;
  for (int i = 0; i < 64; ++i)
    sum += a[i];
  CHECK(sum == REGIONS);
  return VERDICT();
}
