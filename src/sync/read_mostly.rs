//! A lock around what is shared far more often than changed: while nobody changes it, who shares it takes no lock.
//!
//! A sharer says in a place of its own, which is in nobody else's cache, what it shares, and then asks whether sharers may
//! still come. Who wants to change the value takes the lock, says that they may not, and waits for those who have said so.
//! So sharers slow each other down no more than by what they write themselves.
//!
//! Where many change the value, sharers take the lock, too. They may come without it once so many have come one after another
//! that the way through all places, which somebody has to go who changes the value next, is cheap for each of them. This is
//! what Dice and Kogan, *BRAVO: Biased Locking for Reader-Writer Locks* (2019) describe.

use super::cell::{ConstPtr, MutPtr, UnsafeCell};
use super::mutex::{Guard, Mutex};
use super::rank::{self, Rank};
use super::{Arc, AtomicBool, AtomicUsize, Counter, Counter32, Ordering, fence, wait_until};
use crate::rules::{Rule, broken};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Places for sharers. Threads that have the same one use it one at a time, and the others take the lock.
const PLACES: usize = if cfg!(model) { 8 } else { 64 };
/// Sharers that take the lock, with nobody between them who changes the value, before others may come without it.
pub const ENOUGH: u32 = if cfg!(feature = "shuttle") {
    1
} else if cfg!(feature = "loom") {
    // Else the orders of whole programs are too many, see the models for how often that is.
    3
} else {
    16
};

/// Where threads say what they share.
#[derive(Debug)]
pub struct Sharers {
    places: Box<[Place; PLACES]>,
    /// A bit for each place that has ever been used.
    used: Counter,
}

/// What a thread shares: the address of a [`ReadMostly`], or 0.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(AtomicUsize);

impl Default for Sharers {
    fn default() -> Self {
        Self { places: Box::new(std::array::from_fn(|_| Place::default())), used: Counter::new(0) }
    }
}

impl Sharers {
    /// The place of thread `number`, which few others share.
    #[inline]
    fn place(&self, number: u64) -> &Place {
        let at = number as usize % PLACES;
        // Whoever sees the bit does what is done there after it, in one order with that and the fence of who changes the value.
        if self.used.load(Ordering::Acquire) & 1 << at == 0 {
            self.used.fetch_or(1 << at, Ordering::SeqCst);
        }
        &self.places[at]
    }

    fn used(&self) -> impl Iterator<Item = &Place> {
        let used = self.used.load(Ordering::Relaxed);
        self.places.iter().enumerate().filter(move |(at, _)| used & 1 << at != 0).map(|(_, place)| place)
    }
}

/// A value that one thread changes at a time, and any number share.
#[derive(Debug)]
#[repr(C)]
pub struct ReadMostly<T> {
    /// Sharers may come without the lock. Changes under the lock.
    open: AtomicBool,
    /// Sharers that have taken the lock since somebody who changes the value had it; not many more than enough.
    came: Counter32,
    lock: Mutex<()>,
    sharers: Arc<Sharers>,
    value: UnsafeCell<T>,
}

// SAFETY: several threads share the value, for which it is `Sync`; one at a time changes it, for which it is `Send`, as the
// lock and the places see to.
unsafe impl<T: Send + Sync> Sync for ReadMostly<T> {}

impl<T> ReadMostly<T> {
    /// A free lock of `rank` around `value`, whose sharers have places in `sharers`.
    pub fn new(rank: Rank, sharers: Arc<Sharers>, value: T) -> Self {
        Self {
            open: AtomicBool::new(false),
            came: Counter32::new(0),
            lock: Mutex::new(rank, ()),
            sharers,
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is free and nobody shares the value, and takes it.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> WriteGuard<'_, T> {
        self.locked(self.lock.lock())
    }

    /// Takes the lock if nobody has it, once nobody shares the value.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<WriteGuard<'_, T>> {
        let lock = self.lock.try_lock()?;
        Some(self.locked(lock))
    }

    #[inline]
    fn locked<'m>(&'m self, lock: Guard<'m, ()>) -> WriteGuard<'m, T> {
        self.close();
        // Let go by the guard's end.
        #[cfg(not(model))]
        std::mem::forget(lock);
        WriteGuard {
            of: self,
            _of_thread: PhantomData,
            #[cfg(model)]
            value: self.value.get_mut(),
            #[cfg(model)]
            _lock: lock,
        }
    }

