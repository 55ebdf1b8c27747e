// What the bench and its plugin share: structures of libomptarget's, and the image that the plugin takes.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct offload_entry {
  void *address;
  const char *name;
  size_t size; // 0: a kernel
  int32_t flags, reserved;
};

struct device_image {
  const void *start, *end;
  struct offload_entry *entries_begin, *entries_end;
};

struct target_table {
  struct offload_entry *entries_begin, *entries_end;
};

struct async_info {
  void *queue;
};

static const char IMAGE[] = "the bench's image";
