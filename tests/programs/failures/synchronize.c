// The device goes wrong while a map's copy is under way: synchronising fails, and so does the construct.
// stock: the same without the name of the function
// env: OMPTARGET_FAIL=synchronize
// abort: yes
// stderr: failure of target construct while offloading is mandatory
static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
  return 0;
}
