//! A CUDA driver on the CPU: a `libcuda.so` for tests of OpenMP offload where there is no GPU.
//!
//! It implements the driver functions that LLVM 14's CUDA plugin calls, and those that the Rust plugin calls. Streams
//! are threads, device memory is host memory, and kernels are real: an x86-64 device image that `omptarget retarget`
//! has marked as a GPU's is loaded into the process and its entry points run. What CUDA documents as an error is one
//! here, even where a real driver is lenient.
//!
//! # Switches
//!
//! Environment variables, read at the first call. An unknown `EMU_` variable or value is an error, and then every
//! call answers 999.
//!
//! | variable | value | meaning |
//! | --- | --- | --- |
//! | `EMU_DEVICES` | number, 1 | how many devices there are; with 0, `cuInit` answers 100 |
//! | `EMU_MEMORY` | bytes, 8589934592 | memory of each device; what does not fit is answered with 2 |
//! | `EMU_DELAY_US` | microseconds, 0 | one in five commands of a stream, at random, starts so much later |
//! | `EMU_SEED` | number, 0 | where the random delays start; a stream's delays depend on it and on the stream's number |
//! | `EMU_TRACE` | file | every call, a JSON object a line |
//! | `EMU_FAIL` | `call:n:code,...` | the n-th call of that name is not done and answers `code`; `kernel:n:code` breaks the run of the n-th kernel instead of its launch |
//! | `EMU_POISON` | 1 | new memory is filled with 0xa5, freed memory with 0x5a |
//! | `EMU_CHECK` | 1 | a block that is freed while it is an argument of a queued or running kernel is reported |
//! | `EMU_CONTEXT` | `handle`, `strict` | whether calls with a handle that says the context need a current one too, see [`api::Needs`] |
//! | `EMU_ACCOUNT` | 1, `strict` | at exit and on abort, one line that counts what was never released; with `strict`, a good exit code becomes 97 |
//! | `EMU_GONE` | 1 | from the end of `main` on the driver is gone: calls answer 4 |
//!
//! `CUDA_VISIBLE_DEVICES` limits the devices as it does for a real driver.
//!
//! A code after which CUDA asks to end the process, such as 700 or 719, stays with the current context, also when
//! `EMU_FAIL` has brought it up.
//!
//! # Map
//!
//! [`api`] has the exported functions and what each needs; [`driver`] the tables behind them; [`context`], [`stream`],
//! [`event`], [`memory`], [`module`] and [`launch`] what they do; [`image`] and [`tag`] look device images through;
//! [`env`](mod@env), [`trace`] and [`account`] are the switches.

pub mod account;
pub mod api;
pub mod code;
pub mod context;
pub mod driver;
pub mod env;
pub mod event;
pub mod handle;
pub mod image;
pub mod launch;
pub mod memory;
pub mod module;
pub mod stream;
pub mod tag;
pub mod trace;

/// Says something to a person, in one line.
fn say(text: &str) {
    use std::io::Write;
    // Where stderr is closed there is nobody to tell.
    let _ = std::io::stderr().write_all(format!("emulator: {text}\n").as_bytes());
}
