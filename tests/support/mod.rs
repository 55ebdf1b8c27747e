//! What the tests that run offload programs share: a program's head, compiling, running, and what is not as the head
//! says.
//!
//! A program's head is the `//` comment that its file begins with. Lines of the form `// key: value` are read here, the
//! rest is for people:
//!
//! | key | meaning |
//! |---|---|
//! | `env` | `NAME=value`, in the environment |
//! | `flags` | more flags for the compiler |
//! | `expect` | a line of stdout begins with this, and the exit code is 0 |
//! | `abort` | `yes`: the program ends by abort |
//! | `stderr`, `not-stderr` | is, or is not, somewhere in stderr |
//! | `repeat` | how often the program is run |
//! | `stock` | prose: what LLVM's own core does; begins with `the same` where it passes too |
//! | `differs` | prose: why the log differs from that of LLVM's core; without it the two are equal |
//! | `plugin` | `sync`: a program in `failures/` that wants the plugin without queues and events |
//! | `pointers` | `yes`: structs with attached pointers are copied, which the Rust core leaves out of the copies |
//! | `fails` | `never`: a program in `failures/` whose failing function is not called |

#![allow(dead_code, reason = "each of the tests uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use omptarget_tool::build::{self, Libs};
use omptarget_tool::core::Core;
use omptarget_tool::{normalise, paths, process, program};

/// How long one run of a program may take; all of them take less than a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Where the tests keep what they compile.
const SCRATCH: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/programs");

/// `SIGABRT`.
const ABORTED: i32 = 6;

/// The device that a program runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plugin {
    /// LLVM's own for the host, as the machine has it: no queues, no events.
    Machine,
    /// Ours from `plugin/failing.c`: queues, events, failures on request.
    Failing,
    /// The same without queues and events.
    FailingSync,
}

/// What a program's head says. The keys are explained at the top of this file.
#[derive(Default, Debug)]
pub struct Head {
    pub env: Vec<(String, String)>,
    pub flags: Vec<String>,
    pub expect: Option<String>,
    pub abort: bool,
    pub stderr: Vec<String>,
    pub not_stderr: Vec<String>,
    pub repeat: usize,
    pub stock: Option<String>,
    pub differs: bool,
    pub sync_plugin: bool,
    pub pointers: bool,
    pub never_fails: bool,
}

impl Head {
    fn read(source: &str) -> Result<Head> {
        let mut head = Head { repeat: 1, ..Head::default() };
        for line in source.lines().map_while(|line| line.strip_prefix("//")) {
            let Some((key, value)) = line.trim().split_once(": ") else {
                continue;
            };
            match key {
                "env" => {
                    let (name, value) = value.split_once('=').context("env is not NAME=value")?;
                    head.env.push((name.to_owned(), value.to_owned()));
                }
                "flags" => head.flags.extend(value.split_whitespace().map(str::to_owned)),
                "expect" => head.expect = Some(value.to_owned()),
                "abort" => head.abort = said(value, "yes")?,
                "stderr" => head.stderr.push(value.to_owned()),
                "not-stderr" => head.not_stderr.push(value.to_owned()),
                "repeat" => head.repeat = value.parse().context("repeat is not a number")?,
                "stock" => head.stock = Some(value.to_owned()),
                "differs" => head.differs = true,
                "plugin" => head.sync_plugin = said(value, "sync")?,
                "pointers" => head.pointers = said(value, "yes")?,
                "fails" => head.never_fails = said(value, "never")?,
                // One word before a colon is meant as a key, more are a sentence.
                word if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') => {
                    bail!("there is no key {word}")
                }
                _ => {}
            }
        }
        ensure!(head.abort != head.expect.is_some(), "needs either an expect line or an abort line");
        Ok(head)
    }
}

/// Whether a key with one allowed value has it.
fn said(value: &str, allowed: &str) -> Result<bool> {
    ensure!(value == allowed, "{value} is not {allowed}");
    Ok(true)
}

/// A program in `tests/programs/`.
#[derive(Debug)]
pub struct Program {
    pub path: PathBuf,
    /// The file's name.
    pub name: String,
    pub head: Head,
}

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    pub stdout: String,
    pub stderr: String,
    pub status: ExitStatus,
    /// The failing plugin's trace; empty for another plugin.
    pub trace: String,
}

