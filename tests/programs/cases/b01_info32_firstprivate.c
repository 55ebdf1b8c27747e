// Transfer reports of firstprivate data, large (copied from the variable itself) and small (packed into a buffer of the
// runtime's): neither is mapped, so the name is unknown even though the table is not empty.
// stock: prints the name of an entry beside the data
// env: LIBOMPTARGET_INFO=32
// flags: -g
// expect: PASS
// stderr: Size=2048, Name=unknown
// stderr: Size=32, Name=unknown
// not-stderr: Size=2048, Name=m
// not-stderr: Size=32, Name=m
#include "../check.h"

int main(void) {
  int mapped[7] = {0}, large[512], small[8];
  for (int i = 0; i < 512; ++i)
    large[i] = i;
  for (int i = 0; i < 8; ++i)
    small[i] = i;
#pragma omp target map(tofrom: mapped) firstprivate(large, small)
  mapped[0] = large[511] + small[7];
  CHECK(mapped[0] == 518);
  return VERDICT();
}
