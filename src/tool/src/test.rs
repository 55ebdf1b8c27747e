//! Everything that CI checks, one step after another. A step that fails does not stop the others.

use std::io::{BufRead, BufReader, IsTerminal};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use regex::Regex;

use crate::core::{Core, Parts};
use crate::lit::{self, Cores, Device};
use crate::logdiff::{self, Sides};
use crate::totals::Totals;
use crate::{abi, bench, build, doctor, gpu, paths, plugin, process, stress};

/// The line that each of cargo's test programs ends with.
static TEST_RESULT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^test result: \w+\. (?<passed>\d+) passed; (?<failed>\d+) failed; (?<ignored>\d+) ignored")
        .expect("the pattern is a constant that the tests use")
});

/// A check: its heading, and what runs it.
type Step = (&'static str, fn() -> Result<Totals>);

const STEPS: [Step; 14] = [
    ("what the machine has", || Ok(Totals::one(doctor::report()?))),
    ("cargo fmt --check", || cargo(&["fmt", "--all", "--check"], &[])),
    ("cargo clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])),
    ("cargo test", || cargo(&["test", "--workspace", "--no-fail-fast"], &[])),
    ("models of the protocol", || ["shuttle", "loom"].iter().map(|checker| models(&[checker], &[], &[])).sum()),
    ("thread sanitizer", thread_sanitizer),
    ("LLVM's tests on both cores", || Ok(all_of(lit::report(Cores::Both, Device::Host, Core::Rust, 1, None)?))),
    ("LLVM's tests on emulated CUDA", || {
        Ok(all_of(lit::report(Cores::Rust, Device::CudaEmulated, Core::Rust, 1, None)?))
    }),
    ("races on emulated CUDA", stress::check),
    ("debug logs of both cores", || Ok(all_of(logdiff::suite(Sides::Cores, None)?))),
    ("logs and calls of CUDA plugins", || Ok(all_of(logdiff::suite(Sides::Plugins, None)?))),
    ("exported symbols", exported_symbols),
    ("instructions of both cores", || Ok(all_of(bench::instructions::report(false, None)?))),
    ("programs for a GPU", || Ok(all_of(gpu::report(None, gpu::Arch::default())?))),
];

fn exported_symbols() -> Result<Totals> {
    let libs = build::ensure(Parts { core: Core::Rust, plugin: Core::Rust })?;
    let files = [libs.library(), libs.dir.join(plugin::NAME)];
    files.iter().map(|file| Ok(Totals::one(abi::report(file, None)?))).sum()
}

/// Runs `tests/models` with some features, more arguments and an environment.
fn models(features: &[&str], more: &[&str], environment: &[(&str, &str)]) -> Result<Totals> {
    let features = features.join(",");
    let args = ["test", "--release", "-p", "omptarget-models", "--features", &features];
    cargo(&[&args, more].concat(), environment)
}

/// The models' programs on real threads, in which the sanitizer must find nothing, and a race, which it must find.
fn thread_sanitizer() -> Result<Totals> {
    let folder = paths::root().join("target/sanitizer");
    let known = format!("suppressions={}", paths::root().join("tests/models/thread-sanitizer.supp").display());
    let target_dir = folder.to_string_lossy();
    let more = ["--target", "x86_64-unknown-linux-gnu", "--target-dir", &target_dir];
    let environment = [
        ("RUSTC_BOOTSTRAP", "1"),
        ("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"),
        ("TSAN_OPTIONS", &known),
    ];
    let clean = models(&["threads"], &more, &environment)?;
    // The sanitizer's own exit code makes a failure of the passed test.
    let planted = models(&["threads"], &[&more[..], &["--", "--ignored", "planted"]].concat(), &environment)?;
    let found = planted == Totals { passed: 1, failed: 1, skipped: 0 };
    println!("the planted race is {}", if found { "found" } else { "not found" });
    Ok([clean, Totals::one(found)].into_iter().sum())
}

/// Runs every step and prints a summary. Each test of cargo, each test of LLVM's on each core, each program whose logs
/// are compared, and each step without such a count is one check. Returns whether all passed.
pub fn report() -> Result<bool> {
    let mut done = Vec::new();
    for (number, (heading, step)) in STEPS.iter().enumerate() {
        heading_line(&format!("{} of {}: {heading}", number + 1, STEPS.len()));
        let start = Instant::now();
        let totals = step().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Totals::one(false)
        });
        done.push((*heading, totals, start.elapsed()));
    }
    heading_line("summary");
    print!("{}", table(&done));
    let totals: Totals = done.iter().map(|(_, totals, _)| *totals).sum();
    println!("\n{totals}");
    Ok(totals.failed == 0)
}

