//! Runs programs whose tasks race for mapped data, many times each, on the emulated CUDA device with delays that each
//! run's seed decides, or on the host: our own in `tests/programs/races`, and those of LLVM's tests that have deferred or dependent
//! regions, or that do not always pass on LLVM's own core.

use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use regex::Regex;

use crate::build::{self, Libs};
use crate::core::{Core, Parts};
use crate::lit::{self, Cores, Device};
use crate::totals::Totals;
use crate::{emulator, paths, process, program, progress, retarget};

/// How long a run may take before it counts as hung. The slowest takes two seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// How long the emulated device may hold back a command, in microseconds; a run's seed chooses.
const DELAYS_US: [u64; 4] = [0, 100, 300, 1000];

/// How many programs LLVM's core must get wrong for the runs to mean something.
const WRONG_ON_STOCK: usize = 5;

/// How many failing seeds of a program are named.
const SEEDS_SHOWN: usize = 8;

/// How often the readers run for their ratio.
const READERS_RUNS: usize = 5;

/// What is run, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The cores.
    pub cores: Cores,
    /// Where they offload to.
    pub device: Device,
    /// The CUDA plugin beside each.
    pub plugin: Core,
    /// Runs of each program.
    pub runs: Runs,
    /// The seed of each program's first run; the others count on from it.
    pub seed: u64,
    /// Only programs whose names match this regular expression.
    pub filter: Option<&'a str>,
}

/// How often each program is run.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Our own programs, on the Rust core.
    pub own: usize,
    /// LLVM's, on the Rust core.
    pub llvm: usize,
    /// Any, on LLVM's core.
    pub stock: usize,
}

impl Runs {
    /// Every program equally often.
    pub fn all(runs: usize) -> Runs {
        Runs { own: runs, llvm: runs, stock: runs }
    }

    fn of(self, program: &Program, core: Core) -> usize {
        match (core, program.checked_by_llvm) {
            (Core::Stock, _) => self.stock,
            (Core::Rust, true) => self.llvm,
            (Core::Rust, false) => self.own,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should.
    Right,
    /// With wrong results, or with something left on the device.
    Wrong,
    /// By a signal: it crashed, or the runtime gave up.
    Crashed,
    /// Not at all.
    Hung,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Right => "right",
            Outcome::Wrong => "wrong",
            Outcome::Crashed => "crashed",
            Outcome::Hung => "hung",
        })
    }
}

/// A program to run.
#[derive(Debug)]
pub struct Program {
    /// Its file below `tests/programs`, or below LLVM's tests.
    pub name: String,
    source: PathBuf,
    flags: Vec<String>,
    /// It is one of LLVM's tests, which may want its output checked by the comments in its source.
    checked_by_llvm: bool,
    has_patterns: bool,
}

/// A compiled program.
#[derive(Debug)]
pub struct Compiled<'a> {
    program: &'a Program,
    exe: PathBuf,
}

/// A run that was not right.
#[derive(Debug)]
pub struct Failure {
    /// Runs it again.
    pub seed: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// How it ended, and the line of its output that says most.
    pub said: String,
}

/// What programs run on.
#[derive(Debug)]
pub struct Place {
    libs: Libs,
    device: Device,
    /// The emulated device's.
    driver: Option<PathBuf>,
    /// Whether all that was taken from the driver must go back. LLVM's plugin keeps some of it.
    strict: bool,
}

impl Place {
    /// Builds what is needed.
    pub fn new(parts: Parts, device: Device) -> Result<Place> {
        let ours = Parts { core: Core::Rust, plugin: Core::Rust };
        let driver = if device == Device::CudaEmulated { Some(emulator::ensure()?) } else { None };
        Ok(Place { libs: build::ensure(parts)?, device, driver, strict: parts == ours })
    }

