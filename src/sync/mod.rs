//! The only place that names `std::sync` and `parking_lot`, so that a model checker can take their place.
//!
//! Locks have a [`Rank`]: data, checked in debug builds, see [`rank`].

mod mutex;
pub mod rank;

pub use mutex::{Condvar, Guard, Mutex};
pub use rank::Rank;
pub use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, OnceLock};
