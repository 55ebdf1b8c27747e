//===- llvm14/interop.h - LLVM 14's interop.h behind our own ----*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM's headers find LLVM's omptarget.h beside them: ours has to be read before.
//
//===----------------------------------------------------------------------===//

#include <omptarget.h>
#include_next <interop.h>
