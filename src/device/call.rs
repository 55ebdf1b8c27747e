//! The record of one call into the runtime, from its first use of a queue to its synchronisation.
//!
//! LLVM gives each call an `AsyncInfoTy` whose `Queue` it tests for null and never reads. The core keeps its own
//! record there and hands the plugin the `__tgt_async_info` inside that record. So every call ends in
//! `DeviceTy::synchronize`, also with a plugin that has no queues; the queue is synchronised on the device it belongs
//! to, whoever asks; and what the call uses stays alive until then.
//!
//! Some of LLVM's calls into the core take no `AsyncInfoTy`. They find the record of their thread, see [`current`].

use super::Shared;
use crate::mapping::{Call, Caller, Entry, Uses};
use crate::plugin_api::Done;
use crate::rules::{Rule, broken};
use crate::sync::{Arc, Counter, Ordering, thread_cells};
use omptarget_abi::AsyncInfo;
use std::cell::Cell;
use std::ptr::{NonNull, null, null_mut};

thread_cells! {
    static CALLER: Cell<u64> = Cell::new(0);
    static CURRENT: Cell<*mut CallRecord> = Cell::new(null_mut());
    static HELD: Cell<*const Entry> = Cell::new(null());
    static LOCKED: Cell<*const Entry> = Cell::new(null());
}

/// This thread as a caller.
pub fn caller() -> Caller {
    static NEXT: Counter = Counter::new(1);
    Caller(CALLER.with(|caller| {
        if caller.get() == 0 {
            caller.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        caller.get()
    }))
}

/// Whether this thread is inside a call that has a record.
pub fn open_on_this_thread() -> bool {
    !CURRENT.with(Cell::get).is_null()
}

/// The record of this thread's call, if it has one for `device`.
///
/// # Safety
///
/// No other reference to the record is in use.
pub unsafe fn current<'r>(device: &Arc<Shared>) -> Option<&'r mut CallRecord> {
    // SAFETY: null, or the record that this thread made last and has not taken back; the contract excludes aliases.
    let record = unsafe { CURRENT.with(Cell::get).as_mut() };
    record.filter(|record| Arc::ptr_eq(&record.device, device))
}

/// Notes that LLVM has got a handle on `entry` and may now use its memory: see [`held`].
pub fn set_held(entry: *const Entry) {
    HELD.with(|held| held.set(entry));
}

/// Notes that LLVM has dropped its handle on `entry`.
pub fn unset_held(entry: *const Entry) {
    HELD.with(|held| {
        if held.get() == entry {
            held.set(null());
        }
    });
}

/// Notes which entry's lock LLVM holds on this thread, null for none.
pub fn set_locked(entry: *const Entry) {
    LOCKED.with(|locked| locked.set(entry));
}

/// The entry whose lock LLVM holds on this thread, see [`set_locked`].
#[cfg(not(model))]
pub fn locked() -> *const Entry {
    LOCKED.with(Cell::get)
}

/// The entry that this thread has looked up on exit and whose handle it still has.
///
/// Copies of data take only addresses. The handle lives around them, in the same function of LLVM's.
pub fn held() -> Option<Arc<Entry>> {
    let entry = NonNull::new(HELD.with(Cell::get).cast_mut())?;
    // SAFETY: C++ holds a handle on it, made by `Arc::into_raw`: `unset_held` is called before that one is dropped.
    unsafe { Arc::increment_strong_count(entry.as_ptr()) };
    // SAFETY: the count was raised for this very handle.
    Some(unsafe { Arc::from_raw(entry.as_ptr()) })
}

/// What the core knows of one call.
#[derive(Debug)]
pub struct CallRecord {
    call: Arc<Call>,
    device: Arc<Shared>,
    queue: AsyncInfo,
    /// What it did with which entries.
    pub uses: Uses,
    /// The calls that were still filling entries which this one uses, when it looked them up.
    pub unfilled: Vec<Arc<Call>>,
    /// The record that was this thread's current one before.
    outer: *mut CallRecord,
}

impl CallRecord {
    /// The record in `info`, made for `device` if there is none yet.
    ///
    /// # Safety
    ///
    /// `info` is that of a live `AsyncInfoTy` of the calling thread, whose `Queue` is null or from this function, and
    /// the former result for it is out of use.
    pub unsafe fn of<'r>(info: NonNull<AsyncInfo>, device: &Arc<Shared>) -> &'r mut Self {
        // SAFETY: live and this thread's own, by this function's contract.
        let queue = unsafe { &mut (*info.as_ptr()).queue };
        if queue.is_null() {
            let record = Box::into_raw(Box::new(Self {
                call: Arc::default(),
                device: Arc::clone(device),
                queue: AsyncInfo { queue: null_mut() },
                uses: Uses::default(),
                unfilled: Vec::new(),
                outer: CURRENT.with(Cell::get),
            }));
            CURRENT.with(|current| current.set(record));
            *queue = record.cast();
        }
        // SAFETY: made above or by an earlier call; the contract says that no other reference to it is in use.
        unsafe { &mut *queue.cast() }
    }

    /// Takes the record out of `info`, which is then as new.
    ///
    /// # Safety
    ///
    /// As for [`of`](Self::of).
    pub unsafe fn take(info: NonNull<AsyncInfo>) -> Option<Self> {
        // SAFETY: live and this thread's own, by this function's contract.
        let queue = unsafe { &mut (*info.as_ptr()).queue };
        let record = NonNull::new(std::mem::replace(queue, null_mut()).cast())?;
        // SAFETY: from `Box::into_raw` in `of`, and taken once.
        let taken: Self = *unsafe { Box::from_raw(record.as_ptr()) };
        taken.unlink(record.as_ptr());
        Some(taken)
    }

    /// Takes this record, which was at `address`, out of its thread's chain of open ones.
    fn unlink(&self, address: *mut Self) {
        let mut inner = CURRENT.with(Cell::get);
        if inner == address {
            return CURRENT.with(|current| current.set(self.outer));
        }
        // SAFETY: the chain holds this thread's open records, and ends with null.
        while let Some(record) = unsafe { inner.as_mut() } {
            if record.outer == address {
                record.outer = self.outer;
            }
            inner = record.outer;
        }
    }

    /// The call, as entries know it.
    pub const fn call(&self) -> &Arc<Call> {
        &self.call
    }

    /// Calls the plugin with the call's queue, under the call's lock.
    pub fn issue<R>(&mut self, call: impl FnOnce(*mut AsyncInfo) -> R) -> R {
        let mut queue = self.call.queue();
        let result = call(&raw mut self.queue);
        queue.address = self.queue.queue.addr();
        result
    }

    /// Keeps `entry`, its device memory and its event until this call has been synchronised.
    pub fn pin(&mut self, entry: &Arc<Entry>) {
        self.uses.of(entry);
    }

    /// Waits for the call's work, if its plugin has been given any queue, and lets go of what it used.
    pub fn finish(mut self) -> Done {
        if broken(Rule::PinUntilSynchronized) {
            self.let_go();
        }
        let done = if self.queue.queue.is_null() {
            Ok(())
        } else {
            self.call.set_synchronizing();
            // SAFETY: the plugin put the queue there, for the device of this record.
            unsafe { self.device.plugin.synchronize(&raw mut self.queue) }
        };
        self.call.finish(done.is_ok());
        self.let_go();
        done
    }

    fn let_go(&mut self) {
        for entry in std::mem::take(&mut self.uses).into_entries() {
            self.device.finish_use(entry);
        }
    }
}
