//! Measures what libomptarget itself costs, with each core, on a plugin that does nothing.
//!
//! For each number of live mappings a process per core makes them once and then does pieces of work, one a line; see
//! `tests/bench/bench.c`. Both cores do the same operations, in pairs that follow each other closely, so that what
//! disturbs one of them likely disturbs the other too. The next pair has two new processes, as where things happen to
//! be in a process's memory makes some faster than others. A ratio is the median of those of its pairs.

pub mod instructions;

mod machine;
mod plot;
mod table;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::build::{self, Libs};
use crate::core::Core;
use crate::lit::Cores;
use crate::{paths, process, program, progress};

/// The bench and its plugin, below the repository's root.
const SOURCES: &str = "tests/bench";

/// The name that LLVM's loader tries first, of a machine that this is not.
const PLUGIN: &str = "libomptarget.rtl.ppc64.so";

/// Where compiled code is like that of a program that people run.
const FLAGS: [&str; 6] = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2"];

/// What is done over and over.
#[derive(Clone, Copy, clap::ValueEnum, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Enter and exit of a fresh mapping of 64 bytes, behind all others
    New,
    /// The same anywhere between the others
    Between,
    /// Enter and exit of what is mapped
    Reuse,
    /// omp_target_is_present
    Present,
    /// A target region with 8 arguments that are mapped
    Launch,
    /// Enter and exit of a fresh struct with a pointer to what is mapped
    Attach,
}

impl Scenario {
    /// All, in the order in which they are shown.
    pub const ALL: [Scenario; 6] =
        [Scenario::New, Scenario::Between, Scenario::Reuse, Scenario::Present, Scenario::Launch, Scenario::Attach];

    /// The name on the command line, in files, and for the bench.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::New => "new",
            Scenario::Between => "between",
            Scenario::Reuse => "reuse",
            Scenario::Present => "present",
            Scenario::Launch => "launch",
            Scenario::Attach => "attach",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// On which cores.
    pub cores: Cores,
    /// How often each is measured.
    pub pairs: usize,
    /// Doing what.
    pub scenarios: Vec<Scenario>,
    /// With how many live mappings.
    pub sizes: Vec<usize>,
    /// In how many threads.
    pub threads: Vec<usize>,
    /// About how long a piece of work takes, in milliseconds.
    pub millis: u64,
    /// With LLVM's debug output compiled in, which a release of LLVM's has not.
    pub debug_output: bool,
    /// Where the files go.
    pub out: Option<PathBuf>,
}

/// One piece of work.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Until the last thread was done, in nanoseconds an operation of any thread.
    wall: f64,
    /// Of the processors, in nanoseconds an operation.
    cpu: f64,
}

impl Piece {
    /// What an operation costs, in nanoseconds. One thread's is its processor time, which other programs on the machine
    /// disturb less.
    fn cost(self, threads: usize) -> f64 {
        if threads == 1 { self.cpu } else { self.wall }
    }
}

/// What was measured of one scenario, with one number of mappings and of threads.
#[derive(Clone, Debug)]
struct Row {
    scenario: Scenario,
    size: usize,
    threads: usize,
    /// The pieces of LLVM's core, and of ours; empty if it was not asked for.
    stock: Vec<Piece>,
    rust: Vec<Piece>,
}

/// What making the mappings took.
#[derive(Clone, Copy, Debug)]
struct Filling {
    core: Core,
    size: usize,
    /// The process's growth at its peak, in bytes a mapping.
    bytes: f64,
    /// Nanoseconds a mapping.
    time: f64,
}

/// All that was measured.
#[derive(Clone, Debug, Default)]
struct Measured {
    rows: Vec<Row>,
    fillings: Vec<Filling>,
    /// Which part of the machine's processor time other programs had meanwhile, if that is known.
    others: Option<f64>,
}

/// Where the files go when nothing else is asked for.
pub fn default_out() -> PathBuf {
    paths::out_root().join("14/bench")
}

/// Measures, prints a table and what of it is not as it should be, and writes `results.csv`, `memory.csv` and
/// `plot.svg`.
pub fn report(options: &Options) -> Result<()> {
    let out = std::path::absolute(options.out.clone().unwrap_or_else(default_out)).context("--out is not a path")?;
    let new = !out.exists();
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let done = measure(options).and_then(|measured| {
        print!("{}", table::text(&measured));
        let files = [("results.csv", table::csv(&measured)), ("memory.csv", table::memory_csv(&measured))].map(
            |(name, text)| {
                let file = out.join(name);
                fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
            },
        );
        files.into_iter().collect::<Result<()>>()?;
        plot::draw(&measured, &out.join("plot.svg"))
    });
    if done.is_err() && new {
        // It may have files of somebody else by now.
        drop(fs::remove_dir(&out));
    }
    done?;
    println!("\n{} has results.csv, memory.csv and plot.svg", out.display());
    Ok(())
}

