// What libomptarget's own part of mapping and launching costs, on a plugin that does nothing (plugin.c).
//
//   bench COUNT
//
// makes COUNT mappings of 64 bytes in scrambled order and then says `ready NANOSECONDS BYTES`: how long that took, and
// by how much the process's memory has grown at its peak. After that each line of stdin is a piece of work:
//
//   SCENARIO THREADS OPERATIONS SEED
//
// Each thread does so many operations, on mappings that the seed chooses. The answer is a line `WALL CPU`: the time
// until the last thread was done, and the processor time of the threads, both in nanoseconds.
//
// Nothing is timed that fails: libomptarget ends the program when a mapping fails (OMP_TARGET_OFFLOAD=mandatory is to
// be set), and all else is checked.
#include "plugin.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { TO = 0x1, FROM = 0x2, PTR_AND_OBJ = 0x10, TARGET_PARAM = 0x20 };
static const int64_t MEMBER_OF_FIRST = (int64_t)1 << 48;

struct bin_desc {
  int32_t images;
  struct device_image *image;
  struct offload_entry *entries_begin, *entries_end;
};

void __tgt_register_lib(struct bin_desc *);
void __tgt_target_data_begin_mapper(void *location, int64_t device, int32_t count, void **bases, void **begins,
                                    int64_t *sizes, int64_t *types, void **names, void **mappers);
void __tgt_target_data_end_mapper(void *location, int64_t device, int32_t count, void **bases, void **begins,
                                  int64_t *sizes, int64_t *types, void **names, void **mappers);
int __tgt_target_mapper(void *location, int64_t device, void *region, int32_t count, void **bases, void **begins,
                        int64_t *sizes, int64_t *types, void **names, void **mappers);
int omp_target_is_present(const void *address, int device);

static void fail(const char *what) {
  fprintf(stderr, "bench: %s\n", what);
  _exit(1);
}

static uint64_t now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// The value in kB that a line of /proc/self/status has, in bytes.
static long memory(const char *name) {
  FILE *file = fopen("/proc/self/status", "r");
  if (!file)
    fail("cannot read /proc/self/status");
  char line[256];
  long value = -1;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0)
      value = atol(line + strlen(name)) * 1024;
  fclose(file);
  if (value < 0)
    fail("/proc/self/status does not say how much memory is used");
  return value;
}

// Memory that is there already, so that it does not count as the mappings'.
static void *pages(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED)
    fail("no memory");
  return memory;
}

// xorshift64*, which is as good as is needed and takes no time.
static uint64_t next(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 2685821657736338717u;
}

// A number below the bound.
static size_t below(size_t bound, uint64_t *state) { return (next(state) >> 32) * bound >> 32; }

// Host memory. Every other block is mapped; those between are mapped and unmapped by `between`, those of a thread's own
// by `new` and `attach`.

enum { SIZE = 64, ARGUMENTS = 8, MAX_THREADS = 64, OWN = 1024 };

typedef struct {
  char bytes[SIZE];
} block;

static size_t count;
static block *blocks;     // 2 * count
static block *own_blocks; // MAX_THREADS * OWN, behind all others
static block *live(size_t number) { return &blocks[2 * number]; }

static char region; // its address is the target region's name

struct worker {
  _Alignas(128) char scenario; // no two threads write to one line of the cache
  size_t operations;
  uint64_t seed;
  size_t number, threads;
  atomic_size_t *missing; // threads of the piece that have not come yet
  uint64_t start, end, cpu;
};

static void enter(int32_t count, void **bases, void **begins, int64_t *sizes, int64_t *types) {
  __tgt_target_data_begin_mapper(NULL, 0, count, bases, begins, sizes, types, NULL, NULL);
}

static void leave(int32_t count, void **bases, void **begins, int64_t *sizes, int64_t *types) {
  __tgt_target_data_end_mapper(NULL, 0, count, bases, begins, sizes, types, NULL, NULL);
}

static void enter_one(void *address) { enter(1, &address, &address, &(int64_t){SIZE}, &(int64_t){TO}); }

static void leave_one(void *address) { leave(1, &address, &address, &(int64_t){SIZE}, &(int64_t){FROM}); }

static block *own(struct worker *w, size_t i) { return &own_blocks[w->number * OWN + i % OWN]; }

