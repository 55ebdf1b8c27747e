// A struct that a region has mapped by a mapper stays mapped. Another thread deletes it, and the next region copies it in
// afresh.
// expect: PASS
#include "../check.h"

enum { SIZE = 8, TURNS = 10 };

typedef struct {
  int length;
  int *items;
} list;
#pragma omp declare mapper(deep : list l) map(l.length, l.items, l.items[0:SIZE])

static int items[SIZE];
static list s = {0, items};

int main(void) {
  for (int turn = 1; turn <= TURNS; ++turn) {
    int found = 0;
    s.length = turn;
    for (int i = 0; i < SIZE; ++i)
      items[i] = turn;
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1) {
#pragma omp target map(mapper(deep), tofrom: s) map(tofrom: found)
      {
        for (int i = 0; i < SIZE; ++i)
          found += s.items[i];
        found += s.length;
      }
    }
    CHECK(found == turn * (SIZE + 1));
#pragma omp target exit data map(delete: s)
    CHECK(!omp_target_is_present(&s, omp_get_default_device()));
  }
  return VERDICT();
}
