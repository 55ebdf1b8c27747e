// A declare target array is not the user's association, whatever the program has done with it before: map clauses, a
// release, a delete, an update.
// stock: takes the array out of the table and returns 0
// expect: PASS
#include "../check.h"

#pragma omp declare target
int table[16];
#pragma omp end declare target

int main(void) {
  int device = omp_get_default_device();
#pragma omp target map(tofrom: table)
  table[3] = 4;
  CHECK(omp_target_disassociate_ptr(table, device) != 0);
#pragma omp target exit data map(release: table)
  CHECK(omp_target_disassociate_ptr(table, device) != 0);
#pragma omp target exit data map(delete: table)
  CHECK(omp_target_disassociate_ptr(table, device) != 0);
  CHECK(omp_target_disassociate_ptr(table + 3, device) != 0);
  CHECK(omp_target_is_present(table, device) && omp_target_is_present(table + 15, device));
#pragma omp target update from(table)
  CHECK(table[3] == 4);
  return VERDICT();
}