fn measure(options: &Options) -> Result<Measured> {
    let cores = options.cores.list();
    let program = Program::build(cores, options.debug_output)?;
    let mut measured = Measured::default();
    let before = machine::ticks();
    for &size in &options.sizes {
        measure_size(options, &program, size, &mut measured)?;
    }
    measured.others = before.zip(machine::ticks()).map(|(before, after)| machine::others(before, after));
    Ok(measured)
}

/// All pieces with one number of mappings.
fn measure_size(options: &Options, program: &Program, size: usize, measured: &mut Measured) -> Result<()> {
    let cases = options.scenarios.iter().flat_map(|&scenario| options.threads.iter().map(move |&of| (scenario, of)));
    let row = |(scenario, threads)| Row { scenario, size, threads, stock: Vec::new(), rust: Vec::new() };
    // With how many operations a piece has, once that is known.
    let mut rows = cases.map(|case| (row(case), None)).collect::<Vec<_>>();
    // One thread first: what a core does when threads meet, it may do for good.
    rows.sort_by_key(|(row, _)| row.threads);
    let progress =
        progress::steps(format!("measuring with {} mappings", table::grouped(size)), rows.len() * options.pairs);
    for pair in 0..options.pairs {
        let mut servers = Vec::new();
        for libs in &program.libs {
            let (server, filling) = Server::start(program.command(libs, size), libs.core, size)?;
            servers.push(server);
            if pair == 0 {
                measured.fillings.push(filling);
            }
        }
        // Each core is the first in every other pair.
        servers.rotate_left(pair % program.libs.len());
        for (row, operations) in &mut rows {
            let operations = if let Some(known) = *operations {
                warm_up(&mut servers, row, known)?;
                known
            } else {
                *operations.insert(find_operations(&mut servers, row, options.millis)?)
            };
            for server in &mut servers {
                let piece = server.work(row.scenario, row.threads, operations, pair as u64 + 1)?;
                match server.core {
                    Core::Stock => row.stock.push(piece),
                    Core::Rust => row.rust.push(piece),
                }
            }
            progress.inc();
        }
    }
    rows.sort_by_key(|(row, _)| options.scenarios.iter().position(|scenario| *scenario == row.scenario));
    measured.rows.extend(rows.into_iter().map(|(row, _)| row));
    Ok(())
}

/// Does part of a piece that is not measured.
fn warm_up(servers: &mut [Server], row: &Row, operations: usize) -> Result<()> {
    for server in servers {
        server.work(row.scenario, row.threads, operations.div_ceil(8), 0)?;
    }
    Ok(())
}

/// How many operations of each thread take about so long on the first core. Warms the others up as well.
fn find_operations(servers: &mut [Server], row: &Row, millis: u64) -> Result<usize> {
    const FIRST: usize = 100;
    let limit = millis as f64 * 1e6;
    let mut operations = FIRST;
    loop {
        let mut took = 0.0;
        for server in servers.iter_mut().rev() {
            took = server.work(row.scenario, row.threads, operations, 0)?.wall * (operations * row.threads) as f64;
        }
        let per_operation = took.max(1.0) / operations as f64;
        // What the first pieces say of a longer one is not much.
        if took >= limit / 8.0 {
            return Ok(((limit / per_operation) as usize).max(1));
        }
        operations *= 4;
    }
}

/// The bench and its plugin, compiled, with the libraries that it is to run on.
struct Program {
    dir: TempDir,
    libs: Vec<Libs>,
}

impl Program {
    fn build(cores: &[Core], debug_output: bool) -> Result<Program> {
        let libs = |&core| if debug_output { build::ensure(core) } else { build::ensure_release(core) };
        let libs = cores.iter().map(libs).collect::<Result<Vec<_>>>()?;
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        let sources = paths::root().join(SOURCES);
        let compiler = process::tool("clang-14")?;
        let mut plugin = Command::new(&compiler);
        plugin.args(FLAGS).args(["-shared", "-fPIC"]).arg(sources.join("plugin.c"));
        process::run(plugin.arg("-o").arg(dir.path().join(PLUGIN))).context("the bench's plugin does not compile")?;
        let mut bench = Command::new(&compiler);
        bench.args(FLAGS).args(["-g", "-pthread"]).arg(sources.join("bench.c")).arg("-o").arg(dir.path().join("bench"));
        bench.args(libs.iter().take(1).flat_map(program::link_args)).args(["-lomptarget", "-lomp"]);
        process::run(&mut bench).context("the bench does not compile")?;
        Ok(Program { dir, libs })
    }

