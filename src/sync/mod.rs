//! The only place that names `std::sync`, `parking_lot` and the model checkers that can take their place.
//!
//! Locks have a [`Rank`]: data, checked in debug builds, see [`rank`].

#[cfg(feature = "loom")]
use loom::cell;
#[cfg(not(feature = "loom"))]
mod cell;
#[cfg(model)]
mod model;
mod mutex;
pub mod rank;
mod read_mostly;

#[cfg(model)]
use model as raw;
#[cfg(not(model))]
use parking_lot as raw;

#[cfg(not(model))]
use std::arch::asm;
use std::time::Duration;

pub use mutex::{Condvar, Guard, Mutex};
pub use rank::Rank;
pub use read_mostly::{ENOUGH as ENOUGH_SHARERS, ReadMostly, ShareGuard, Sharers, WriteGuard};
// What statics and numbers need: no protocol hangs on them, and a model checker leaves them alone.
/// A lock that a model checker leaves alone, because no protocol hangs on it. Nothing else is locked while it is held.
pub use parking_lot::Mutex as Unmodelled;
pub use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32 as Counter32, AtomicU64 as Counter, Ordering};
pub use std::sync::{Arc, OnceLock};

#[cfg(feature = "loom")]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(not(model))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};

#[cfg(feature = "loom")]
use loom::thread::yield_now;
#[cfg(feature = "shuttle")]
use shuttle::thread::yield_now;
#[cfg(not(model))]
use std::thread::yield_now;

/// Waits for what another thread does within a few steps, unless it does not run.
#[cold]
pub fn wait_until(mut is_done: impl FnMut() -> bool) {
    let mut asked = 0;
    while !is_done() {
        asked += 1;
        match asked {
            _ if cfg!(model) => yield_now(),
            ..100 => std::hint::spin_loop(),
            100..200 => yield_now(),
            // It may have to run where this thread does, and be of less importance.
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// What a thread has of its own: all zero at its start, and never dropped, as device destructors run when other
/// thread-locals may be gone.
///
/// # Safety
///
/// `T` fits in four words, and is valid when all of it is zero. All callers ask for the same one.
#[cfg(not(model))]
#[inline]
pub unsafe fn on_thread<T, R>(work: impl FnOnce(&T) -> R) -> R {
    unsafe extern "C" {
        /// See cpp/thread.cpp.
        static omprs_thread: std::ffi::c_void;
    }
    const { assert!(size_of::<T>() <= 4 * size_of::<usize>() && align_of::<T>() <= align_of::<usize>()) };
    let words: *const T;
    // SAFETY: what the psABI's initial-exec model does to get the address of a thread-local, and nothing else.
    unsafe {
        asm!(
            "mov {words}, qword ptr fs:[0]",
            "add {words}, qword ptr [rip + {name}@GOTTPOFF]",
            words = out(reg) words,
            name = sym omprs_thread,
            options(pure, nomem, nostack),
        );
    }
    // SAFETY: this thread's own words, as large as a `T`, and valid as one by this function's contract.
    work(unsafe { &*words })
}

/// Declares cells of which each thread has its own, without destructors: device destructors run when thread-locals may
/// be gone. They are used by `NAME.with(|cell| ...)`.
#[cfg(any(model, debug_assertions))]
macro_rules! thread_cells {
    ($($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;)*) => {
        #[cfg(feature = "loom")]
        loom::thread_local! { $($(#[$attribute])* static $name: $type = $value;)* }
        #[cfg(feature = "shuttle")]
        shuttle::thread_local! { $($(#[$attribute])* static $name: $type = const { $value };)* }
        #[cfg(not(model))]
        thread_local! { $($(#[$attribute])* static $name: $type = const { $value };)* }
    };
}
#[cfg(any(model, debug_assertions))]
pub(crate) use thread_cells;
