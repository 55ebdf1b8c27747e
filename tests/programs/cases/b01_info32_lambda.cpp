// Transfer reports of a lambda's captured reference, whose device address the runtime writes into the lambda on the
// device from a place of its own: the name is unknown.
// stock: prints the name of an entry beside the runtime's own place
// env: LIBOMPTARGET_INFO=32
// flags: -g
// expect: PASS
// stderr: Size=8, Name=unknown
// not-stderr: Size=8, Name=captured
// not-stderr: Size=8, Name=result
#include "../check.h"

int main() {
  int captured[5] = {1, 2, 3, 4, 5};
  auto sum = [&captured](int i) { return captured[i] + captured[i + 1]; };
  int result = 0;
#pragma omp target map(tofrom: captured) map(from: result) map(to: sum)
  result = sum(3);
  CHECK(result == 9);
  return VERDICT();
}
