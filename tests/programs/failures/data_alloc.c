// A map whose memory cannot be allocated: the construct fails, and the dump of the table shows what was mapped before,
// not what could not be mapped.
// stock: the dump shows an entry with a null device address
// env: OMPTARGET_FAIL=data_alloc:2
// env: LIBOMPTARGET_INFO=4
// differs: there is no entry without memory
// flags: -g
// abort: yes
// stderr: Call to getTargetPointer returned null pointer (device failure or illegal mapping).
// stderr: failure of target construct while offloading is mandatory
// stderr: mapped[0:4] at
// not-stderr: failing[0:4] at
static int all[8];

int main(void) {
  int *mapped = all, *failing = all + 4;
#pragma omp target enter data map(to: mapped[0:4])
#pragma omp target enter data map(to: failing[0:4])
  return 0;
}
