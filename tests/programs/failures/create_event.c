// The event of a new mapping cannot be created: the construct fails, and what the mapping got is given back.
// stock: keeps the entry and the memory
// env: OMPTARGET_FAIL=create_event
// env: LIBOMPTARGET_INFO=4
// flags: -g
// abort: yes
// leaves: nothing
// stderr: Failed to create event
// stderr: failure of target construct while offloading is mandatory
// not-stderr: Host Ptr
static int a[4];

int main(void) {
#pragma omp target enter data map(to: a)
  return 0;
}
