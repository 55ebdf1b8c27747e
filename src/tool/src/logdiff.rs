//! Runs one program on two sides and compares what they log: both cores, or both CUDA plugins on the emulated device. For
//! a single file, and for every program of LLVM's tests.
//!
//! The program is compiled once, so that both sides see the same binary, and LD_LIBRARY_PATH chooses the side.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use regex::Regex;
use serde::{Deserialize, Serialize};
use similar::TextDiff;

use crate::build;
use crate::core::Core;
use crate::lit::{self, Device, Outcome, Place, Wrapper};
use crate::totals::Totals;
use crate::{calls, emulator, normalise, paths, plugin, program, progress, retarget};

/// The subcommand that [`suite`] has lit put in front of each program.
pub const WRAPPER: &str = "compare-run";

/// What is compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sides {
    /// LLVM's core and ours.
    Cores,
    /// LLVM's CUDA plugin and ours, on the same core.
    Plugins,
}

/// A difference from stock that is meant.
#[derive(Clone, Copy)]
struct Meant {
    test: &'static str,
    mode: &'static str,
    /// What may differ, of [`PARTS`] and [`CALLS`].
    parts: &'static [&'static str],
    why: &'static str,
}

/// Those between the cores.
const INTENDED: [Meant; 2] = [
    Meant { test: "offloading/d2d_memcpy.c", mode: "info", parts: &PARTS, why: NO_ENTRY },
    Meant { test: "unified_shared_memory/api.c", mode: "info", parts: &PARTS, why: NO_ENTRY },
];

const NO_ENTRY: &str = "stock names a transfer by the entry of a look-up that matched nothing, and crashes";

/// Those between the plugins, beyond the rules of [`calls`]. Each must be there.
const INTENDED_OF_PLUGINS: [Meant; 4] = [
    Meant { test: EVENTS, mode: "debug", parts: &ALL, why: EVENT_POOL },
    Meant { test: EVENTS, mode: "info", parts: &ALL, why: EVENT_POOL },
    Meant { test: EVENTS, mode: STOCK_CORE, parts: &ALL, why: EVENT_POOL },
    Meant {
        test: "tests/programs/cases/wrap_around_update.c",
        mode: STOCK_CORE,
        parts: &["log", CALLS],
        why: "a negative size does not reach the driver",
    },
];

const ALL: [&str; 4] = [PARTS[0], PARTS[1], PARTS[2], CALLS];
const EVENTS: &str = "tests/programs/cuda/events_two_devices.c";
const EVENT_POOL: &str = "stock records an event of one device on another one's stream, and aborts";

/// Programs that are not compared on the plugins, because what they do is chance: the start of the name, the mode or any,
/// and why.
const CHANCE: [(&str, Option<&str>, &str); 6] = [
    ("tests/programs/cases/b26_associate_wrap_around.c", None, "it logs a size that is made of an address"),
    ("mapping/declare_mapper_", Some(STOCK_CORE), PUT_BACK),
    ("tests/programs/cases/b01_info32_pointer_attachment.c", Some(STOCK_CORE), PUT_BACK),
    ("tests/programs/cases/limit_mapper_first_component.cpp", Some(STOCK_CORE), PUT_BACK),
    ("tests/programs/log/declare_mapper.cpp", Some(STOCK_CORE), PUT_BACK),
    ("tests/programs/log/target_update.c", Some(STOCK_CORE), PUT_BACK),
];

const PUT_BACK: &str = "LLVM's core puts host pointers back before the copy back is done, which overwrites them";

const THREADS: &str = "more than one thread calls the driver";

/// Why stock's own runs differ, where it is not threads.
const UNSTEADY: [(&str, &str); 1] =
    [("offloading/non_contiguous_update.cpp", "it passes a pointer that it never sets")];

/// How long one run of a program may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How often stock is run, at most, to learn whether a difference comes from threads.
const STOCK_RUNS: usize = 32;

/// How much of one difference is shown.
const LINES_SHOWN: usize = 60;

/// The folders of our own programs that are run on both plugins, beside `tests/programs/demo.c`.
const OWN_PROGRAMS: [&str; 3] = ["cases", "cuda", "log"];

/// The mode in which the plugins are called by LLVM's core.
const STOCK_CORE: &str = "stock core";

/// What the emulated driver says of what was never released.
static ACCOUNT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^emulator: left at exit: (.*)\n(?:emulator: left: .*\n)?").expect("a constant that the tests use")
});

