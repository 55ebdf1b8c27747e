// The event of a new mapping cannot be recorded: the construct fails, and what the mapping got is given back.
// stock: keeps the entry, the memory and the event
// env: OMPTARGET_FAIL=record_event
// env: LIBOMPTARGET_INFO=4
// flags: -g
// abort: yes
// leaves: nothing
// stderr: Failed to set dependence on event
// stderr: failure of target construct while offloading is mandatory
// not-stderr: Host Ptr
static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
  return 0;
}
