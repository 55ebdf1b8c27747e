//! The core's own code on the locks of a model checker, which tries the orders in which threads can run.
//!
//! ```text
//! cargo test --release -p omptarget-models --features loom       every order of two tasks, with two pre-emptions at most
//! cargo test --release -p omptarget-models --features shuttle    random orders of up to eight tasks
//! ```
//!
//! A device that runs its queues on threads of their own is in `world`, what LLVM's side of a call does in `calls`, the
//! programs in `scenarios`. Each rule of the protocol is broken in turn, and at least one model must notice: the table
//! that the tests print (`-- --nocapture`) says which. `MODEL_SCHEDULES=n` sets how many orders shuttle tries for each
//! scenario.
#![cfg(all(test, any(feature = "loom", feature = "shuttle")))]

mod calls;
#[cfg_attr(feature = "loom", allow(dead_code, reason = "loom has five threads, too few for some"))]
mod scenarios;
mod world;

use omptarget::rules::{Rule, break_rule};
use scenarios::Scenario;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The checker's own threads and locks.
mod checker {
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

/// Which orders are tried.
#[derive(Clone, Copy, Debug)]
enum Search {
    /// All, with at most two pre-emptions.
    #[cfg(feature = "loom")]
    All,
    /// So many at random.
    #[cfg(feature = "shuttle")]
    Random(usize),
    /// So many at random, by priorities that change three times.
    #[cfg(feature = "shuttle")]
    Priorities(usize),
}

/// Tries orders of a scenario until one fails. How many were tried, and what went wrong.
fn explore(scenario: Scenario, tasks: usize, search: Search) -> (usize, Result<(), String>) {
    let tried = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tried);
    let run = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        NOTES.take();
        scenario.run(tasks);
    };
    let result = catch_unwind(AssertUnwindSafe(|| match search {
        #[cfg(feature = "loom")]
        Search::All => {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(2);
            model.max_branches = 100_000;
            model.check(run);
        }
        #[cfg(feature = "shuttle")]
        Search::Random(schedules) => shuttle::check_random(run, schedules),
        #[cfg(feature = "shuttle")]
        Search::Priorities(schedules) => shuttle::check_pct(run, schedules, 3),
    }));
    let text = |cause: Box<dyn std::any::Any + Send>| match cause.downcast::<String>() {
        Ok(text) => *text,
        Err(cause) => cause.downcast_ref::<&str>().map_or("a panic".to_owned(), |text| (*text).to_owned()),
    };
    (tried.load(Ordering::Relaxed), result.map_err(text))
}

/// Searches that must find nothing.
fn check(searches: &[(Scenario, usize, Search)]) {
    let mut all = 0;
    for &(scenario, tasks, search) in searches {
        let start = Instant::now();
        let (tried, result) = explore(scenario, tasks, search);
        println!("{:50} {tasks} tasks {tried:7} orders {:6.1} s", scenario.name, start.elapsed().as_secs_f64());
        if let Err(fault) = result {
            println!("{}", NOTES.take().join("\n"));
            panic!("{} with {tasks} tasks, {search:?}: {fault}", scenario.name);
        }
        all += tried;
    }
    println!("{all} orders tried, no fault");
}

/// Breaks each rule in turn and searches until a model notices.
fn break_each(rules: &[Rule], searches: &[(Scenario, usize, Search)]) {
    let mut unnoticed = Vec::new();
    for &rule in rules {
        break_rule(Some(rule));
        let noticed = searches.iter().find_map(|&(scenario, tasks, search)| {
            let (tried, result) = explore(scenario, tasks, search);
            result.err().map(|fault| (scenario.name, tasks, tried, fault))
        });
        break_rule(None);
        match noticed {
            Some((name, tasks, tried, fault)) => {
                let fault = fault.lines().nth(1).unwrap_or(&fault).trim().to_owned();
                println!("{:28} {name}, {tasks} tasks, order {tried}: {fault}", format!("{rule:?}"));
            }
            None => {
                println!("{:28} not noticed", format!("{rule:?}"));
                unnoticed.push(rule);
            }
        }
    }
    assert!(unnoticed.is_empty(), "no model notices when these are broken: {unnoticed:?}");
}

#[cfg(feature = "loom")]
mod loom_tests {
    use super::scenarios::{ADDERS, DELETE, READERS};
    use super::*;

    const SEARCHES: [(Scenario, usize, Search); 3] =
        [(READERS, 2, Search::All), (ADDERS, 2, Search::All), (DELETE, 2, Search::All)];

    #[test]
    fn no_order_is_wrong() {
        check(&SEARCHES);
    }

    #[test]
    fn rules_of_one_mapping_are_needed() {
        break_each(
            &[
                Rule::EntryLockBeforeTableUnlock,
                Rule::WaitBeforeUse,
                Rule::RecordAfterCopy,
                Rule::CopyBackAfterUsers,
                Rule::MarkAndInherit,
                Rule::PinUntilSynchronized,
                Rule::DeleteDetaches,
                Rule::NeededWaits,
            ],
            &SEARCHES,
        );
    }
}

#[cfg(feature = "shuttle")]
mod shuttle_tests {
    use super::*;

    /// How many orders are tried of each scenario.
    fn schedules() -> usize {
        std::env::var("MODEL_SCHEDULES").map_or(2_500, |number| number.parse().expect("MODEL_SCHEDULES is a number"))
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
        let searches: Vec<_> = [3, 8]
            .iter()
            .flat_map(|&tasks| scenarios::ALL.map(|scenario| (scenario, tasks, Search::Random(schedules()))))
            .collect();
        break_each(&Rule::ALL, &searches);
    }
}
