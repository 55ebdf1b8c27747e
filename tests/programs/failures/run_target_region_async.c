// A region that cannot be launched: the construct fails.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=run_target_region_async
// abort: yes
// stderr: Executing target region abort target.
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  return 0;
}
