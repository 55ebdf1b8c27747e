//! The `omptarget` command line as a library, so that integration tests can call its parts.

pub mod abi;
pub mod artifact;
pub mod bench;
pub mod build;
pub mod calls;
pub mod core;
pub mod demo;
pub mod doctor;
pub mod emulator;
pub mod gpu;
pub mod install;
pub mod lit;
pub mod llvm;
pub mod logdiff;
pub mod normalise;
pub mod paths;
pub mod plugin;
pub mod process;
pub mod program;
pub mod progress;
pub mod retarget;
pub mod setup;
pub mod stress;
pub mod test;
pub mod totals;
pub mod wrap;

mod apt;

// What the emulated CUDA device asks of an image is written down once, with the device.
#[path = "../../../tests/cuda-emulator/src/tag.rs"]
pub mod tag;
