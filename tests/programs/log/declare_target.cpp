// Declare target variables, which the runtime puts into the table when a device is used first, with infinite counts: a
// number, an array, an object with a constructor that runs on the device, and a pointer as the base of a section, which
// is attached.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g
// expect: PASS
#include "../check.h"

#pragma omp declare target
int number = 5, *pointer, row[4];

struct object {
  int value;
  object() : value(4) {}
} constructed;
#pragma omp end declare target

static int pointee[4];

int main() {
  pointer = pointee;
#pragma omp target
  row[1] = number + constructed.value;
#pragma omp target update from(row)
  CHECK(row[1] == 9);
#pragma omp target map(tofrom: pointer[0:4])
  pointer[2] = 6;
  CHECK(pointer == pointee && pointee[2] == 6);
#pragma omp target enter data map(to: row)
#pragma omp target exit data map(release: row)
  CHECK(omp_target_is_present(row, omp_get_default_device()));
  return VERDICT();
}
