// A plugin that does nothing, so that what a call costs is what libomptarget costs. It has what CUDA's has: queues,
// events, asynchronous copies and launches. Device memory is the host's own address, moved; nobody ever touches it.
//
// Built as libomptarget.rtl.ppc64.so it is the first that LLVM 14's loader asks about an image. It takes the one of
// bench.c alone.
#include "plugin.h"

enum { SUCCESS = 0 };

// Far from all memory of the program.
static const uintptr_t DISTANCE = (uintptr_t)1 << 45;

// There is one queue and one event.
static char queue, event;

static void enqueue(struct async_info *async) {
  if (!async->queue)
    async->queue = &queue;
}

int32_t __tgt_rtl_number_of_devices(void) { return 1; }

int32_t __tgt_rtl_is_valid_binary(struct device_image *image) { return memcmp(image->start, IMAGE, sizeof IMAGE) == 0; }

int32_t __tgt_rtl_init_device(int32_t device) {
  (void)device;
  return SUCCESS;
}

// The device's entries are the program's own.
struct target_table *__tgt_rtl_load_binary(int32_t device, struct device_image *image) {
  (void)device;
  static struct target_table table;
  table = (struct target_table){image->entries_begin, image->entries_end};
  return &table;
}

void *__tgt_rtl_data_alloc(int32_t device, int64_t size, void *host, int32_t kind) {
  (void)device, (void)size, (void)kind;
  return (void *)((uintptr_t)host + DISTANCE);
}

int32_t __tgt_rtl_data_delete(int32_t device, void *target) {
  (void)device, (void)target;
  return SUCCESS;
}

int32_t __tgt_rtl_data_submit(int32_t device, void *target, void *host, int64_t size) {
  (void)device, (void)target, (void)host, (void)size;
  return SUCCESS;
}

int32_t __tgt_rtl_data_submit_async(int32_t device, void *target, void *host, int64_t size, struct async_info *async) {
  enqueue(async);
  return __tgt_rtl_data_submit(device, target, host, size);
}

int32_t __tgt_rtl_data_retrieve(int32_t device, void *host, void *target, int64_t size) {
  (void)device, (void)host, (void)target, (void)size;
  return SUCCESS;
}

int32_t __tgt_rtl_data_retrieve_async(int32_t device, void *host, void *target, int64_t size,
                                      struct async_info *async) {
  enqueue(async);
  return __tgt_rtl_data_retrieve(device, host, target, size);
}

int32_t __tgt_rtl_run_target_region(int32_t device, void *entry, void **arguments, ptrdiff_t *offsets, int32_t count) {
  (void)device, (void)entry, (void)arguments, (void)offsets, (void)count;
  return SUCCESS;
}

int32_t __tgt_rtl_run_target_region_async(int32_t device, void *entry, void **arguments, ptrdiff_t *offsets,
                                          int32_t count, struct async_info *async) {
  enqueue(async);
  return __tgt_rtl_run_target_region(device, entry, arguments, offsets, count);
}

int32_t __tgt_rtl_run_target_team_region(int32_t device, void *entry, void **arguments, ptrdiff_t *offsets,
                                         int32_t count, int32_t teams, int32_t limit, uint64_t trip_count) {
  (void)teams, (void)limit, (void)trip_count;
  return __tgt_rtl_run_target_region(device, entry, arguments, offsets, count);
}

int32_t __tgt_rtl_run_target_team_region_async(int32_t device, void *entry, void **arguments, ptrdiff_t *offsets,
                                               int32_t count, int32_t teams, int32_t limit, uint64_t trip_count,
                                               struct async_info *async) {
  (void)teams, (void)limit, (void)trip_count;
  return __tgt_rtl_run_target_region_async(device, entry, arguments, offsets, count, async);
}

int32_t __tgt_rtl_synchronize(int32_t device, struct async_info *async) {
  (void)device;
  async->queue = NULL;
  return SUCCESS;
}

int32_t __tgt_rtl_create_event(int32_t device, void **made) {
  (void)device;
  *made = &event;
  return SUCCESS;
}

int32_t __tgt_rtl_record_event(int32_t device, void *event, struct async_info *async) {
  (void)device, (void)event;
  enqueue(async);
  return SUCCESS;
}

int32_t __tgt_rtl_wait_event(int32_t device, void *event, struct async_info *async) {
  (void)device, (void)event;
  enqueue(async);
  return SUCCESS;
}

int32_t __tgt_rtl_sync_event(int32_t device, void *event) {
  (void)device, (void)event;
  return SUCCESS;
}

int32_t __tgt_rtl_destroy_event(int32_t device, void *event) {
  (void)device, (void)event;
  return SUCCESS;
}