/// The programs of a folder in `tests/programs/`, by name.
pub fn programs(folder: &str) -> Result<Vec<Program>> {
    let folder = paths::root().join("tests/programs").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "c" || extension == "cpp"));
    files.sort();
    ensure!(!files.is_empty(), "there are no programs in {}", folder.display());
    files.iter().map(|file| Program::read(file)).collect()
}

impl Program {
    /// Reads one program's head.
    pub fn read(path: &Path) -> Result<Program> {
        let name = path.file_name().context("no file name")?.to_string_lossy().into_owned();
        let source = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let head = Head::read(&source).with_context(|| name.clone())?;
        Ok(Program { path: path.to_owned(), name, head })
    }

    /// Compiles the program. One executable serves both cores.
    fn compile(&self) -> Result<PathBuf> {
        let folder = self.path.parent().and_then(Path::file_name).unwrap_or_default();
        let exe = Path::new(SCRATCH).join(folder).join(&self.name).with_added_extension("exe");
        let flags: Vec<&str> = self.head.flags.iter().map(String::as_str).collect();
        once(exe, |new| program::compile(&self.path, new, libs(Core::Stock)?, &flags))
    }

    /// Runs the program once, with `more` in the environment beside what the head says.
    pub fn run(&self, core: Core, plugin: Plugin, more: &[(&str, &str)]) -> Result<Run> {
        let exe = self.compile()?;
        let mut command = program::command(&exe, libs(core)?);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["OMP_", "LIBOMP", "KMP_", "OMPTARGET_"].iter().any(|start| text.starts_with(start)) {
                command.env_remove(&name);
            }
        }
        // Without a device the program must fail, not run on the host as if nothing had happened.
        command.env("OMP_TARGET_OFFLOAD", "mandatory");
        let trace = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        if plugin != Plugin::Machine {
            prepend_library_path(&mut command, failing_plugin(plugin)?);
            command.env("OMPTARGET_TRACE", trace.path());
        }
        command.envs(self.head.env.iter().map(|(name, value)| (name, value)));
        command.envs(more.iter().copied());
        let (status, stdout, stderr) = run_with_limit(command).with_context(|| self.name.clone())?;
        let trace = fs::read_to_string(trace.path()).context("cannot read the trace")?;
        ensure!(plugin == Plugin::Machine || !trace.is_empty(), "{} does not run on the failing plugin", self.name);
        Ok(Run { stdout, stderr, status, trace })
    }

    /// What of a run is not as the head says.
    pub fn complaints(&self, run: &Run) -> Vec<String> {
        let mut complaints = Vec::new();
        let aborted = run.status.signal() == Some(ABORTED);
        if self.head.abort && !aborted {
            complaints.push(format!("does not abort, but ends with {}", run.status));
        }
        if let Some(expected) = &self.head.expect {
            if !run.stdout.lines().any(|line| line.starts_with(expected)) {
                complaints.push(format!("does not print {expected}, but {:?}", run.stdout));
            }
            if !run.status.success() {
                complaints.push(format!("ends with {}", run.status));
            }
        }
        for text in self.head.stderr.iter().filter(|text| !run.stderr.contains(*text)) {
            complaints.push(format!("stderr lacks {text:?}"));
        }
        for text in self.head.not_stderr.iter().filter(|text| run.stderr.contains(*text)) {
            complaints.push(format!("stderr has {text:?}"));
        }
        for line in run.stderr.lines().filter(|line| line.starts_with("failing plugin: misuse")) {
            complaints.push(line.to_owned());
        }
        if !complaints.is_empty() {
            complaints.push(format!("stderr is:\n{}", indent(&run.stderr)));
        }
        complaints
    }

    /// Where the log of the Rust core is not what the head says: equal to that of LLVM's core, or not.
    pub fn log_complaints(&self, stock: &str, rust: &str) -> Vec<String> {
        let (stock, rust) = (read_log(stock), read_log(rust));
        match (self.head.differs, stock == rust) {
            (false, true) | (true, false) => Vec::new(),
            (true, true) => vec!["the head says that the log differs from LLVM's, but it does not".to_owned()],
            (false, false) => {
                let equal = stock.lines().zip(rust.lines()).take_while(|(stock, rust)| stock == rust).count();
                let line = |log: &str| log.lines().nth(equal).unwrap_or("(the end)").to_owned();
                vec![format!(
                    "the logs differ in line {}:\n    LLVM: {}\n    Rust: {}",
                    equal + 1,
                    line(&stock),
                    line(&rust)
                )]
            }
        }
    }
}