    /// A command that runs `exe` as `seed` says.
    fn command(&self, exe: &Path, seed: u64) -> Command {
        let dirs: Vec<PathBuf> = self.driver.iter().chain([&self.libs.dir]).cloned().collect();
        let mut command = program::command_in(exe, &dirs);
        for (name, _) in std::env::vars_os() {
            if ["OMP_", "LIBOMP", "KMP_", "EMU_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
                command.env_remove(&name);
            }
        }
        // libomp 14's hidden helper tasks have races of their own, and it runs out of thread slots.
        command.env("LIBOMP_USE_HIDDEN_HELPER_TASK", "0").env("OMP_NUM_THREADS", "6");
        command.env("OMP_TARGET_OFFLOAD", "mandatory");
        // bug49334.cpp relies on new host memory being zero.
        command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.perturb=255");
        let choice = usize::try_from(mix(seed) % 8).unwrap_or(0);
        command.env("EMU_SEED", seed.to_string()).env("EMU_DELAY_US", DELAYS_US[choice / 2].to_string());
        command.env("EMU_POISON", "1").env("EMU_ACCOUNT", if self.strict { "strict" } else { "" });
        if choice % 2 == 0 {
            // Every block goes back to the driver, which spoils it, instead of to the plugin's own store.
            command.env("LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD", "0");
        }
        command
    }
}

/// Neighbouring seeds choose alike without this (Fibonacci hashing).
fn mix(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// The programs whose names match `filter`: ours, then LLVM's in `tests`, which is its `libomptarget/test`.
pub fn programs(tests: &Path, device: Device, filter: Option<&str>) -> Result<Vec<Program>> {
    let filter = filter.unwrap_or_default();
    // The library's own message has several lines.
    let filter = Regex::new(filter).map_err(|_| anyhow!("{filter} is not a regular expression"))?;
    let races = paths::root().join("tests/programs");
    let mut programs = Vec::new();
    for (root, folder) in [(&*races, "races"), (tests, "mapping"), (tests, "offloading")] {
        for source in sources(&root.join(folder))? {
            let file = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
            let name = format!("{folder}/{file}");
            let llvms = root == tests;
            if filter.is_match(&name) && (!llvms || is_about_races(&file, &text, device)) {
                let flags = if llvms { vec!["-fno-experimental-isel".to_owned()] } else { flags(&text) };
                let has_patterns = llvms && text.contains("-run-and-check-");
                programs.push(Program { name, source, flags, checked_by_llvm: llvms, has_patterns });
            }
        }
    }
    ensure!(!programs.is_empty(), "no program has a name that matches {filter}");
    Ok(programs)
}

/// The C and C++ files in a folder, by name.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c" || extension == "cpp"));
    files.sort();
    Ok(files)
}

/// Whether one of LLVM's tests has deferred or dependent regions, or is one that is not steady on LLVM's own core; and
/// is for this device.
fn is_about_races(file: &str, text: &str, device: Device) -> bool {
    let target = match device {
        Device::Host => lit::TARGET,
        Device::CudaEmulated => lit::CUDA_TARGET,
    };
    let says = |key: &str, value: &str| text.contains(&format!("{key}: {value}\n"));
    let runs = text.contains("-generic") || text.contains(&format!("-{target}"));
    let unsteady = file.starts_with("declare_mapper_nested_");
    runs && !says("UNSUPPORTED", target)
        && !says("UNSUPPORTED", "clang")
        && (!text.contains("REQUIRES: ") || says("REQUIRES", target))
        && (unsteady || text.contains("nowait") || text.contains("depend("))
}

/// What the head of one of our programs wants the compiler to be given.
fn flags(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("// flags: "));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