    /// Runs the bench with so many mappings on one of the libraries.
    fn command(&self, libs: &Libs, size: usize) -> Command {
        let folders = [self.dir.path().to_owned(), libs.dir.clone()];
        let mut command = program::command_in(&self.dir.path().join("bench"), &folders);
        adjust(&mut command, std::env::vars_os().map(|(name, _)| name));
        command.arg(size.to_string());
        command
    }
}

/// Nothing of the environment changes what is measured, and what fails is not measured.
fn adjust(command: &mut Command, environment: impl Iterator<Item = OsString>) {
    for name in environment {
        let text = name.to_string_lossy();
        if ["OMP_", "LIBOMP", "KMP_"].iter().any(|start| text.starts_with(start)) {
            command.env_remove(&name);
        }
    }
    command.env("OMP_TARGET_OFFLOAD", "mandatory");
}

/// A running bench, ended when dropped.
struct Server {
    core: Core,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: File,
}

impl Server {
    /// Starts a bench, and waits until all is mapped.
    fn start(mut command: Command, core: Core, size: usize) -> Result<(Server, Filling)> {
        let errors = tempfile::tempfile().context("cannot make a temporary file")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
        let mut child = command.spawn().context("cannot run the bench")?;
        let input = child.stdin.take().context("the bench has no stdin")?;
        let output = BufReader::new(child.stdout.take().context("the bench has no stdout")?);
        let mut server = Server { core, child, input, output, errors };
        let line = server.line()?;
        let Some([time, bytes]) = line.strip_prefix("ready ").and_then(numbers) else {
            bail!("the bench says {line:?} in place of being ready");
        };
        let each = |number: u64| number as f64 / size as f64;
        Ok((server, Filling { core, size, bytes: each(bytes), time: each(time) }))
    }

    /// Does a piece of work.
    fn work(&mut self, scenario: Scenario, threads: usize, operations: usize, seed: u64) -> Result<Piece> {
        // If the bench has ended, reading says so.
        let _ = writeln!(self.input, "{scenario} {threads} {operations} {seed}");
        let line = self.line()?;
        let Some([wall, cpu]) = numbers(&line) else { bail!("the bench says {line:?} in place of two times") };
        let each = |number: u64| number as f64 / (operations * threads) as f64;
        Ok(Piece { wall: each(wall), cpu: each(cpu) })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line).context("cannot read what the bench says")? == 0 {
            let status = self.child.wait().context("the bench is gone")?;
            let mut said = Vec::new();
            self.errors.rewind()?;
            self.errors.read_to_end(&mut said)?;
            let why = process::first_error(&said).map_or(String::new(), |line| format!(": {line}"));
            bail!("the bench on the {} core ended too early ({status}){why}", self.core);
        }
        Ok(line)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended, and nobody cares how.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The numbers of a line that has so many.
fn numbers<const COUNT: usize>(line: &str) -> Option<[u64; COUNT]> {
    let numbers = line.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    numbers.try_into().ok()
}

/// The value that so large a part of `values` is below, between two of them if need be.
fn quantile(values: impl IntoIterator<Item = f64>, part: f64) -> Option<f64> {
    let mut values = values.into_iter().collect::<Vec<_>>();
    values.sort_by(f64::total_cmp);
    let place = part * values.len().checked_sub(1)? as f64;
    let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile(values, 0.5)
}

impl Row {
    fn pieces(&self, core: Core) -> &[Piece] {
        match core {
            Core::Stock => &self.stock,
            Core::Rust => &self.rust,
        }
    }

    /// What an operation costs on a core, in nanoseconds: the median, if it was measured.
    fn cost(&self, core: Core) -> Option<f64> {
        median(self.pieces(core).iter().map(|piece| piece.cost(self.threads)))
    }

    /// How many times as much LLVM's core costs as ours: the quantile of the pairs'.
    fn ratio(&self, part: f64) -> Option<f64> {
        let pairs = self.stock.iter().zip(&self.rust);
        quantile(pairs.map(|(stock, rust)| stock.cost(self.threads) / rust.cost(self.threads)), part)
    }

