// The present modifier: satisfied first, then not.
// env: LIBOMPTARGET_DEBUG=1
// flags: -g -fopenmp-version=51
// abort: yes
static int a[4], b[4];

int main(void) {
#pragma omp target data map(alloc: a)
  {
#pragma omp target map(present, tofrom: a)
    a[0] = 1;
#pragma omp target update to(present: a)
#pragma omp target map(present, tofrom: b)
    b[0] = 1;
  }
  return 0;
}