/// A way in which each program is run on both sides.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Mode {
    name: String,
    /// What is set for the program; what else a test sets stays.
    env: Vec<(String, String)>,
    /// Where the libraries are looked for on stock's side, in this order.
    stock: Vec<PathBuf>,
    /// The same on ours.
    rust: Vec<PathBuf>,
    /// Whether the calls of the emulated driver are compared, with all that goes with it.
    calls: bool,
}

impl Sides {
    /// What they are called in output.
    fn name(self) -> &'static str {
        match self {
            Sides::Cores => "cores",
            Sides::Plugins => "plugins",
        }
    }

    /// Builds both sides, if need be.
    fn modes(self) -> Result<Vec<Mode>> {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let folder = |core| build::ensure(core).map(|libs| libs.dir);
        let mode = |name: &str, env: &[(&str, &str)], stock, rust, calls| Mode {
            name: name.to_owned(),
            env: env.iter().copied().map(pair).collect(),
            stock,
            rust,
            calls,
        };
        match self {
            Sides::Cores => {
                let (stock, rust) = (vec![folder(Core::Stock)?], vec![folder(Core::Rust)?]);
                Ok(vec![
                    mode("debug", &[("LIBOMPTARGET_DEBUG", "1")], stock.clone(), rust.clone(), false),
                    mode("info", &[("LIBOMPTARGET_DEBUG", "0"), ("LIBOMPTARGET_INFO", "63")], stock, rust, false),
                ])
            }
            Sides::Plugins => {
                let place = Place::emulated(Core::Rust)?;
                let (emulator, stock_plugin, rust_plugin) =
                    (emulator::ensure()?, plugin::ensure_stock()?, plugin::ensure()?);
                let emulated = |name: &str, env: [(&str, &str); 2], core| -> Result<Mode> {
                    let env = [&env[..], place.environment, &[("EMU_ACCOUNT", "1")]].concat();
                    let folders = |plugin: &PathBuf| -> Result<Vec<PathBuf>> {
                        Ok(vec![emulator.clone(), plugin.clone(), folder(core)?])
                    };
                    Ok(mode(name, &env, folders(&stock_plugin)?, folders(&rust_plugin)?, true))
                };
                Ok(vec![
                    emulated("debug", [("LIBOMPTARGET_DEBUG", "1"), ("LIBOMPTARGET_INFO", "0")], Core::Rust)?,
                    emulated("info", [("LIBOMPTARGET_DEBUG", "0"), ("LIBOMPTARGET_INFO", "-1")], Core::Rust)?,
                    // It makes calls of the driver that ours has no need of.
                    emulated(STOCK_CORE, [("LIBOMPTARGET_DEBUG", "0"), ("LIBOMPTARGET_INFO", "0")], Core::Stock)?,
                ])
            }
        }
    }

    fn intended(self) -> &'static [Meant] {
        match self {
            Sides::Cores => &INTENDED,
            Sides::Plugins => &INTENDED_OF_PLUGINS,
        }
    }
}

/// A program to run.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The executable.
    pub exe: &'a Path,
    /// Its arguments.
    pub args: &'a [OsString],
    /// Variables that are set for it, whatever the mode says.
    pub env: &'a [(String, String)],
}

/// What was found to differ between the sides.
#[derive(Clone, Default, Debug)]
pub struct Comparison {
    /// Which [`PARTS`] differ between stock's own runs, and so were compared as sets.
    pub unsteady: Vec<&'static str>,
    /// What differs between stock and ours; empty when the sides are equal.
    pub differences: Vec<Difference>,
    /// How many lines our run logged.
    pub log_lines: usize,
    /// How many calls of the driver it made.
    pub calls: usize,
    /// The rules of [`calls`] that were needed.
    pub rules: BTreeSet<String>,
    /// Nothing was compared, since what the program does is chance, and why that is.
    pub chance: Option<&'static str>,
    /// What our run left with the emulated driver; none if it did not end by itself.
    pub left: Option<String>,
    /// Our run ended by abort. What it left then is a line of its log.
    pub aborted: bool,
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// One of [`PARTS`], [`CALLS`] or [`LEFT`].
    pub what: &'static str,
    /// A unified diff from stock to ours.
    pub diff: String,
}

impl Comparison {
    /// Whether the sides are equal.
    pub fn equal(&self) -> bool {
        self.differences.is_empty()
    }

    fn add(&mut self, what: &'static str, diff: Option<String>) {
        self.differences.extend(diff.map(|diff| Difference { what, diff }));
    }
}

/// What is compared of a run.
pub const PARTS: [&str; 3] = ["log", "output", "exit status"];

/// What is compared of a run on the emulated driver as well.
pub const CALLS: &str = "driver calls";

/// What our run must not leave there.
pub const LEFT: &str = "left at exit";

