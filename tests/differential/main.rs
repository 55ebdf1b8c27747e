//! The core against LLVM's own `device.cpp`, each linked into a library with the same harness and loaded side by side.
//!
//! - `compare`: random call sequences; everything is equal but for the intended differences, all of them listed there;
//! - `differences`: each of these once, with what stock does;
//! - `faults`: a failure of any plugin function leaves no trace.

mod compare;
mod differences;
mod faults;
mod harness;
mod plugin;
mod steps;

use compare::{Counts, Pair};
use harness::Bench;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestError, TestRunner};
use std::cell::RefCell;

/// Random sequences are equal on both sides, but for the intended differences, and reach all of these often.
///
/// `PROPTEST_RNG_SEED` and `PROPTEST_CASES` vary them.
#[test]
fn random_sequences_are_equal() {
    let mut config = Config { failure_persistence: None, rng_algorithm: RngAlgorithm::XorShift, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(14);
    }
    if config.max_shrink_iters == u32::MAX {
        // A minute or two.
        config.max_shrink_iters = 20_000;
    }
    if std::env::var_os("PROPTEST_CASES").is_none() {
        // So that the rarest difference is reached often enough.
        config.cases = 600;
    }
    let bench = RefCell::new(Bench::open());
    let counts = RefCell::new(Counts::new());
    let result = TestRunner::new(config)
        .run(&steps::case(1..900), |case| Pair::run(&mut bench.borrow_mut(), &mut counts.borrow_mut(), &case));
    drop(bench);
    let counts = counts.into_inner();
    match result {
        Err(TestError::Fail(why, case)) => panic!("{why}\nin the shortest case found:\n{case}"),
        Err(error) => panic!("{error}"),
        Ok(()) => println!("{counts}"),
    }
    if std::env::var_os("PROPTEST_CASES").is_none() {
        assert!(counts.steps >= 100_000 && counts.lowest() >= 100, "too few of some:\n{counts}");
    }
}
