//! The CUDA plugin alone on the emulated CUDA device: its library is opened and its functions are called.
//!
//! - `sweep`: each driver call in turn made to fail;
//! - `programs`: the same under whole offload programs;
//! - `images`: damaged device images;
//! - `threads`: memory, streams and events under many threads;
//! - `drivers`: drivers that are not as they should be, and what the plugin does at its end.

mod drivers;
#[path = "../support/emulated.rs"]
mod emulated;
mod harness;
mod images;
mod programs;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod threads;
