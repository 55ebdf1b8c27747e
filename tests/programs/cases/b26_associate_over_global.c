// A range that overlaps a declare target variable cannot be associated: inside of it, around it, over its begin or end.
// The variable works as before.
// stock: accepts every overlap that does not start at the same place
// expect: PASS
#include "../check.h"

#pragma omp declare target
struct {
  int before[4], middle[4], after[4];
} g;
#pragma omp end declare target

int main(void) {
  int device = omp_get_default_device();
  char *p = omp_target_alloc(1024, device);
#pragma omp target
  g.middle[3] = 6;
  CHECK(omp_target_associate_ptr(g.middle, p, sizeof g.middle, 0, device) != 0);
  CHECK(omp_target_associate_ptr((char *)&g - 4, p, sizeof g + 8, 0, device) != 0);
  CHECK(omp_target_associate_ptr((char *)&g - 4, p, 8, 0, device) != 0);
  CHECK(omp_target_associate_ptr(g.after + 3, p, 8, 0, device) != 0);
  CHECK(omp_target_associate_ptr(&g, p, sizeof g, 0, device) != 0);
  CHECK(omp_target_associate_ptr(&g, p, sizeof g / 2, 0, device) != 0);
  CHECK(!omp_target_is_present((char *)&g - 4, device) && !omp_target_is_present((char *)(&g + 1), device));
#pragma omp target update from(g)
  CHECK(g.middle[3] == 6);
#pragma omp target
  g.after[0] = g.middle[3] + 1;
#pragma omp target update from(g)
  CHECK(g.after[0] == 7);
  omp_target_free(p, device);
  return VERDICT();
}