    /// Lets thread `number` share the value: without the lock if that may be, else once it is free.
    #[track_caller]
    #[inline]
    pub fn share(&self, number: u64) -> ShareGuard<'_, T> {
        match self.share_open(number) {
            Some(share) => share,
            None => self.share_locked(self.lock.lock()),
        }
    }

    /// The same, unless somebody has the lock and it is needed.
    #[track_caller]
    #[inline]
    pub fn try_share(&self, number: u64) -> Option<ShareGuard<'_, T>> {
        match self.share_open(number) {
            Some(share) => Some(share),
            None => Some(self.share_locked(self.lock.try_lock()?)),
        }
    }

    #[track_caller]
    #[inline]
    fn share_open(&self, number: u64) -> Option<ShareGuard<'_, T>> {
        if !self.open.load(Ordering::Relaxed) {
            return None;
        }
        rank::take(self.lock.rank(), true);
        let place = self.say(self.sharers.place(number));
        if place.is_none() {
            rank::drop(self.lock.rank());
        }
        Some(ShareGuard {
            of: self,
            place: Some(place?),
            _of_thread: PhantomData,
            #[cfg(model)]
            value: Some(self.value.get()),
            #[cfg(model)]
            _lock: None,
        })
    }

    /// Says in a place, if it is free, that the value is shared. None if that may not be.
    #[inline]
    fn say<'m>(&self, place: &'m Place) -> Option<&'m Place> {
        place.0.compare_exchange(0, self.address(), Ordering::SeqCst, Ordering::Relaxed).ok()?;
        if cfg!(feature = "loom") {
            // To loom only fences are of one order.
            fence(Ordering::SeqCst);
        }
        // Who changes the value and is not seen here sees the place.
        if self.open.load(Ordering::SeqCst) {
            return Some(place);
        }
        place.0.store(0, Ordering::Release);
        None
    }

    #[inline]
    fn share_locked<'m>(&'m self, lock: Guard<'m, ()>) -> ShareGuard<'m, T> {
        // Let go by the guard's end.
        #[cfg(not(model))]
        std::mem::forget(lock);
        ShareGuard {
            of: self,
            place: None,
            _of_thread: PhantomData,
            #[cfg(model)]
            value: Some(self.value.get()),
            #[cfg(model)]
            _lock: Some(lock),
        }
    }

    fn address(&self) -> usize {
        (&raw const *self).addr()
    }

    /// No sharer comes without the lock, which is held, and none that has come is still there.
    #[inline]
    fn close(&self) {
        self.came.store(0, Ordering::Relaxed);
        if self.open.load(Ordering::Relaxed) {
            self.send_sharers_away();
        }
    }

    #[cold]
    fn send_sharers_away(&self) {
        self.open.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for place in self.sharers.used() {
            wait_until(|| place.0.load(Ordering::Acquire) != self.address() || broken(Rule::ChangeAfterSharers));
        }
    }
}

/// C++ takes and releases the lock by hand.
#[cfg(not(model))]
impl<T> ReadMostly<T> {
    /// Takes the lock for C++, which lets it go by [`unlock_raw`](Self::unlock_raw).
    #[track_caller]
    pub fn lock_raw(&self) {
        self.lock.lock_raw();
        self.close();
    }

    /// Lets go of a lock taken by [`lock_raw`](Self::lock_raw).
    ///
    /// # Safety
    ///
    /// This thread holds the lock through `lock_raw`, and nothing from [`assume_locked`](Self::assume_locked) is in use.
    pub unsafe fn unlock_raw(&self) {
        // SAFETY: the same contract.
        unsafe { self.lock.unlock_raw() };
    }

    /// The value, while this thread holds the lock through [`lock_raw`](Self::lock_raw).
    ///
    /// # Safety
    ///
    /// This thread holds the lock through `lock_raw` for as long as the result is used, and uses one such result at a
    /// time.
    pub unsafe fn assume_locked(&self) -> impl DerefMut<Target = T> {
        let value = self.value.get_mut();
        // SAFETY: by this function's contract nobody else has the lock, nor this thread another result; nobody shares the value.
        unsafe { value.deref() }
    }
}

/// Keeps a guard on its thread.
type OfThread = PhantomData<*const ()>;

/// A share in the value; dropping it ends that.
pub struct ShareGuard<'m, T> {
    of: &'m ReadMostly<T>,
    /// Where it is said; without that the lock is held.
    place: Option<&'m Place>,
    _of_thread: OfThread,
    #[cfg(model)]
    value: Option<ConstPtr<T>>,
    #[cfg(model)]
    _lock: Option<Guard<'m, ()>>,
}

impl<T> ShareGuard<'_, T> {
    /// Whether others may share the value, too.
    #[inline(always)]
    pub fn has_others(&self) -> bool {
        self.place.is_some() || self.of.open.load(Ordering::Relaxed)
    }

    #[cfg(not(model))]
    #[inline(always)]
    fn value(&self) -> ConstPtr<T> {
        self.of.value.get()
    }

    #[cfg(model)]
    fn value(&self) -> &ConstPtr<T> {
        self.value.as_ref().expect("taken at the end")
    }
}

