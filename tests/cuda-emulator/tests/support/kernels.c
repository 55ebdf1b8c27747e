/* The device code of the emulator's tests, compiled into a shared object and tagged as a device image. */
int answer = 42;
__attribute__((used)) static const double local_constant = 1.5;
static int constructed;
int numbers[4] = {1, 2, 3, 4};

__attribute__((constructor)) static void construct(void) { constructed = 7; }

/* Waits until the host opens the gate, then adds. */
void gated_add(int *gate, int *to, long value) {
  while (!__atomic_load_n(gate, __ATOMIC_ACQUIRE)) {
  }
  *to += value;
}

void add(int *to, long value) { *to += value; }

void store_constructed(int *to) { *to = constructed + (int)local_constant; }

void nothing(void) {}
