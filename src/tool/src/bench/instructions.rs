//! Counts the instructions of one operation under valgrind: unlike times, the same in every run. What is checked is that
//! the Rust core needs no more than was recorded, but for a small slack. LLVM's are shown beside, to be judged by eye: a
//! lock is one instruction and costs as much as twenty.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::table::grouped;
use super::{Program, Scenario};
use crate::build::Libs;
use crate::core::Core;
use crate::totals::Totals;
use crate::{paths, process, progress};

/// What was recorded, below the repository's root.
const RECORDED: &str = "tests/bench/instructions.csv";
const HEAD: &str = "scenario,mappings,instructions";

/// How many times as many instructions as recorded are still fine.
const SLACK: f64 = 1.05;

const SIZES: [usize; 2] = [100, 10_000];
const OPERATIONS: u64 = 1000;

/// How often the bench's timed function is called, and where valgrind counts and writes what it has counted.
const COUNTED: &str = "operate";

/// An operation's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    scenario: Scenario,
    size: usize,
    stock: u64,
    rust: u64,
    recorded: Option<u64>,
}

impl Row {
    /// What is wrong with it.
    fn complaint(&self) -> Option<String> {
        let limit = self.recorded.map(|recorded| (recorded as f64 * SLACK) as u64);
        match limit {
            None => Some("not recorded".to_owned()),
            Some(limit) if self.rust > limit => Some(format!("more than the limit {}", grouped(limit as usize))),
            Some(_) => None,
        }
    }
}

