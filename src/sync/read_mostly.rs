//! A lock around what may be read far more often than written: while nobody writes, who reads takes no lock.
//!
//! A reader says in a place of its own, which is in nobody else's cache, that it reads, and then asks whether readers may
//! still come. Who wants to write takes the lock, says that they may not, and waits for those who have said that they
//! read. So readers slow each other down no more than the memory does that they read.
//!
//! Where many write, readers take the lock, too. They may come without it once so many have done so that the way of the
//! next writer through all places is cheap for each of them. This is what Dice and Kogan, *BRAVO: Biased Locking for
//! Reader-Writer Locks* (2019) describe.

use super::cell::{ConstPtr, MutPtr, UnsafeCell};
use super::mutex::{Guard, Mutex};
use super::rank::{self, Rank};
use super::{Arc, AtomicBool, AtomicUsize, Counter, Counter32, Ordering, fence, yield_now};
use crate::rules::{Rule, broken};
use std::ops::{Deref, DerefMut};

/// Places for readers. Of those who share one, one reads in it at a time, and the others take the lock.
const PLACES: usize = if cfg!(model) { 8 } else { 64 };
/// Readers that take the lock before readers may come without it.
const ENOUGH: u32 = if cfg!(model) { 1 } else { 64 };
/// How often a writer asks for a reader's end before it lets other threads run.
const PATIENCE: u32 = if cfg!(model) { 0 } else { 100 };

/// Where threads say what they read.
#[derive(Debug)]
pub struct Readers {
    places: Box<[Place; PLACES]>,
    /// A bit for each place where somebody has ever read.
    used: Counter,
}

/// What a thread reads: the address of a [`ReadMostly`], or 0.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place(AtomicUsize);

impl Default for Readers {
    fn default() -> Self {
        Self { places: Box::new(std::array::from_fn(|_| Place::default())), used: Counter::new(0) }
    }
}

impl Readers {
    /// The place of thread `number`, which few others share.
    #[inline]
    fn place(&self, number: u64) -> &Place {
        let at = number as usize % PLACES;
        if self.used.load(Ordering::Relaxed) & 1 << at == 0 {
            // In one order with what is done there, and with a writer's fence.
            self.used.fetch_or(1 << at, Ordering::SeqCst);
        }
        &self.places[at]
    }

    fn used(&self) -> impl Iterator<Item = &Place> {
        let used = self.used.load(Ordering::Relaxed);
        self.places.iter().enumerate().filter(move |(at, _)| used & 1 << at != 0).map(|(_, place)| place)
    }
}

/// A value that one thread writes at a time, and any number read.
#[derive(Debug)]
#[repr(C)]
pub struct ReadMostly<T> {
    /// Readers may come without the lock.
    open: AtomicBool,
    /// Readers that have taken the lock since that was so last.
    came: Counter32,
    lock: Mutex<()>,
    readers: Arc<Readers>,
    value: UnsafeCell<T>,
}

// SAFETY: several threads read the value, for which it is `Sync`; one at a time writes it, for which it is `Send`, as the
// lock and the places see to.
unsafe impl<T: Send + Sync> Sync for ReadMostly<T> {}

impl<T> ReadMostly<T> {
    /// A free lock of `rank` around `value`, whose readers have places in `readers`.
    pub fn new(rank: Rank, readers: Arc<Readers>, value: T) -> Self {
        Self {
            open: AtomicBool::new(false),
            came: Counter32::new(0),
            lock: Mutex::new(rank, ()),
            readers,
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is free and nobody reads, and takes it.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> WriteGuard<'_, T> {
        self.locked(self.lock.lock())
    }

    /// Takes the lock if nobody has it, once nobody reads.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<WriteGuard<'_, T>> {
        self.lock.try_lock().map(|lock| self.locked(lock))
    }

    #[inline]
    fn locked<'m>(&'m self, lock: Guard<'m, ()>) -> WriteGuard<'m, T> {
        self.close();
        // Let go by the guard's end.
        #[cfg(not(model))]
        std::mem::forget(lock);
        WriteGuard {
            of: self,
            #[cfg(model)]
            value: self.value.get_mut(),
            #[cfg(model)]
            _lock: lock,
        }
    }