impl<T> Deref for ShareGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: who wants to change the value waits for this guard's end, and the guard is borrowed.
        unsafe { self.value().deref() }
    }
}

impl<T> Drop for ShareGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(feature = "loom")]
        drop(self.value.take());
        if let Some(place) = self.place {
            place.0.store(0, Ordering::Release);
            return rank::drop(self.of.lock.rank());
        }
        let came = self.of.came.load(Ordering::Relaxed) + 1;
        if came < ENOUGH {
            self.of.came.store(came, Ordering::Relaxed);
        } else if !self.of.open.load(Ordering::Relaxed) {
            self.of.open.store(true, Ordering::Release);
        }
        // SAFETY: `ReadMostly::share_locked` was given the lock of this thread, and nothing of the value is borrowed any more.
        #[cfg(not(model))]
        unsafe {
            self.of.lock.unlock_raw();
        }
    }
}

/// The held lock; dropping it lets go. One word, but for a model checker, which has to see what is used how long.
pub struct WriteGuard<'m, T> {
    #[cfg_attr(model, expect(dead_code, reason = "the lock goes with its own guard"))]
    of: &'m ReadMostly<T>,
    _of_thread: OfThread,
    // Dropped in this order.
    #[cfg(model)]
    value: MutPtr<T>,
    #[cfg(model)]
    _lock: Guard<'m, ()>,
}

impl<T> WriteGuard<'_, T> {
    #[cfg(not(model))]
    #[inline(always)]
    fn value(&self) -> ConstPtr<T> {
        self.of.value.get()
    }

    #[cfg(not(model))]
    #[inline(always)]
    fn value_mut(&mut self) -> MutPtr<T> {
        self.of.value.get_mut()
    }

    #[cfg(model)]
    fn value(&self) -> &MutPtr<T> {
        &self.value
    }

    #[cfg(model)]
    fn value_mut(&mut self) -> &MutPtr<T> {
        &self.value
    }
}

#[cfg(not(model))]
impl<T> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `ReadMostly::locked` was given the lock of this thread, and nothing of the value is borrowed any more.
        unsafe { self.of.lock.unlock_raw() };
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, nobody shares the value, and the guard is borrowed.
        unsafe { self.value().deref() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, nobody shares the value, and the guard is borrowed for this alone.
        unsafe { self.value_mut().deref() }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn pair() -> ReadMostly<[u64; 2]> {
        ReadMostly::new(Rank::TABLE, Arc::default(), [0, 0])
    }

    fn open(pair: &ReadMostly<[u64; 2]>) {
        for _ in 0..ENOUGH {
            assert!(!pair.share(1).has_others(), "too few have come");
        }
        assert!(pair.share(1).has_others());
    }

    #[test]
    fn sharers_come_without_the_lock_until_somebody_changes_the_value() {
        let pair = pair();
        open(&pair);
        let first = pair.share(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let second = pair.share(2);
                assert!(second.place.is_some() && *second == [0, 0]);
            });
            scope.spawn(|| {
                let third = pair.share(1 + PLACES as u64);
                assert!(third.place.is_none() && third.has_others(), "its place is in use");
            });
        });
        drop(first);
        assert_eq!(pair.sharers.used().count(), 2);
        pair.lock()[0] = 1;
        open(&pair);
        *pair.try_lock().expect("it is free") = [2, 2];
        open(&pair);
        pair.lock_raw();
        // SAFETY: locked just above, by this thread, and this is the only access.
        *unsafe { pair.assume_locked() } = [3, 3];
        assert!(pair.try_share(1).is_none() && pair.try_lock().is_none());
        // SAFETY: locked above, and the access has ended.
        unsafe { pair.unlock_raw() };
        assert_eq!(*pair.try_share(1).expect("it is free"), [3, 3]);
    }

    #[test]
    fn changes_and_shares_exclude_each_other() {
        const THREADS: u64 = 4;
        let (pair, start) = (pair(), Barrier::new(THREADS as usize));
        std::thread::scope(|scope| {
            for number in 1..=THREADS {
                let (pair, start) = (&pair, &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..100_000 {
                        if n % 1000 == 0 {
                            let mut pair = pair.lock();
                            pair[0] += 1;
                            pair[1] += 1;
                        } else {
                            let pair = pair.share(number);
                            assert_eq!(pair[0], pair[1]);
                        }
                    }
                });
            }
        });
        assert_eq!(*pair.lock(), [100 * THREADS; 2]);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "mapping table lock at")]
    fn a_sharer_must_not_lock_what_it_shares() {
        let pair = pair();
        open(&pair);
        let _share = pair.share(1);
        let _lock = pair.lock();
    }
}
