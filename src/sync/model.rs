//! The locks of a model checker, with the methods of `parking_lot` that [`super::mutex`] uses.

#[cfg(feature = "loom")]
use loom::sync as checker;
#[cfg(feature = "shuttle")]
use shuttle::sync as checker;

use std::ops::{Deref, DerefMut};

/// A model checker reports a panic as the failure that it is; a poisoned lock is one that comes after it.
const POISONED: &str = "a thread of the model has panicked";

#[derive(Debug)]
pub struct Mutex<T>(checker::Mutex<T>);

/// None only inside [`Condvar::wait`].
#[derive(Debug)]
pub struct MutexGuard<'m, T>(Option<checker::MutexGuard<'m, T>>);

#[derive(Debug)]
pub struct Condvar(checker::Condvar);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(checker::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(POISONED)))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISONED)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("waits")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("waits")
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self(checker::Condvar::new())
    }
}

impl Condvar {
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().expect("waits");
        guard.0 = Some(self.0.wait(inner).expect(POISONED));
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
