// A plugin for tests: it runs x86-64 device images on the host, with queues and events, and fails on request.
//
// Built as libomptarget.rtl.ppc64.so it is the first that LLVM 14's loader asks about an image, so it takes the images
// that the x86_64 plugin would take. Everything is done at once, in the caller's thread: a queue is only a token that
// is made by the first asynchronous call and given up by synchronize. With SYNC_ONLY defined it has the mandatory
// functions alone, like LLVM's own host plugin.
//
//   OMPTARGET_FAIL=<function>[:n]  makes the n-th (first) call of __tgt_rtl_<function> fail
//   OMPTARGET_TRACE=<file>         appends one line a call: function, device, arguments, result
//
// What a runtime must never do (free what is not allocated, use an event that does not exist, a foreign queue ...)
// fails too, after a line on stderr that begins with "failing plugin: misuse".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, FAIL = ~0, DEVICES = 2, MAX_ARGUMENTS = 16 };

// The structures that the runtime and its plugins share.

typedef struct {
  void *addr;
  char *name;
  size_t size;
  int32_t flags;
  int32_t reserved;
} __tgt_offload_entry;

typedef struct {
  void *ImageStart;
  void *ImageEnd;
  __tgt_offload_entry *EntriesBegin;
  __tgt_offload_entry *EntriesEnd;
} __tgt_device_image;

typedef struct {
  __tgt_offload_entry *EntriesBegin;
  __tgt_offload_entry *EntriesEnd;
} __tgt_target_table;

typedef struct {
  void *Queue;
} __tgt_async_info;

// Trace and failures

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// Append a line to the trace: the function and what the format says.
__attribute__((format(printf, 2, 3))) static void trace(const char *function, const char *format, ...) {
  const char *path = getenv("OMPTARGET_TRACE");
  if (!path)
    return;
  char line[256];
  int length = snprintf(line, sizeof line, "%s ", function);
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(line + length, sizeof line - length - 1, format, arguments);
  va_end(arguments);
  line[length++] = '\n';
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, line, length) != length) {
    fprintf(stderr, "failing plugin: cannot write the trace %s\n", path);
    abort();
  }
  close(fd);
}

// Whether this call of the function is the one that OMPTARGET_FAIL names. To be asked once a call.
static bool fails(const char *function) {
  static int calls;
  const char *request = getenv("OMPTARGET_FAIL");
  if (!request)
    return false;
  size_t length = strcspn(request, ":");
  if (strlen(function) != length || strncmp(function, request, length) != 0)
    return false;
  int wanted = request[length] == ':' ? atoi(request + length + 1) : 1;
  pthread_mutex_lock(&lock);
  bool now = ++calls == wanted;
  pthread_mutex_unlock(&lock);
  return now;
}

static const char *outcome(int32_t code) { return code == SUCCESS ? "ok" : "failed"; }

// Things that live: device memory, events, queues

typedef enum { MEMORY, EVENT, QUEUE } kind;

typedef struct thing {
  _Alignas(max_align_t) struct thing *next; // so that what follows the header is aligned for anything
  kind kind;
  int32_t device;
  size_t size;
} thing;

static thing *things;
static const char *const kind_names[] = {"memory", "event", "queue"};

// Whole pages for a thing and its bytes.
static size_t pages(size_t size) { return (sizeof(thing) + size + 4095) & ~(size_t)4095; }

