// Threads map structs by a mapper, delete them by it, and map them by it again: a deleted struct is copied in afresh, with
// what its pointer points to. The structs are neighbours in one array.
// expect: PASS
#include "../check.h"

enum { SIZE = 8, TURNS = 6, THREADS = 4 };

typedef struct {
  int length;
  int *items;
} list;
#pragma omp declare mapper(deep : list l) map(l.length, l.items, l.items[0:l.length])

static int items[THREADS][SIZE];
static list lists[THREADS];

int main(void) {
  int wrong = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : wrong)
  {
    const int me = omp_get_thread_num();
    list *mine = &lists[me];
    *mine = (list){SIZE, items[me]};
    for (int turn = 0; turn < TURNS; ++turn) {
      for (int i = 0; i < SIZE; ++i)
        items[me][i] = i + turn;
#pragma omp target enter data map(mapper(deep), to: mine[0:1])
#pragma omp target map(mapper(deep), tofrom: mine[0:1])
      for (int i = 0; i < SIZE; ++i)
        mine->items[i] = -1;
      // What the region wrote goes away with the mapping.
#pragma omp target exit data map(mapper(deep), delete: mine[0:1])
#pragma omp target map(mapper(deep), tofrom: mine[0:1])
      for (int i = 0; i < mine->length; ++i)
        mine->items[i] += 100;
      wrong += mine->items != items[me] || mine->length != SIZE;
      for (int i = 0; i < SIZE; ++i)
        wrong += items[me][i] != i + turn + 100;
    }
  }
  CHECK(wrong == 0);
  return VERDICT();
}
