// Threads map one struct by a mapper and count in it, and in what its pointer points to: who joins does not copy the host's
// old count over what the others' regions have counted, though nobody counts a mapper's first component.
// expect: PASS
#include "../check.h"

enum { SIZE = 64, TURNS = 10, THREADS = 4 };

typedef struct {
  int uses;
  int *items;
} list;
#pragma omp declare mapper(deep : list l) map(tofrom : l, l.items[0:SIZE])

static int items[SIZE];
static list s = {0, items};

int main(void) {
#pragma omp parallel num_threads(THREADS)
  for (int turn = 0; turn < TURNS; ++turn) {
#pragma omp target map(mapper(deep), tofrom: s)
    {
#pragma omp atomic update
      s.uses += 1;
      for (int i = 0; i < SIZE; ++i) {
#pragma omp atomic update
        s.items[i] += 1;
      }
    }
  }
  CHECK(s.uses == THREADS * TURNS);
  int wrong = 0;
  for (int i = 0; i < SIZE; ++i)
    wrong += items[i] != THREADS * TURNS;
  CHECK(wrong == 0);
  CHECK(s.items == items);
#pragma omp target exit data map(delete: s)
  return VERDICT();
}
