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

#include <utility>

namespace omprs {

struct Device;
struct Entry;

/// Takes one handle more on \p E, and gives one up. The last one gives the entry's memory and event back to \p D.
void retainEntry(const Entry *E);
void releaseEntry(const Device *D, const Entry *E);

/// A counted handle on a mapping entry, or none. The entry, its device memory and its event live as long as any
/// handle, whether the entry is still in its table or not.
class EntryHandle {
  const Entry *E = nullptr;
  const Device *D = nullptr;

public:
  EntryHandle() = default;
  /// Takes over a handle that Rust gave away, which may be null.
  EntryHandle(const Entry *E, const Device *D) : E(E), D(D) {}
  EntryHandle(const EntryHandle &Other) : E(Other.E), D(Other.D) {
    if (E)
      retainEntry(E);
  }
  EntryHandle(EntryHandle &&Other) noexcept : E(Other.E), D(Other.D) { Other.E = nullptr; }
  EntryHandle &operator=(EntryHandle Other) noexcept {
    std::swap(E, Other.E);
    std::swap(D, Other.D);
    return *this;
  }
  ~EntryHandle() {
    if (E)
      releaseEntry(D, E);
  }

  const Entry *entry() const { return E; }
  const Device *device() const { return D; }
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