    /// What the ratio has to be at least, if that has been said.
    fn target(&self) -> Option<f64> {
        let places = [(100, 1), (10_000, 1), (1_000_000, 1), (10_000, 2)];
        let targets = match self.scenario {
            Scenario::New => [1.2, 1.2, 1.2, 2.0],
            Scenario::Reuse => [1.2, 1.5, 3.0, 3.0],
            Scenario::Present => [1.5, 2.0, 4.0, 4.0],
            Scenario::Launch => [1.5, 2.0, 4.0, 3.0],
            Scenario::Between | Scenario::Attach => return None,
        };
        let place = places.iter().position(|place| *place == (self.size, self.threads))?;
        Some(targets[place])
    }
}

impl Measured {
    fn cores(&self) -> Vec<Core> {
        [Core::Stock, Core::Rust].into_iter().filter(|core| self.fillings.iter().any(|f| f.core == *core)).collect()
    }

    /// How many times the work of one thread a number of threads does in the same time: by scenario and size, if both
    /// were measured.
    fn speed_up(&self, core: Core, row: &Row) -> Option<f64> {
        let one = self.rows.iter().find(|r| (r.scenario, r.size, r.threads) == (row.scenario, row.size, 1))?;
        let wall = |row: &Row| median(row.pieces(core).iter().map(|piece| piece.wall));
        Some(wall(one)? / wall(row)?)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!(quantile([1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(quantile([7.0], 0.75), Some(7.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn a_ratio_is_that_of_pairs_and_one_thread_counts_by_processor_time() {
        let piece = |wall, cpu| Piece { wall, cpu };
        let mut row = Row {
            scenario: Scenario::Reuse,
            size: 10_000,
            threads: 1,
            stock: vec![piece(90.0, 30.0), piece(90.0, 20.0), piece(90.0, 80.0)],
            rust: vec![piece(10.0, 10.0), piece(10.0, 20.0), piece(30.0, 20.0)],
        };
        assert_eq!((row.ratio(0.5), row.ratio(0.0), row.target()), (Some(3.0), Some(1.0), Some(1.5)));
        assert_eq!(row.cost(Core::Stock), Some(30.0));
        row.threads = 2;
        assert_eq!((row.ratio(0.5), row.cost(Core::Stock), row.target()), (Some(9.0), Some(90.0), Some(3.0)));
        row.rust.clear();
        assert_eq!((row.ratio(0.5), row.cost(Core::Rust)), (None, None));
    }

    #[test]
    fn a_bench_that_ends_or_says_something_else_is_named_with_its_reason() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Server::start(command, Core::Rust, 100)
        };
        let (mut server, filling) =
            shell("echo ready 5000 800; echo Libomptarget error: no >&2; exit 3").expect("it starts");
        assert_eq!((filling.time, filling.bytes), (50.0, 8.0));
        let message = server.work(Scenario::New, 1, 10, 1).expect_err("it has ended").to_string();
        assert_eq!(message, "the bench on the rust core ended too early (exit status: 3): Libomptarget error: no");
        let message = shell("echo 17").err().expect("not ready").to_string();
        assert_eq!(message, "the bench says \"17\\n\" in place of being ready");
    }

    #[test]
    fn the_bench_gets_no_setting_of_the_runtimes() {
        let mut command = Command::new("bench");
        let environment = ["LIBOMPTARGET_DEBUG", "LIBOMPTARGET_INFO", "HOME", "OMP_TARGET_OFFLOAD", "KMP_AFFINITY"];
        adjust(&mut command, environment.into_iter().map(OsString::from));
        let set = command.get_envs().map(|(name, value)| (name.to_str(), value.and_then(OsStr::to_str)));
        let expected = [
            ("KMP_AFFINITY", None),
            ("LIBOMPTARGET_DEBUG", None),
            ("LIBOMPTARGET_INFO", None),
            ("OMP_TARGET_OFFLOAD", Some("mandatory")),
        ];
        assert!(set.eq(expected.map(|(name, value)| (Some(name), value))), "{command:?}");
    }

    #[test]
    fn lines_have_as_many_numbers_as_they_should() {
        assert_eq!(numbers("17 4\n"), Some([17, 4]));
        assert_eq!(numbers::<2>("17\n"), None);
        assert_eq!(numbers::<2>("17 x\n"), None);
    }
}
