// A mapper: its components are mapped, updated and unmapped as it says.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// expect: PASS
// pointers: yes
#include "../check.h"

struct vector {
  int length;
  int *data;
};

#pragma omp declare mapper(vector v) map(tofrom: v, v.data[0 : v.length])

static int storage[4];

int main() {
  vector v = {4, storage};
#pragma omp target map(tofrom: v)
  v.data[1] = v.length;
  CHECK(v.data == storage && storage[1] == 4);
  return VERDICT();
}
