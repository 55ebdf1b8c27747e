// The event of an attached pointer cannot be recorded: the construct fails.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=record_event:3
// abort: yes
// stderr: Failed to set dependence on event
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
