//! Runs the programs in `tests/programs/races/`: tasks that share mapped data as OpenMP allows, each program with one right
//! answer whatever the schedule.
//!
//! `omptarget stress` runs them many times; here they run a few times each, and on the host device too.

mod support;

use anyhow::{Context, Result};
use omptarget_tool::core::{Core, Parts};
use omptarget_tool::lit::Device;
use omptarget_tool::llvm::Tree;
use omptarget_tool::stress::{self, Place};
use support::{Plugin, check_all, programs};

/// Programs that LLVM's core gets wrong on the emulated device whatever the schedule.
const WRONG_ON_STOCK: [&str; 2] = ["from_and_release.c", "mapper_after_delete.c"];

/// How often each program runs on each device.
const RUNS: u64 = 3;

#[test]
fn races_are_right_on_the_host_device() -> Result<()> {
    check_all(&programs("races")?, |race| {
        let runs = (0..RUNS).map(|_| Ok(race.complaints(&race.run(Core::Rust, Plugin::Machine, &[])?)));
        Ok(runs.collect::<Result<Vec<_>>>()?.concat())
    })
}

/// What is wrong with the runs of one program on the emulated device.
fn complaints(name: &str, core: Core) -> Result<Vec<String>> {
    let device = Device::CudaEmulated;
    let place = Place::new(Parts { core, plugin: Core::Rust }, device)?;
    let tests = Tree::locate(None)?.libomptarget().join("test");
    let found = stress::programs(&tests, device, Some(&format!("^races/{}$", regex_of(name))))?;
    let compiled = found.first().context("there is no such program")?.compile(&place)?;
    let mut complaints = Vec::new();
    for seed in 1..=RUNS {
        let failure = compiled.run(&place, seed)?;
        complaints.extend(failure.map(|failure| format!("seed {seed}: {}: {}", failure.outcome, failure.said)));
    }
    Ok(complaints)
}

/// A regular expression that matches a file's name alone.
fn regex_of(name: &str) -> String {
    name.replace('.', r"\.")
}

#[test]
fn races_are_right_on_the_emulated_cuda_device() -> Result<()> {
    check_all(&programs("races")?, |race| complaints(&race.name, Core::Rust))
}

/// Without this, programs and runs that cannot go wrong would look the same.
#[test]
fn races_go_wrong_on_llvms_core() -> Result<()> {
    let mut races = programs("races")?;
    races.retain(|race| WRONG_ON_STOCK.contains(&race.name.as_str()));
    assert_eq!(races.len(), WRONG_ON_STOCK.len());
    check_all(&races, |race| {
        let found = complaints(&race.name, Core::Stock)?;
        Ok(if found.is_empty() { vec!["is right on LLVM's core".to_owned()] } else { Vec::new() })
    })
}
