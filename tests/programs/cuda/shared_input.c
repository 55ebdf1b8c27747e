// Many deferred regions read one input, which must stay on the device until the last of them has run.
#include "../check.h"

enum { SIZE = 4096, TASKS = 32 };
static int input[SIZE];
static long sums[TASKS];

int main(void) {
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < SIZE; ++i)
      input[i] = i + round;
    for (int task = 0; task < TASKS; ++task) {
      long *sum = &sums[task];
      *sum = 0;
#pragma omp target nowait map(to: input) map(from: sum[0:1])
      {
        long s = 0;
        for (int i = 0; i < SIZE; ++i)
          s += input[i];
        sum[0] = s;
      }
    }
#pragma omp taskwait
    for (int task = 0; task < TASKS; ++task)
      CHECK(sums[task] == (long)SIZE * (SIZE - 1) / 2 + (long)round * SIZE);
  }
  return VERDICT();
}
