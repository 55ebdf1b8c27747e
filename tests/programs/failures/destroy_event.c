// The event of a mapping cannot be destroyed when the mapping goes: the construct fails.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=destroy_event
// abort: yes
// stderr: Failed to destroy event
// stderr: failure of target construct while offloading is mandatory
static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
#pragma omp target exit data map(from: a)
  return 0;
}