// What the runtime gets is the address behind the header. Device memory has pages of its own, see unmake.
static void *make(kind kind, int32_t device, size_t size) {
  thing *t = kind == MEMORY
                 ? mmap(NULL, pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                 : malloc(sizeof *t + size);
  if (!t || t == MAP_FAILED)
    return NULL;
  *t = (thing){.kind = kind, .device = device, .size = size};
  pthread_mutex_lock(&lock);
  t->next = things;
  things = t;
  pthread_mutex_unlock(&lock);
  return t + 1;
}

// Whether the thing lives, and belongs to the device. If not, the misuse is reported.
static bool lives(const char *function, kind kind, int32_t device, void *handle) {
  pthread_mutex_lock(&lock);
  thing *t = things;
  while (t && (t + 1 != handle || t->kind != kind || t->device != device))
    t = t->next;
  pthread_mutex_unlock(&lock);
  if (!t)
    fprintf(stderr, "failing plugin: misuse: __tgt_rtl_%s gets %s %p, which device %d does not have\n", function,
            kind_names[kind], handle, device);
  return t != NULL;
}

// Give up a thing that lives. Freed device memory is never used again, and a touch of it ends the program.
static void unmake(void *handle) {
  pthread_mutex_lock(&lock);
  thing **place = &things;
  while (*place && *place + 1 != handle)
    place = &(*place)->next;
  thing *t = *place;
  if (t)
    *place = t->next;
  pthread_mutex_unlock(&lock);
  if (!t)
    return;
  if (t->kind != MEMORY) {
    free(t);
  } else if (mprotect(t, pages(t->size), PROT_NONE) != 0) {
    perror("failing plugin: mprotect");
    abort();
  }
}

// Whether the device number is one of ours.
static bool known(const char *function, int32_t device) {
  if (device >= 0 && device < DEVICES)
    return true;
  fprintf(stderr, "failing plugin: misuse: __tgt_rtl_%s gets device %d\n", function, device);
  return false;
}

// The device

int32_t __tgt_rtl_number_of_devices(void) {
  int32_t count = fails("number_of_devices") ? 0 : DEVICES;
  trace("number_of_devices", "%d", count);
  return count;
}

int32_t __tgt_rtl_is_valid_binary(__tgt_device_image *image) {
  const Elf64_Ehdr *elf = image->ImageStart;
  bool valid = (size_t)((char *)image->ImageEnd - (char *)image->ImageStart) >= sizeof *elf &&
               memcmp(elf->e_ident, ELFMAG, SELFMAG) == 0 && elf->e_machine == EM_X86_64 && !fails("is_valid_binary");
  trace("is_valid_binary", "%d", valid);
  return valid;
}

int32_t __tgt_rtl_init_device(int32_t device) {
  int32_t code = known("init_device", device) && !fails("init_device") ? SUCCESS : FAIL;
  trace("init_device", "%d %s", device, outcome(code));
  return code;
}

// Where the linker put the image's entry table, as an offset from its load address; 0 if it has none.
static size_t entries_offset(const char *image) {
  const Elf64_Ehdr *elf = (const Elf64_Ehdr *)image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + elf->e_shoff);
  const char *names = image + sections[elf->e_shstrndx].sh_offset;
  for (int i = 0; i < elf->e_shnum; ++i)
    if (strcmp(names + sections[i].sh_name, "omp_offloading_entries") == 0)
      return sections[i].sh_addr;
  return 0;
}

// Load the image as a shared object of its own, so that each device has its own globals.
static struct link_map *load(const __tgt_device_image *image) {
  size_t size = (char *)image->ImageEnd - (char *)image->ImageStart;
  int fd = memfd_create("device image", 0);
  if (fd < 0 || write(fd, image->ImageStart, size) != (ssize_t)size)
    return NULL;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  struct link_map *library = dlopen(path, RTLD_LAZY); // the file stays open: its number is the library's name
  if (!library)
    fprintf(stderr, "failing plugin: cannot load the device image: %s\n", dlerror());
  return library;
}

__tgt_target_table *__tgt_rtl_load_binary(int32_t device, __tgt_device_image *image) {
  __tgt_target_table *table = NULL;
  if (known("load_binary", device) && !fails("load_binary")) {
    struct link_map *library = load(image);
    size_t offset = entries_offset(image->ImageStart);
    if (library && offset) {
      table = malloc(sizeof *table);
      table->EntriesBegin = (__tgt_offload_entry *)(library->l_addr + offset);
      table->EntriesEnd = table->EntriesBegin + (image->EntriesEnd - image->EntriesBegin);
    }
  }
  trace("load_binary", "%d %s", device, table ? "ok" : "failed");
  return table;
}

