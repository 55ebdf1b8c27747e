// One construct removes the same mapping twice, by two parts of it: both see themselves as the last user, so when the
// second is removed the mapping is gone.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// differs: the Rust core succeeds quietly, LLVM reports that the section does not exist and aborts
// expect: PASS
#include "../check.h"

int main(void) {
  int a[8] = {0};
#pragma omp target enter data map(to: a)
#pragma omp target exit data map(release: a[0:2]) map(release: a[4:2])
  CHECK(!omp_target_is_present(a, omp_get_default_device()));
  return VERDICT();
}