fn heading_line(text: &str) {
    if std::io::stdout().is_terminal() {
        println!("\n\x1b[1m== {text}\x1b[0m");
    } else {
        println!("\n== {text}");
    }
}

fn table(done: &[(&str, Totals, Duration)]) -> String {
    let mut text = format!("{:<30} {:>6} {:>6} {:>7} {:>7}\n", "", "passed", "failed", "skipped", "time");
    for (heading, totals, time) in done {
        let seconds = format!("{} s", time.as_secs());
        let Totals { passed, failed, skipped } = totals;
        text += &format!("{heading:<30} {passed:>6} {failed:>6} {skipped:>7} {seconds:>7}\n");
    }
    text
}

/// A step may fail for more than its checks, for example when two cores fail alike.
fn all_of((fine, totals): (bool, Totals)) -> Totals {
    if fine || totals.failed > 0 { totals } else { [totals, Totals::one(false)].into_iter().sum() }
}

/// Runs cargo, showing its output. Counts the tests that it reports, or else cargo itself as one check.
fn cargo(args: &[&str], environment: &[(&str, &str)]) -> Result<Totals> {
    let cargo = std::env::var_os("CARGO").map_or_else(|| process::tool("cargo"), |path| Ok(path.into()))?;
    let mut command = Command::new(cargo);
    command.args(args).current_dir(paths::root()).stdin(Stdio::null()).stdout(Stdio::piped());
    if std::env::var_os("CXX").is_none() {
        // What `build` uses, so that nothing is compiled twice; there may be no other C++ compiler.
        command.env("CXX", "clang++-14");
    }
    command.envs(environment.iter().copied());
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.spawn().context("cannot run cargo")?;
    let output = BufReader::new(child.stdout.take().context("cargo has no stdout")?);
    let mut totals = Totals::default();
    for line in output.lines() {
        let line = line.context("cannot read what cargo says")?;
        println!("{line}");
        totals = [totals, count(&line)].into_iter().sum();
    }
    let fine = child.wait()?.success();
    Ok(if totals == Totals::default() { Totals::one(fine) } else { all_of((fine, totals)) })
}

fn count(line: &str) -> Totals {
    let Some(found) = TEST_RESULT.captures(line) else { return Totals::default() };
    let number = |name: &str| found[name].parse().unwrap_or(0);
    Totals { passed: number("passed"), failed: number("failed"), skipped: number("ignored") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_cargo_are_counted() {
        let line = "test result: FAILED. 39 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.65s";
        assert_eq!(count(line), Totals { passed: 39, failed: 1, skipped: 2 });
        assert_eq!(count("test x ... ok"), Totals::default());
    }

    #[test]
    fn a_step_that_fails_has_a_failure() {
        let passed = Totals { passed: 2, ..Totals::default() };
        assert_eq!(all_of((true, passed)), passed);
        assert_eq!(all_of((false, passed)), Totals { failed: 1, ..passed });
        let failed = Totals { failed: 3, ..passed };
        assert_eq!(all_of((false, failed)), failed);
    }

    #[test]
    fn the_summary_has_a_row_a_step() {
        let totals = Totals { passed: 150, failed: 0, skipped: 26 };
        let expected = "                               passed failed skipped    time
LLVM's tests on both cores        150      0      26    61 s
";
        assert_eq!(table(&[("LLVM's tests on both cores", totals, Duration::from_millis(61_900))]), expected);
    }
}
