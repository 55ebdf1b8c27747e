// A map whose copy to the device cannot be issued: the construct fails, and the mapping is not in the table.
// stock: keeps the entry in the table
// env: OMPTARGET_FAIL=data_submit_async
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
