// Threads map one struct by a mapper, all at once: each copies the struct in, as nobody counts a mapper's first component,
// while the others' regions use the pointer in it.
// expect: PASS
#include "../check.h"

enum { SIZE = 64, TURNS = 10, THREADS = 4 };

typedef struct {
  int length;
  int *items;
} list;
#pragma omp declare mapper(deep : list l) map(to : l.length, l.items) map(tofrom : l.items[0:l.length])

static int items[SIZE];
static list s = {SIZE, items};

int main(void) {
#pragma omp parallel num_threads(THREADS)
  for (int turn = 0; turn < TURNS; ++turn) {
#pragma omp target map(mapper(deep), tofrom: s)
    for (int i = 0; i < s.length; ++i) {
#pragma omp atomic update
      s.items[i] += 1;
    }
  }
  int wrong = 0;
  for (int i = 0; i < SIZE; ++i)
    wrong += items[i] != THREADS * TURNS;
  CHECK(wrong == 0);
  CHECK(s.items == items);
#pragma omp target exit data map(delete: s)
  return VERDICT();
}