// Enter and exit of a fresh mapping in a place of the thread's own.
static void fresh(struct worker *w) {
  for (size_t i = 0; i < w->operations; ++i) {
    enter_one(own(w, i));
    leave_one(own(w, i));
  }
}

// The same at any place among the others.
static void between(struct worker *w) {
  size_t share = count / w->threads; // no two threads have the same blocks
  for (size_t i = 0; i < w->operations; ++i) {
    block *gap = live(below(share, &w->seed) * w->threads + w->number) + 1;
    enter_one(gap);
    leave_one(gap);
  }
}

// Enter and exit of what is mapped.
static void reuse(struct worker *w) {
  for (size_t i = 0; i < w->operations; ++i) {
    block *mapped = live(below(count, &w->seed));
    enter_one(mapped);
    leave_one(mapped);
  }
}

static void present(struct worker *w) {
  int all = 1;
  for (size_t i = 0; i < w->operations; ++i)
    all &= omp_target_is_present(live(below(count, &w->seed)), 0);
  if (!all)
    fail("a mapping is gone");
}

// A target region whose arguments are mapped.
static void launch(struct worker *w) {
  void *addresses[ARGUMENTS];
  int64_t sizes[ARGUMENTS], types[ARGUMENTS];
  for (int i = 0; i < ARGUMENTS; ++i) {
    sizes[i] = SIZE;
    types[i] = TO | FROM | TARGET_PARAM;
  }
  int failed = 0;
  for (size_t i = 0; i < w->operations; ++i) {
    for (int j = 0; j < ARGUMENTS; ++j)
      addresses[j] = live(below(count, &w->seed));
    failed |= __tgt_target_mapper(NULL, 0, &region, ARGUMENTS, addresses, addresses, sizes, types, NULL, NULL);
  }
  if (failed)
    fail("a region was not launched");
}

// Enter and exit of a fresh struct, with a pointer in it to something that is mapped.
static void attach(struct worker *w) {
  int64_t sizes[2] = {SIZE, SIZE};
  int64_t to[2] = {TO, MEMBER_OF_FIRST | PTR_AND_OBJ | TO}, from[2] = {FROM, MEMBER_OF_FIRST | PTR_AND_OBJ | FROM};
  for (size_t i = 0; i < w->operations; ++i) {
    void *record = own(w, i), *target = live(below(count, &w->seed));
    memcpy(record, &target, sizeof target);
    void *bases[2] = {record, record}, *begins[2] = {record, target};
    enter(2, bases, begins, sizes, to);
    leave(2, bases, begins, sizes, from);
    if (memcmp(record, &target, sizeof target) != 0)
      fail("a pointer was not restored");
  }
}

static const struct scenario {
  const char *name;
  void (*run)(struct worker *);
} scenarios[] = {{"new", fresh},       {"between", between}, {"reuse", reuse},
                 {"present", present}, {"launch", launch},   {"attach", attach}};

// All of a thread's operations; instructions are counted in here, so it must stay a function with this name.
__attribute__((noinline)) void operate(struct worker *w) { scenarios[(int)w->scenario].run(w); }

// Where the process may run.
static cpu_set_t processors;

