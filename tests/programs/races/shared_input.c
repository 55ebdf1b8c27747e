// Many deferred regions read one input, which must stay on the device until the last of them has run.
// expect: PASS
#include "../check.h"

enum { SIZE = 4096, TASKS = 32, ROUNDS = 5 };
static int input[SIZE];
static long sums[TASKS];

int main(void) {
  // Without a team every region would run at once.
#pragma omp parallel
#pragma omp single
  for (int round = 0; round < ROUNDS; ++round) {
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
