// The dump of the table when a construct fails, without debug output (LIBOMPTARGET_INFO=4): here because a map extends
// what is mapped.
// env: LIBOMPTARGET_INFO=4
// flags: -g
// abort: yes
static int a[32], b[4];

int main(void) {
#pragma omp target enter data map(to: a[0:16]) map(to: b)
#pragma omp target enter data map(to: a[8:16])
  return 0;
}
