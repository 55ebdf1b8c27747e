// Maps on one device after the other: an event of one must not be used on the other. LLVM 14 keeps one pool of events
// for all devices, and aborts.
// env: EMU_DEVICES=2
#include "../check.h"

int main(void) {
  int x[64];
  CHECK(omp_get_num_devices() >= 2);
  for (int round = 0; round < 4; ++round) {
    int device = round & 1;
    for (int i = 0; i < 64; ++i)
      x[i] = i;
#pragma omp target map(tofrom: x) device(device)
    for (int i = 0; i < 64; ++i)
      x[i] += device + 1;
    for (int i = 0; i < 64; ++i)
      CHECK(x[i] == i + device + 1);
  }
  return VERDICT();
}
