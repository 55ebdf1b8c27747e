// Two threads attach a member each of one struct on the device: each region must find its own pointer attached, whoever
// has mapped the struct.
// expect: PASS
#include "../check.h"

enum { SIZE = 16, TURNS = 25 };

static int left[SIZE], right[SIZE];
static struct {
  int *left, *right;
  int offset;
} s = {left, right, 1};

int main(void) {
#pragma omp parallel num_threads(2)
  for (int turn = 0; turn < TURNS; ++turn) {
    if (omp_get_thread_num() == 0) {
#pragma omp target map(to: s) map(tofrom: s.left[0:SIZE])
      for (int i = 0; i < SIZE; ++i)
        s.left[i] += s.offset;
    } else {
#pragma omp target map(to: s) map(tofrom: s.right[0:SIZE])
      for (int i = 0; i < SIZE; ++i)
        s.right[i] += 2 * s.offset;
    }
  }
  int wrong = 0;
  for (int i = 0; i < SIZE; ++i)
    wrong += left[i] != TURNS || right[i] != 2 * TURNS;
  CHECK(wrong == 0);
  CHECK(s.left == left && s.right == right && s.offset == 1);
  return VERDICT();
}
