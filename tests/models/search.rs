//! Searches through the orders of scenarios: for one that is wrong, or for one that shows a broken rule.

use super::NOTES;
use super::scenarios::Scenario;
use omptarget::rules::{Rule, break_rule};
#[cfg(feature = "shuttle")]
use shuttle::{
    Runner,
    scheduler::{PctScheduler, RandomScheduler},
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Which orders are tried.
#[derive(Clone, Copy, Debug)]
pub enum Search {
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
        Search::Random(schedules) => {
            let scheduler = RandomScheduler::new_from_seed(number("MODEL_SEED", 14) as u64, schedules);
            Runner::new(scheduler, shuttle::Config::default()).run(run);
        }
        #[cfg(feature = "shuttle")]
        Search::Priorities(schedules) => {
            let scheduler = PctScheduler::new_from_seed(number("MODEL_SEED", 14) as u64, 3, schedules);
            Runner::new(scheduler, shuttle::Config::default()).run(run);
        }
    }));
    let text = |cause: Box<dyn std::any::Any + Send>| match cause.downcast::<String>() {
        Ok(text) => *text,
        Err(cause) => cause.downcast_ref::<&str>().map_or("a panic".to_owned(), |text| (*text).to_owned()),
    };
    (tried.load(Ordering::Relaxed), result.map_err(text))
}

/// A number from the environment.
#[cfg(feature = "shuttle")]
pub fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |number| number.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Searches that must find nothing.
pub fn check(searches: &[(Scenario, usize, Search)]) {
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
pub fn break_each(rules: &[Rule], searches: &[(Scenario, usize, Search)]) {
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
