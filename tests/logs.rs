//! The debug logs of the programs in `tests/programs/log/` on the Rust core: kept as snapshots, equal to those of
//! LLVM's core, and between them with every message that the core has.
//!
//! A snapshot begins where LLVM has loaded the plugins, since which there are depends on the machine.

mod support;

use anyhow::{Context, Result, ensure};
use omptarget_tool::core::Core;
use omptarget_tool::paths;
use support::{Plugin, Program, Run, check_all, programs, read_log};

macro_rules! snapshots {
    ($($test:ident: $file:literal),* $(,)?) => {
        const FILES: &[&str] = &[$($file),*];
        mod snapshot {
            $(#[test]
            fn $test() -> anyhow::Result<()> {
                super::check_snapshot($file)
            })*
        }
    };
}

snapshots! {
    association: "association.c",
    association_refused: "association_refused.c",
    counts: "counts.c",
    declare_mapper: "declare_mapper.cpp",
    declare_target: "declare_target.cpp",
    delete: "delete.c",
    extended_range: "extended_range.c",
    extension: "extension.c",
    extension_refused: "extension_refused.c",
    info_levels: "info_levels.c",
    late_delete: "late_delete.c",
    no_such_device: "no_such_device.c",
    present: "present.c",
    table_dump: "table_dump.c",
    table_dump_on_failure: "table_dump_on_failure.c",
    target_update: "target_update.c",
    unified_shared_memory: "unified_shared_memory.c",
}

fn program(file: &str) -> Result<Program> {
    Program::read(&paths::root().join("tests/programs/log").join(file))
}

fn check_snapshot(file: &str) -> Result<()> {
    let program = program(file)?;
    let run = program.run(Core::Rust, Plugin::Machine, &[])?;
    let complaints = program.complaints(&run);
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    let settings = {
        let mut settings = insta::Settings::clone_current();
        settings.set_omit_expression(true);
        settings
    };
    let name = file.split('.').next().unwrap_or(file);
    settings.bind(|| insta::assert_snapshot!(name, read_log(&run.stderr)));
    Ok(())
}

#[test]
fn each_program_has_a_snapshot() -> Result<()> {
    let files: Vec<String> = programs("log")?.into_iter().map(|program| program.name).collect();
    assert_eq!(files, FILES);
    Ok(())
}

#[test]
fn logs_are_those_of_llvm() -> Result<()> {
    check_all(&programs("log")?, |program| {
        let mut complaints = Vec::new();
        for plugin in [Plugin::Machine, Plugin::Failing] {
            let stock = program.run(Core::Stock, plugin, &[])?;
            let rust = program.run(Core::Rust, plugin, &[])?;
            complaints.extend(program.log_complaints(&stock.stderr, &rust.stderr));
        }
        Ok(complaints)
    })
}

/// What a plugin is asked to do, without addresses. Which events are recorded, and how often a queue waits or is waited
/// for, is the core's own business.
fn calls(run: &Run) -> Vec<String> {
    let orders = ["create_event ", "record_event ", "wait_event ", "sync_event ", "destroy_event ", "synchronize "];
    let is_wait = |line: &&str| orders.iter().any(|call| line.starts_with(call));
    let without_addresses = |line: &str| {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.starts_with("0x")).collect();
        words.join(" ")
    };
    run.trace.lines().filter(|line| !is_wait(line)).map(without_addresses).collect()
}

#[test]
fn a_plugin_is_called_as_by_llvm() -> Result<()> {
    check_all(&programs("log")?, |program| {
        let calls = |core| {
            let mut calls = calls(&program.run(core, Plugin::Failing, &[])?);
            if program.head.pointers {
                // Copies around the pointers count as one of unknown size.
                for copy in ["data_retrieve_async", "data_submit_async"] {
                    calls.iter_mut().filter(|call| call.starts_with(copy)).for_each(|call| *call = copy.to_owned());
                    calls.dedup_by(|next, call| next == call && next == copy);
                }
            }
            anyhow::Ok(calls)
        };
        let (stock, rust) = (calls(Core::Stock)?, calls(Core::Rust)?);
        if program.head.differs || stock == rust {
            return Ok(Vec::new());
        }
        Ok(vec![format!("calls the plugin in another way\n    LLVM: {stock:?}\n    Rust: {rust:?}")])
    })
}

/// A row of the table in `tests/programs/log/README.md`: a message, and the program that reaches it.
struct Row {
    /// The fixed parts of the message; between them is what the program decides.
    parts: Vec<String>,
    program: String,
}

fn rows() -> Result<Vec<Row>> {
    let path = paths::root().join("tests/programs/log/README.md");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, _, message, program, _] = cells[..] else {
            return None;
        };
        let message = message.strip_prefix('`')?.strip_suffix('`')?;
        let parts = message.split("...").map(str::to_owned).collect();
        Some(Row { parts, program: program.trim_matches('`').to_owned() })
    });
    Ok(rows.collect())
}

fn has_parts(line: &str, parts: &[String]) -> bool {
    let mut rest = Some(line);
    for part in parts {
        rest = rest.and_then(|rest| rest.split_once(part.as_str())).map(|(_, after)| after);
    }
    rest.is_some()
}

/// The 35 messages of LLVM 14's `device.cpp`, each in the log of the program that the table names: on the Rust core,
/// except for the two that it has no use for where there is one thread.
#[test]
fn every_message_is_reached() -> Result<()> {
    let rows = rows()?;
    ensure!(rows.len() == 35, "the table has {} messages, not 35", rows.len());
    let mut missing = String::new();
    for row in &rows {
        let program = program(&row.program)?;
        let failure = row.program.starts_with("../failures/");
        let plugin = if failure { Plugin::Failing } else { Plugin::Machine };
        let stock_only = ["late_delete.c", "wait_event_done.c"].contains(&program.name.as_str());
        let core = if stock_only { Core::Stock } else { Core::Rust };
        let more: &[_] = if failure { &[("LIBOMPTARGET_DEBUG", "1")] } else { &[] };
        let run = program.run(core, plugin, more)?;
        if !run.stderr.lines().any(|line| has_parts(line, &row.parts)) {
            missing += &format!("{} does not print {:?}\n", row.program, row.parts.join("..."));
        }
    }
    ensure!(missing.is_empty(), "{missing}");
    Ok(())
}