void *__tgt_rtl_data_alloc(int32_t device, int64_t size, void *host, int32_t kind) {
  (void)host;
  (void)kind;
  void *memory = NULL;
  // Beyond this no machine has it, and the header's size could not be added.
  if (known("data_alloc", device) && !fails("data_alloc") && size > 0 && size < INT64_MAX / 2)
    memory = make(MEMORY, device, size);
  trace("data_alloc", "%d size=%lld %s %p", device, (long long)size, memory ? "ok" : "failed", memory);
  return memory;
}

int32_t __tgt_rtl_data_delete(int32_t device, void *target) {
  int32_t code = FAIL;
  if (known("data_delete", device) && !fails("data_delete") && lives("data_delete", MEMORY, device, target)) {
    unmake(target);
    code = SUCCESS;
  }
  trace("data_delete", "%d %p %s", device, target, outcome(code));
  return code;
}

// Copies and launches. The synchronous and the asynchronous function of a pair differ in the queue only.

static int32_t copy(const char *function, int32_t device, void *to, const void *from, int64_t size) {
  int32_t code = FAIL;
  if (known(function, device) && size >= 0 && !fails(function)) {
    memcpy(to, from, size);
    code = SUCCESS;
  }
  trace(function, "%d size=%lld %s", device, (long long)size, outcome(code));
  return code;
}

static int32_t launch(const char *function, int32_t device, void *entry, void **arguments, ptrdiff_t *offsets,
                      int32_t count) {
  int32_t code = FAIL;
  if (count > MAX_ARGUMENTS)
    fprintf(stderr, "failing plugin: a kernel with %d arguments, %d at most\n", count, MAX_ARGUMENTS);
  else if (known(function, device) && !fails(function)) {
    void *a[MAX_ARGUMENTS] = {NULL};
    for (int32_t i = 0; i < count; ++i)
      a[i] = (char *)arguments[i] + offsets[i];
    // By this machine's calling convention a function does not mind arguments that it does not take.
    void (*kernel)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                   void *, void *, void *, void *);
    *(void **)&kernel = entry;
    kernel(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
    code = SUCCESS;
  }
  trace(function, "%d arguments=%d %s", device, count, outcome(code));
  return code;
}

int32_t __tgt_rtl_data_submit(int32_t device, void *target, void *host, int64_t size) {
  return copy("data_submit", device, target, host, size);
}

int32_t __tgt_rtl_data_retrieve(int32_t device, void *host, void *target, int64_t size) {
  return copy("data_retrieve", device, host, target, size);
}

int32_t __tgt_rtl_run_target_region(int32_t device, void *entry, void **arguments, ptrdiff_t *offsets, int32_t count) {
  return launch("run_target_region", device, entry, arguments, offsets, count);
}

int32_t __tgt_rtl_run_target_team_region(int32_t device, void *entry, void **arguments, ptrdiff_t *offsets,
                                         int32_t count, int32_t teams, int32_t limit, uint64_t trip_count) {
  (void)teams;
  (void)limit;
  (void)trip_count;
  return launch("run_target_team_region", device, entry, arguments, offsets, count);
}

#ifndef SYNC_ONLY

// The call's queue, made if it has none yet; false after a misuse.
static bool enqueue(const char *function, int32_t device, __tgt_async_info *async) {
  if (!known(function, device))
    return false;
  if (!async->Queue)
    async->Queue = make(QUEUE, device, 1);
  return lives(function, QUEUE, device, async->Queue);
}

int32_t __tgt_rtl_data_submit_async(int32_t device, void *target, void *host, int64_t size, __tgt_async_info *async) {
  if (!enqueue("data_submit_async", device, async))
    return FAIL;
  return copy("data_submit_async", device, target, host, size);
}

int32_t __tgt_rtl_data_retrieve_async(int32_t device, void *host, void *target, int64_t size, __tgt_async_info *async) {
  if (!enqueue("data_retrieve_async", device, async))
    return FAIL;
  return copy("data_retrieve_async", device, host, target, size);
}

int32_t __tgt_rtl_run_target_region_async(int32_t device, void *entry, void **arguments, ptrdiff_t *offsets,
                                          int32_t count, __tgt_async_info *async) {
  if (!enqueue("run_target_region_async", device, async))
    return FAIL;
  return launch("run_target_region_async", device, entry, arguments, offsets, count);
}

