//! The record of one call into the runtime, from its first use of a queue to its synchronisation.
//!
//! LLVM gives each call an `AsyncInfoTy` whose `Queue` it tests for null and never reads. The core keeps its own
//! record there and hands the plugin the `__tgt_async_info` inside that record. So every call ends in
//! `DeviceTy::synchronize`, also with a plugin that has no queues; the queue is synchronised on the device it belongs
//! to, whoever asks; and what the call uses stays alive until then.
//!
//! Some of LLVM's calls into the core take no `AsyncInfoTy`. They find the record of their thread, see [`current`].

use super::{Handle, Shared};
use crate::mapping::{Call, CallId, Caller, Calls, Entry, Uses};
use crate::plugin_api::Done;
use crate::rules::{Rule, broken};
use crate::sync::{Arc, AtomicPtr, Counter, Ordering, Unmodelled};
use omptarget_abi::AsyncInfo;
use std::cell::Cell;
use std::ptr::{NonNull, null, null_mut};

#[cfg(model)]
crate::sync::thread_cells! {
    static THREAD: Thread = Thread::new();
}

/// What the core knows of a thread.
pub struct Thread {
    caller: Cell<u64>,
    /// The record that was opened last and has not been taken back.
    current: Cell<*mut CallRecord>,
    held: Cell<*const Entry>,
    locked: Cell<*const Entry>,
}

impl Thread {
    #[cfg(model)]
    const fn new() -> Self {
        Self {
            caller: Cell::new(0),
            current: Cell::new(null_mut()),
            held: Cell::new(null()),
            locked: Cell::new(null()),
        }
    }

    /// This thread as a caller.
    #[inline]
    pub fn caller(&self) -> Caller {
        match self.caller.get() {
            0 => self.number(),
            number => Caller(number),
        }
    }

    #[cold]
    fn number(&self) -> Caller {
        static NEXT: Counter = Counter::new(1);
        self.caller.set(NEXT.fetch_add(1, Ordering::Relaxed));
        Caller(self.caller.get())
    }

    /// Whether this thread is inside a call that has a record.
    pub fn is_in_call(&self) -> bool {
        !self.current.get().is_null()
    }

    /// The record of this thread's call, if it has one for `device`.
    ///
    /// # Safety
    ///
    /// No other reference to the record is in use.
    pub unsafe fn current<'r>(&self, device: &Arc<Shared>) -> Option<&'r mut CallRecord> {
        // SAFETY: null, or the record that this thread made last and has not taken back; the contract excludes aliases.
        let record = unsafe { self.current.get().as_mut() };
        record.filter(|record| Arc::ptr_eq(&record.device, device))
    }

    /// Notes that LLVM has got a handle on `entry` and may now use its memory: see [`held`].
    pub fn set_held(&self, entry: *const Entry) {
        self.held.set(entry);
    }
}

/// Does something with what is known of this thread.
#[cfg(model)]
pub fn on_thread<R>(work: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(work)
}

/// Does something with what is known of this thread.
#[cfg(not(model))]
#[inline]
pub fn on_thread<R>(work: impl FnOnce(&Thread) -> R) -> R {
    // SAFETY: the only use; numbers and addresses, all of them zero in `Thread::new`.
    unsafe { crate::sync::on_thread(work) }
}

/// This thread as a caller.
pub fn caller() -> Caller {
    on_thread(Thread::caller)
}

/// Notes that LLVM has dropped its handle on `entry`.
pub fn unset_held(entry: *const Entry) {
    on_thread(|thread| {
        if thread.held.get() == entry {
            thread.held.set(null());
        }
    });
}

/// Notes which entry's lock LLVM holds on this thread, null for none.
pub fn set_locked(entry: *const Entry) {
    on_thread(|thread| thread.locked.set(entry));
}

/// The entry whose lock LLVM holds on this thread, see [`set_locked`].
#[cfg(not(model))]
pub fn locked() -> *const Entry {
    on_thread(|thread| thread.locked.get())
}

/// The entry that this thread has looked up on exit and whose handle it still has.
///
/// Copies of data take only addresses. The handle lives around them, in the same function of LLVM's: until
/// [`unset_held`], or the end of the call that keeps the entry.
pub fn held() -> Option<NonNull<Entry>> {
    NonNull::new(on_thread(|thread| thread.held.get()).cast_mut())
}

/// What calls to come need, so that they ask the system for no memory: records, and memory for an entry. Several
/// shelves, each of which a thread has to itself: the first one that comes there.
#[derive(Debug)]
pub struct Idle([Shelf; 64]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shelf {
    /// The [`Caller`] that alone uses both places, 0 if nobody has come yet.
    owner: Counter,
    record: Place<CallRecord>,
    spare: Place<Entry>,
    /// For everybody else, and for more than one record.
    rest: Unmodelled<Rest>,
}

/// Where one thread puts down a thing and takes it up again: null, or from `into_raw`.
#[derive(Debug)]
struct Place<T>(AtomicPtr<T>);

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }
}

