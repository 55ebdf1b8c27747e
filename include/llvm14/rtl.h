//===- llvm14/rtl.h - LLVM 14's rtl.h behind our omptarget.h ---*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM's headers find LLVM's omptarget.h beside them: ours has to be read before.
//
//===----------------------------------------------------------------------===//

#include <omptarget.h>
#include_next <rtl.h>