int32_t __tgt_rtl_run_target_team_region_async(int32_t device, void *entry, void **arguments, ptrdiff_t *offsets,
                                               int32_t count, int32_t teams, int32_t limit, uint64_t trip_count,
                                               __tgt_async_info *async) {
  (void)teams;
  (void)limit;
  (void)trip_count;
  if (!enqueue("run_target_team_region_async", device, async))
    return FAIL;
  return launch("run_target_team_region_async", device, entry, arguments, offsets, count);
}

int32_t __tgt_rtl_is_data_exchangable(int32_t from, int32_t to) {
  bool can = known("is_data_exchangable", from) && known("is_data_exchangable", to) && !fails("is_data_exchangable");
  trace("is_data_exchangable", "%d to=%d %d", from, to, can);
  return can;
}

int32_t __tgt_rtl_data_exchange(int32_t from, void *source, int32_t to, void *target, int64_t size) {
  return known("data_exchange", to) ? copy("data_exchange", from, target, source, size) : FAIL;
}

int32_t __tgt_rtl_data_exchange_async(int32_t from, void *source, int32_t to, void *target, int64_t size,
                                      __tgt_async_info *async) {
  if (!known("data_exchange_async", to) || !enqueue("data_exchange_async", from, async))
    return FAIL;
  return copy("data_exchange_async", from, target, source, size);
}

// A failed synchronize leaves the queue to the caller, as a device that has gone wrong would.
int32_t __tgt_rtl_synchronize(int32_t device, __tgt_async_info *async) {
  int32_t code = FAIL;
  if (known("synchronize", device) && !fails("synchronize") && lives("synchronize", QUEUE, device, async->Queue)) {
    unmake(async->Queue);
    async->Queue = NULL;
    code = SUCCESS;
  }
  trace("synchronize", "%d %s", device, outcome(code));
  return code;
}

int32_t __tgt_rtl_create_event(int32_t device, void **event) {
  int32_t code = FAIL;
  if (known("create_event", device) && !fails("create_event")) {
    *event = make(EVENT, device, 1);
    code = SUCCESS;
  }
  trace("create_event", "%d %s", device, outcome(code));
  return code;
}

// Record, wait for, or synchronize with an event: with nothing left to wait for, all that matters is that it exists.
static int32_t use_event(const char *function, int32_t device, void *event) {
  int32_t code = known(function, device) && !fails(function) && lives(function, EVENT, device, event) ? SUCCESS : FAIL;
  trace(function, "%d %s", device, outcome(code));
  return code;
}

int32_t __tgt_rtl_record_event(int32_t device, void *event, __tgt_async_info *async) {
  return enqueue("record_event", device, async) ? use_event("record_event", device, event) : FAIL;
}

int32_t __tgt_rtl_wait_event(int32_t device, void *event, __tgt_async_info *async) {
  return enqueue("wait_event", device, async) ? use_event("wait_event", device, event) : FAIL;
}

int32_t __tgt_rtl_sync_event(int32_t device, void *event) { return use_event("sync_event", device, event); }

int32_t __tgt_rtl_destroy_event(int32_t device, void *event) {
  int32_t code = use_event("destroy_event", device, event);
  if (code == SUCCESS)
    unmake(event);
  return code;
}

int64_t __tgt_rtl_init_requires(int64_t flags) {
  trace("init_requires", "%lld", (long long)flags);
  return flags;
}

void __tgt_rtl_print_device_info(int32_t device) {
  trace("print_device_info", "%d", device);
  printf("failing plugin, device %d\n", device);
}

void __tgt_rtl_set_info_flag(uint32_t level) { trace("set_info_flag", "%u", level); }

#endif // SYNC_ONLY

// The last line of a trace: what the runtime has not given back. A program that aborts does not get here.
__attribute__((destructor)) static void finish(void) {
  int left[3] = {0};
  for (thing *t = things; t; t = t->next)
    left[t->kind]++;
  trace("end", "memory=%d events=%d queues=%d", left[MEMORY], left[EVENT], left[QUEUE]);
}
