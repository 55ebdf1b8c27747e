// The plugin's settings, all of them valid, and what they do to regions, allocations and the first streams.
// env: OMP_TEAM_LIMIT=40
// env: OMP_TEAMS_THREAD_LIMIT=64
// env: OMP_NUM_TEAMS=7
// env: LIBOMPTARGET_SHARED_MEMORY_SIZE=256
// env: LIBOMPTARGET_NUM_INITIAL_STREAMS=2
// env: LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD=0
// env: LIBOMPTARGET_STACK_SIZE=2048
// env: LIBOMPTARGET_HEAP_SIZE=1048576
// env: LIBOMPTARGET_DEVICE_RTL_DEBUG=1
// env: KMP_WARNINGS=0
#include "../check.h"

int main(void) {
  int x[64] = {0}, teams = 0;
#pragma omp target teams distribute parallel for map(tofrom: x)
  for (int i = 0; i < 64; ++i)
    x[i] = i;
#pragma omp target teams num_teams(50) thread_limit(100) map(tofrom: teams)
  if (omp_get_team_num() == 0)
    teams += 0;
#pragma omp target map(to: x) map(from: teams)
  teams = x[63];
  CHECK(teams == 63 && x[9] == 9);
  return VERDICT();
}
