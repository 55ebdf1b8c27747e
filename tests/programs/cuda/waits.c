// Maps data once and launches REGIONS regions on it: how often a queue waits for the first copy is in the driver's trace.
#include "../check.h"
#include <stdlib.h>

static int a[64];

int main(void) {
  const char *asked = getenv("REGIONS");
  int regions = asked ? atoi(asked) : 10;
#pragma omp target enter data map(to: a)
  for (int region = 0; region < regions; ++region) {
#pragma omp target map(tofrom: a)
    a[region % 64] += 1;
  }
#pragma omp target exit data map(from: a)
  long sum = 0;
  for (int i = 0; i < 64; ++i)
    sum += a[i];
  CHECK(sum == regions);
  return VERDICT();
}
