//! Runs one program on both cores and compares what they log: for a single file, and for every program of LLVM's tests.
//!
//! The program is compiled once, so that both cores see the same binary, and LD_LIBRARY_PATH chooses the core.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use similar::TextDiff;

use crate::build;
use crate::core::Core;
use crate::lit::{self, Outcome, Place, Wrapper};
use crate::totals::Totals;
use crate::{normalise, paths, program};

/// The subcommand that [`suite`] has lit put in front of each program.
pub const WRAPPER: &str = "compare-run";

/// Differences from stock that are meant: test, mode, reason.
const INTENDED: [(&str, &str, &str); 2] =
    [("offloading/d2d_memcpy.c", "info", NO_ENTRY), ("unified_shared_memory/api.c", "info", NO_ENTRY)];

const NO_ENTRY: &str = "stock names a transfer by the entry of a look-up that matched nothing, and crashes";

/// Why stock's own runs differ, where it is not threads.
const UNSTEADY: [(&str, &str); 1] =
    [("offloading/non_contiguous_update.cpp", "it passes a pointer that it never sets")];

/// How long one run of a program may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How often stock is run, at most, to learn whether a difference comes from threads.
const STOCK_RUNS: usize = 32;

/// How much of one difference is shown.
const LINES_SHOWN: usize = 60;

/// The settings under which each run of LLVM's tests is compared. What else a test sets stays.
const MODES: [(&str, &[(&str, &str)]); 2] =
    [("debug", &[("LIBOMPTARGET_DEBUG", "1")]), ("info", &[("LIBOMPTARGET_DEBUG", "0"), ("LIBOMPTARGET_INFO", "63")])];

/// A program to run.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The executable.
    pub exe: &'a Path,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Variables that are set for it.
    pub env: &'a [(String, String)],
}

/// What was found to differ between the cores.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Which [`PARTS`] differ between stock's own runs, and so were compared as sets.
    pub unsteady: Vec<&'static str>,
    /// What differs between stock and ours; empty when the cores are equal.
    pub differences: Vec<Difference>,
    /// How many lines our run logged.
    pub log_lines: usize,
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// One of [`PARTS`].
    pub what: &'static str,
    /// A unified diff from stock to ours.
    pub diff: String,
}

impl Comparison {
    /// Whether the cores are equal.
    pub fn equal(&self) -> bool {
        self.differences.is_empty()
    }
}

/// What is compared of a run.
pub const PARTS: [&str; 3] = ["log", "output", "exit status"];

/// The [`PARTS`] of a run.
type Run = [String; 3];

/// Runs a program on stock's libraries at least twice and on ours once, and compares what it logged (to stderr), what it
/// wrote (to stdout) and how it ended. `stock` and `rust` are the directories of the libraries.
///
/// What differs between stock's own runs is compared as a set of lines: ours must have every line that all of stock's runs
/// have, and none that no run of stock has.
pub fn compare(program: Program, stock: &Path, rust: &Path) -> Result<Comparison> {
    let mut theirs = vec![run(program, stock)?, run(program, stock)?];
    let ours = run(program, rust)?;
    loop {
        let comparison = judge(&theirs, &ours);
        let hung = theirs.iter().chain([&ours]).any(|run| run[2].starts_with("timed out"));
        if comparison.equal() || hung || theirs.len() == STOCK_RUNS {
            return Ok(comparison);
        }
        theirs.push(run(program, stock)?);
    }
}

