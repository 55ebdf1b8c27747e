// A limit of LLVM 14: the first component of a mapper is never counted out, so the struct itself stays mapped after the
// exit data that should remove it. What the struct points to goes.
// stock: the same
// expect: PASS
#include "../check.h"

struct vector {
  int length;
  int *data;
};

#pragma omp declare mapper(vector v) map(tofrom: v, v.data[0 : v.length])

static int storage[4];

int main() {
  int device = omp_get_default_device();
  vector v = {4, storage};
#pragma omp target enter data map(to: v)
  CHECK(omp_target_is_present(&v, device) && omp_target_is_present(storage, device));
#pragma omp target
  ;
#pragma omp target exit data map(from: v)
  CHECK(v.data == storage);
  CHECK(!omp_target_is_present(storage, device));
  CHECK(omp_target_is_present(&v, device));
#pragma omp target exit data map(delete: v.length)
  return VERDICT();
}
