// What a launch, an event wait and copies cost on a device, as lines `what<tab>microseconds`. It is compiled for a real
// GPU and, to be tried without one, for the emulated device.
//
//   bench [LARGEST]   the largest copy in bytes, 1 GiB unless said
#include "../programs/check.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// A plugin's queue, as libomptarget hands it over.
struct async_info {
  void *queue;
};

static double start;
static void begin(void) { start = omp_get_wtime(); }
static void end(const char *what, long turns) { printf("%s\t%.2f\n", what, (omp_get_wtime() - start) * 1e6 / turns); }

static void launches(void) {
  enum { TURNS = 1000 };
  for (int timed = 0; timed < 2; ++timed) { // the first time to warm up
    begin();
    for (int i = 0; i < TURNS; ++i) {
#pragma omp target
      {
      }
    }
  }
  end("launch, empty region", TURNS);
  int x[64] = {0};
  begin();
  for (int i = 0; i < TURNS; ++i) {
#pragma omp target teams distribute parallel for map(tofrom : x)
    for (int j = 0; j < 64; ++j)
      x[j] += j;
  }
  end("launch, 64 ints there and back", TURNS);
  for (int j = 0; j < 64; ++j)
    CHECK(x[j] == TURNS * j);
}

// libomptarget has no call for events, so the plugin is asked itself.
static void events(void) {
  enum { TURNS = 1000 };
  void *plugin = dlopen("libomptarget.rtl.cuda.so", RTLD_NOW | RTLD_NOLOAD);
  CHECK(plugin);
  if (!plugin)
    return;
  int32_t (*create)(int32_t, void **) = dlsym(plugin, "__tgt_rtl_create_event");
  int32_t (*record)(int32_t, void *, struct async_info *) = dlsym(plugin, "__tgt_rtl_record_event");
  int32_t (*wait)(int32_t, void *, struct async_info *) = dlsym(plugin, "__tgt_rtl_wait_event");
  int32_t (*sync)(int32_t, void *) = dlsym(plugin, "__tgt_rtl_sync_event");
  int32_t (*destroy)(int32_t, void *) = dlsym(plugin, "__tgt_rtl_destroy_event");
  int32_t (*submit)(int32_t, void *, void *, int64_t, struct async_info *) = dlsym(plugin, "__tgt_rtl_data_submit_async");
  int32_t (*synchronize)(int32_t, struct async_info *) = dlsym(plugin, "__tgt_rtl_synchronize");
  CHECK(create && record && wait && sync && destroy && submit && synchronize);

  int number = 7, device = omp_get_default_device(), failed = 0;
  void *target = omp_target_alloc(sizeof number, device), *event = NULL;
  struct async_info one = {NULL}, other = {NULL};
  // A copy gives each its queue.
  CHECK(!submit(0, target, &number, sizeof number, &one) && !submit(0, target, &number, sizeof number, &other));

  begin();
  for (int i = 0; i < TURNS; ++i)
    failed |= create(0, &event) || destroy(0, event);
  end("event: create, destroy", TURNS);
  CHECK(!create(0, &event));
  begin();
  for (int i = 0; i < TURNS; ++i)
    failed |= record(0, event, &one);
  end("event: record", TURNS);
  begin();
  for (int i = 0; i < TURNS; ++i)
    failed |= wait(0, event, &other);
  end("event: let a queue wait", TURNS);
  begin();
  for (int i = 0; i < TURNS; ++i)
    failed |= record(0, event, &one) || sync(0, event);
  end("event: record, wait on the host", TURNS);
  CHECK(!failed && !synchronize(0, &one) && !synchronize(0, &other) && !destroy(0, event));
  omp_target_free(target, device);
}

static const char *sized(const char *what, size_t size) {
  static char text[64];
  static const char units[][4] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; size >= 1024; size /= 1024)
    unit++;
  snprintf(text, sizeof text, "%s, %zu %s", what, size, units[unit]);
  return text;
}

static void copies(size_t largest) {
  int device = omp_get_default_device(), host = omp_get_initial_device(), failed = 0;
  unsigned char *memory = malloc(largest), *target = omp_target_alloc(largest, device);
  CHECK(memory && target);
  if (!memory || !target)
    return;
  for (size_t size = 8; size <= largest; size *= 8) {
    long turns = size <= 1 << 15 ? 500 : size <= 1 << 24 ? 20 : 3;
    memset(memory, (int)turns, size);
    memory[size - 1] = 42;
    failed |= omp_target_memcpy(target, memory, size, 0, 0, device, host);
    begin();
    for (long i = 0; i < turns; ++i)
      failed |= omp_target_memcpy(target, memory, size, 0, 0, device, host);
    end(sized("copy to the device", size), turns);
    memset(memory, 0, size);
    begin();
    for (long i = 0; i < turns; ++i)
      failed |= omp_target_memcpy(memory, target, size, 0, 0, host, device);
    end(sized("copy back", size), turns);
    CHECK(memory[0] == turns % 256 && memory[size - 1] == 42);
  }
  CHECK(!failed);
  omp_target_free(target, device);
  free(memory);
}

int main(int count, char **arguments) {
  launches();
  events();
  copies(count > 1 ? strtoull(arguments[1], NULL, 10) : (size_t)1 << 30);
  return VERDICT();
}
