//! A mutex with a rank, whose lock C++ may also take and release by hand.

use super::rank::{self, Rank};
use super::raw;
#[cfg(not(model))]
use parking_lot::lock_api::GuardNoSend;
#[cfg(not(model))]
use std::mem::{ManuallyDrop, forget};
use std::ops::{Deref, DerefMut};

/// A mutual exclusion lock around `T`, at a fixed place in the lock order.
#[derive(Debug)]
pub struct Mutex<T> {
    inner: raw::Mutex<T>,
    rank: Rank,
}

impl<T> Mutex<T> {
    /// A free lock of `rank` around `value`.
    pub fn new(rank: Rank, value: T) -> Self {
        Self { inner: raw::Mutex::new(value), rank }
    }

    /// Waits until the lock is free and takes it.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        rank::take(self.rank, true);
        Guard { inner: self.inner.lock(), rank: self.rank }
    }

    /// Takes the lock if nobody has it.
    #[track_caller]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let inner = self.inner.try_lock()?;
        rank::take(self.rank, true);
        Some(Guard { inner, rank: self.rank })
    }

    /// Takes the lock of a value that no other thread can have seen, whatever locks are held.
    ///
    /// # Panics
    ///
    /// When the lock is held after all.
    #[track_caller]
    pub fn lock_unshared(&self) -> Guard<'_, T> {
        rank::take(self.rank, false);
        let inner = self.inner.try_lock().expect("nobody else has seen this lock");
        Guard { inner, rank: self.rank }
    }

    pub(super) const fn rank(&self) -> Rank {
        self.rank
    }

    /// The value, when nobody else can reach the lock any more.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

/// C++ takes and releases the lock by hand.
#[cfg(not(model))]
impl<T> Mutex<T> {
    /// Takes the lock for C++, which lets it go by [`unlock_raw`](Self::unlock_raw).
    #[track_caller]
    pub fn lock_raw(&self) {
        forget(self.lock());
    }

    /// Lets go of a lock taken by [`lock_raw`](Self::lock_raw).
    ///
    /// # Safety
    ///
    /// This thread holds the lock through `lock_raw`, and no guard from
    /// [`assume_locked`](Self::assume_locked) is in use.
    pub unsafe fn unlock_raw(&self) {
        rank::drop(self.rank);
        // SAFETY: this thread holds the lock, by this function's contract.
        unsafe { self.inner.force_unlock(GuardNoSend::new()) };
    }

    /// The value, while this thread holds the lock through [`lock_raw`](Self::lock_raw).
    ///
    /// # Safety
    ///
    /// This thread holds the lock through `lock_raw` for as long as the result is used, and uses one such result at a
    /// time.
    pub unsafe fn assume_locked(&self) -> impl DerefMut<Target = T> {
        // SAFETY: the lock is held by this function's contract; the guard is never dropped, so it is released once.
        let guard = unsafe { self.inner.make_guard_unchecked(GuardNoSend::new()) };
        Borrowed(ManuallyDrop::new(guard))
    }
}

/// The value of a [`Mutex`] that C++ has locked: access without the release.
#[cfg(not(model))]
struct Borrowed<'m, T>(ManuallyDrop<parking_lot::MutexGuard<'m, T>>);

#[cfg(not(model))]
impl<T> Deref for Borrowed<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(not(model))]
impl<T> DerefMut for Borrowed<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Lets threads wait for a change of what a [`Mutex`] guards.
#[derive(Debug, Default)]
pub struct Condvar(raw::Condvar);

impl Condvar {
    /// Lets go of the lock, waits for a notification, takes the lock again.
    pub fn wait<T>(&self, guard: &mut Guard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub struct Guard<'m, T> {
    inner: raw::MutexGuard<'m, T>,
    rank: Rank,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        rank::drop(self.rank);
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;

    #[test]
    fn raw_lock_excludes_and_gives_the_value() {
        let lock = Mutex::new(Rank::TABLE, 1);
        lock.lock_raw();
        assert!(lock.inner.try_lock().is_none());
        // SAFETY: locked just above, by this thread, and this is the only access.
        *unsafe { lock.assume_locked() } += 1;
        // SAFETY: locked above, and the access has ended.
        unsafe { lock.unlock_raw() };
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    fn the_table_may_be_locked_under_an_entry() {
        let (entry, table) = (Mutex::new(Rank::ENTRY, ()), Mutex::new(Rank::TABLE, ()));
        let _entry = entry.lock();
        let _table = table.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "entry lock at")]
    fn waiting_for_an_entry_under_the_table_stops_a_debug_build() {
        let (entry, table) = (Mutex::new(Rank::ENTRY, ()), Mutex::new(Rank::TABLE, ()));
        let _table = table.lock();
        let _entry = entry.lock();
    }

    #[test]
    fn a_new_entry_may_be_locked_under_the_table() {
        let (entry, table) = (Mutex::new(Rank::ENTRY, ()), Mutex::new(Rank::TABLE, ()));
        let table = table.lock();
        let entry = entry.lock_unshared();
        drop(table);
        drop(entry);
    }
}
