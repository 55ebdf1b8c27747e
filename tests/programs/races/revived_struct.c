// Threads map two members of one struct and add to them. A struct that somebody takes over while another leaves it is not
// new, so its members are not copied in again.
// expect: PASS
#include "../check.h"

static struct {
  int before, first, between, second, after;
} s = {.before = 1, .between = 2, .after = 3};

int main(void) {
  enum { TURNS = 80 };
#pragma omp parallel for num_threads(4) schedule(static)
  for (int turn = 0; turn < TURNS; ++turn) {
#pragma omp target map(tofrom: s.first, s.second)
    {
#pragma omp atomic update
      s.first += 1;
#pragma omp atomic update
      s.second += 2;
    }
  }
  CHECK(s.first == TURNS && s.second == 2 * TURNS);
  CHECK(s.before == 1 && s.between == 2 && s.after == 3);
  return VERDICT();
}
