// The first map of a program fails for lack of memory: the table, still empty, stays so.
// stock: makes an entry with a null device address
// env: OMPTARGET_FAIL=data_alloc
// differs: there is no entry without memory
// abort: yes
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  int x = 0;
#pragma omp target map(tofrom: x)
  x = 1;
  return 0;
}
