//! The inside of LLVM's libomptarget: mapping table, devices, events.
//!
//! LLVM's own C++ sources, unpatched, are compiled against a face of ours (`include/llvm14/device.h`) in place of
//! LLVM's `device.h`, and call into this crate through a `cxx` bridge.
//!
//! ```text
//!  LLVM's omptarget.cpp, interface.cpp, api.cpp, interop.cpp, rtl.cpp
//!      │ DeviceTy, HostDataToTargetTy, ...
//!  include/llvm14/device.h + cpp/llvm14/device.cpp      C++ face: converts and calls
//!      │
//!  bridge ──▶ device ──▶ mapping ──▶ sync               this crate
//!               │  └───▶ event
//!               └──────▶ plugin_api ──▶ abi ──▶ libomptarget.rtl.*.so
//! ```
//!
//! Dependencies point along the arrows only. [`mapping`] is the heart and has no `unsafe`; [`bridge`] is the only user
//! of cxx; [`report`] is the only place that prints; [`sync`] is the only place that names a lock's implementation.

#[cfg(not(model))]
pub mod bridge;
pub mod device;
pub mod event;
pub mod mapping;
pub mod plugin_api;
pub mod report;
pub mod rules;
pub mod sync;