fn run(program: Program, dir: &Path) -> Result<Run> {
    let mut command = program::command_in(program.exe, dir);
    command.args(program.args).envs(program.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", program.exe.display()))?;
    let (output, log) = (read(child.stdout.take()), read(child.stderr.take()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status.to_string();
        }
        if start.elapsed() > TIME_LIMIT {
            child.kill()?;
            child.wait()?;
            break format!("timed out after {} s", TIME_LIMIT.as_secs());
        }
        thread::sleep(Duration::from_millis(2));
    };
    let text = |reader: JoinHandle<Vec<u8>>| {
        let bytes = reader.join().unwrap_or_default();
        // The one thing that must differ: where the libraries are.
        String::from_utf8_lossy(&bytes).replace(&dir.display().to_string(), "<libraries>")
    };
    Ok([text(log), text(output), status])
}

/// Reads a pipe to its end while the program runs, so that it never blocks on a full one.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A program that was killed in mid-line leaves what it wrote before.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn judge(theirs: &[Run], ours: &Run) -> Comparison {
    let mut comparison =
        Comparison { unsteady: Vec::new(), differences: Vec::new(), log_lines: ours[0].lines().count() };
    for (part, what) in PARTS.into_iter().enumerate() {
        let mut ordered = theirs.iter().map(|run| normalise::log(&run[part])).collect::<Vec<_>>();
        ordered.dedup();
        let diff = if let [theirs] = &ordered[..] {
            ordered_diff(theirs, &normalise::log(&ours[part]))
        } else {
            comparison.unsteady.push(what);
            let sets: Vec<BTreeSet<String>> = theirs.iter().map(|run| set(&run[part])).collect();
            set_diff(&sets, &set(&ours[part]))
        };
        comparison.differences.extend(diff.map(|diff| Difference { what, diff }));
    }
    comparison
}

fn set(text: &str) -> BTreeSet<String> {
    normalise::lines_as_set(text).into_iter().collect()
}

fn ordered_diff(theirs: &str, ours: &str) -> Option<String> {
    let diff = TextDiff::from_lines(theirs, ours);
    let text = || diff.unified_diff().context_radius(3).header("stock", "rust").missing_newline_hint(false).to_string();
    (theirs != ours).then(text)
}

/// The lines that every run of stock has and ours lacks, and those that only ours has.
fn set_diff(theirs: &[BTreeSet<String>], ours: &BTreeSet<String>) -> Option<String> {
    let always = theirs.iter().flatten().filter(|line| theirs.iter().all(|set| set.contains(*line)));
    let missing = always.filter(|line| !ours.contains(*line)).collect::<BTreeSet<_>>();
    let extra = ours.iter().filter(|line| !theirs.iter().any(|set| set.contains(*line)));
    let lines = missing.into_iter().map(|line| format!("-{line}\n")).chain(extra.map(|line| format!("+{line}\n")));
    let text = lines.collect::<String>();
    (!text.is_empty()).then(|| format!("--- stock\n+++ rust\n{text}"))
}

/// Compiles a file, compares the cores on it and prints the result. Returns whether they are equal.
pub fn report(file: &Path, flags: &[String], args: &[OsString], env: &[(String, String)]) -> Result<bool> {
    let (stock, rust) = (build::ensure(Core::Stock)?, build::ensure(Core::Rust)?);
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let exe = dir.path().join(file.file_stem().context("this is no file name")?);
    // With debug information the log has the names of variables.
    let flags: Vec<&str> = ["-g"].into_iter().chain(flags.iter().map(String::as_str)).collect();
    program::compile(file, &exe, &stock, &flags)?;
    let env: Vec<_> =
        [("LIBOMPTARGET_DEBUG".to_owned(), "1".to_owned())].into_iter().chain(env.iter().cloned()).collect();
    let comparison = compare(Program { exe: &exe, args, env: &env }, &stock.dir, &rust.dir)?;
    for what in &comparison.unsteady {
        println!("stock's own {what} differs from run to run (threads?): compared as a set of lines");
    }
    for difference in &comparison.differences {
        println!("{} differs:", difference.what);
        print_diff(&difference.diff);
    }
    if comparison.equal() {
        println!("equal: {} lines of log, output and exit status", comparison.log_lines);
    }
    Ok(comparison.equal())
}

fn print_diff(diff: &str) {
    let colours = std::io::stdout().is_terminal();
    let lines: Vec<&str> = diff.lines().collect();
    for line in lines.iter().take(LINES_SHOWN) {
        let colour = match line.as_bytes().first() {
            Some(b'-') => "31",
            Some(b'+') => "32",
            Some(b'@') => "36",
            _ => "0",
        };
        if colours {
            println!("\x1b[{colour}m{line}\x1b[0m");
        } else {
            println!("{line}");
        }
    }
    if lines.len() > LINES_SHOWN {
        println!("... and {} lines more", lines.len() - LINES_SHOWN);
    }
}

