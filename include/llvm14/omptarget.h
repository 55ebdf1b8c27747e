//===- llvm14/omptarget.h - A call's own, for LLVM 14 -----------*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM 14's omptarget.h with our AsyncInfoTy in place of LLVM's, which takes memory from the system twice in each call
// from a program, for pointers of which most calls have none or few.
//
//===----------------------------------------------------------------------===//

#ifndef OMPRS_LLVM14_OMPTARGET_H
#define OMPRS_LLVM14_OMPTARGET_H

#ifdef _OMPTARGET_H_
#error "LLVM's omptarget.h has been read before omptarget-rs's: put include/llvm14 first in the search path."
#endif

// LLVM's class gets another name, under which nothing uses it.
#define AsyncInfoTy LLVMAsyncInfoTy
#include_next <omptarget.h>
#undef AsyncInfoTy

#include <array>
#include <list>

/// Pointers that stay where they are as more of them come. The first few are in here.
class LocationsTy {
  std::array<void *, 4> Few;
  size_t Count = 0;
  std::list<void *> More;

public:
  void push_back(void *Pointer) {
    if (Count < Few.size())
      Few[Count++] = Pointer;
    else
      More.push_back(Pointer);
  }
  void *&back() { return More.empty() ? Few[Count - 1] : More.back(); }
};

/// What one call from a program has issued, and what has to live as long.
class AsyncInfoTy {
  // The members of these names are LLVM's functions' own.
  LocationsTy BufferLocations;
  __tgt_async_info AsyncInfo;
  DeviceTy &Device;

public:
  AsyncInfoTy(DeviceTy &Device) : Device(Device) {}
  ~AsyncInfoTy() { synchronize(); }

  operator __tgt_async_info *() { return &AsyncInfo; }

  /// Waits for what was issued. Answers OFFLOAD_SUCCESS or OFFLOAD_FAIL.
  int synchronize();

  /// A pointer, null at first, that lives as long as this object.
  void *&getVoidPtrLocation();
};

#endif // OMPRS_LLVM14_OMPTARGET_H
