// One thread maps data; another, as soon as it sees the data present, uses it: it must find what the first one copied,
// never stale data.
// stock: the same
// expect: PASS
// repeat: 5
#include "../check.h"

static int a[1 << 16];

int main(void) {
  for (int k = 1; k <= 5; ++k) {
    int last = -1;
    for (int i = 0; i < 1 << 16; ++i)
      a[i] = k;
#pragma omp parallel num_threads(2)
    {
      if (omp_get_thread_num() == 0) {
#pragma omp target enter data map(to: a)
      } else {
        while (!omp_target_is_present(a, omp_get_default_device()))
          ;
#pragma omp target map(to: a) map(from: last)
        last = a[65535];
      }
    }
    CHECK(last == k);
#pragma omp target exit data map(delete: a)
  }
  return VERDICT();
}