impl<T> Place<T> {
    /// Only the thread that the place belongs to calls this.
    #[inline]
    fn take(&self) -> Option<NonNull<T>> {
        let thing = NonNull::new(self.0.load(Ordering::Relaxed))?;
        self.0.store(null_mut(), Ordering::Relaxed);
        Some(thing)
    }

    fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }

    /// Only the thread that the place belongs to calls this, when it is free.
    #[inline]
    fn put(&self, thing: *mut T) {
        self.0.store(thing, Ordering::Release);
    }

    /// For the end: anybody may call this, when nobody takes any more.
    fn clear(&self) -> Option<NonNull<T>> {
        NonNull::new(self.0.swap(null_mut(), Ordering::Acquire))
    }
}

#[derive(Debug, Default)]
struct Rest {
    #[expect(clippy::vec_box, reason = "LLVM keeps the address of a record")]
    records: Vec<Box<CallRecord>>,
    /// The device has gone.
    closed: bool,
}

impl Default for Idle {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Shelf::default()))
    }
}

impl Idle {
    #[inline]
    fn shelf(&self, caller: Caller) -> &Shelf {
        &self.0[caller.0 as usize % self.0.len()]
    }

    #[inline]
    fn take(&self, caller: Caller) -> Option<Box<CallRecord>> {
        let shelf = self.shelf(caller);
        match shelf.of(caller).and_then(|own| own.record.take()) {
            // SAFETY: from `Box::into_raw` in `put`, and taken once, as only this thread takes.
            Some(record) => Some(unsafe { Box::from_raw(record.as_ptr()) }),
            None => shelf.take_up(),
        }
    }

    /// Puts a record down. It must be the last use of its device by the caller: it may be gone then. If it goes in this
    /// very moment, the record is never dropped.
    #[inline]
    fn put(&self, record: Box<CallRecord>) {
        let shelf = self.shelf(record.caller);
        match shelf.of(record.caller).filter(|own| own.record.is_free()) {
            Some(own) => own.record.put(Box::into_raw(record)),
            None => shelf.put_down(record),
        }
    }

    /// The first handle on an entry.
    #[inline(always)]
    pub fn make(&self, entry: Entry, caller: Caller) -> Arc<Entry> {
        let Some(mut spare) = self.shelf(caller).of(caller).and_then(|own| own.spare.take()) else {
            return Arc::new(entry);
        };
        // SAFETY: an entry, of which this is the only handle, see `keep`.
        unsafe { spare.as_mut() }.replace(entry);
        // SAFETY: from `Arc::into_raw` in `keep`, and taken once, as only this thread takes.
        unsafe { Arc::from_raw(spare.as_ptr()) }
    }

    /// Keeps an entry that has been cleared, of which this is the only handle: for [`make`](Self::make), which puts
    /// another in its memory.
    #[inline]
    pub fn keep(&self, entry: Arc<Entry>, caller: Caller) {
        if let Some(own) = self.shelf(caller).of(caller).filter(|own| own.spare.is_free()) {
            own.spare.put(Arc::into_raw(entry).cast_mut());
        }
    }

    /// Drops all that is there. Each record has a handle on the device.
    pub fn close(&self) {
        for shelf in &self.0 {
            shelf.owner.store(u64::MAX, Ordering::Relaxed);
            let mut rest = shelf.rest.lock();
            rest.closed = true;
            let records = std::mem::take(&mut rest.records);
            drop(rest);
            drop(records);
            // SAFETY: from `Box::into_raw` in `put`, and taken once: no call begins any more.
            drop(shelf.record.clear().map(|record| unsafe { Box::from_raw(record.as_ptr()) }));
            // SAFETY: from `Arc::into_raw` in `keep`, and taken once: no call begins any more.
            drop(shelf.spare.clear().map(|spare| unsafe { Arc::from_raw(spare.as_ptr()) }));
        }
    }
}

