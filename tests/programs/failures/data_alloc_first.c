// The first map of a program fails for lack of memory: nothing is left on the device.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=data_alloc
// abort: yes
// leaves: nothing
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  return 0;
}