/// Lets lit run LLVM's tests on stock's libraries, compares the cores on each program that a test starts, and prints the
/// result. Returns whether all are equal.
pub fn suite(filter: Option<&str>) -> Result<(bool, Totals)> {
    let (stock, rust) = (build::ensure(Core::Stock)?, build::ensure(Core::Rust)?);
    let records = tempfile::tempdir_in(paths::out_root()).context("cannot write to target/omptarget")?;
    let tool = std::env::current_exe().context("cannot find this program")?;
    let word = |path: &Path| format!("'{}'", path.display());
    let start = format!(
        "{} {WRAPPER} --stock {} --rust {} --records {} --test '%s' --",
        word(&tool),
        word(&stock.dir),
        word(&rust.dir),
        word(records.path())
    );
    let tests = lit::suite(&stock, &Place::host()?, "logdiff", filter, Some(Wrapper(&start)))?;
    let source = stock.tree.libomptarget().join("test");
    let mut runs: BTreeMap<String, Vec<ProgramRun>> = BTreeMap::new();
    for entry in fs::read_dir(records.path())? {
        let path = entry?.path();
        let (test, run) = ProgramRun::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = test.strip_prefix(&source).unwrap_or(&test).display().to_string();
        runs.entry(name).or_default().push(run);
    }
    let summary = Summary::new(&tests, &runs, &INTENDED);
    summary.print();
    Ok((summary.totals.failed == 0 && summary.totals.passed > 0, summary.totals))
}

/// What [`suite`] has lit start in place of a test's program: compares the cores on the program, leaves a record, and
/// becomes the program, on stock's libraries. Writes nothing of its own, since what a test writes is checked.
pub fn wrapper(stock: &Path, rust: &Path, records: &Path, test: &Path, command: &[OsString]) -> Result<()> {
    let (exe, args) = command.split_first().context("no program given")?;
    let exe = Path::new(exe);
    let mut run = ProgramRun {
        args: args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        ..ProgramRun::default()
    };
    for (mode, settings) in MODES {
        let env: Vec<_> = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let comparison = compare(Program { exe, args, env: &env }, stock, rust)?;
        run.unsteady.extend(comparison.unsteady.into_iter().map(|what| [mode, what].map(str::to_owned)));
        run.differences
            .extend(comparison.differences.into_iter().map(|d| [mode.to_owned(), d.what.to_owned(), d.diff]));
    }
    run.write(test, records)?;
    Err(program::command_in(exe, stock).args(args).exec()).with_context(|| format!("cannot run {}", exe.display()))
}

/// One run of a program by a test, in all modes, as the wrapper found it.
#[derive(Clone, Default, Debug)]
struct ProgramRun {
    args: Vec<String>,
    /// Mode, and what differs between stock's own runs.
    unsteady: Vec<[String; 2]>,
    /// Mode, what differs, and the diff.
    differences: Vec<[String; 3]>,
}

impl ProgramRun {
    fn write(&self, test: &Path, records: &Path) -> Result<()> {
        let record = json!({
            "test": test.display().to_string(),
            "args": self.args,
            "unsteady": self.unsteady,
            "differences": self.differences,
        });
        let mut file = tempfile::Builder::new().prefix("run-").tempfile_in(records)?;
        file.write_all(record.to_string().as_bytes())?;
        file.keep()?;
        Ok(())
    }

    fn read(path: &Path) -> Result<(PathBuf, ProgramRun)> {
        let record: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
        let list = |value: &Value| value.as_array().cloned().context("a list is missing");
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text is missing");
        let unsteady = |value: &Value| Ok([text(&value[0])?, text(&value[1])?]);
        let difference = |value: &Value| Ok([text(&value[0])?, text(&value[1])?, text(&value[2])?]);
        let run = ProgramRun {
            args: list(&record["args"])?.iter().map(text).collect::<Result<_>>()?,
            unsteady: list(&record["unsteady"])?.iter().map(unsteady).collect::<Result<_>>()?,
            differences: list(&record["differences"])?.iter().map(difference).collect::<Result<_>>()?,
        };
        Ok((text(&record["test"])?.into(), run))
    }
}

