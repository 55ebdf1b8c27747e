// The same as data_submit_async.c with a plugin that has the mandatory functions only.
// stock: keeps the entry and the memory
// plugin: sync
// env: OMPTARGET_FAIL=data_submit
// env: LIBOMPTARGET_INFO=4
// flags: -g
// abort: yes
// leaves: nothing
// stderr: Copying data to device failed.
// stderr: failure of target construct while offloading is mandatory
// not-stderr: Host Ptr
static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
  return 0;
}