/// Counts, prints a table, and says whether all is as it should be. With `record` it records what our core needs now.
/// What valgrind has counted of each function goes into the folder `profile`.
pub fn report(record: bool, profile: Option<&Path>) -> Result<(bool, Totals)> {
    let file = paths::root().join(RECORDED);
    let counted = count(&[Core::Stock, Core::Rust], profile)?;
    if record {
        let mut text = format!("{HEAD}\n");
        for row in &counted {
            writeln!(text, "{},{},{}", row.scenario, row.size, row.rust)?;
        }
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let recorded = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let rows = with_recorded(counted, &recorded)?;
    println!("{:<9} {:>9} {:>9} {:>9} {:>6} {:>9}", "scenario", "mappings", "stock", "rust", "ratio", "recorded");
    for row in &rows {
        let recorded = row.recorded.map_or("-".to_owned(), |recorded| grouped(recorded as usize));
        let complaint = row.complaint().map_or(String::new(), |complaint| format!("  {complaint}"));
        let ratio = row.stock as f64 / row.rust as f64;
        let [size, stock, rust] = [row.size, row.stock as usize, row.rust as usize].map(grouped);
        println!("{:<9} {size:>9} {stock:>9} {rust:>9} {ratio:>6.2} {recorded:>9}{complaint}", row.scenario);
    }
    let failed = rows.iter().filter(|row| row.complaint().is_some()).count();
    let totals = Totals { passed: rows.len() - failed, failed, skipped: 0 };
    println!("\nInstructions of an operation. `omptarget bench --record` records those of the Rust core.");
    println!("{totals}");
    Ok((failed == 0, totals))
}

fn count(cores: &[Core; 2], profile: Option<&Path>) -> Result<Vec<Row>> {
    let program = Program::build(cores, false)?;
    let progress = progress::steps("counting instructions", cores.len() * SIZES.len());
    let mut rows = Vec::new();
    for size in SIZES {
        let mut counts = Vec::new();
        for libs in &program.libs {
            counts.push(count_one(&program, libs, size, profile)?);
            progress.inc();
        }
        for (index, &scenario) in Scenario::ALL.iter().enumerate() {
            rows.push(Row { scenario, size, stock: counts[0][index], rust: counts[1][index], recorded: None });
        }
    }
    Ok(rows)
}

/// The instructions of an operation of each scenario.
fn count_one(program: &Program, libs: &Libs, size: usize, profile: Option<&Path>) -> Result<Vec<u64>> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let work = Scenario::ALL.map(|scenario| format!("{scenario} 1 {OPERATIONS} 1\n")).concat();
    let input = dir.path().join("work");
    fs::write(&input, work).context("cannot write what the bench is to do")?;
    let part = |number: usize| -> PathBuf { dir.path().join(format!("part.{number}")) };
    let bench = program.command(libs, size);
    let mut command = Command::new(process::tool("valgrind")?);
    // Each part is to be read by itself.
    command.args(["--tool=callgrind", "--compress-strings=no"]);
    command.args([format!("--toggle-collect={COUNTED}"), format!("--dump-after={COUNTED}")]);
    command.arg(format!("--callgrind-out-file={}", dir.path().join("part").display()));
    command.arg(bench.get_program()).args(bench.get_args());
    for (name, value) in bench.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    process::run(command.stdin(File::open(&input)?)).context("cannot count the bench's instructions")?;
    let counts = Scenario::ALL.iter().zip(1..).map(|(scenario, number)| {
        let text = fs::read_to_string(part(number)).context("valgrind has not counted each scenario")?;
        if let Some(dir) = profile {
            let file = dir.join(format!("{scenario}-{size}-{}.callgrind", libs.core));
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            fs::write(&file, &text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(total(&text).context("valgrind says no total")?.div_ceil(OPERATIONS))
    });
    let counts = counts.collect::<Result<Vec<_>>>()?;
    ensure!(counts.iter().all(|&count| count > 0), "valgrind has found no function {COUNTED} in the bench");
    Ok(counts)
}

/// What callgrind has counted in all.
fn total(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// Each row with what was recorded of it.
fn with_recorded(mut rows: Vec<Row>, recorded: &str) -> Result<Vec<Row>> {
    let mut lines = recorded.lines();
    ensure!(lines.next() == Some(HEAD), "{RECORDED} does not begin with {HEAD}");
    let read = |line: &str| -> Option<(String, usize, u64)> {
        let [scenario, size, count] = line.split(',').collect::<Vec<_>>().try_into().ok()?;
        Some((scenario.to_owned(), size.parse().ok()?, count.parse().ok()?))
    };
    let lines = lines.map(|line| read(line).with_context(|| format!("{RECORDED}: cannot read {line:?}")));
    let lines = lines.collect::<Result<Vec<_>>>()?;
    for row in &mut rows {
        let of = lines.iter().find(|(scenario, size, _)| *scenario == row.scenario.name() && *size == row.size);
        row.recorded = of.map(|(_, _, count)| *count);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stock: u64, rust: u64, recorded: Option<u64>) -> Row {
        Row { scenario: Scenario::Reuse, size: 100, stock, rust, recorded }
    }

    #[test]
    fn more_instructions_than_recorded_are_complained_of() {
        let complaint = |stock, rust, recorded| row(stock, rust, recorded).complaint();
        assert_eq!(complaint(2000, 1050, Some(1000)), None);
        assert_eq!(complaint(2000, 1051, Some(1000)).as_deref(), Some("more than the limit 1,050"));
        assert_eq!(complaint(1000, 1001, Some(1000)), None, "more than stock's is no fault by itself");
        assert_eq!(complaint(2000, 1000, None).as_deref(), Some("not recorded"));
    }

    #[test]
    fn what_was_recorded_is_found_by_scenario_and_size() {
        let read = |text: &str| with_recorded(vec![row(2, 1, None)], text);
        let rows = read("scenario,mappings,instructions\nnew,100,7\nreuse,10000,8\nreuse,100,9\n").expect("a table");
        assert_eq!(rows[0].recorded, Some(9));
        assert_eq!(read("scenario,mappings,instructions\n").expect("a table")[0].recorded, None);
        let message = read("scenario,mappings,instructions\nreuse,100\n").expect_err("no number").to_string();
        assert_eq!(message, "tests/bench/instructions.csv: cannot read \"reuse,100\"");
        assert!(read("").is_err());
    }

    #[test]
    fn the_total_is_read() {
        assert_eq!(total("events: Ir\nsummary: 7\n\ntotals: 4743295\n"), Some(4_743_295));
        assert_eq!(total("events: Ir\n"), None);
    }
}
