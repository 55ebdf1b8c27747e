//! The record of one call into the runtime, from its first use of a queue to its synchronisation.
//!
//! LLVM gives each call an `AsyncInfoTy` whose `Queue` it tests for null and never reads. The core keeps its own
//! record there and hands the plugin the `__tgt_async_info` inside that record. So every call ends in
//! `DeviceTy::synchronize`, also with a plugin that has no queues; the queue is synchronised on the device it belongs
//! to, whoever asks; and what the call uses stays alive until then.

use super::Plugin;
use super::pin::let_go;
use crate::mapping::Entry;
use crate::plugin_api::Done;
use crate::sync::{Arc, AtomicU64, Ordering};
use omptarget_abi::AsyncInfo;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

/// Serial of the next record. 0 is nobody's.
static NEXT: AtomicU64 = AtomicU64::new(1);

// No destructor: device destructors run when thread-locals may be gone.
thread_local!(static OPEN: Cell<usize> = const { Cell::new(0) });

/// Whether this thread is inside a call that has a record.
pub fn open_on_this_thread() -> bool {
    OPEN.get() > 0
}

/// What the core knows of one call.
#[derive(Debug)]
pub struct CallRecord {
    serial: u64,
    plugin: Arc<Plugin>,
    queue: AsyncInfo,
    pins: Vec<Arc<Entry>>,
}

impl CallRecord {
    /// The record in `info`, made for `plugin`'s device if there is none yet.
    ///
    /// # Safety
    ///
    /// `info` is that of a live `AsyncInfoTy` of the calling thread, whose `Queue` is null or from this function, and
    /// the former result for it is out of use.
    pub unsafe fn of<'r>(info: NonNull<AsyncInfo>, plugin: &Arc<Plugin>) -> &'r mut Self {
        // SAFETY: live and this thread's own, by this function's contract.
        let queue = unsafe { &mut (*info.as_ptr()).queue };
        if queue.is_null() {
            let record = Self {
                serial: NEXT.fetch_add(1, Ordering::Relaxed),
                plugin: Arc::clone(plugin),
                queue: AsyncInfo { queue: null_mut() },
                pins: Vec::new(),
            };
            OPEN.set(OPEN.get() + 1);
            *queue = Box::into_raw(Box::new(record)).cast();
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
        OPEN.set(OPEN.get().saturating_sub(1));
        // SAFETY: from `Box::into_raw` in `of`, and taken once.
        Some(*unsafe { Box::from_raw(record.as_ptr()) })
    }

    /// Tells this call from every other one.
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// The queue as the plugin sees it.
    pub const fn queue(&mut self) -> *mut AsyncInfo {
        &raw mut self.queue
    }

    /// Keeps `entry`, its device memory and its event until this call has been synchronised.
    pub fn pin(&mut self, entry: &Arc<Entry>) {
        if !self.pins.iter().any(|pinned| Arc::ptr_eq(pinned, entry)) {
            self.pins.push(Arc::clone(entry));
        }
    }

    /// Waits for the call's work, if its plugin has been given any queue, and lets go of what it used.
    pub fn finish(mut self) -> Done {
        let done = if self.queue.queue.is_null() {
            Ok(())
        } else {
            let queue = self.queue();
            // SAFETY: the plugin put the queue there, for the device of this record.
            unsafe { self.plugin.synchronize(queue) }
        };
        for entry in self.pins {
            let_go(&self.plugin, entry);
        }
        done
    }
}
