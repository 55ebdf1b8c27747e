//! LLVM's CUDA plugin for libomptarget, in Rust.
//!
//! ```text
//!  libomptarget ──▶ exports ──▶ plugin ──▶ device ──▶ memory, pool, module, launch, info
//!                                   └────────▶ driver ──▶ libcuda.so
//! ```
//!
//! The same functions, messages and choices as LLVM 14's; what is different on purpose stands in
//! `tests/DIFFERENCES.md`. [`driver`] is the only user of cudarc, [`exports`] has every exported function.

pub mod device;
pub mod driver;
pub mod env;
pub mod exports;
pub mod info;
pub mod launch;
pub mod memory;
pub mod module;
pub mod plugin;
pub mod pool;
pub mod report;
