// Transfer reports of target update name the entry that holds the range, at its begin, inside and at its end; an update
// of what is not mapped transfers and reports nothing.
// stock: the same
// env: LIBOMPTARGET_INFO=32
// flags: -g
// expect: PASS
// stderr: Size=24, Name=mapped[0:10]
// stderr: Size=12, Name=mapped[0:10]
// not-stderr: Size=20
// not-stderr: Name=unknown
#include "../check.h"
#include <stdlib.h>

int main(void) {
  int *mapped = calloc(15, sizeof(int));
#pragma omp target enter data map(alloc: mapped[0:10])
  mapped[5] = 6;
#pragma omp target update to(mapped[0:6])
  mapped[5] = 0;
#pragma omp target update from(mapped[3:3])
  CHECK(mapped[5] == 6);
  mapped[12] = 7;
#pragma omp target update to(mapped[10:5])
#pragma omp target update from(mapped[10:5])
  CHECK(mapped[12] == 7);
#pragma omp target exit data map(delete: mapped[0:10])
  return VERDICT();
}