impl Shelf {
    /// This shelf, if it is the caller's own.
    #[inline]
    fn of(&self, caller: Caller) -> Option<&Self> {
        let owner = self.owner.load(Ordering::Relaxed);
        let claim = || self.owner.compare_exchange(0, caller.0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        (owner == caller.0 || owner == 0 && claim()).then_some(self)
    }

    #[cold]
    fn take_up(&self) -> Option<Box<CallRecord>> {
        self.rest.lock().records.pop()
    }

    #[cold]
    fn put_down(&self, record: Box<CallRecord>) {
        let mut rest = self.rest.lock();
        if rest.closed {
            drop(rest);
            drop(record);
        } else {
            rest.records.push(record);
        }
    }
}

/// What the core knows of one call.
#[derive(Debug)]
pub struct CallRecord {
    id: CallId,
    /// Where the call is.
    call: Arc<Call>,
    device: Arc<Shared>,
    caller: Caller,
    queue: AsyncInfo,
    /// What it did with which entries.
    pub uses: Uses,
    /// The calls that were still filling entries which this one uses, when it looked them up.
    pub unfilled: Vec<CallId>,
    /// The record that was this thread's current one before.
    outer: *mut CallRecord,
}

// SAFETY: an open record is its thread's alone, see `of`; one on a shelf points nowhere.
unsafe impl Send for CallRecord {}

impl CallRecord {
    /// The record in `info`, made for `device` if there is none yet.
    ///
    /// # Safety
    ///
    /// `info` is that of a live `AsyncInfoTy` of the calling thread, whose `Queue` is null or from this function, and
    /// the former result for it is out of use.
    #[inline]
    pub unsafe fn of<'r>(info: NonNull<AsyncInfo>, device: &Arc<Shared>) -> &'r mut Self {
        // SAFETY: live and this thread's own, by this function's contract.
        let queue = unsafe { &mut (*info.as_ptr()).queue };
        if queue.is_null() {
            *queue = Self::open(device).cast();
        }
        // SAFETY: made above or by an earlier call; the contract says that no other reference to it is in use.
        unsafe { &mut *queue.cast() }
    }

    fn open(device: &Arc<Shared>) -> *mut Self {
        on_thread(|thread| {
            let caller = thread.caller();
            let mut record = device.idle.take(caller).unwrap_or_else(|| Self::new(device));
            record.caller = caller;
            record.outer = thread.current.get();
            let record = Box::into_raw(record);
            thread.current.set(record);
            record
        })
    }

    #[cold]
    fn new(device: &Arc<Shared>) -> Box<Self> {
        let (id, call) = device.calls.add();
        Box::new(Self {
            id,
            call,
            device: Arc::clone(device),
            caller: Caller::NOBODY,
            queue: AsyncInfo { queue: null_mut() },
            uses: Uses::default(),
            unfilled: Vec::new(),
            outer: null_mut(),
        })
    }

    /// Takes the record out of `info`, which is then as new.
    ///
    /// # Safety
    ///
    /// As for [`of`](Self::of).
    pub unsafe fn take(info: NonNull<AsyncInfo>) -> Option<Box<Self>> {
        // SAFETY: live and this thread's own, by this function's contract.
        let queue = unsafe { &mut (*info.as_ptr()).queue };
        let record = NonNull::new(std::mem::replace(queue, null_mut()).cast())?;
        // SAFETY: from `Box::into_raw` in `of`, and taken once.
        let mut taken: Box<Self> = unsafe { Box::from_raw(record.as_ptr()) };
        taken.unlink(record.as_ptr());
        Some(taken)
    }

    /// Takes this record, whose address is given, out of its thread's chain of open ones. What LLVM holds of it is void.
    fn unlink(&mut self, address: *mut Self) {
        let outer = std::mem::replace(&mut self.outer, null_mut());
        on_thread(|thread| {
            thread.held.set(null());
            let mut inner = thread.current.get();
            if inner == address {
                return thread.current.set(outer);
            }
            // SAFETY: the chain holds this thread's open records, and ends with null.
            while let Some(record) = unsafe { inner.as_mut() } {
                if record.outer == address {
                    record.outer = outer;
                }
                inner = record.outer;
            }
        });
    }

    /// The call, as entries know it.
    pub const fn id(&self) -> CallId {
        self.id
    }

    /// The thread that makes the call.
    pub const fn caller(&self) -> Caller {
        self.caller
    }

    /// All calls of the device.
    pub fn calls(&self) -> &Calls {
        &self.device.calls
    }

    /// Notes that the call will issue no more copies to the device for its mappings.
    pub fn set_filled(&self) {
        self.call.set_filled(self.id);
    }

    /// Calls the plugin with the call's queue, under the call's lock.
    pub fn issue<R>(&mut self, call: impl FnOnce(*mut AsyncInfo) -> R) -> R {
        let mut queue = self.call.queue();
        let result = call(&raw mut self.queue);
        queue.address = self.queue.queue.addr();
        result
    }