/// Runs `check` on each program; fails with everything that does not hold.
pub fn check_all(programs: &[Program], check: impl Fn(&Program) -> Result<Vec<String>> + Sync) -> Result<()> {
    let found = complaints_of(programs, |program| check(program).unwrap_or_else(|error| vec![format!("{error:#}")]));
    let report: String =
        found.iter().map(|(index, complaints)| format!("{}:\n  {complaints}\n", programs[*index].name)).collect();
    ensure!(found.is_empty(), "{} of {} programs are not as they should be\n{report}", found.len(), programs.len());
    Ok(())
}

/// Runs `check` on each item, on as many threads as the machine has cores; what it complains of, by the item's number.
pub fn complaints_of<T: Sync>(items: &[T], check: impl Fn(&T) -> Vec<String> + Sync) -> BTreeMap<usize, String> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            let complaints = check(item);
            if !complaints.is_empty()
                && let Ok(mut found) = found.lock()
            {
                found.insert(index, complaints.join("\n  "));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The libraries with this core, built when first asked for.
pub fn libs(core: Core) -> Result<&'static Libs> {
    static RUST: OnceLock<Result<Libs>> = OnceLock::new();
    static STOCK: OnceLock<Result<Libs>> = OnceLock::new();
    let cell = match core {
        Core::Rust => &RUST,
        Core::Stock => &STOCK,
    };
    let libs = cell.get_or_init(|| build::ensure(core));
    libs.as_ref().map_err(|error| anyhow!("{error:#}"))
}

/// The folder with one of the two builds of `plugin/failing.c`.
fn failing_plugin(plugin: Plugin) -> Result<PathBuf> {
    let folder = Path::new(SCRATCH).join(format!("{plugin:?}"));
    // The name that LLVM's loader tries first, of a machine that this is not.
    once(folder.join("libomptarget.rtl.ppc64.so"), |new| {
        let mut compiler = Command::new(process::tool("clang-14")?);
        compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC"]);
        if plugin == Plugin::FailingSync {
            compiler.arg("-DSYNC_ONLY");
        }
        compiler.arg(paths::root().join("tests/programs/plugin/failing.c"));
        process::run(compiler.arg("-o").arg(new).args(["-ldl", "-lpthread"])).map(drop)
    })?;
    Ok(folder)
}

/// Makes a file, once in this process, and says where it is. It is made under another name first, so that another
/// process never sees half of it.
fn once(file: PathBuf, write: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    type Made = Arc<OnceLock<Result<()>>>;
    static FILES: Mutex<BTreeMap<PathBuf, Made>> = Mutex::new(BTreeMap::new());
    let made = FILES.lock().map_err(|_| anyhow!("an earlier test panicked"))?.entry(file.clone()).or_default().clone();
    let make = || {
        let folder = file.parent().context("no folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let stage = tempfile::tempdir_in(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
        let new = stage.path().join("new");
        write(&new)?;
        fs::rename(&new, &file).with_context(|| format!("cannot write {}", file.display()))
    };
    made.get_or_init(make).as_ref().map_err(|error| anyhow!("{error:#}"))?;
    Ok(file)
}

fn prepend_library_path(command: &mut Command, folder: PathBuf) {
    let name = "LD_LIBRARY_PATH";
    let before = command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value);
    let mut path = folder.into_os_string();
    if let Some(before) = before {
        path.push(":");
        path.push(before);
    }
    command.env(name, path);
}

/// Runs a command to its end and gives its status, stdout and stderr; kills it when it takes too long.
pub fn run_with_limit(mut command: Command) -> Result<(ExitStatus, String, String)> {
    let run = process::run_within(&mut command, LIMIT)?;
    let [stdout, stderr] = [run.stdout, run.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    match run.status {
        Some(status) => Ok((status, stdout, stderr)),
        None => bail!("does not end within {} seconds; stderr is:\n{}", LIMIT.as_secs(), indent(&stderr)),
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// A log without what depends on the machine: what comes before the plugins are loaded, and addresses.
pub fn read_log(stderr: &str) -> String {
    let loaded = "Libomptarget --> RTLs loaded!\n";
    let start = stderr.find(loaded).map_or(0, |at| at + loaded.len());
    normalise::log(&stderr[start..])
}
