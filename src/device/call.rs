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

/// Records for calls to come, so that a call needs no memory of its own. Several shelves, by thread, so that threads
/// seldom meet.
#[derive(Debug, Default)]
pub struct Idle([Shelf; 16]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shelf {
    /// What was put down last, from `Box::into_raw`, or null.
    top: AtomicPtr<CallRecord>,
    rest: Unmodelled<Rest>,
}

#[derive(Debug, Default)]
struct Rest {
    #[expect(clippy::vec_box, reason = "LLVM keeps the address of a record")]
    records: Vec<Box<CallRecord>>,
    /// The device has gone.
    closed: bool,
}

impl Idle {
    #[inline]
    fn shelf(&self, caller: Caller) -> &Shelf {
        &self.0[caller.0 as usize % self.0.len()]
    }

    #[inline]
    fn take(&self, caller: Caller) -> Option<Box<CallRecord>> {
        let shelf = self.shelf(caller);
        let top = shelf.top.swap(null_mut(), Ordering::Acquire);
        if top.is_null() {
            return shelf.rest.lock().records.pop();
        }
        // SAFETY: from `Box::into_raw` in `put`, and taken once.
        Some(unsafe { Box::from_raw(top) })
    }

    /// Puts a record down. It must be the last use of its device by the caller: it may be gone then.
    #[inline]
    fn put(&self, record: Box<CallRecord>) {
        let shelf = self.shelf(record.caller);
        let record = Box::into_raw(record);
        let put = shelf.top.compare_exchange(null_mut(), record, Ordering::Release, Ordering::Relaxed);
        if put.is_err() {
            // SAFETY: made just above.
            shelf.put_down(unsafe { Box::from_raw(record) });
        }
    }

    /// Drops all records. Each has a handle on the device.
    pub fn close(&self) {
        for shelf in &self.0 {
            let top = shelf.top.swap(NonNull::dangling().as_ptr(), Ordering::Acquire);
            let mut rest = shelf.rest.lock();
            rest.closed = true;
            let records = std::mem::take(&mut rest.records);
            drop(rest);
            drop(records);
            if !top.is_null() {
                // SAFETY: from `Box::into_raw` in `put`, and taken once.
                drop(unsafe { Box::from_raw(top) });
            }
        }
    }
}

impl Shelf {
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
