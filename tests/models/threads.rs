//! Real threads in the place of a model checker's, for the thread sanitizer, with the methods of `std::sync`.
//!
//! The locks are `parking_lot`'s: the sanitizer does not see into those of an uninstrumented standard library.

use std::convert::Infallible;

pub use parking_lot::MutexGuard;
pub use std::sync::atomic::AtomicUsize;
pub use std::thread::{JoinHandle, spawn};

#[derive(Debug)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub fn lock(&self) -> Result<MutexGuard<'_, T>, Infallible> {
        Ok(self.0.lock())
    }
}

#[derive(Debug)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    pub fn wait<'m, T>(&self, mut guard: MutexGuard<'m, T>) -> Result<MutexGuard<'m, T>, Infallible> {
        self.0.wait(&mut guard);
        Ok(guard)
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
