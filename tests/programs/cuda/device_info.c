// What the plugin tells of a device, and of the threads and teams that regions get.
// env: KMP_WARNINGS=0
#include "../check.h"
#include <stdint.h>

int __tgt_print_device_info(int64_t device);

int main(void) {
  int n = 1000, sum = 0;
  CHECK(__tgt_print_device_info(0));
#pragma omp target teams distribute parallel for map(tofrom: sum) reduction(+: sum)
  for (int i = 0; i < n; ++i)
    sum += i;
#pragma omp target teams num_teams(3) thread_limit(70) map(tofrom: sum)
  if (omp_get_team_num() == 0)
    sum += 0;
#pragma omp target teams num_teams(70000) thread_limit(5000) map(tofrom: sum)
  if (omp_get_team_num() == 0)
    sum += 0;
  CHECK(sum == 499500);
  return VERDICT();
}
