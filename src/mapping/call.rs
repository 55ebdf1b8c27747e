//! Calls into the runtime, as the entries that they use know them.

#![forbid(unsafe_code)]

use crate::rules::{Rule, broken};
use crate::sync::{Arc, AtomicU64, Condvar, Guard, Mutex, Ordering, Rank};
use std::num::NonZeroU64;

/// Who calls: one thread, by a number that no other thread ever has.
///
/// A call stays on one thread from its first look-up to its last release, and a thread is in one call at a time, so that
/// a mark of this caller found by a *new* call of the same thread is a stale one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller(pub u64);

impl Caller {
    /// No thread: the last user has left the entry to the calls that still use it, and the last of them removes it.
    pub const NOBODY: Self = Self(u64::MAX);
}

/// One call, for whoever remembers it: its slot in [`Calls`], and how many calls have had that slot.
///
/// So entries hold no memory of calls that are over, and a call needs none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(NonZeroU64);

impl CallId {
    /// Calls that can be open at a time: 2 to this.
    const SLOT_BITS: u32 = 20;
    /// Bits of the whole. The rest is free for [`super::entry::User`].
    pub(super) const BITS: u32 = 61;
    const LAST_GENERATION: u64 = (1 << (Self::BITS - Self::SLOT_BITS)) - 1;

    const fn new(slot: usize, generation: u64) -> Self {
        Self(NonZeroU64::new(generation << Self::SLOT_BITS | slot as u64).expect("generations start at 1"))
    }

    const fn slot(self) -> usize {
        (self.0.get() & ((1 << Self::SLOT_BITS) - 1)) as usize
    }

    const fn generation(self) -> u64 {
        self.0.get() >> Self::SLOT_BITS
    }

    pub(super) const fn bits(self) -> NonZeroU64 {
        self.0
    }

    /// From what [`bits`](Self::bits) answered; higher bits are left out.
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(NonZeroU64::new(bits & ((1 << Self::BITS) - 1)).expect("the bits of a call"))
    }

    /// Whether this call is over because `later`, a call that has begun, has the same slot.
    pub(super) const fn is_before(self, later: Self) -> bool {
        self.slot() == later.slot() && self.0.get() < later.0.get()
    }

    /// The next call in the same slot; none when the numbers have been used up, after years.
    pub fn next(self) -> Option<Self> {
        let is_last = self.generation() == Self::LAST_GENERATION;
        if is_last { None } else { self.0.checked_add(1 << Self::SLOT_BITS).map(Self) }
    }
}

/// A call's queue, guarded by the call's lock: nobody records on a queue while it is given back.
#[derive(Debug)]
pub struct Queue {
    /// The plugin's queue, 0 while there is none.
    pub address: usize,
    /// The call that has it.
    call: CallId,
}

/// A place for calls, one after another. Two threads have two, and neither slows the other one down.
#[derive(Debug)]
#[repr(align(128))]
pub struct Call {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Apart from what a call writes again and again: others ask for it.
    reached: Reached,
}

/// How far the calls of a place have got, for whoever has met one of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Reached {
    /// All copies to the device of the calls up to this generation have been issued.
    filled: AtomicU64,
    /// All calls up to this generation have been synchronised, with success.
    done: AtomicU64,
}

impl Call {
    fn new(call: CallId) -> Self {
        let queue = Queue { address: 0, call };
        Self { queue: Mutex::new(Rank::CALL, queue), changed: Condvar::default(), reached: Reached::default() }
    }