/// A run: the [`PARTS`], and the emulated driver's trace.
#[derive(Clone, Default)]
struct Run {
    parts: [String; 3],
    trace: String,
}

/// Runs a program on stock's side and on ours, and compares what it logged (to stderr), what it wrote (to stdout), how it
/// ended, and what it asked of the emulated driver.
///
/// What differs between stock's own runs is compared as a set of lines: ours must have every line that all of stock's runs
/// have, and none that no run of stock has. Stock is run again as long as there is a difference, unless `chance` says that
/// the program does not do the same twice: then all that counts is what our run leaves.
pub fn compare(program: Program, mode: &Mode, chance: Option<&'static str>) -> Result<Comparison> {
    let mut ours = run(program, mode, &mode.rust)?;
    let left = take_account(&mut ours);
    let mut theirs = Vec::new();
    let mut comparison = loop {
        if chance.is_some() {
            break Comparison { chance, ..Comparison::default() };
        }
        let mut run = run(program, mode, &mode.stock)?;
        take_account(&mut run);
        theirs.push(run);
        if theirs.len() == 1 && !mode.calls {
            // Whether cores are steady is worth knowing.
            continue;
        }
        let comparison = judge(&theirs, &ours, mode.calls)?;
        let hung = theirs.iter().chain([&ours]).any(|run| run.parts[2].starts_with("timed out"));
        if comparison.equal() || hung || theirs.len() == STOCK_RUNS {
            break comparison;
        }
    };
    let something = left.as_ref().filter(|left| left.chars().any(|c| ('1'..='9').contains(&c)));
    comparison.add(LEFT, something.map(|left| format!("+{left}\n")));
    comparison.left = left;
    comparison.aborted = ours.parts[0].contains("emulator: left at abort: ");
    Ok(comparison)
}

/// Takes what the emulated driver says at exit out of a log.
fn take_account(run: &mut Run) -> Option<String> {
    let left = ACCOUNT.captures(&run.parts[0])?[1].to_owned();
    run.parts[0] = ACCOUNT.replace(&run.parts[0], "").into_owned();
    Some(left)
}

fn run(program: Program, mode: &Mode, folders: &[PathBuf]) -> Result<Run> {
    let mut command = program::command_in(program.exe, folders);
    let trace = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    if mode.calls {
        command.env("EMU_TRACE", trace.path());
    }
    command.args(program.args).envs(mode.env.iter().chain(program.env).map(|(name, value)| (name, value)));
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
        let text = String::from_utf8_lossy(&bytes).into_owned();
        folders.iter().fold(text, |text, folder| text.replace(&folder.display().to_string(), "<libraries>"))
    };
    let parts = [text(log), text(output), status];
    let trace = fs::read_to_string(trace.path()).context("cannot read the driver's trace")?;
    Ok(Run { parts, trace })
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

fn judge(theirs: &[Run], ours: &Run, calls: bool) -> Result<Comparison> {
    let mut comparison = Comparison {
        log_lines: ours.parts[0].lines().count(),
        calls: ours.trace.lines().count(),
        ..Comparison::default()
    };
    if theirs.iter().any(|run| calls::has_threads(&run.trace)) {
        comparison.chance = Some(THREADS);
        return Ok(comparison);
    }
    let side = |comparison: &mut Comparison, side, run: &Run, part: usize| {
        if !calls || PARTS[part] != "log" {
            return run.parts[part].clone();
        }
        let (text, rules) = calls::log(side, &run.parts[part]);
        comparison.rules.extend(rules);
        text
    };
    // The order of a table, by addresses, is the heap's, which the libraries use too.
    let normal = normalise::log_with_sorted_tables;
    for (part, what) in PARTS.into_iter().enumerate() {
        let mut texts = Vec::new();
        for run in theirs {
            texts.push(side(&mut comparison, Core::Stock, run, part));
        }
        let ours = side(&mut comparison, Core::Rust, ours, part);
        let mut ordered = texts.iter().map(|text| normal(text)).collect::<Vec<_>>();
        ordered.dedup();
        let diff = if let [theirs] = &ordered[..] {
            ordered_diff(theirs, &normal(&ours))
        } else {
            comparison.unsteady.push(what);
            let sets: Vec<BTreeSet<String>> = texts.iter().map(|text| set(text)).collect();
            set_diff(&sets, &set(&ours))
        };
        comparison.add(what, diff);
    }
    if calls {
        compare_calls(&mut comparison, theirs, ours)?;
    }
    Ok(comparison)
}

