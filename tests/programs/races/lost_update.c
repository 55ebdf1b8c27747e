// Four threads map one counter and add to it: whoever joins while another leaves must not lose what was added.
// expect: PASS
#include "../check.h"

int main(void) {
  enum { TURNS = 80 };
  int counter = 0;
#pragma omp parallel for num_threads(4) schedule(static)
  for (int i = 0; i < TURNS; ++i) {
#pragma omp target map(tofrom: counter)
    {
#pragma omp atomic update
      counter += 1;
    }
  }
  CHECK(counter == TURNS);
  return VERDICT();
}
