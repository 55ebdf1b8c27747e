// A map that explicitly extends a present section is an error, with a message that names both ranges by their sizes.
// stock: the same
// abort: yes
// stderr: explicit extension not allowed: host address specified is
// stderr: (64 bytes), but device allocation maps to host at
// stderr: failure of target construct while offloading is mandatory
int main(void) {
  static int a[32];
#pragma omp target enter data map(to: a[0:16])
#pragma omp target enter data map(to: a[8:16])
  return 0;
}