impl Program {
    /// Compiles the program for a place's device. One executable serves all parts.
    pub fn compile(&self, place: &Place) -> Result<Compiled<'_>> {
        let emulated = place.device == Device::CudaEmulated;
        let dir = paths::out_root().join("stress").join(if emulated { "cuda" } else { "host" });
        let exe = dir.join(&self.name).with_extension("exe");
        let folder = exe.parent().context("no folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let flags: Vec<&str> = ["-g"].into_iter().chain(self.flags.iter().map(String::as_str)).collect();
        // Another process may be running the one that is there.
        let stage = tempfile::tempdir_in(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
        let new = stage.path().join("new");
        program::compile(&self.source, &new, &place.libs, &flags)?;
        if emulated {
            retarget::retarget(&new)?;
        }
        fs::rename(&new, &exe).with_context(|| format!("cannot write {}", exe.display()))?;
        Ok(Compiled { program: self, exe })
    }
}

impl Compiled<'_> {
    /// Runs the program once.
    pub fn run(&self, place: &Place, seed: u64) -> Result<Option<Failure>> {
        let run = process::run_within(&mut place.command(&self.exe, seed), LIMIT)?;
        let stdout = String::from_utf8_lossy(&run.stdout);
        let stderr = String::from_utf8_lossy(&run.stderr);
        let lines = || stdout.lines().chain(stderr.lines());
        let says_why = |line: &&str| line.contains("does not hold") || line.contains("error: ");
        let (outcome, why) = match run.status {
            None => (Outcome::Hung, format!("it had not ended after {} s", LIMIT.as_secs())),
            Some(status) if status.signal().is_some() => (Outcome::Crashed, status.to_string()),
            Some(status) if !status.success() => (Outcome::Wrong, status.to_string()),
            Some(_) if !self.program.checked_by_llvm && !stdout.starts_with("PASS") => {
                (Outcome::Wrong, "it does not print PASS".to_owned())
            }
            Some(_) => match self.mismatch(&run.stdout)? {
                Some(mismatch) => (Outcome::Wrong, mismatch),
                None => return Ok(None),
            },
        };
        let said = lines().find(says_why).map_or(String::new(), |line| format!("; {line}"));
        Ok(Some(Failure { seed, outcome, said: why + &said }))
    }

    /// What one of LLVM's tests should have printed, by its comments, and has not.
    fn mismatch(&self, stdout: &[u8]) -> Result<Option<String>> {
        if !self.program.has_patterns {
            return Ok(None);
        }
        let mut output = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        output.write_all(stdout).context("cannot write a temporary file")?;
        let mut check = Command::new(process::tool("FileCheck")?);
        check.arg(&self.program.source).arg("--input-file").arg(output.path());
        let output = check.output().context("cannot run FileCheck")?;
        Ok((!output.status.success()).then(|| process::first_error(&output.stderr).unwrap_or_default()))
    }
}

/// A program's runs on one core.
#[derive(Default, Debug)]
struct Tally {
    runs: usize,
    failures: Vec<Failure>,
}

impl Tally {
    fn count(&self, outcome: Outcome) -> usize {
        self.failures.iter().filter(|failure| failure.outcome == outcome).count()
    }
}

/// What became of a program on each core, in the order of the table's columns.
type Row<'a> = (&'a str, Vec<Tally>);

/// Runs the programs and prints a table, the seeds of the runs that failed, and last the sum: each program on each core
/// is one check. With both cores only ours has to be right. Answers whether all was well, and how many programs LLVM's
/// core got wrong.
pub fn report(options: Options) -> Result<(bool, Totals, usize)> {
    let cores = options.cores.list();
    let place = |&core: &Core| Place::new(Parts { core, plugin: options.plugin }, options.device);
    let places = cores.iter().map(place).collect::<Result<Vec<_>>>()?;
    let first = places.first().context("no core was chosen")?;
    let programs = programs(&first.libs.tree.libomptarget().join("test"), options.device, options.filter)?;
    let compiled = compile(&programs, first)?;

    let mut rows: Vec<Row> = Vec::new();
    for compiled in &compiled {
        let name = &compiled.program.name;
        let jobs: Vec<(usize, u64)> = (0..cores.len())
            .flat_map(|column| {
                let runs = options.runs.of(compiled.program, cores[column]) as u64;
                (0..runs).map(move |run| (column, options.seed.wrapping_add(run)))
            })
            .collect();
        let progress = progress::steps(format!("running {name} {} times", jobs.len()), jobs.len());
        let results = side_by_side(&jobs, |&(column, seed)| {
            let failure = compiled.run(&places[column], seed);
            progress.inc();
            failure
        })?;
        let mut tallies: Vec<Tally> = cores.iter().map(|_| Tally::default()).collect();
        for ((column, _), failure) in jobs.iter().zip(results) {
            tallies[*column].runs += 1;
            tallies[*column].failures.extend(failure);
        }
        rows.push((name, tallies));
    }

    print!("{}", table(cores, &rows));
    print!("{}", failures(cores, options, &rows));
    if options.cores == Cores::Both && options.device == Device::CudaEmulated {
        println!("\n{}", readers(&places)?);
    }
    let wrong_on = |core: Core| {
        let column = cores.iter().position(|&other| other == core);
        let wrong = |row: &&Row| column.is_some_and(|column| !row.1[column].failures.is_empty());
        rows.iter().filter(wrong).count()
    };
    let failed = wrong_on(*cores.last().context("no core was chosen")?);
    let totals = Totals { passed: rows.len() - failed, failed, skipped: 0 };
    println!("\n{totals}");
    Ok((failed == 0, totals, wrong_on(Core::Stock)))
}