    /// The queue of the call that is open here, locked.
    #[inline]
    pub fn queue(&self) -> Guard<'_, Queue> {
        self.queue.lock()
    }

    /// Notes that no more copies to the device will be issued for its mappings.
    pub fn set_filled(&self, call: CallId) {
        if self.reached.filled.load(Ordering::Acquire) < call.generation() {
            let _queue = self.queue();
            self.reached.filled.store(call.generation(), Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// Has `synchronize` wait for the call's work, and makes room for the next call. Only a success makes its work done;
    /// after a failure there is no next call here. Who asks for its queue meanwhile waits until it is gone.
    pub fn finish<E>(
        &self,
        call: CallId,
        synchronize: impl FnOnce() -> Result<(), E>,
    ) -> (Result<(), E>, Option<CallId>) {
        let mut queue = self.queue();
        if broken(Rule::NeededWaits) {
            self.reached.done.store(call.generation(), Ordering::Release);
        }
        let done = synchronize();
        let next = if done.is_ok() { call.next() } else { None };
        if done.is_ok() {
            self.reached.done.store(call.generation(), Ordering::Release);
        }
        self.reached.filled.store(call.generation(), Ordering::Release);
        *queue = Queue { address: 0, call: next.unwrap_or(call) };
        self.changed.notify_all();
        (done, next)
    }
}

/// A call whose queue is in use, or is being synchronised.
#[derive(Debug)]
pub struct Busy(CallId);

/// The calls of a device.
///
/// Each has a slot of its own while it is open. Slots are never given up, so that there are as many as calls have been
/// open at a time, and one more for each call that failed.
#[derive(Debug, Default)]
pub struct Calls {
    slots: boxcar::Vec<Arc<Call>>,
}

impl Calls {
    /// A new slot, and the first call there.
    ///
    /// # Panics
    ///
    /// When a million calls are open.
    pub fn add(&self) -> (CallId, Arc<Call>) {
        let slot = self.slots.push_with(|slot| Arc::new(Call::new(CallId::new(slot, 1))));
        assert!(slot < 1 << CallId::SLOT_BITS, "more than {} calls are open or have failed", 1 << CallId::SLOT_BITS);
        (CallId::new(slot, 1), Arc::clone(&self.slots[slot]))
    }

    fn of(&self, call: CallId) -> &Call {
        &self.slots[call.slot()]
    }

    /// Whether all its work is known to be done.
    #[inline]
    pub fn is_done(&self, call: CallId) -> bool {
        self.of(call).reached.done.load(Ordering::Acquire) >= call.generation()
    }

    /// Whether all of its copies to the device have been issued.
    #[inline]
    pub fn is_filled(&self, call: CallId) -> bool {
        self.of(call).reached.filled.load(Ordering::Acquire) >= call.generation()
    }

    /// Blocks until all of its copies to the device have been issued.
    pub fn wait_until_filled(&self, call: CallId) {
        let slot = self.of(call);
        let mut queue = slot.queue();
        while !self.is_filled(call) {
            slot.changed.wait(&mut queue);
        }
    }

    /// The queue of a call that is still open, locked; none if it is over. One that is being synchronised is waited for.
    pub fn queue_of(&self, call: CallId) -> Option<Guard<'_, Queue>> {
        Some(self.of(call).queue()).filter(|queue| queue.call == call)
    }

    /// As [`queue_of`](Self::queue_of), without waiting: an error if somebody has the lock.
    pub fn try_queue_of(&self, call: CallId) -> Result<Option<Guard<'_, Queue>>, Busy> {
        let queue = self.of(call).queue.try_lock().ok_or(Busy(call))?;
        Ok(Some(queue).filter(|queue| queue.call == call))
    }

    /// Blocks until nobody has the lock of the call's queue any more.
    pub fn wait_for(&self, Busy(call): Busy) {
        drop(self.of(call).queue());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(slot: &Call, call: CallId, success: bool) -> Option<CallId> {
        slot.finish(call, || success.then_some(()).ok_or(())).1
    }

    #[test]
    fn a_slot_has_one_call_after_another() {
        let calls = Calls::default();
        let (first, slot) = calls.add();
        let (other, _) = calls.add();
        assert!(!calls.is_done(first) && !calls.is_filled(first) && calls.queue_of(first).is_some());
        let second = finish(&slot, first, true).expect("there is room");
        assert!(calls.is_done(first) && calls.is_filled(first) && calls.queue_of(first).is_none());
        assert!(!calls.is_done(second) && !calls.is_filled(second) && calls.queue_of(second).is_some());
        assert!(!calls.is_done(other));
        slot.set_filled(second);
        assert!(calls.is_filled(second) && !calls.is_done(second));
    }

    #[test]
    fn only_a_success_is_done() {
        let calls = Calls::default();
        let (call, slot) = calls.add();
        assert_eq!(finish(&slot, call, false), None);
        assert!(!calls.is_done(call) && calls.is_filled(call));
    }

    #[test]
    fn the_last_number_is_used_once() {
        let last = CallId::new(7, CallId::LAST_GENERATION);
        assert_eq!((last.slot(), last.generation(), last.next()), (7, CallId::LAST_GENERATION, None));
        assert_eq!(CallId::from_bits(last.bits().get() | 1 << CallId::BITS), last);
        assert_eq!(CallId::new(7, CallId::LAST_GENERATION - 1).next(), Some(last));
    }

    #[test]
    fn waiters_are_woken() {
        let calls = Arc::new(Calls::default());
        let (call, slot) = calls.add();
        let waits = |wait: fn(&Calls, CallId)| {
            let calls = Arc::clone(&calls);
            std::thread::spawn(move || wait(&calls, call))
        };
        let filled = waits(Calls::wait_until_filled);
        let mut finished = None;
        let (done, _) = slot.finish(call, || {
            finished = Some(waits(|calls, call| assert!(calls.queue_of(call).is_none())));
            std::thread::sleep(std::time::Duration::from_millis(10));
            Ok::<_, ()>(())
        });
        assert!(done.is_ok());
        finished.unwrap().join().unwrap();
        filled.join().unwrap();
    }
}