    /// Lets thread `number` read without the lock, if readers may come so.
    #[track_caller]
    #[inline]
    pub fn read(&self, number: u64) -> Option<ReadGuard<'_, T>> {
        if !self.open.load(Ordering::Relaxed) {
            return None;
        }
        let reading = Reading::begin(self.readers.place(number), self.address(), self.lock.rank())?;
        // A writer that the reader does not see here sees the reader.
        self.open.load(Ordering::SeqCst).then(|| ReadGuard { value: self.value.get(), _reading: reading })
    }

    fn address(&self) -> usize {
        (&raw const *self).addr()
    }

    /// No reader comes without the lock, which is held, and none that has come is still there.
    #[inline]
    fn close(&self) {
        if self.open.load(Ordering::Relaxed) {
            self.send_readers_away();
        }
    }

    #[cold]
    fn send_readers_away(&self) {
        self.open.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut asked = 0;
        for place in self.readers.used() {
            while place.0.load(Ordering::Acquire) == self.address() && !broken(Rule::WriteAfterReaders) {
                asked += 1;
                if asked > PATIENCE { yield_now() } else { std::hint::spin_loop() }
            }
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
        // SAFETY: by this function's contract nobody else has the lock, nor this thread another result; no reader is there.
        unsafe { value.deref() }
    }
}

/// What one thread says in its place, from `begin` to its end.
struct Reading<'m> {
    place: &'m Place,
    rank: Rank,
}

impl<'m> Reading<'m> {
    #[track_caller]
    #[inline]
    fn begin(place: &'m Place, address: usize, rank: Rank) -> Option<Self> {
        place.0.compare_exchange(0, address, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        rank::take(rank, true);
        if cfg!(feature = "loom") {
            // To loom only fences are of one order.
            fence(Ordering::SeqCst);
        }
        Some(Self { place, rank })
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        self.place.0.store(0, Ordering::Release);
        rank::drop(self.rank);
    }
}

/// Reads without the lock; dropping it ends that.
pub struct ReadGuard<'m, T> {
    // Dropped in this order.
    value: ConstPtr<T>,
    _reading: Reading<'m>,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as the place is borrowed from beside it, and who wants to write waits for this guard's end.
        unsafe { self.value.deref() }
    }
}

/// The held lock; dropping it lets go. One word, but for a model checker, which has to see what is used how long.
pub struct WriteGuard<'m, T> {
    of: &'m ReadMostly<T>,
    // Dropped in this order.
    #[cfg(model)]
    value: MutPtr<T>,
    #[cfg(model)]
    _lock: Guard<'m, ()>,
}

impl<T> WriteGuard<'_, T> {
    /// Lets go after a reader that took the lock: the next one may come without it.
    #[inline]
    pub fn end_of_reader(self) {
        #[cfg(feature = "loom")]
        drop(self.value);
        let came = self.of.came.load(Ordering::Relaxed) + 1;
        let enough = came == ENOUGH;
        self.of.came.store(if enough { 0 } else { came }, Ordering::Relaxed);
        if enough {
            self.of.open.store(true, Ordering::Release);
        }
    }

    #[cfg(not(model))]
    #[inline(always)]
    fn value(&self) -> MutPtr<T> {
        self.of.value.get_mut()
    }

    #[cfg(model)]
    fn value(&self) -> &MutPtr<T> {
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
        // SAFETY: the lock is held, nobody reads, and the guard is borrowed.
        unsafe { self.value().deref() }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, nobody reads, and the guard is borrowed for this alone.
        unsafe { self.value().deref() }
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
            assert!(pair.read(1).is_none(), "too few have come");
            pair.lock().end_of_reader();
        }
    }

    #[test]
    fn readers_come_without_the_lock_until_somebody_writes() {
        let pair = pair();
        open(&pair);
        {
            let reading = pair.read(1).expect("nobody writes");
            let another = std::thread::scope(|scope| scope.spawn(|| pair.read(2).map(|pair| *pair)).join());
            assert_eq!(another.expect("it does not panic"), Some(*reading));
            assert!(pair.read(1 + PLACES as u64).is_none(), "somebody reads in this place");
            assert_eq!(pair.readers.used().count(), 2);
        }
        pair.lock()[0] = 1;
        open(&pair);
        *pair.try_lock().expect("it is free") = [2, 2];
        open(&pair);
        pair.lock_raw();
        // SAFETY: locked just above, by this thread, and this is the only access.
        *unsafe { pair.assume_locked() } = [3, 3];
        assert!(pair.read(1).is_none() && pair.try_lock().is_none());
        // SAFETY: locked above, and the access has ended.
        unsafe { pair.unlock_raw() };
        assert_eq!(*pair.lock(), [3, 3]);
    }

    #[test]
    fn writers_and_readers_exclude_each_other() {
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
                        } else if let Some(pair) = pair.read(number) {
                            assert_eq!(pair[0], pair[1]);
                        } else {
                            let pair = pair.lock();
                            assert_eq!(pair[0], pair[1]);
                            pair.end_of_reader();
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
    fn a_reader_must_not_lock_what_it_reads() {
        let pair = pair();
        open(&pair);
        let _reading = pair.read(1).expect("nobody writes");
        let _writing = pair.lock();
    }
}
