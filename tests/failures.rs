//! Runs the programs in `tests/programs/failures/` on a plugin that fails on request: the core names the function that
//! failed in one line, LLVM's own words follow, and what the failed call had mapped is
//! not in the table.

mod support;

use anyhow::Result;
use omptarget_tool::core::Core;
use support::{Plugin, Program, Run, check_all, programs};

fn plugin(program: &Program) -> Plugin {
    if program.head.sync_plugin { Plugin::FailingSync } else { Plugin::Failing }
}

/// The function that is to fail, from the head's `env: OMPTARGET_FAIL=<function>[:n]`.
fn failing_function(program: &Program) -> Option<&str> {
    let (_, request) = program.head.env.iter().find(|(name, _)| name == "OMPTARGET_FAIL")?;
    request.split(':').next()
}

/// What does not hold of a failure: that it took place, and that exactly one line names the function.
fn complaints_about_failure(program: &Program, function: &str, run: &Run) -> Vec<String> {
    let mut complaints = Vec::new();
    let failed = run
        .trace
        .lines()
        .filter(|line| line.split(' ').next() == Some(function) && line.split(' ').any(|word| word == "failed"))
        .count();
    let expected = usize::from(!program.head.never_fails);
    if failed != expected {
        complaints.push(format!("{function} fails {failed} times instead of {expected}"));
    }
    let symbol = format!("__tgt_rtl_{function} failed");
    let named = run.stderr.lines().filter(|line| line.contains(&symbol)).count();
    if named != expected {
        complaints.push(format!("{named} lines say {symbol:?} instead of {expected}"));
    }
    complaints
}

fn check(program: &Program, more: &[(&str, &str)]) -> Result<Vec<String>> {
    let run = program.run(Core::Rust, plugin(program), more)?;
    let mut complaints = program.complaints(&run);
    if let Some(function) = failing_function(program) {
        complaints.extend(complaints_about_failure(program, function, &run));
    }
    if !complaints.is_empty() {
        complaints.push(format!("the trace is:\n{}", run.trace));
    }
    Ok(complaints)
}

#[test]
fn failures_are_reported() -> Result<()> {
    check_all(&programs("failures")?, |program| check(program, &[]))
}

#[test]
fn failures_are_reported_in_debug_output() -> Result<()> {
    check_all(&programs("failures")?, |program| check(program, &[("LIBOMPTARGET_DEBUG", "1")]))
}

/// Beside the lines that name a function of the plugin, which LLVM does not have, the debug output of a failing program
/// is LLVM's.
#[test]
fn debug_output_of_failures_is_that_of_llvm() -> Result<()> {
    check_all(&programs("failures")?, |program| {
        let log = |core| {
            let run = program.run(core, plugin(program), &[("LIBOMPTARGET_DEBUG", "1")])?;
            let own = |line: &&str| line.contains("__tgt_rtl_") || line.starts_with("failing plugin: ");
            Ok::<_, anyhow::Error>(run.stderr.split_inclusive('\n').filter(|line| !own(line)).collect::<String>())
        };
        Ok(program.log_complaints(&log(Core::Stock)?, &log(Core::Rust)?))
    })
}
