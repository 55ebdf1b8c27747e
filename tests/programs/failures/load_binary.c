// A device that cannot load the program's image: the construct fails.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=load_binary
// abort: yes
// stderr: Unable to generate entries table for device id 0.
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  return 0;
}
