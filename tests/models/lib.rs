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
    use omptarget::mapping::{
        Association, Begin, BeginRequest, Caller, CountKind, CountedOut, End, EndRequest, Entry, HostRange, Mappings,
        Origin, RefCounts, Released, SharedTables, Table, Tables, Uses,
    };
    use omptarget::rules::{Rule, break_rule};
    use omptarget::sync::{ENOUGH_SHARERS, Mutex, Rank, ReadMostly};
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
            table.end(&exit(range), Caller(1), None);
            assert!(matches!(table.release(range, CountKind::Dynamic, Caller(1)).1, Released::Kept));
            let table = Mutex::new(Rank::TABLE, table);
            let finish = |mut uses: Uses| {
                let mut is_removed = false;
                uses.drain(|entry, is_left| is_removed |= is_left && table.lock().remove_left_alone(&entry).is_some());
                is_removed
            };
            let another = spawn(move || {
                let mut second = Uses::default();
                second.of(&entry);
                let is_there = entry.is_in_table();
                (second, is_there)
            });
            let removed = finish(first);
            let (second, is_there) = another.join().expect("it does not panic");
            assert_ne!(is_there, removed);
            assert_eq!(finish(second), is_there, "the last one removes it");
            assert!(table.lock().is_empty());
        });
    }

    /// Two threads add mappings that would overlap, one inside a cell and one over its end, and so to two parts.
    fn add_to_two_parts(divided: bool) {
        loom::model(move || {
            let mappings = Arc::new(Mappings::default());
            if divided {
                mappings.divide();
            }
            let add = |mappings: &Mappings, begin, size| mappings.associate(HostRange::new(begin, size), 0x2000).0;
            let another = {
                let mappings = Arc::clone(&mappings);
                spawn(move || add(&mappings, 0x1ff0, 8))
            };
            let made = [add(&mappings, 0x1800, 0x1000), another.join().expect("it does not panic")];
            assert!(made.contains(&Association::Made) && made.contains(&Association::Overlaps), "{made:?}");
        });
    }

    /// While one thread deletes a mapping, another one finds what is there, in the whole or in its parts.
    #[test]
    fn what_is_mapped_is_found_beside_a_delete() {
        const ARRAY: HostRange = HostRange::new(0x1800, 0x1000);
        // With the lock, and without.
        for [divided, open] in [[false, false], [true, false], [false, true], [true, true]] {
            loom::model(move || {
                let mappings = Arc::new(Mappings::default());
                if divided {
                    mappings.divide();
                }
                assert_eq!(mappings.associate(ARRAY, 0x2000).0, Association::Made);
                let (range, caller) = (HostRange::new(0x9000, 8), Caller(1));
                add(&mappings, range, caller);
                let is_there = |mappings: &Mappings, caller| mappings.look_up(ARRAY, false, caller, |_| ()).1.is_some();
                if open {
                    (0..ENOUGH_SHARERS).for_each(|_| assert!(is_there(&mappings, caller)));
                }
                let looks = {
                    let mappings = Arc::clone(&mappings);
                    spawn(move || assert!(is_there(&mappings, Caller(2)), "it is there all the time"))
                };
                mappings.end(&EndRequest { force_delete: true, ..exit(range) }, caller, None);
                let (_, released) = mappings.release(range, CountKind::Dynamic, caller);
                assert!(matches!(released, Released::Detached(_)), "{released:?}");
                looks.join().expect("it does not panic");
                assert!(mappings.look_up(range, false, caller, |_| ()).1.is_none() && !mappings.has_detached());
            });
        }
    }

    /// What is mapped is found while the whole is divided.
    #[test]
    fn what_is_mapped_is_found_beside_a_division() {
        const RANGE: HostRange = HostRange::new(0x9000, 8);
        for open in [false, true] {
            loom::model(move || {
                let mappings = Arc::new(Mappings::default());
                add(&mappings, RANGE, Caller(1));
                let is_there = |mappings: &Mappings, caller| mappings.look_up(RANGE, false, caller, |_| ()).1.is_some();
                if open {
                    (0..ENOUGH_SHARERS).for_each(|_| assert!(is_there(&mappings, Caller(1))));
                }
                let looks = {
                    let mappings = Arc::clone(&mappings);
                    spawn(move || assert!(is_there(&mappings, Caller(2)), "it is there all the time"))
                };
                mappings.divide();
                looks.join().expect("it does not panic");
            });
        }
    }

    /// Two threads count the same mapping in and out while they share its table: what their calls have counted, or by its
    /// range alone.
    fn count_beside_a_sharer(known: bool) {
        const RANGE: HostRange = HostRange::new(0x9000, 8);
        let mut model = loom::model::Builder::new();
        // Of the orders in which one waits for the other to have counted.
        model.max_branches = 100_000;
        model.check(move || {
            let mappings = Arc::new(Mappings::default());
            add(&mappings, RANGE, Caller(1));
            for _ in 0..ENOUGH_SHARERS {
                mappings.look_up(RANGE, false, Caller(1), |_| ());
            }
            let count = move |mappings: &Mappings, caller| {
                let mut uses = Uses::default();
                let share = || mappings.share_only(RANGE, caller).expect("nothing else is mapped");
                let (_, begun) = share().begin(&entry(RANGE), caller, &mut uses);
                let (_, ended) = share().count_end(&exit(RANGE), caller, known.then_some(&mut uses));
                assert!(matches!(begun, Begin::Exists { is_new: false, .. }), "{begun:?}");
                assert!(matches!(ended, End::Found(_, CountedOut { last: false, .. })), "{ended:?}");
                uses.drain(|_, is_left| assert!(!is_left));
            };
            let another = {
                let mappings = Arc::clone(&mappings);
                spawn(move || count(&mappings, Caller(2)))
            };
            count(&mappings, Caller(1));
            another.join().expect("it does not panic");
            let counts = mappings.look_up(RANGE, false, Caller(1), |entry| entry.counts()).1;
            assert_eq!(counts, Some(RefCounts::first(CountKind::Dynamic, false)));
        });
    }

    #[test]
    fn who_share_a_table_count_one_after_another() {
        for known in [false, true] {
            count_beside_a_sharer(known);
            break_rule(Some(Rule::CountAlone));
            let noticed = std::panic::catch_unwind(|| count_beside_a_sharer(known));
            break_rule(None);
            assert!(noticed.is_err(), "nobody notices that two count at once");
        }
    }

    fn entry(range: HostRange) -> BeginRequest {
        BeginRequest {
            range,
            base: range.begin(),
            name: 0,
            kind: CountKind::Dynamic,
            implicit: false,
            update: true,
            close: false,
            present: false,
            unified: false,
        }
    }

    fn add(mappings: &Mappings, range: HostRange, caller: Caller) {
        let request = entry(range);
        let mut uses = Uses::default();
        let (_, Begin::Create(seen)) = mappings.begin(&request, caller, &mut uses) else { panic!("nothing is there") };
        let counts = RefCounts::first(CountKind::Dynamic, false);
        let entry = Entry::new(range, request.base, 0x2000, 0, Origin::Mapped, counts);
        assert!(mappings.insert(Arc::new(entry), &request, seen, &mut uses, || ()).is_ok());
        uses.drain(|_, is_left| assert!(!is_left));
    }

    fn exit(range: HostRange) -> EndRequest {
        EndRequest {
            range,
            kind: CountKind::Dynamic,
            update: true,
            must_contain: true,
            force_delete: false,
            unified: false,
        }
    }

    #[test]
    fn of_two_that_overlap_and_meet_one_is_added() {
        add_to_two_parts(false);
    }

    #[test]
    fn of_two_that_overlap_one_is_added() {
        add_to_two_parts(true);
        break_rule(Some(Rule::SayBeforeAsking));
        let noticed = std::panic::catch_unwind(|| add_to_two_parts(true));
        break_rule(None);
        assert!(noticed.is_err(), "nobody notices that it is not said before");
    }

    /// One thread changes a value twice while another one shares it, without the lock if it may.
    fn change_beside_a_sharer() {
        loom::model(|| {
            let pair = Arc::new(ReadMostly::new(Rank::TABLE, Arc::default(), [0, 0]));
            let share = |pair: &ReadMostly<[_; 2]>, number| {
                let pair = pair.share(number);
                assert_eq!(pair[0], pair[1]);
                pair[0]
            };
            (0..ENOUGH_SHARERS).for_each(|_| _ = share(&pair, 2));
            let sharer = {
                let pair = Arc::clone(&pair);
                spawn(move || share(&pair, 1))
            };
            for value in [1, 2] {
                *pair.lock() = [value; 2];
                (0..ENOUGH_SHARERS).for_each(|_| assert_eq!(share(&pair, 2), value));
            }
            sharer.join().expect("it does not panic");
        });
    }

    #[test]
    fn who_changes_a_table_waits_for_sharers() {
        change_beside_a_sharer();
        break_rule(Some(Rule::ChangeAfterSharers));
        let noticed = std::panic::catch_unwind(change_beside_a_sharer);
        break_rule(None);
        assert!(noticed.is_err(), "nobody notices that sharers are not waited for");
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
        // What the parts of a table do among themselves, and how they are read, has models of its own.
        let others = [Rule::SayBeforeAsking, Rule::ChangeAfterSharers];
        let rules = Rule::ALL.into_iter().filter(|rule| !others.contains(rule)).collect::<Vec<_>>();
        break_each(&rules, &searches);
    }
}