/// What is said about the suite.
struct Summary {
    /// Folder by folder: tests that ran a program, their runs, and how many of these are equal.
    folders: BTreeMap<String, [usize; 3]>,
    /// Under each heading, the tests it holds for.
    notes: Vec<(&'static str, Vec<String>)>,
    /// What differs: a title and the diff.
    differences: Vec<(String, String)>,
    /// Program runs.
    totals: Totals,
}

impl Summary {
    fn new(tests: &[lit::Test], runs: &BTreeMap<String, Vec<ProgramRun>>, intended: &[(&str, &str, &str)]) -> Summary {
        let mut folders: BTreeMap<String, [usize; 3]> = BTreeMap::new();
        let [mut unsteady, mut meant, mut broken, mut silent] = [const { Vec::new() }; 4];
        let mut differences = Vec::new();
        let mut totals = Totals::default();
        for test in tests {
            let name = &test.name;
            let runs = runs.get(name).map_or(&[][..], Vec::as_slice);
            match test.outcome {
                Outcome::Unsupported => totals.skipped += 1,
                // Its later programs were not run.
                Outcome::Failed => broken.push(name.clone()),
                Outcome::Passed if runs.is_empty() => silent.push(name.clone()),
                Outcome::Passed => {}
            }
            let row = folders.entry(name.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned()).or_default();
            row[0] += usize::from(!runs.is_empty());
            let reason = |mode: &str| intended.iter().find(|(n, m, _)| n == name && *m == mode).map(|(_, _, why)| why);
            let mut parts = BTreeSet::new();
            for run in runs {
                let unmeant = run.unsteady.iter().filter(|[mode, _]| reason(mode).is_none());
                parts.extend(unmeant.map(|[mode, what]| format!("{what} ({mode})")));
                let mut failed = false;
                for [mode, what, diff] in &run.differences {
                    if let Some(reason) = reason(mode) {
                        meant.push(format!("{name} ({mode}): {reason}"));
                    } else {
                        failed = true;
                        let command = [&[name.clone()][..], &run.args].concat().join(" ");
                        differences.push((format!("{command}: {what} ({mode})"), diff.clone()));
                    }
                }
                row[1] += 1;
                row[2] += usize::from(run.differences.is_empty());
                totals.failed += usize::from(failed);
                totals.passed += usize::from(!failed);
            }
            if !parts.is_empty() {
                let why = UNSTEADY.iter().find(|(n, _)| n == name).map_or("threads", |(_, why)| why);
                let parts = parts.into_iter().collect::<Vec<_>>().join(" and ");
                unsteady.push(format!("{name} ({why}: own {parts} differs under stock)"));
            }
        }
        meant.dedup();
        totals.failed += broken.len() + silent.len();
        let notes = vec![
            ("Compared as sets of lines", unsteady),
            ("Different, and meant to be", meant),
            ("FAILED: LLVM's own test fails on stock, so its later programs were not compared", broken),
            ("FAILED: no program of this test was seen", silent),
        ];
        Summary { folders, notes, differences, totals }
    }

