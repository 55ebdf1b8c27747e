// An explicit section begins before a mapping and goes on into it, with the present modifier: not allowed, and not
// present.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g -fopenmp-version=51
// abort: yes
static int a[32];

int main(void) {
#pragma omp target enter data map(to: a[8:16])
#pragma omp target enter data map(present, to: a[0:16])
  return 0;
}
