//===- omptarget/requests.h - What Rust is asked for ------------*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rust's requests, in its layout: it reads them where C++ has written them.
//
//===----------------------------------------------------------------------===//

#ifndef OMPRS_REQUESTS_H
#define OMPRS_REQUESTS_H

#include <cstdint>

namespace omprs {

/// A map clause on entry to a region: the arguments of getTargetPointer.
struct BeginRequest {
  const void *HstPtrBegin;
  int64_t Size;
  const void *HstPtrBase;
  const void *HstPtrName;
  bool HasHoldModifier, IsImplicit, UpdateRefCount, HasCloseModifier, HasPresentModifier, IsUnified;
};

/// A look-up on exit from a region or inside it: the arguments of the long getTgtPtrBegin.
struct EndRequest {
  const void *HstPtrBegin;
  int64_t Size;
  bool UseHoldRefCount, UpdateRefCount, MustContain, ForceDelete, IsUnified;
};

} // namespace omprs

#endif // OMPRS_REQUESTS_H
