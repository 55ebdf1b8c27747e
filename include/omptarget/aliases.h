//===- omptarget/aliases.h - Names that the bridge needs --------*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bridge generator knows neither `void` nor names with two underscores.
//
//===----------------------------------------------------------------------===//

#ifndef OMPRS_ALIASES_H
#define OMPRS_ALIASES_H

struct __tgt_async_info;

namespace omprs {
using Void = void;
using AsyncInfo = ::__tgt_async_info;
// Rust's types, which C++ has behind pointers only.
struct Device;
struct Entry;
} // namespace omprs

#endif // OMPRS_ALIASES_H
