//===- thread.cpp - What the core knows of a thread -----------------------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stable Rust cannot choose how thread-locals of a shared library are reached, and the usual way is a call into the
// loader at each use, several times in every call of LLVM's. These few bytes are taken from what every thread has from
// its start, of which the loader keeps some for libraries that are opened later. Where they are, src/sync/mod.rs asks.
//
//===----------------------------------------------------------------------===//

/// Four words of the calling thread's own, null at its start.
extern "C" {
__attribute__((visibility("hidden"), tls_model("initial-exec"))) thread_local const void *omprs_thread[4];
}
