//===- llvm14/Debug.h - LLVM 14's levels, asked for once --------*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM 14's Debug.h with levels that are quick to ask for: each call from a program asks twice, and std::call_once finds
// its thread's variables by way of the loader.
//
//===----------------------------------------------------------------------===//

#ifndef OMPRS_LLVM14_DEBUG_H
#define OMPRS_LLVM14_DEBUG_H

#ifdef _OMPTARGET_DEBUG_H
#error "LLVM's Debug.h has been read before omptarget-rs's: put include/llvm14 first in the search path."
#endif

// LLVM's functions get other names, and are asked once.
#define getInfoLevelInternal LLVMgetInfoLevelInternal
#define getInfoLevel LLVMgetInfoLevel
#define getDebugLevel LLVMgetDebugLevel
#include_next <Debug.h>
#undef getInfoLevelInternal
#undef getInfoLevel
#undef getDebugLevel

/// LIBOMPTARGET_INFO, which a program may change.
inline std::atomic<uint32_t> &getInfoLevelInternal() {
  static std::atomic<uint32_t> &Level = LLVMgetInfoLevelInternal();
  return Level;
}
inline uint32_t getInfoLevel() { return getInfoLevelInternal().load(); }

/// LIBOMPTARGET_DEBUG.
inline uint32_t getDebugLevel() {
  static const uint32_t Level = LLVMgetDebugLevel();
  return Level;
}

#endif // OMPRS_LLVM14_DEBUG_H
