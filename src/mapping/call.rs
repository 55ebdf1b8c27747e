//! A call into the runtime, as the entries that it uses know it.

#![forbid(unsafe_code)]

use crate::rules::{Rule, broken};
use crate::sync::{AtomicBool, Condvar, Guard, Mutex, Ordering, Rank};

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

/// How far a call's queue has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Work may be issued on it.
    Open,
    /// Its thread waits for it. It depends on nobody's thread.
    Synchronizing,
    /// It is done, or has failed.
    Finished,
}

/// A call's queue, guarded by the call's lock: nobody records on a queue while it is given back.
#[derive(Debug)]
pub struct Queue {
    /// The plugin's queue, 0 while there is none.
    pub address: usize,
    /// How far it has got.
    pub phase: Phase,
}

/// A call, from its first use of a queue to its synchronisation.
#[derive(Debug)]
pub struct Call {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// All of its copies to the device have been issued.
    filled: AtomicBool,
    /// It has been synchronised, with success.
    done: AtomicBool,
}

impl Default for Call {
    fn default() -> Self {
        let queue = Queue { address: 0, phase: Phase::Open };
        Self {
            queue: Mutex::new(Rank::CALL, queue),
            changed: Condvar::default(),
            filled: AtomicBool::new(false),
            done: AtomicBool::new(false),
        }
    }
}

impl Call {
    /// The call's queue, locked.
    pub fn queue(&self) -> Guard<'_, Queue> {
        self.queue.lock()
    }

    /// Whether all its work is known to be done.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Whether all of its copies to the device have been issued.
    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Notes that no more copies to the device will be issued for its mappings.
    pub fn set_filled(&self) {
        if !self.is_filled() {
            let _queue = self.queue();
            self.filled.store(true, Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// Blocks until all of its copies to the device have been issued.
    pub fn wait_until_filled(&self) {
        let mut queue = self.queue();
        while !self.is_filled() {
            self.changed.wait(&mut queue);
        }
    }

    /// Notes that its thread starts to wait for its queue.
    pub fn set_synchronizing(&self) {
        if broken(Rule::NeededWaits) {
            self.done.store(true, Ordering::Release);
        }
        self.queue().phase = Phase::Synchronizing;
    }

    /// Notes that its queue is gone; only a success makes its work done.
    pub fn finish(&self, success: bool) {
        let mut queue = self.queue();
        self.done.store(success, Ordering::Release);
        self.filled.store(true, Ordering::Release);
        *queue = Queue { address: 0, phase: Phase::Finished };
        self.changed.notify_all();
    }

    /// Blocks until a queue that is being synchronised is finished.
    pub fn wait_until_finished(&self, mut queue: Guard<'_, Queue>) {
        while queue.phase == Phase::Synchronizing {
            self.changed.wait(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_success_is_done() {
        let call = Call::default();
        assert!(!call.is_done());
        call.finish(false);
        assert!(!call.is_done() && call.is_filled());
        let call = Call::default();
        call.finish(true);
        assert!(call.is_done());
    }

    #[test]
    fn waiters_are_woken() {
        let call = crate::sync::Arc::new(Call::default());
        call.set_synchronizing();
        let waits = |wait: fn(&Call)| {
            let call = crate::sync::Arc::clone(&call);
            std::thread::spawn(move || wait(&call))
        };
        let finished = waits(|call| call.wait_until_finished(call.queue()));
        let filled = waits(Call::wait_until_filled);
        call.finish(true);
        finished.join().unwrap();
        filled.join().unwrap();
    }
}
