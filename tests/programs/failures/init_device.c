// A device that does not initialise: the construct fails with LLVM's own words, and no second try is made.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=init_device
// abort: yes
// stderr: Device 0 is not ready.
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  return 0;
}