// Gives each of several threads a processor, in turn: where the system puts new ones, and when it moves them, is not what is
// measured.
static void keep_on_processor(size_t number) {
  size_t left = number % CPU_COUNT(&processors);
  for (int processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(processor, &processors) && left-- == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processor, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
}

// Until all threads run: a piece may be shorter than it takes to wake one up.
static void wait_for_others(atomic_size_t *missing) {
  atomic_fetch_sub(missing, 1);
  for (int asked = 0; atomic_load(missing) > 0; ++asked)
    if (asked > 1000)
      sched_yield();
}

static void *work(void *argument) {
  struct worker *w = argument;
  if (w->threads > 1)
    keep_on_processor(w->number);
  wait_for_others(w->missing);
  uint64_t cpu = now(CLOCK_THREAD_CPUTIME_ID);
  w->start = now(CLOCK_MONOTONIC);
  operate(w);
  w->end = now(CLOCK_MONOTONIC);
  w->cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
  return NULL;
}

// Whether all is mapped once that was at first, and nothing else, as far as a few tell.
static void check(size_t threads, uint64_t seed) {
  for (size_t i = 0; i < threads * OWN; ++i)
    if (omp_target_is_present(&own_blocks[i], 0))
      fail("a fresh mapping is left");
  for (int i = 0; i < 100; ++i) {
    block *mapped = live(below(count, &seed));
    if (omp_target_is_present(mapped + 1, 0))
      fail("a mapping between others is left");
    leave_one(mapped);
    if (omp_target_is_present(mapped, 0))
      fail("a mapping has been counted and not counted out");
    enter_one(mapped);
  }
}

static void piece(size_t scenario, size_t threads, size_t operations, uint64_t seed) {
  static struct worker workers[MAX_THREADS];
  pthread_t ids[MAX_THREADS];
  atomic_size_t missing = threads;
  for (size_t i = 0; i < threads; ++i) {
    uint64_t own_seed = seed * MAX_THREADS + i + 1;
    for (int j = 0; j < 8; ++j) // neighbouring seeds begin alike
      next(&own_seed);
    workers[i] = (struct worker){.scenario = scenario,
                                 .operations = operations,
                                 .seed = own_seed,
                                 .number = i,
                                 .threads = threads,
                                 .missing = &missing};
  }
  for (size_t i = 1; i < threads; ++i)
    if (pthread_create(&ids[i], NULL, work, &workers[i]) != 0)
      fail("cannot start a thread");
  work(&workers[0]);
  uint64_t start = workers[0].start, end = workers[0].end, cpu = workers[0].cpu;
  for (size_t i = 1; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    start = workers[i].start < start ? workers[i].start : start;
    end = workers[i].end > end ? workers[i].end : end;
    cpu += workers[i].cpu;
  }
  sched_setaffinity(0, sizeof processors, &processors);
  check(threads, workers[0].seed);
  printf("%llu %llu\n", (unsigned long long)(end - start), (unsigned long long)cpu);
  fflush(stdout);
}

// Maps everything, in an order that is not that of the addresses.
static void fill(void) {
  uint32_t *order = pages(count * sizeof *order);
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i < count; ++i) {
    size_t j = below(i + 1, &state);
    order[i] = order[j];
    order[j] = i;
  }
  // The first use of the device is not the mappings'.
  enter_one(own_blocks);
  leave_one(own_blocks);
  long before = memory("VmRSS:");
  uint64_t start = now(CLOCK_MONOTONIC);
  for (size_t i = 0; i < count; ++i)
    enter_one(live(order[i]));
  uint64_t end = now(CLOCK_MONOTONIC);
  printf("ready %llu %ld\n", (unsigned long long)(end - start), memory("VmHWM:") - before);
  fflush(stdout);
  munmap(order, count * sizeof *order);
}

int main(int arguments, char **argument) {
  count = arguments == 2 ? strtoul(argument[1], NULL, 10) : 0;
  if (count == 0 || count > UINT32_MAX)
    fail("usage: bench COUNT");
  if (sched_getaffinity(0, sizeof processors, &processors) != 0)
    fail("cannot tell the processors");
  blocks = pages((2 * count + MAX_THREADS * OWN) * sizeof *blocks);
  own_blocks = blocks + 2 * count;

  struct offload_entry entry = {&region, "region", 0, 0, 0};
  struct device_image image = {IMAGE, IMAGE + sizeof IMAGE, &entry, &entry + 1};
  struct bin_desc program = {1, &image, &entry, &entry + 1};
  __tgt_register_lib(&program);
  fill();

  char line[256], name[16];
  size_t threads, operations;
  unsigned long long seed;
  while (fgets(line, sizeof line, stdin)) {
    size_t scenario = sizeof scenarios / sizeof *scenarios;
    if (sscanf(line, "%15s %zu %zu %llu", name, &threads, &operations, &seed) == 4)
      for (scenario = 0; scenario < sizeof scenarios / sizeof *scenarios; ++scenario)
        if (strcmp(name, scenarios[scenario].name) == 0)
          break;
    if (scenario == sizeof scenarios / sizeof *scenarios || threads < 1 || threads > MAX_THREADS)
      fail("expected SCENARIO THREADS OPERATIONS SEED");
    piece(scenario, threads, operations, seed);
  }
  fflush(stdout);
  _exit(0); // taking the mappings down would take as long as making them
}
