//===- omptarget/handle.h - Handles on Rust's objects -----------*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pieces of the face that are the same for every LLVM version. Free of cxx, so that LLVM's files read no more than
// they must; the shim beside each version's face defines what is not inline.
//
//===----------------------------------------------------------------------===//

#ifndef OMPRS_HANDLE_H
#define OMPRS_HANDLE_H

#include <atomic>
#include <cstdint>
#include <utility>

namespace omprs {

struct Device;
struct Entry;

/// Takes one handle more on \p E, and gives one up. The last one gives the entry's memory and event back to \p D.
void retainEntry(const Entry *E);
void releaseEntry(const Device *D, const Entry *E);

/// A handle on a mapping entry, or none.
///
/// A counted one keeps the entry, its device memory and its event alive, whether the entry is still in its table or not.
/// One that a call got is not counted: the call keeps the entry alive until it has been synchronised. A copy is counted.
class EntryHandle {
  const Entry *E = nullptr;
  const Device *D = nullptr;
  bool IsCounted = false;

public:
  EntryHandle() = default;
  /// Takes over a handle that Rust gave away, which may be null.
  EntryHandle(const Entry *E, const Device *D) : EntryHandle(E, D, E) {}
  /// The same, or one that is not counted.
  EntryHandle(const Entry *E, const Device *D, bool IsCounted) : E(E), D(D), IsCounted(IsCounted) {}
  EntryHandle(const EntryHandle &Other) : E(Other.E), D(Other.D), IsCounted(Other.E) {
    if (IsCounted)
      retainEntry(E);
  }
  EntryHandle(EntryHandle &&Other) noexcept : E(Other.E), D(Other.D), IsCounted(Other.IsCounted) {
    Other.IsCounted = false;
    Other.E = nullptr;
  }
  EntryHandle &operator=(EntryHandle Other) noexcept {
    std::swap(E, Other.E);
    std::swap(D, Other.D);
    std::swap(IsCounted, Other.IsCounted);
    return *this;
  }
  ~EntryHandle() {
    if (IsCounted)
      releaseEntry(D, E);
  }

  const Entry *entry() const { return E; }
  const Device *device() const { return D; }
};

/// A lock that is held for moments. Nothing is called while it is free; whoever waits for it looks again a few times
/// before the thread sleeps.
class Mutex {
  // 0: free, 1: held, 2: held, and a thread may sleep.
  std::atomic<uint32_t> State{0};

  void lockContended();
  void wakeOne();

public:
  Mutex() = default;
  Mutex(const Mutex &) = delete;
  Mutex &operator=(const Mutex &) = delete;

  void lock() {
    uint32_t Free = 0;
    if (!State.compare_exchange_strong(Free, 1, std::memory_order_acquire, std::memory_order_relaxed))
      lockContended();
  }
  void unlock() {
    if (State.exchange(0, std::memory_order_release) == 2)
      wakeOne();
  }
};

/// The lock of a device's mapping table, for `std::lock_guard` and by hand.
class TableMutex {
  const Device *D;

public:
  explicit TableMutex(const Device *D) : D(D) {}
  TableMutex(const TableMutex &) = delete;
  TableMutex &operator=(const TableMutex &) = delete;

  void lock();
  void unlock();
};

} // namespace omprs

#endif // OMPRS_HANDLE_H
