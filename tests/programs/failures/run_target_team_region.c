// A region with teams that cannot be launched, with a plugin that has the mandatory functions only: the construct
// fails.
// stock: the same without the name of the function
// plugin: sync
// env: OMPTARGET_FAIL=run_target_team_region
// abort: yes
// stderr: Executing target region abort target.
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  int x = 0;
#pragma omp target teams map(tofrom: x)
  x = 1;
  return 0;
}
