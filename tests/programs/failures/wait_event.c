// A queue cannot be made to wait for the event of a mapping that another call made: the construct fails.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=wait_event
// abort: yes
// stderr: Failed to wait for event
// stderr: failure of target construct while offloading is mandatory
static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
#pragma omp target map(to: a)
  a[0] = 1;
  return 0;
}
