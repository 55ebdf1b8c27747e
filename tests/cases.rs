//! Runs the programs in `tests/programs/cases/`: small programs from public bug reports, each with its right answer in
//! its head.
//!
//! A number at the start of a name is a report's; programs with the same number are of the same kind. b01: reports of
//! transfers for which the table has no entry. b04: zero-length sections and the extended range of a mapping. b26: what
//! can be associated and disassociated.

mod support;

use anyhow::Result;
use omptarget_tool::core::Core;
use support::{Plugin, check_all, programs};

#[test]
fn cases_pass_on_the_host_plugin() -> Result<()> {
    check_all(&programs("cases")?, |case| {
        for _ in 0..case.head.repeat {
            let complaints = case.complaints(&case.run(Core::Rust, Plugin::Machine, &[])?);
            if !complaints.is_empty() {
                return Ok(complaints);
            }
        }
        Ok(Vec::new())
    })
}

#[test]
fn cases_pass_on_a_plugin_with_queues_and_events() -> Result<()> {
    check_all(&programs("cases")?, |case| {
        for _ in 0..case.head.repeat {
            let run = case.run(Core::Rust, Plugin::Failing, &[])?;
            let mut complaints = case.complaints(&run);
            // Events may be left, of entries that never go: they are the plugin's.
            let end = run.trace.lines().last().unwrap_or_default();
            let clean = end.starts_with("end memory=0 ") && end.ends_with(" queues=0");
            if !case.head.abort && !clean {
                complaints.push(format!("leaves something on the device: {end}"));
            }
            if !complaints.is_empty() {
                return Ok(complaints);
            }
        }
        Ok(Vec::new())
    })
}

/// What the heads say about LLVM's core holds, so that a case which passes there too is known to, and one which is
/// there to show a difference does show it.
#[test]
fn cases_show_what_llvm_does() -> Result<()> {
    check_all(&programs("cases")?, |case| {
        let Some(stock) = &case.head.stock else {
            return Ok(vec!["the head does not say what LLVM does".to_owned()]);
        };
        let complaints = case.complaints(&case.run(Core::Stock, Plugin::Machine, &[])?);
        Ok(match (stock.starts_with("the same"), complaints.is_empty()) {
            (true, false) => complaints,
            (false, true) => vec!["passes on LLVM's core as well".to_owned()],
            _ => Vec::new(),
        })
    })
}
