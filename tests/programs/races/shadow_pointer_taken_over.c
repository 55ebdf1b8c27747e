// Deferred regions map a struct and what its pointer points to; some only the struct, which they may take over from one
// that leaves. The host's pointer stays what it was, whoever copies the struct back.
// expect: PASS
#include "../check.h"

enum { SIZE = 16, ROUNDS = 6, TASKS = 8 };

struct list {
  int uses;
  int *items;
  int length;
};

int main(void) {
  static int items[SIZE];
  struct list list = {0, items, SIZE};
  for (int round = 0; round < ROUNDS; ++round) {
    int open = 0;
#pragma omp parallel num_threads(4)
#pragma omp single
    {
      char gate;
      // No region starts before all have been made: making one reads the pointer, and ending one may write the struct.
#pragma omp task shared(open) depend(out: gate)
      for (int go = 0; !go;) {
#pragma omp atomic read acquire
        go = open;
      }
      for (int task = 0; task < TASKS; ++task) {
        if (task % 2 == 0) {
#pragma omp target nowait depend(in: gate) map(tofrom: list, list.items[0:SIZE])
          {
#pragma omp atomic update
            list.uses += 1;
            for (int i = 0; i < SIZE; ++i) {
#pragma omp atomic update
              list.items[i] += 1;
            }
          }
        } else {
#pragma omp target nowait depend(in: gate) map(tofrom: list)
          {
#pragma omp atomic update
            list.uses += 1;
          }
        }
      }
#pragma omp atomic write release
      open = 1;
#pragma omp taskwait
    }
    CHECK(list.items == items);
    CHECK(list.length == SIZE);
    CHECK(list.uses == (round + 1) * TASKS);
    int wrong = 0;
    for (int i = 0; i < SIZE; ++i)
      wrong += items[i] != (round + 1) * TASKS / 2;
    CHECK(wrong == 0);
  }
  return VERDICT();
}