    fn print(&self) {
        let width = self.folders.keys().map(String::len).max().unwrap_or(0).max("folder".len());
        let row = |name: &str, cells: [&dyn std::fmt::Display; 3]| {
            println!("{name:<width$}   {:>8} {:>5} {:>6}", cells[0], cells[1], cells[2]);
        };
        row("folder", [&"programs", &"runs", &"equal"]);
        for (folder, [programs, runs, equal]) in &self.folders {
            row(folder, [programs, runs, equal]);
        }
        let sum = |column: usize| self.folders.values().map(|row| row[column]).sum::<usize>();
        row("total", [&sum(0), &sum(1), &sum(2)]);
        for (heading, tests) in self.notes.iter().filter(|(_, tests)| !tests.is_empty()) {
            println!("\n{heading}:");
            tests.iter().for_each(|test| println!("    {test}"));
        }
        for (title, diff) in &self.differences {
            println!("\nDIFFERENT: {title}");
            print_diff(diff);
        }
        println!("\n{}", self.totals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(log: &str) -> Run {
        [log, "", "exit status: 0"].map(str::to_owned)
    }

    #[test]
    fn only_names_of_addresses_count() {
        let stock = [run("a 0x00005571c0ffee00\nb\n"), run("a 0x00005571c0ffee80\nb\n")];
        assert!(judge(&stock, &run("a 0x0000557100000010\nb\n")).equal());
        let other = judge(&stock, &run("a 0x0000557100000010\nc\n"));
        assert_eq!(other.unsteady, [""; 0]);
        assert_eq!(
            other.differences,
            [Difference { what: "log", diff: "--- stock\n+++ rust\n@@ -1,2 +1,2 @@\n a <ptr0>\n-b\n+c\n".to_owned() }]
        );
    }

    #[test]
    fn what_is_unsteady_on_stock_is_a_set_of_lines() {
        let stock = [run("a\nb\nsometimes\n"), run("b\na\n")];
        assert_eq!(judge(&stock, &run("b\nb\na\n")).unsteady, ["log"]);
        for equal in ["b\na\n", "sometimes\na\nb\n"] {
            assert!(judge(&stock, &run(equal)).equal(), "{equal}");
        }
        let other = judge(&stock, &run("a\nnever\n"));
        assert_eq!(other.differences[0].diff, "--- stock\n+++ rust\n-b\n+never\n");
    }

    /// A shell in the place of an offload program: it can tell the cores apart by LD_LIBRARY_PATH.
    fn compare_script(script: &str) -> Comparison {
        let args = ["-c".into(), format!("core=${{LD_LIBRARY_PATH%%:*}}; {script}").into()];
        let program = Program { exe: Path::new("/bin/sh"), args: &args, env: &[("GREETING".into(), "hello".into())] };
        compare(program, Path::new("/no/stock"), Path::new("/no/rust")).expect("sh runs")
    }

    #[test]
    fn programs_that_do_the_same_are_equal() {
        let comparison = compare_script("echo $core $GREETING; echo log >&2; exit 3");
        assert!(comparison.equal());
        assert_eq!(comparison.log_lines, 1);
    }

    #[test]
    fn output_log_and_end_are_compared() {
        let differ = |script: &str| {
            let differences = compare_script(script).differences;
            differences.iter().map(|difference| difference.what).collect::<Vec<_>>()
        };
        assert_eq!(differ("echo ${core##*/}"), ["output"]);
        assert_eq!(differ("echo ${core##*/} >&2"), ["log"]);
        assert_eq!(differ("case $core in */rust) kill -ABRT $$;; esac"), ["exit status"]);
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let run = ProgramRun {
            args: vec!["1".to_owned()],
            unsteady: vec![["info", "log"].map(str::to_owned)],
            differences: vec![["info", "output", "-a\n+b\n"].map(str::to_owned)],
        };
        run.write(Path::new("/t/api/x.c"), dir.path()).expect("it can be written");
        let file = fs::read_dir(dir.path()).expect("a directory").next().expect("one file").expect("an entry").path();
        let (test, read) = ProgramRun::read(&file).expect("it can be read");
        assert_eq!((test.to_str(), format!("{read:?}")), (Some("/t/api/x.c"), format!("{run:?}")));
    }

    #[test]
    fn the_suite_counts_program_runs() {
        let test = |name: &str, outcome| lit::Test { name: name.to_owned(), outcome, output: String::new() };
        let equal = ProgramRun::default();
        let other = ProgramRun { differences: vec![["debug", "log", "-a\n"].map(str::to_owned)], ..equal.clone() };
        let threads = ProgramRun { unsteady: vec![["debug", "log"].map(str::to_owned)], ..equal.clone() };
        let tests = [
            test("api/a.c", Outcome::Passed),
            test("api/meant.c", Outcome::Passed),
            test("api/silent.c", Outcome::Passed),
            test("api/unsupported.c", Outcome::Unsupported),
            test("api/broken.c", Outcome::Failed),
        ];
        let runs = [("api/a.c", vec![equal.clone(), other.clone(), threads]), ("api/meant.c", vec![other])];
        let runs = runs.into_iter().map(|(name, runs)| (name.to_owned(), runs)).collect();
        let summary =
            Summary::new(&tests, &runs, &[("api/meant.c", "debug", "a fault mended"), ("api/a.c", "info", "another")]);
        assert_eq!(summary.totals, Totals { passed: 3, failed: 3, skipped: 1 });
        assert_eq!(summary.folders["api"], [2, 4, 2]);
        let notes: Vec<&[String]> = summary.notes.iter().map(|(_, tests)| &tests[..]).collect();
        assert_eq!(
            notes,
            [
                ["api/a.c (threads: own log (debug) differs under stock)"],
                ["api/meant.c (debug): a fault mended"],
                ["api/broken.c"],
                ["api/silent.c"]
            ]
        );
        assert_eq!(summary.differences, [("api/a.c: log (debug)".to_owned(), "-a\n".to_owned())]);
    }
}
