// Rows of one array are mapped, used and deleted one after the other while another array stays mapped.
// stock: the same
// expect: PASS
#include "../check.h"

enum { ROWS = 10, SIDE = 8 };

int main(void) {
  int u[ROWS][SIDE][SIDE], sum[SIDE][SIDE] = {{0}}, device = omp_get_default_device();
  for (int t = 0; t < ROWS; ++t)
    for (int i = 0; i < SIDE * SIDE; ++i)
      (&u[t][0][0])[i] = t;
#pragma omp target enter data map(to: sum)
  for (int t = 0; t < ROWS; ++t) {
#pragma omp target enter data map(to: u[t:1][0:SIDE][0:SIDE])
#pragma omp target
    for (int i = 0; i < SIDE; ++i)
      for (int j = 0; j < SIDE; ++j)
        sum[i][j] += u[t][i][j];
#pragma omp target exit data map(delete: u[t:1][0:SIDE][0:SIDE])
    CHECK(!omp_target_is_present(&u[t][0][0], device));
  }
#pragma omp target exit data map(from: sum)
  for (int i = 0; i < SIDE; ++i)
    for (int j = 0; j < SIDE; ++j)
      CHECK(sum[i][j] == ROWS * (ROWS - 1) / 2);
  return VERDICT();
}
