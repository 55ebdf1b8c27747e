// The same as data_submit_async.c with a plugin that has the mandatory functions only.
// stock: keeps the entry in the table
// plugin: sync
// env: OMPTARGET_FAIL=data_submit
// env: LIBOMPTARGET_INFO=4
// differs: the dump of the table is empty
// flags: -g
// abort: yes
// stderr: Copying data to device failed.
// stderr: failure of target construct while offloading is mandatory
// not-stderr: Host Ptr
static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
  return 0;
}
