// A region's copy back cannot be issued: the construct fails.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=data_retrieve_async
// abort: yes
// stderr: Copying data from device failed.
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  return 0;
}