/// The form for CI, of five minutes at most: both cores in one table. Ours may never be wrong; one check more is that
/// LLVM's own core is, or the runs would show nothing.
pub fn check() -> Result<Totals> {
    let runs = Runs { own: 100, llvm: 20, stock: 5 };
    let options =
        Options { cores: Cores::Both, device: Device::CudaEmulated, plugin: Core::Rust, runs, seed: 1, filter: None };
    let (_, totals, wrong_on_stock) = report(options)?;
    println!("LLVM's core gets {wrong_on_stock} programs wrong, and has to get {WRONG_ON_STOCK}");
    Ok([totals, Totals::one(wrong_on_stock >= WRONG_ON_STOCK)].into_iter().sum())
}

/// Compiles all programs.
fn compile<'a>(programs: &'a [Program], place: &Place) -> Result<Vec<Compiled<'a>>> {
    let progress = progress::steps("compiling the programs", programs.len());
    side_by_side(programs, |program| {
        let compiled = program.compile(place);
        progress.inc();
        compiled
    })
}

/// Does one thing for each item, as many at a time as the machine has cores, and answers in the order of the items.
fn side_by_side<'a, T: Sync, R: Send>(items: &'a [T], work: impl Fn(&'a T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            let result = work(item);
            if let Ok(mut done) = done.lock() {
                done.push((index, result));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let mut done = done.into_inner().map_err(|_| anyhow!("a thread has panicked"))?;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn table(cores: &[Core], rows: &[Row]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("program".len());
    let mut text = format!("{:<width$}", "");
    cores.iter().for_each(|core| text += &format!("   {:<23}", core.name()));
    text.truncate(text.trim_end().len());
    text += &format!("\n{:<width$}", "program");
    cores.iter().for_each(|_| text += "   runs wrong crashed hung");
    text += "\n";
    for (name, tallies) in rows {
        text += &format!("{name:<width$}");
        for tally in tallies {
            let [wrong, crashed, hung] =
                [Outcome::Wrong, Outcome::Crashed, Outcome::Hung].map(|outcome| tally.count(outcome));
            text += &format!("   {:>4} {wrong:>5} {crashed:>7} {hung:>4}", tally.runs);
        }
        text += "\n";
    }
    text
}

/// The seeds of the runs that failed, and how to see one again.
fn failures(cores: &[Core], options: Options, rows: &[Row]) -> String {
    let mut text = String::new();
    for (column, core) in cores.iter().enumerate() {
        for (name, tallies) in rows {
            let failures = &tallies[column].failures;
            let Some(first) = failures.first() else { continue };
            let seeds: Vec<String> =
                failures.iter().take(SEEDS_SHOWN).map(|failure| failure.seed.to_string()).collect();
            let more = if failures.len() > SEEDS_SHOWN { ", ..." } else { "" };
            let device = if options.device == Device::Host { " --device host" } else { "" };
            let plugin = if options.plugin == Core::Stock { " --plugin stock" } else { "" };
            text += &format!(
                "\n{core}: {name}: seeds {}{more}\n    {}: {}\n    omptarget stress --core {core}{device}{plugin} --seed {} --runs 1 {name}\n",
                seeds.join(", "),
                first.outcome,
                first.said,
                first.seed
            );
        }
    }
    text
}

/// How long eight tasks that read one mapping take with both cores, in turns.
fn readers(places: &[Place]) -> Result<String> {
    let source = paths::root().join("tests/programs/cuda/readers.c");
    let program =
        Program { name: "readers.c".into(), source, flags: vec![], checked_by_llvm: false, has_patterns: false };
    let compiled = program.compile(&places[0])?;
    let mut times: Vec<Vec<u64>> = places.iter().map(|_| Vec::new()).collect();
    for _ in 0..READERS_RUNS {
        for (place, times) in places.iter().zip(&mut times) {
            let mut command = place.command(&compiled.exe, 0);
            let output = process::run(command.env("EMU_DELAY_US", "0")).context("the readers are not concurrent")?;
            let text = String::from_utf8_lossy(&output.stdout);
            let time = text.lines().find_map(|line| line.strip_suffix(" us")?.parse().ok());
            times.push(time.context("the readers do not say how long they took")?);
        }
    }
    let middle = |times: &mut Vec<u64>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let [stock, rust] = &mut times[..] else { return Err(anyhow!("there are not two cores to compare")) };
    let (stock, rust) = (middle(stock), middle(rust));
    let ratio = rust as f64 / stock as f64;
    Ok(format!("eight readers of one mapping: {stock} us with LLVM's core, {rust} us with ours, ratio {ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(seeds: std::ops::Range<u64>, outcome: Outcome) -> Vec<Failure> {
        seeds.map(|seed| Failure { seed, outcome, said: "line 3 does not hold: x".to_owned() }).collect()
    }

    #[test]
    fn the_table_has_a_row_a_program_and_columns_a_core() {
        let mut stock = failing(1..3, Outcome::Wrong);
        stock.extend(failing(7..8, Outcome::Crashed));
        let tallies = vec![Tally { runs: 5, failures: stock }, Tally { runs: 1000, failures: vec![] }];
        let expected = "            stock                     rust
program     runs wrong crashed hung   runs wrong crashed hung
races/x.c      5     2       1    0   1000     0       0    0
";
        assert_eq!(table(Cores::Both.list(), &[("races/x.c", tallies)]), expected);
    }

    #[test]
    fn a_failure_can_be_run_again() {
        let tallies = vec![Tally { runs: 20, failures: failing(4..14, Outcome::Hung) }];
        let expected = "
rust: races/x.c: seeds 4, 5, 6, 7, 8, 9, 10, 11, ...
    hung: line 3 does not hold: x
    omptarget stress --core rust --device host --plugin stock --seed 4 --runs 1 races/x.c
";
        let (cores, device, runs) = (Cores::Rust, Device::Host, Runs::all(20));
        let options = Options { cores, device, plugin: Core::Stock, runs, seed: 1, filter: None };
        assert_eq!(failures(cores.list(), options, &[("races/x.c", tallies)]), expected);
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..50).collect();
        assert_eq!(side_by_side(&items, |&item| Ok(item)).expect("no error"), items);
        assert!(side_by_side(&items, |&item| if item == 7 { Err(anyhow!("seven")) } else { Ok(item) }).is_err());
    }

    #[test]
    fn tests_are_chosen_by_what_they_do_and_where() {
        let chosen = |file: &str, text: &str| {
            [Device::Host, Device::CudaEmulated].map(|device| is_about_races(file, &format!("// {text}\n"), device))
        };
        let nowait = |text: &str| chosen("a.cpp", &format!("{text}\n#pragma omp target nowait"));
        assert_eq!(nowait("RUN: %libomptarget-compilexx-and-run-generic"), [true, true]);
        assert_eq!(nowait("RUN: %x-generic\n// UNSUPPORTED: x86_64-pc-linux-gnu"), [false, true]);
        assert_eq!(nowait("RUN: %x-generic\n// REQUIRES: nvptx64-nvidia-cuda"), [false, true]);
        assert_eq!(nowait("RUN: %x-generic\n// UNSUPPORTED: clang"), [false, false]);
        assert_eq!(nowait("RUN: %x-amdgcn-amd-amdhsa"), [false, false]);
        assert_eq!(chosen("declare_mapper_nested_x.cpp", "RUN: %x-nvptx64-nvidia-cuda"), [false, true]);
        assert_eq!(chosen("a.cpp", "RUN: %x-generic\n#pragma omp target"), [false, false]);
    }
}
