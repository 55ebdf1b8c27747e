// A zero-length section that matches nothing has no mapping to wait for, whatever is mapped beside it: no event is
// waited for, so the failure does not come about.
// stock: waits for the event of a neighbour, and fails with it
// env: OMPTARGET_FAIL=wait_event
// fails: never
// differs: LLVM's construct fails
// expect: PASS
#include "../check.h"

static int all[16];

int main(void) {
  int *below = all, *between = all + 6, *above = all + 8, *outside = all + 14;
#pragma omp target enter data map(to: below[0:4])
#pragma omp target enter data map(to: above[0:4])
#pragma omp target enter data map(to: between[0:0])
#pragma omp target enter data map(to: outside[0:0])
#pragma omp target exit data map(release: between[0:0])
#pragma omp target exit data map(release: outside[0:0])
#pragma omp target exit data map(release: below[0:4], above[0:4])
  CHECK(!omp_target_is_present(below, 0) && !omp_target_is_present(above, 0));
#pragma omp target
  ;
  return VERDICT();
}
