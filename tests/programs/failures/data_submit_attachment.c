// The third copy of a construct, that of an attached pointer, cannot be issued: the construct fails.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=data_submit_async:3
// abort: yes
// stderr: Copying data to device failed.
// stderr: failure of target construct while offloading is mandatory
static struct {
  int *p;
} s;

static int pointee[4];

int main(void) {
  s.p = pointee;
#pragma omp target enter data map(to: s) map(to: s.p[0:4])
  return 0;
}
