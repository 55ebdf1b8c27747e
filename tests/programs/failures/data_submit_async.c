// A map whose copy to the device cannot be issued: the construct fails, and the memory that it got is given back.
// stock: keeps the entry and the memory
// env: OMPTARGET_FAIL=data_submit_async
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
