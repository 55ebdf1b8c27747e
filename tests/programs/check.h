// Shared by the self-checking programs: CHECK(condition) prints and counts what does not hold, VERDICT() prints the
// line that the test looks for and is main's exit code.
#include <omp.h>
#include <stdio.h>

static int failed_checks;

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      failed_checks++;                                                                                                 \
      printf("line %d does not hold: %s\n", __LINE__, #condition);                                                     \
    }                                                                                                                  \
  } while (0)

#define VERDICT() (printf("%s\n", failed_checks ? "FAIL" : "PASS"), failed_checks != 0)
