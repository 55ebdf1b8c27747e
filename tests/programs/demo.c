// The demo's program: two arrays and a struct are mapped, updated, reused and copied back. It checks its own result.
#include <stdio.h>

#define N 1024

struct series {
  int length;
  double *values;
};

int main(void) {
  static double weights[N], values[N];
  struct series s = {N, values};
  for (int i = 0; i < N; ++i) {
    weights[i] = 1.0;
    values[i] = i;
  }

  // The weights and the struct stay on the device for the whole block; the struct's pointer is attached to its array.
#pragma omp target data map(to : weights[:N], s, s.values[:N])
  {
#pragma omp target // finds all three on the device: nothing is copied
    for (int i = 0; i < s.length; ++i)
      s.values[i] += weights[i];

    for (int i = 0; i < N; ++i)
      weights[i] = 2.0;
#pragma omp target update to(weights[:N])

#pragma omp target
    for (int i = 0; i < s.length; ++i)
      s.values[i] *= weights[i];

#pragma omp target update from(s.values[:N])
  }

  // A mapping of its own, made and removed around one region.
  double sum = 0.0;
#pragma omp target map(to : values) map(tofrom : sum)
  for (int i = 0; i < N; ++i)
    sum += values[i];

  // (i + 1) * 2, summed over 0 .. N-1
  double expected = (double)N * (N + 1);
  printf("sum = %.1f, expected %.1f\n", sum, expected);
  return sum == expected ? 0 : 1;
}
