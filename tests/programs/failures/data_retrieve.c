// The same as data_retrieve_async.c with a plugin that has the mandatory functions only.
// stock: the same without the name of the function
// plugin: sync
// env: OMPTARGET_FAIL=data_retrieve
// abort: yes
// stderr: Copying data from device failed.
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  return 0;
}
