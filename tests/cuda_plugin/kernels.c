/* The device code of these tests, compiled into a shared object and tagged as a device image. */

/* What the plugin tells the device's runtime. */
struct {
  unsigned debug_kind, devices, device, shared_memory;
} omptarget_device_environment;

int counter = 5;

/* Under unified shared memory the plugin puts the host's address here. */
void *linked;

/* OMP_TGT_EXEC_MODE_SPMD */
const signed char add_exec_mode = 2;

void add(int *to, long value) { __atomic_fetch_add(to, (int)value, __ATOMIC_RELAXED); }

/* Without a mode, so a generic one. */
void tell(int *to) { *to = (int)(omptarget_device_environment.devices * 10 + omptarget_device_environment.device); }
