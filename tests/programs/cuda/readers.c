// Eight threads run a slow region each on one mapping that all of them only read. A region goes on when all eight have
// started: if one had to wait for another to end, it would give up. The second line is the time that it took.
#include <unistd.h>

#include "../check.h"

enum { SIZE = 1000, READERS = 8, ROUNDS = 5, PATIENCE_MS = 20000 };
static int input[SIZE];

int main(void) {
  int started = 0, alone = 0;
  long sums[READERS] = {0};
  for (int i = 0; i < SIZE; ++i)
    input[i] = i;
  double time = 0;
#pragma omp target data map(to: input) map(tofrom: started, alone)
  for (int round = 1; round <= ROUNDS; ++round) {
    const double start = omp_get_wtime();
#pragma omp parallel num_threads(READERS)
    {
      long sum = 0;
#pragma omp target map(to: input) map(alloc: started, alone) map(from: sum)
      {
#pragma omp atomic update
        started += 1;
        int now = 0;
        for (int ms = 0; now < round * READERS && ms < PATIENCE_MS; ++ms) {
          usleep(1000);
#pragma omp atomic read
          now = started;
        }
        if (now < round * READERS) {
#pragma omp atomic update
          alone += 1;
        }
        usleep(10000);
        sum = 0;
        for (int i = 0; i < SIZE; ++i)
          sum += input[i];
      }
      sums[omp_get_thread_num()] = sum;
    }
    time += omp_get_wtime() - start;
    for (int reader = 0; reader < READERS; ++reader)
      CHECK(sums[reader] == (long)SIZE * (SIZE - 1) / 2);
  }
  CHECK(alone == 0);
  int failed = VERDICT();
  printf("%.0f us\n", time * 1e6);
  return failed;
}
