//! The core's own code on the locks of a model checker, which tries the orders in which threads can run.
//!
//! ```text
//! cargo test --release -p omptarget-models --features loom       every order of two tasks, with two pre-emptions at most
//! cargo test --release -p omptarget-models --features shuttle    random orders of up to eight tasks
//! cargo test --release -p omptarget-models --features threads    real threads, to be run under the thread sanitizer
//! ```
//!
//! A device that runs its queues on threads of their own is in `world`, what LLVM's side of a call does in `calls`, the
//! programs in `scenarios`. Each rule of the protocol is broken in turn, and at least one model must notice: the table
//! that the tests print (`-- --nocapture`) says which. `MODEL_SCHEDULES=n` sets how many orders shuttle tries for each
//! scenario, `MODEL_SEED=n` which.
#![cfg(all(test, any(feature = "loom", feature = "shuttle", feature = "threads")))]

mod calls;
#[cfg_attr(feature = "loom", allow(dead_code, reason = "loom has five threads, too few for some"))]
mod scenarios;
#[cfg(not(feature = "threads"))]
mod search;
#[cfg(feature = "threads")]
mod threads;
mod world;

use std::cell::RefCell;

/// The checker's own threads and locks.
mod checker {
    #[cfg(feature = "threads")]
    pub use super::threads::{AtomicUsize, Condvar, JoinHandle, Mutex, MutexGuard, spawn};
    #[cfg(feature = "loom")]
    pub use loom::sync::atomic::AtomicUsize;
    #[cfg(feature = "loom")]
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(feature = "loom")]
    pub use loom::thread::{JoinHandle, spawn};
    #[cfg(feature = "shuttle")]
    pub use shuttle::sync::atomic::AtomicUsize;
    #[cfg(feature = "shuttle")]
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(feature = "shuttle")]
    pub use shuttle::thread::{JoinHandle, spawn};
}

/// Notes what an order does, to be printed if it is a wrong one.
macro_rules! note {
    ($($text:tt)*) => {{
        let line = format!($($text)*);
        crate::NOTES.with_borrow_mut(|notes| notes.push(line));
    }};
}
pub(crate) use note;

// A model checker runs all threads of a model on one thread of the system.
thread_local!(static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) });

#[cfg(feature = "threads")]
mod thread_tests {
    use super::scenarios;

    /// For the thread sanitizer, which ends the process with a code of its own when it has seen a race.
    #[test]
    fn real_threads_are_right() {
        for scenario in scenarios::ALL {
            for _ in 0..200 {
                scenario.run(6);
            }
        }
    }

    /// A race that the sanitizer has to find, else it would not find those of the core either.
    #[test]
    #[ignore = "it is a race, for the thread sanitizer to find"]
    fn planted() {
        struct Racy(std::cell::UnsafeCell<u64>);
        // SAFETY: it is not, which is what this is for.
        unsafe impl Sync for Racy {}
        static RACY: Racy = Racy(std::cell::UnsafeCell::new(0));
        let threads = [(); 2].map(|()| {
            std::thread::spawn(|| {
                for _ in 0..10_000 {
                    // SAFETY: there is none: two threads write at once.
                    unsafe { *RACY.0.get() += 1 };
                    scenarios::READERS.run(1);
                }
            })
        });
        for thread in threads {
            thread.join().expect("it does not panic");
        }
    }
}

#[cfg(feature = "loom")]
mod loom_tests {
    use super::checker::spawn;
    use super::scenarios::{ADDERS, READERS, Scenario};
    use super::search::{Search, break_each, check};
    use omptarget::mapping::{Caller, CountKind, EndRequest, HostRange, Released, Table, Uses};
    use omptarget::rules::Rule;
    use omptarget::sync::{Mutex, Rank};
    use std::sync::Arc;

    const SEARCHES: [(Scenario, usize, Search); 2] = [(READERS, 2, Search::All), (ADDERS, 2, Search::All)];

    #[test]
    fn no_order_is_wrong() {
        check(&SEARCHES);
    }

    /// Pins are taken without the table's lock. Who gets one on what was left to another call either keeps it in its
    /// table, or learns that it has gone.
    #[test]
    fn what_was_left_to_calls_is_pinned_or_gone() {
        loom::model(|| {
            let (range, mut table, mut first) = (HostRange::new(0x1000, 8), Table::default(), Uses::default());
            table.emplace(range, 0x1000, 0x2000, 0, CountKind::Dynamic, false);
            let entry = Arc::clone(table.exact(0x1000).expect("just made"));
            first.of(&entry);
            let exit = EndRequest {
                range,
                kind: CountKind::Dynamic,
                update: true,
                must_contain: true,
                force_delete: false,
                extended: false,
                unified: false,
            };
            table.end(&exit, Caller(1), None);
            assert!(matches!(table.release(range, CountKind::Dynamic, Caller(1)).1, Released::Kept));
            let table = Mutex::new(Rank::TABLE, table);
            let finish = |uses: &Uses| uses.unpin() && !table.lock().remove_left_alone(uses).is_empty();
            let another = spawn(move || {
                let mut second = Uses::default();
                second.of(&entry);
                let is_there = entry.is_in_table();
                (second, is_there)
            });
            let removed = finish(&first);
            let (second, is_there) = another.join().expect("it does not panic");
            assert_ne!(is_there, removed);
            assert_eq!(finish(&second), is_there, "the last one removes it");
            assert!(table.lock().is_empty());
        });
    }

    #[test]
    fn rules_of_one_mapping_are_needed() {
        break_each(
            &[
                Rule::EntryLockBeforeTableUnlock,
                Rule::WaitBeforeUse,
                Rule::RecordAfterCopy,
                Rule::CopyBackAfterUsers,
                Rule::PinUntilSynchronized,
                Rule::NeededWaits,
            ],
            &SEARCHES,
        );
    }
}

#[cfg(feature = "shuttle")]
mod shuttle_tests {
    use super::scenarios;
    use super::search::{Search, break_each, check, number};
    use omptarget::rules::Rule;

    /// How many orders are tried of each scenario.
    fn schedules() -> usize {
        number("MODEL_SCHEDULES", 2_500)
    }

    #[test]
    fn random_orders_are_right() {
        let of = |search: fn(usize) -> Search, part| {
            scenarios::ALL.map(|scenario| (scenario, 8, search(schedules() / part)))
        };
        check(&of(Search::Random, 1));
        check(&of(Search::Priorities, 5));
    }

    #[test]
    fn each_rule_is_needed() {
        let searches: Vec<_> = [2, 3, 8]
            .iter()
            .flat_map(|&tasks| scenarios::ALL.map(|scenario| (scenario, tasks, Search::Priorities(schedules()))))
            .chain([(scenarios::ATTACHED_THERE, 3, Search::Random(20 * schedules()))])
            .collect();
        break_each(&Rule::ALL, &searches);
    }
}
