// The copy that a region would wait for is done when the region begins, as its call has been synchronised: no event is
// waited for, so the failure does not come about.
// stock: waits, and fails with it
// env: OMPTARGET_FAIL=wait_event
// fails: never
// differs: LLVM's construct fails
// expect: PASS
#include "../check.h"

static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
#pragma omp target map(to: a)
  a[0] = 1;
#pragma omp target exit data map(from: a)
  CHECK(a[0] == 1);
  return VERDICT();
}