/// The calls of our run must be those of one of stock's.
fn compare_calls(comparison: &mut Comparison, theirs: &[Run], ours: &Run) -> Result<()> {
    let mut diff = None;
    for run in theirs {
        let compared = calls::compare(&run.trace, &ours.trace)?;
        diff = ordered_diff(&compared.texts[0], &compared.texts[1]);
        if diff.is_none() {
            comparison.rules.extend(compared.rules.into_iter().map(str::to_owned));
            break;
        }
    }
    comparison.add(CALLS, diff);
    Ok(())
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

/// Compiles a file, compares the sides on it and prints the result. Returns whether they are equal.
pub fn report(
    sides: Sides,
    file: &Path,
    flags: &[String],
    args: &[OsString],
    env: &[(String, String)],
) -> Result<bool> {
    let modes = sides.modes()?;
    let mode = modes.first().context("there is no mode")?;
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let exe = dir.path().join(file.file_stem().context("this is no file name")?);
    compile(sides, file, &exe, flags)?;
    let comparison = compare(Program { exe: &exe, args, env }, mode, None)?;
    if let Some(why) = comparison.chance {
        println!("nothing was compared, because {why}");
    }
    for what in &comparison.unsteady {
        println!("stock's own {what} differs from run to run (threads?): compared as a set of lines");
    }
    for rule in &comparison.rules {
        println!("different, and meant to be: {rule} (see tests/DIFFERENCES.md)");
    }
    for difference in &comparison.differences {
        println!("{} differs:", difference.what);
        print_diff(&difference.diff);
    }
    if let Some(left) = &comparison.left {
        println!("left at exit by our plugin: {left}");
    }
    if comparison.equal() && comparison.chance.is_none() {
        let Comparison { log_lines, calls, .. } = comparison;
        let calls = if mode.calls { format!("{calls} calls of the driver, ") } else { String::new() };
        println!("equal: {calls}{log_lines} lines of log, output and exit status");
    }
    Ok(comparison.equal() && comparison.chance.is_none())
}

/// Compiles a program for the device of the sides. With debug information the log has the names of variables.
fn compile(sides: Sides, file: &Path, exe: &Path, flags: &[String]) -> Result<()> {
    let flags: Vec<&str> = ["-g"].into_iter().chain(flags.iter().map(String::as_str)).collect();
    program::compile(file, exe, &build::ensure(Core::Stock)?, &flags)?;
    if sides == Sides::Plugins {
        retarget::retarget(exe)?;
    }
    Ok(())
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

/// Lets lit run LLVM's tests, compares the sides on each program that a test starts, and prints the result; the plugins are
/// compared on our own programs too. Returns whether all are equal.
pub fn suite(sides: Sides, filter: Option<&str>) -> Result<(bool, Totals)> {
    let modes = sides.modes()?;
    let scratch = tempfile::tempdir_in(paths::out_root()).context("cannot write to target/omptarget")?;
    let (records, mode_file) = (scratch.path().join("records"), scratch.path().join("modes.json"));
    fs::create_dir(&records)?;
    fs::write(&mode_file, serde_json::to_vec(&modes)?)?;
    let tool = std::env::current_exe().context("cannot find this program")?;
    let word = |path: &Path| format!("'{}'", path.display());
    let start =
        format!("{} {WRAPPER} --modes {} --records {} --test '%s' --", word(&tool), word(&mode_file), word(&records));
    let (libs, place) = match sides {
        Sides::Cores => (build::ensure(Core::Stock)?, Place::host()?),
        Sides::Plugins => (build::ensure(Core::Rust)?, Place::emulated(Core::Rust)?),
    };
    let name = format!("logdiff-{}", sides.name());
    let mut tests = lit::suite(&libs, &place, &name, filter, Some(Wrapper(&start)))?;
    let source = libs.tree.libomptarget().join("test");
    let mut runs: BTreeMap<String, Vec<ProgramRun>> = BTreeMap::new();
    for entry in fs::read_dir(&records)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (test, run): (PathBuf, ProgramRun) = serde_json::from_str(&text)?;
        let name = test.strip_prefix(&source).unwrap_or(&test).display().to_string();
        runs.entry(name).or_default().push(run);
    }
    if sides == Sides::Plugins {
        tests = tests.into_iter().map(|test| lit::without_gpu(test, Device::CudaEmulated)).collect();
        for (name, run) in own_programs(&modes, filter, scratch.path())? {
            tests.push(lit::Test { name: name.clone(), outcome: Outcome::Passed, output: String::new() });
            runs.entry(name).or_default().push(run);
        }
    }
    let tests = lit::some(tests, filter)?;
    let mut summary = Summary::new(&tests, &runs, sides.intended());
    if sides == Sides::Plugins && filter.is_none() {
        summary.fail_if_unused(&runs, sides.intended());
    }
    summary.print();
    Ok((summary.totals.failed == 0 && summary.totals.passed > 0, summary.totals))
}

/// Compares the plugins on our own programs whose names match the filter.
fn own_programs(modes: &[Mode], filter: Option<&str>, scratch: &Path) -> Result<Vec<(String, ProgramRun)>> {
    let filter = Regex::new(filter.unwrap_or_default())?;
    let root = paths::root();
    let mut files = vec![root.join("tests/programs/demo.c")];
    for folder in OWN_PROGRAMS.map(|folder| root.join("tests/programs").join(folder)) {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            files.push(entry?.path());
        }
    }
    let name = |file: &PathBuf| file.strip_prefix(&root).unwrap_or(file).display().to_string();
    files.retain(|file| {
        file.extension().is_some_and(|kind| kind == "c" || kind == "cpp") && filter.is_match(&name(file))
    });
    files.sort();
    let progress = progress::steps("running our own programs on both plugins", files.len());
    let (queue, done) = (Mutex::new(files.iter().enumerate()), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        let next = || queue.lock().ok()?.next();
        while let Some((number, file)) = next() {
            let exe = scratch.join(number.to_string());
            let run = own_program(modes, &name(file), file, &exe).with_context(|| name(file))?;
            done.lock().expect("no thread panics").push((name(file), run));
            progress.inc();
        }
        Ok(())
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers = (0..workers).map(|_| scope.spawn(work)).collect::<Vec<_>>();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok(done.into_inner().expect("no thread panics"))
}

fn own_program(modes: &[Mode], name: &str, file: &Path, exe: &Path) -> Result<ProgramRun> {
    let head = Head::read(&fs::read_to_string(file)?);
    compile(Sides::Plugins, file, exe, &head.flags)?;
    ProgramRun::compare(name, Program { exe, args: &[], env: &head.env }, modes)
}

/// What the head of one of our programs asks for, as `// flags: ...` and `// env: NAME=value`.
#[derive(PartialEq, Eq, Debug)]
struct Head {
    flags: Vec<String>,
    env: Vec<(String, String)>,
}

impl Head {
    /// What is logged is the mode's business. Without a device the program must fail, not run on the host.
    fn read(source: &str) -> Head {
        let head = source.lines().map_while(|line| line.strip_prefix("// "));
        let values = |key: &'static str| head.clone().filter_map(move |line| line.strip_prefix(key));
        let env =
            values("env: ").filter_map(|value| value.split_once('=')).chain([("OMP_TARGET_OFFLOAD", "mandatory")]);
        let is_log = |name: &str| ["LIBOMPTARGET_DEBUG", "LIBOMPTARGET_INFO"].contains(&name);
        Head {
            flags: values("flags: ").flat_map(str::split_whitespace).map(str::to_owned).collect(),
            env: env.filter(|(name, _)| !is_log(name)).map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        }
    }
}

/// What [`suite`] has lit start in place of a test's program: compares the sides on the program, leaves a record, and
/// becomes the program, on what lit's configuration says. Writes nothing of its own, since what a test writes is checked.
pub fn wrapper(modes: &Path, records: &Path, test: &Path, command: &[OsString]) -> Result<()> {
    let (exe, args) = command.split_first().context("no program given")?;
    let exe = Path::new(exe);
    let modes: Vec<Mode> = serde_json::from_slice(&fs::read(modes)?)?;
    let run = ProgramRun::compare(&test.to_string_lossy(), Program { exe, args, env: &[] }, &modes)?;
    let mut file = tempfile::Builder::new().prefix("run-").tempfile_in(records)?;
    file.write_all(&serde_json::to_vec(&(test, run))?)?;
    file.keep()?;
    Err(Command::new(exe).args(args).exec()).with_context(|| format!("cannot run {}", exe.display()))
}

/// One run of a program by a test, in all modes, as the wrapper found it.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, Debug)]
struct ProgramRun {
    args: Vec<String>,
    /// Mode, and what differs between stock's own runs.
    unsteady: Vec<[String; 2]>,
    /// Mode, what differs, and the diff.
    differences: Vec<[String; 3]>,
    /// The rules of [`calls`] that were needed.
    rules: BTreeSet<String>,
    /// Modes in which nothing was compared, and why.
    chance: Vec<[String; 2]>,
    /// What was left at exit, for each mode in which the program ended by itself.
    left: Vec<String>,
    /// In how many modes it ended by abort.
    aborts: usize,
    /// How many calls of the driver were compared.
    calls: usize,
}

impl ProgramRun {
    /// The name may have a path before it.
    fn compare(test: &str, program: Program, modes: &[Mode]) -> Result<ProgramRun> {
        let args = program.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut run = ProgramRun { args, ..ProgramRun::default() };
        for mode in modes {
            let is_it = |name: &str| test.starts_with(name) || test.contains(&format!("/{name}"));
            let of_mode = |of: Option<&str>| mode.calls && of.is_none_or(|of| of == mode.name);
            let chance = CHANCE.iter().find(|(name, of, _)| is_it(name) && of_mode(*of)).map(|(.., why)| *why);
            let comparison = compare(program, mode, chance)?;
            let name = || mode.name.clone();
            run.unsteady.extend(comparison.unsteady.into_iter().map(|what| [name(), what.to_owned()]));
            run.differences.extend(comparison.differences.into_iter().map(|d| [name(), d.what.to_owned(), d.diff]));
            run.rules.extend(comparison.rules);
            run.left.extend(comparison.left);
            run.aborts += usize::from(comparison.aborted);
            if let Some(why) = comparison.chance {
                run.chance.push([name(), why.to_owned()]);
            } else {
                run.calls += comparison.calls;
            }
        }
        Ok(run)
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
    /// Figures over all runs on the emulated driver.
    figures: Vec<String>,
    /// Program runs.
    totals: Totals,
}

impl Summary {
    fn new(tests: &[lit::Test], runs: &BTreeMap<String, Vec<ProgramRun>>, intended: &[Meant]) -> Summary {
        let mut folders: BTreeMap<String, [usize; 3]> = BTreeMap::new();
        let [mut unsteady, mut meant, mut chance, mut broken, mut silent] = [const { Vec::new() }; 5];
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
            let reason = |mode: &str, part: &str| {
                let meant = intended.iter().find(|meant| meant.test == name && meant.mode == mode);
                meant.filter(|meant| meant.parts.contains(&part)).map(|meant| meant.why)
            };
            let mut parts = BTreeSet::new();
            for run in runs {
                let unmeant = run.unsteady.iter().filter(|[mode, what]| reason(mode, what).is_none());
                parts.extend(unmeant.map(|[mode, what]| format!("{what} ({mode})")));
                let mut failed = false;
                for [mode, what, diff] in &run.differences {
                    if let Some(reason) = reason(mode, what) {
                        meant.push(format!("{name} ({mode}): {reason}"));
                    } else {
                        failed = true;
                        let command = [&[name.clone()][..], &run.args].concat().join(" ");
                        differences.push((format!("{command}: {what} ({mode})"), diff.clone()));
                    }
                }
                row[1] += 1;
                row[2] += usize::from(run.differences.is_empty() && (run.chance.is_empty() || run.calls > 0));
                for same in run.chance.chunk_by(|[_, a], [_, b]| a == b) {
                    let modes = same.iter().map(|[mode, _]| mode.as_str()).collect::<Vec<_>>().join(", ");
                    chance.push(format!("{name} ({modes}): {}", same[0][1]));
                }
                if failed {
                    totals.failed += 1;
                } else if !run.chance.is_empty() && run.calls == 0 {
                    totals.skipped += 1;
                } else {
                    totals.passed += 1;
                }
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
            ("Not compared, because what they do is chance", chance),
            ("FAILED: LLVM's own test fails on stock, so its later programs were not compared", broken),
            ("FAILED: no program of this test was seen", silent),
        ];
        Summary { folders, notes, differences, figures: figures(runs.values().flatten()), totals }
    }

    /// A difference that is meant must be there, or its entry is out of date.
    fn fail_if_unused(&mut self, runs: &BTreeMap<String, Vec<ProgramRun>>, intended: &[Meant]) {
        let needed = runs.values().flatten().flat_map(|run| run.rules.clone()).collect();
        let mut unused = calls::unused(&needed);
        let there = |name: &str, mode: &str| {
            runs.get(name).is_some_and(|runs| runs.iter().flat_map(|run| &run.differences).any(|[m, ..]| m == mode))
        };
        let gone = intended.iter().filter(|meant| !there(meant.test, meant.mode));
        unused.extend(gone.map(|meant| format!("{} ({})", meant.test, meant.mode)));
        self.totals.failed += unused.len();
        self.notes.push(("FAILED: a difference is meant, but nothing differs so", unused));
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
        if !self.figures.is_empty() {
            println!();
        }
        self.figures.iter().for_each(|figure| println!("{figure}"));
        println!("\n{}", self.totals);
    }
}

/// The calls that were compared, and what our plugin left with the emulated driver.
fn figures<'a>(runs: impl Iterator<Item = &'a ProgramRun>) -> Vec<String> {
    let (mut calls, mut accounts, mut aborts) = (0, 0, 0);
    // Each kind of thing with its number, in the account's order.
    let mut left: Vec<(String, u64)> = Vec::new();
    for run in runs {
        calls += run.calls;
        accounts += run.left.len();
        aborts += run.aborts;
        for (number, kind) in run.left.iter().flat_map(|account| account.split(", ")).filter_map(|i| i.split_once(' '))
        {
            let number: u64 = number.parse().unwrap_or(0);
            match left.iter_mut().find(|(known, _)| known == kind) {
                Some((_, sum)) => *sum += number,
                None => left.push((kind.to_owned(), number)),
            }
        }
    }
    if accounts == 0 {
        return Vec::new();
    }
    let left = left.iter().map(|(kind, sum)| format!("{sum} {kind}")).collect::<Vec<_>>().join(", ");
    vec![
        format!("compared: {calls} calls of the driver"),
        format!("left at exit by our plugin, all {accounts} runs that end by themselves: {left}"),
        format!("no teardown comes after an abort: {aborts} runs, which leave what they leave with LLVM's plugin"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(log: &str) -> Run {
        Run { parts: [log, "", "exit status: 0"].map(str::to_owned), trace: String::new() }
    }

    fn judge(theirs: &[Run], ours: &Run) -> Comparison {
        super::judge(theirs, ours, false).expect("there are no traces")
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
        compare(program, &mode(false), None).expect("sh runs")
    }

    fn mode(calls: bool) -> Mode {
        let folder = |name: &str| vec![PathBuf::from(name)];
        Mode { name: "debug".to_owned(), env: vec![], stock: folder("/no/stock"), rust: folder("/no/rust"), calls }
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

    /// As [`compare_script`], with `call A`, `call B`, ... for calls of the driver.
    fn compare_calls(script: &str) -> Comparison {
        let call = r#"thread=0; call() { echo "{\"thread\":$thread,\"call\":\"$1\",\"args\":{},\"result\":0}" >>$EMU_TRACE; }"#;
        let args = ["-c".into(), format!("core=${{LD_LIBRARY_PATH%%:*}}; {call}; {script}").into()];
        compare(Program { exe: Path::new("/bin/sh"), args: &args, env: &[] }, &mode(true), None).expect("sh runs")
    }

    #[test]
    fn calls_of_the_driver_are_compared() {
        assert!(compare_calls("call A; call B").equal());
        let other = compare_calls("call A; case $core in */rust) call B;; esac");
        assert_eq!(
            other.differences,
            [Difference { what: CALLS, diff: "--- stock\n+++ rust\n@@ -1 +1,2 @@\n A\n+B\n".to_owned() }]
        );
        let ruled = compare_calls("case $core in */rust) call cuCtxSetCurrent;; esac; call cuEventCreate");
        assert_eq!(
            (ruled.equal(), ruled.rules.into_iter().collect()),
            (true, vec!["context before an event is made".to_owned()])
        );
    }

    #[test]
    fn where_threads_call_the_driver_nothing_is_compared() {
        let threads = compare_calls("thread=1; call ${core##*/}");
        assert_eq!((threads.chance, threads.equal()), (Some(THREADS), true));
        // Only ours has them: that is a difference.
        let ours = compare_calls("case $core in */rust) thread=1;; esac; call A");
        assert!(ours.chance.is_none() && !ours.equal());
    }

    #[test]
    fn where_a_program_does_not_do_the_same_twice_only_what_it_leaves_counts() {
        let args = ["-c".into(), "echo $$; echo emulator: left at exit: 1 streams >&2".into()];
        let program = Program { exe: Path::new("/bin/sh"), args: &args, env: &[] };
        let run = ProgramRun::compare(
            "x/mapping/declare_mapper_x.cpp",
            program,
            &[Mode { name: STOCK_CORE.to_owned(), ..mode(true) }],
        );
        let run = run.expect("sh runs");
        assert_eq!(run.chance, [[STOCK_CORE, PUT_BACK].map(str::to_owned)]);
        assert_eq!(run.differences, [[STOCK_CORE, LEFT, "+1 streams\n"].map(str::to_owned)]);
    }

    #[test]
    fn what_is_left_at_exit_counts_for_our_plugin_alone() {
        let of = |rust: u32, stock: u32| {
            compare_calls(&format!(
                "case $core in */rust) n={rust};; *) n={stock};; esac; echo emulator: left at exit: $n streams, 0 events >&2"
            ))
        };
        assert!(of(0, 3).equal());
        assert_eq!(of(0, 3).left.as_deref(), Some("0 streams, 0 events"));
        assert_eq!(of(2, 2).differences, [Difference { what: LEFT, diff: "+2 streams, 0 events\n".to_owned() }]);
        // An abort has no teardown: what it leaves is like any other line.
        assert!(!compare_calls("echo emulator: left at abort: ${core##*/} >&2").equal());
    }

    #[test]
    fn a_head_says_how_a_program_is_compiled_and_run() {
        let head = Head::read(
            "// A program.\n// env: LIBOMPTARGET_DEBUG=1\n// flags: -g -x\n// env: EMU_DEVICES=2\nint x;\n// env: A=B\n",
        );
        let env = [("EMU_DEVICES", "2"), ("OMP_TARGET_OFFLOAD", "mandatory")];
        assert_eq!(head.flags, ["-g", "-x"]);
        assert_eq!(head.env, env.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn figures_are_sums() {
        let run = |left: &[&str], calls| ProgramRun {
            left: left.iter().map(|left| left.to_string()).collect(),
            aborts: usize::from(left.is_empty()),
            calls,
            ..ProgramRun::default()
        };
        let runs = [run(&["1 streams, 0 events", "2 streams, 3 events"], 7), run(&[], 5)];
        assert_eq!(
            figures(runs.iter()),
            [
                "compared: 12 calls of the driver",
                "left at exit by our plugin, all 2 runs that end by themselves: 3 streams, 3 events",
                "no teardown comes after an abort: 1 runs, which leave what they leave with LLVM's plugin"
            ]
        );
        assert_eq!(figures([run(&[], 0)].iter()), [""; 0]);
    }

    #[test]
    fn a_difference_that_is_meant_must_be_there() {
        let all = calls::unused(&BTreeSet::new()).into_iter().collect::<BTreeSet<_>>();
        let differs = ProgramRun {
            differences: vec![["debug", "log", "-a\n"].map(str::to_owned)],
            rules: all.clone(),
            ..ProgramRun::default()
        };
        let runs = BTreeMap::from([("a.c".to_owned(), vec![differs])]);
        let meant = |mode| Meant { test: "a.c", mode, parts: &PARTS, why: "x" };
        let unused = |intended: &[Meant], runs: &BTreeMap<String, Vec<ProgramRun>>| {
            let mut summary = Summary::new(&[], runs, intended);
            summary.fail_if_unused(runs, intended);
            (summary.totals.failed, summary.notes.last().map(|(_, names)| names.clone()).unwrap_or_default())
        };
        assert_eq!(unused(&[meant("debug")], &runs), (0, vec![]));
        assert_eq!(unused(&[meant("info")], &runs), (1, vec!["a.c (info)".to_owned()]));
        assert_eq!(unused(&[], &BTreeMap::new()).0, all.len());
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
            test("api/threads.c", Outcome::Passed),
            test("api/silent.c", Outcome::Passed),
            test("api/unsupported.c", Outcome::Unsupported),
            test("api/broken.c", Outcome::Failed),
        ];
        let not_compared = ProgramRun { chance: vec![["debug", THREADS].map(str::to_owned)], ..equal.clone() };
        let left = ProgramRun { differences: vec![["debug", LEFT, "+1\n"].map(str::to_owned)], ..equal.clone() };
        let runs = [
            ("api/a.c", vec![equal.clone(), other.clone(), threads]),
            ("api/meant.c", vec![other, left]),
            ("api/threads.c", vec![not_compared]),
        ];
        let runs = runs.into_iter().map(|(name, runs)| (name.to_owned(), runs)).collect();
        let meant = |test, mode| Meant { test, mode, parts: &PARTS, why: "a fault mended" };
        let summary = Summary::new(&tests, &runs, &[meant("api/meant.c", "debug"), meant("api/a.c", "info")]);
        assert_eq!(summary.totals, Totals { passed: 3, failed: 4, skipped: 2 });
        assert_eq!(summary.folders["api"], [3, 6, 2]);
        let notes: Vec<&[String]> = summary.notes.iter().map(|(_, tests)| &tests[..]).collect();
        assert_eq!(
            notes,
            [
                ["api/a.c (threads: own log (debug) differs under stock)"],
                ["api/meant.c (debug): a fault mended"],
                ["api/threads.c (debug): more than one thread calls the driver"],
                ["api/broken.c"],
                ["api/silent.c"]
            ]
        );
        let differences = [("api/a.c: log (debug)", "-a\n"), ("api/meant.c: left at exit (debug)", "+1\n")];
        assert_eq!(summary.differences, differences.map(|(title, diff)| (title.to_owned(), diff.to_owned())));
    }
}