    /// Keeps an entry that LLVM has a handle on, its device memory and its event until this call has been synchronised.
    /// Says whether the entry is in the table.
    pub fn pin(&mut self, entry: &Handle<'_>) -> bool {
        if !self.uses.contain(entry) {
            let entry = &raw const **entry;
            // SAFETY: all entries are in an `Arc`, and LLVM has a handle.
            unsafe { Arc::increment_strong_count(entry) };
            // SAFETY: the count was raised for this very handle.
            self.uses.push(unsafe { Arc::from_raw(entry) });
        }
        entry.is_in_table()
    }

    /// Waits for the call's work, if its plugin has been given any queue, and lets go of what it used.
    pub fn finish(mut self: Box<Self>) -> Done {
        if broken(Rule::PinUntilSynchronized) {
            self.let_go();
        }
        let (device, queue) = (&self.device, &raw mut self.queue);
        let has_queue = !self.queue.queue.is_null();
        // SAFETY: the plugin put the queue there, for the device of this record.
        let synchronize = || if has_queue { unsafe { device.plugin.synchronize(queue) } } else { Ok(()) };
        let (done, next) = self.call.finish(self.id, synchronize);
        self.let_go();
        if let Some(next) = next {
            self.id = next;
            self.queue.queue = null_mut();
            self.unfilled.clear();
            self.uses.launched = false;
            let device = Arc::as_ptr(&self.device);
            // SAFETY: the record has a handle on the device, which has one on the record from now on, until it closes.
            unsafe { &(*device).idle }.put(self);
        }
        done
    }

    fn let_go(&mut self) {
        if !self.uses.is_empty() {
            self.device.finish_uses(&mut self.uses);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::plugin_api::Plugin;

    fn device() -> Device {
        // SAFETY: there are no functions.
        Device::new(unsafe { Plugin::from_addresses([].into_iter()) }, false)
    }

    fn record(device: &Arc<Shared>, caller: Caller) -> Box<CallRecord> {
        let mut record = device.idle.take(caller).unwrap_or_else(|| CallRecord::new(device));
        record.caller = caller;
        record
    }

    #[test]
    fn a_thread_takes_up_what_it_has_put_down() {
        let device = device();
        let (idle, caller) = (&device.shared.idle, Caller(7));
        let [first, second] = [(); 2].map(|()| record(&device.shared, caller));
        let addresses = [&raw const *first, &raw const *second];
        idle.put(first);
        idle.put(second);
        let again = [(); 2].map(|()| idle.take(caller).expect("put down"));
        assert_eq!([&raw const *again[0], &raw const *again[1]], addresses);
        assert!(idle.take(caller).is_none());

        let made = idle.make(Entry::of_eight_bytes(1), caller);
        let address = Arc::as_ptr(&made);
        idle.keep(made, caller);
        let again = [2, 3].map(|begin| idle.make(Entry::of_eight_bytes(begin), caller));
        assert_eq!(Arc::as_ptr(&again[0]), address);
        assert_eq!([again[0].host_begin(), again[1].host_begin()], [2, 3]);
    }

    #[test]
    fn threads_that_share_a_shelf_do_not_share_places() {
        let device = device();
        let idle = &device.shared.idle;
        let [owner, other] = [7, 7 + idle.0.len() as u64].map(Caller);
        let [owners, others] = [owner, other].map(|caller| record(&device.shared, caller));
        let (owners_address, others_address) = (&raw const *owners, &raw const *others);
        let made = [owner, other].map(|caller| idle.make(Entry::of_eight_bytes(1), caller));
        let owners_entry = Arc::as_ptr(&made[0]);
        idle.put(owners);
        idle.put(others);
        for (made, caller) in made.into_iter().zip([owner, other]) {
            idle.keep(made, caller);
        }
        let others = idle.take(other).expect("put down");
        assert_eq!(&raw const *others, others_address);
        let others_entry = idle.make(Entry::of_eight_bytes(2), other);
        assert_ne!(Arc::as_ptr(&others_entry), owners_entry);
        assert_eq!(idle.take(owner).map(|record| &raw const *record), Some(owners_address));
        assert_eq!(Arc::as_ptr(&idle.make(Entry::of_eight_bytes(2), owner)), owners_entry);
    }

    #[test]
    fn nothing_is_left_after_the_device() {
        let device = device();
        let (shared, caller) = (Arc::clone(&device.shared), Caller(7));
        let records = [(); 3].map(|()| record(&shared, caller));
        let made = shared.idle.make(Entry::of_eight_bytes(1), caller);
        let gone = Arc::downgrade(&made);
        shared.idle.keep(made, caller);
        let [first, second, late] = records;
        shared.idle.put(first);
        shared.idle.put(second);
        drop(device);
        assert!(gone.upgrade().is_none());
        assert_eq!(Arc::strong_count(&shared), 2, "of this test and of the record that is still open");
        shared.idle.put(late);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
