//! Runs LLVM's own `libomptarget/test` with LLVM's own `lit.cfg`, on a library with either core.
//!
//! What LLVM's CMake would write into `lit.site.cfg` is written here, with the values that it finds on x86-64 Linux; no
//! test is edited.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::build::{self, Libs};
use crate::core::{Core, Parts};
use crate::totals::Totals;
use crate::{emulator, paths, plugin, process, progress, setup};

/// The host device: this machine itself.
pub const TARGET: &str = "x86_64-pc-linux-gnu";

/// The emulated CUDA device, for which clang is called through our wrapper.
pub const CUDA_TARGET: &str = "nvptx64-nvidia-cuda";

/// Tests that the emulated device cannot pass, and why.
const NEED_A_GPU: [(&str, &str); 3] = [
    ("api/omp_dynamic_shared_memory.c", "calls a function of the GPU's own device runtime"),
    ("offloading/bug51781.c", "looks for remarks of passes that run for GPUs only"),
    ("unified_shared_memory/api.c", "is expected to fail on NVIDIA's GPUs, and passes"),
];

/// The device that the tests run on.
#[derive(Clone, Copy, clap::ValueEnum, PartialEq, Eq, Debug)]
pub enum Device {
    /// This machine, through LLVM's host plugin.
    Host,
    /// The emulated CUDA device, through a CUDA plugin.
    CudaEmulated,
}

/// What differs between devices in a configuration.
#[derive(Debug)]
pub struct Place {
    target: &'static str,
    compilers: [String; 2],
    /// Where libraries are looked for before the core's folder.
    pub dirs: Vec<PathBuf>,
    /// What is set for each test's program.
    pub environment: &'static [(&'static str, &'static str)],
}

impl Place {
    /// The host device.
    pub fn host() -> Result<Self> {
        let tool = |name: &str| -> Result<String> { Ok(process::tool(name)?.display().to_string()) };
        Ok(Self { target: TARGET, compilers: [tool("clang-14")?, tool("clang++-14")?], dirs: vec![], environment: &[] })
    }

    /// The emulated CUDA device with our plugin, or with the machine's.
    pub fn emulated(plugin: Core) -> Result<Self> {
        let this = std::env::current_exe().context("cannot find this program")?;
        let mut dirs = vec![emulator::ensure()?];
        // libomp 14's hidden helper tasks have races of their own, and it runs out of thread slots.
        const LIBOMP: [(&str, &str); 2] = [("LIBOMP_USE_HIDDEN_HELPER_TASK", "0"), ("OMP_NUM_THREADS", "6")];
        let environment: &'static [(&str, &str)] = match plugin {
            Core::Rust => {
                dirs.push(plugin::ensure()?);
                // A program that leaves something on the device fails.
                const { &[LIBOMP[0], LIBOMP[1], ("EMU_ACCOUNT", "strict")] }
            }
            Core::Stock => &LIBOMP,
        };
        let compilers = ["cc", "c++"].map(|compiler| format!("{} {compiler}", this.display()));
        Ok(Self { target: CUDA_TARGET, compilers, dirs, environment })
    }
}

/// Every target that LLVM 14's CMake knows. A test's line for one that is not there becomes an `echo`.
const ALL_TARGETS: &str = "aarch64-unknown-linux-gnu amdgcn-amd-amdhsa amdgcn-amd-amdhsa-newRTL \
     amdgcn-amd-amdhsa-newDriver powerpc64le-ibm-linux-gnu powerpc64-ibm-linux-gnu x86_64-pc-linux-gnu \
     nvptx64-nvidia-cuda nvptx64-nvidia-cuda-newRTL nvptx64-nvidia-cuda-newDriver";

/// How long one test may take. The slowest needs about two seconds.
const TIME_LIMIT_S: u32 = 300;

/// How many lines of a failed test are shown.
const LINES_SHOWN: usize = 8;

/// Which cores to test.
#[derive(Clone, Copy, clap::ValueEnum, PartialEq, Eq, Debug)]
pub enum Cores {
    /// The Rust core.
    Rust,
    /// LLVM's own core.
    Stock,
    /// Both, and where they differ.
    Both,
}

impl Cores {
    /// The chosen cores; ours is the last.
    pub fn list(self) -> &'static [Core] {
        match self {
            Cores::Rust => &[Core::Rust],
            Cores::Stock => &[Core::Stock],
            Cores::Both => &[Core::Stock, Core::Rust],
        }
    }
}

/// What became of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should be.
    Passed,
    /// Anything else.
    Failed,
    /// Not meant for this machine.
    Unsupported,
}

/// One test of a run of lit.
#[derive(Clone, Debug)]
pub struct Test {
    /// Its file below `libomptarget/test`.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What lit recorded of it.
    pub output: String,
}

/// Lets something else start each test's program: the command line that `%t` and the program's arguments follow.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper<'a>(pub &'a str);

/// Runs the tests whose names match `filter`, a regular expression, in a folder of `name` below `target/omptarget/lit`.
/// There may be none, see [`some`].
pub fn suite(
    libs: &Libs,
    place: &Place,
    name: &str,
    filter: Option<&str>,
    wrapper: Option<Wrapper>,
) -> Result<Vec<Test>> {
    ensure!(setup::has_lit(), setup::how_to_get("lit"));
    let _lock = paths::lock(&format!("lit-{name}"))?;
    let dir = paths::out_root().join("lit").join(name);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let config = dir.join("lit.site.cfg");
    fs::write(&config, site_config(libs, place, &dir, wrapper)?)
        .with_context(|| format!("cannot write {}", config.display()))?;
    let results = dir.join("results.json");
    if results.exists() {
        fs::remove_file(&results).with_context(|| format!("cannot remove {}", results.display()))?;
    }

    let workers = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let mut command = Command::new(paths::lit_dir().join("bin/lit"));
    command.args(["-j", &workers, "--timeout", &TIME_LIMIT_S.to_string(), "--allow-empty-runs", "--output"]);
    command.arg(&results).args(filter.iter().flat_map(|f| ["--filter", f])).arg(&dir);
    // lit.cfg hands these on, and a stray one must not decide whether a test passes.
    for variable in ["LIBOMPTARGET_DEBUG", "OMP_TARGET_OFFLOAD", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"] {
        command.env_remove(variable);
    }
    let (ran, errors) = follow(&mut command, &format!("running LLVM's tests: {name}"))?;
    let tests = match fs::read_to_string(&results) {
        Ok(text) => parse(&text).with_context(|| format!("cannot read {}", results.display()))?,
        // Without a test to run it writes no results.
        Err(_) if ran => Vec::new(),
        Err(_) => bail!("lit failed: {}", process::first_error(errors.as_bytes()).unwrap_or_default()),
    };
    Ok(tests)
}

/// Refuses a filter that no test's name matches.
pub fn some(tests: Vec<Test>, filter: Option<&str>) -> Result<Vec<Test>> {
    ensure!(!tests.is_empty(), "no test of LLVM's has a name that matches {}", filter.unwrap_or_default());
    Ok(tests)
}

/// Runs lit, counting the tests that it reports. Returns whether it ended well, and what it wrote to stderr.
fn follow(command: &mut Command, text: &str) -> Result<(bool, String)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().context("lit has no stderr")?;
    let errors = std::thread::spawn(move || std::io::read_to_string(stderr));
    let mut bar = None;
    for line in BufReader::new(child.stdout.take().context("lit has no stdout")?).lines() {
        // "PASS: suite :: test (3 of 88)"
        let line = line.unwrap_or_default();
        let Some(count) = line.strip_suffix(')').and_then(|l| l.rsplit_once(" of ")).and_then(|(_, n)| n.parse().ok())
        else {
            continue;
        };
        bar.get_or_insert_with(|| progress::steps(text, count)).inc();
    }
    let ran = child.wait()?.success();
    Ok((ran, errors.join().ok().and_then(Result::ok).unwrap_or_default()))
}

/// The variables of LLVM's `lit.site.cfg.in`.
fn site_config(libs: &Libs, place: &Place, dir: &Path, wrapper: Option<Wrapper>) -> Result<String> {
    let tool = |name: &str| -> Result<String> { Ok(process::tool(name)?.display().to_string()) };
    let version = paths::LLVM_VERSION;
    let (major, minor) = version.rsplit_once('.').map_or(("", ""), |(m, _)| (m.split('.').next().unwrap_or(m), m));
    let features = ["clang".to_owned(), format!("clang-{major}"), format!("clang-{minor}"), format!("clang-{version}")];
    let lib = paths::machine_llvm().join("lib");
    let path = |path: &Path| path.display().to_string();
    let strings = [
        ("test_c_compiler", place.compilers[0].clone()),
        ("test_cxx_compiler", place.compilers[1].clone()),
        ("test_openmp_flags", "-fno-experimental-isel -fopenmp".to_owned()),
        ("test_extra_flags", String::new()),
        ("cuda_path", String::new()),
        ("cuda_libdir", String::new()),
        ("cuda_test_arch", String::new()),
        ("libomptarget_obj_root", path(&dir.join("obj"))),
        ("library_dir", path(&libs.dir)),
        ("omp_header_directory", path(&lib.join("clang").join(version).join("include"))),
        ("omp_host_rtl_directory", path(&lib)),
        ("operating_system", "Linux".to_owned()),
        ("libomptarget_current_target", place.target.to_owned()),
        ("libomptarget_filecheck", tool("FileCheck")?),
        ("libomptarget_not", tool("not")?),
    ];
    let mut text = String::from("# Written by omptarget: what LLVM's CMake writes, with this machine's values.\n");
    for (name, value) in &strings {
        text += &format!("config.{name} = {value:?}\n");
    }
    text += &format!("config.libomptarget_all_targets = {ALL_TARGETS:?}.split()\n");
    text += &format!("config.test_compiler_features = {features:?}\n");
    text += "config.libomptarget_debug = True\n";
    // The user's own LD_LIBRARY_PATH goes before what the programs are linked to.
    let dirs = place.dirs.iter().chain([&libs.dir, &lib]).map(|dir| path(dir)).collect::<Vec<_>>().join(":");
    for (name, value) in place.environment.iter().copied().chain([("LD_LIBRARY_PATH", &*dirs)]) {
        text += &format!("config.environment[{name:?}] = {value:?}\n");
    }
    text += &format!("lit_config.load_config(config, {:?})\n", path(&libs.tree.libomptarget().join("test/lit.cfg")));
    if let Some(Wrapper(start)) = wrapper {
        text += &format!(
            "start = {start:?}\n\
             runs = {{\"%libomptarget-run-{target}\": start + \" %t\",\n\
             \x20       \"%libomptarget-run-fail-{target}\": \"%not --crash \" + start + \" %t\"}}\n\
             config.substitutions = [(name, runs.get(name, value)) for name, value in config.substitutions]\n",
            target = place.target
        );
    }
    Ok(text)
}

/// Reads lit's JSON output, sorted by name.
fn parse(text: &str) -> Result<Vec<Test>> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    let test = |test: &serde_json::Value| -> Option<Test> {
        let outcome = match test["code"].as_str()? {
            "PASS" | "FLAKYPASS" | "XFAIL" => Outcome::Passed,
            "UNSUPPORTED" | "SKIPPED" | "EXCLUDED" => Outcome::Unsupported,
            _ => Outcome::Failed,
        };
        let name = test["name"].as_str()?.rsplit(" :: ").next()?.to_owned();
        let code = test["code"].as_str()?;
        // lit says nothing more about a test that took too long.
        let note =
            if code == "TIMEOUT" { format!("# error: took more than {TIME_LIMIT_S} s\n") } else { String::new() };
        Some(Test { name, outcome, output: note + test["output"].as_str().unwrap_or_default() })
    };
    let tests = value["tests"].as_array().context("it has no list of tests")?;
    let mut tests = tests.iter().map(test).collect::<Option<Vec<_>>>().context("a test has no name or code")?;
    tests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tests)
}

/// Prints a table, the failed tests and where the cores differ, and last the sum. Returns whether all was well.
///
/// `plugin` is the CUDA plugin beside the core, which drives the emulated device.
pub fn report(
    cores: Cores,
    device: Device,
    plugin: Core,
    repeat: usize,
    filter: Option<&str>,
) -> Result<(bool, Totals)> {
    let mut tallies = Vec::new();
    for &core in cores.list() {
        let libs = build::ensure(Parts { core, plugin })?;
        let (place, name) = match device {
            Device::Host => (Place::host()?, core.name().to_owned()),
            Device::CudaEmulated => (Place::emulated(plugin)?, format!("cuda-{core}-{plugin}")),
        };
        let mut tally = Tally::default();
        for _ in 0..repeat.max(1) {
            let tests = some(suite(&libs, &place, &name, filter, None)?, filter)?;
            tests.into_iter().map(|test| without_gpu(test, device)).for_each(|test| tally.add(test));
        }
        tallies.push((core, tally));
    }
    print!("{}", table(&tallies));
    for (core, tally) in &tallies {
        for (name, (_, output)) in tally.tests.iter().filter(|(_, (totals, _))| totals.failed > 0) {
            println!("\nFAILED with the {core} core: {name}");
            useful_lines(output).iter().for_each(|line| println!("    {line}"));
        }
    }
    let mut differ = 0;
    if let [(a, one), (b, two)] = &tallies[..] {
        let lines = differences(one, two);
        differ = lines.len();
        if lines.is_empty() {
            println!("\n{a} and {b} agree on every test");
        }
        for (name, one, two) in lines {
            println!("\nDIFFERENT: {name}: {a} {one}; {b} {two}");
        }
    }
    let totals: Totals = tallies.iter().map(|(_, tally)| tally.total()).sum();
    println!("\n{totals}");
    Ok((totals.failed == 0 && differ == 0 && totals.passed > 0, totals))
}

/// A test that needs a GPU is not supported on the emulated one; says so.
pub fn without_gpu(test: Test, device: Device) -> Test {
    let reason = NEED_A_GPU.iter().find(|(name, _)| device == Device::CudaEmulated && *name == test.name);
    match reason {
        Some((name, why)) if test.outcome == Outcome::Failed => {
            println!("needs a GPU: {name}: {why}");
            Test { outcome: Outcome::Unsupported, ..test }
        }
        _ => test,
    }
}

/// Per test: how often it passed, failed or was unsupported, and what its first failure said.
#[derive(Default)]
struct Tally {
    tests: BTreeMap<String, (Totals, String)>,
}

impl Tally {
    fn add(&mut self, test: Test) {
        let (totals, output) = self.tests.entry(test.name).or_default();
        match test.outcome {
            Outcome::Passed => totals.passed += 1,
            Outcome::Failed => totals.failed += 1,
            Outcome::Unsupported => totals.skipped += 1,
        }
        if test.outcome == Outcome::Failed && output.is_empty() {
            *output = test.output;
        }
    }

    fn total(&self) -> Totals {
        self.tests.values().map(|(totals, _)| *totals).sum()
    }

    fn folder(&self, folder: &str) -> Totals {
        self.tests.iter().filter(|(name, _)| self::folder(name) == folder).map(|(_, (totals, _))| *totals).sum()
    }
}

fn folder(test: &str) -> &str {
    test.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Tests that did not fare alike, with how they fared.
fn differences<'a>(one: &'a Tally, two: &'a Tally) -> Vec<(&'a str, String, String)> {
    let names: BTreeSet<&String> = one.tests.keys().chain(two.tests.keys()).collect();
    let fared = |tally: &Tally, name: &String| tally.tests.get(name).map_or(Totals::default(), |(totals, _)| *totals);
    names
        .into_iter()
        .map(|name| (name.as_str(), fared(one, name), fared(two, name)))
        .filter(|(_, one, two)| one != two)
        .map(|(name, one, two)| (name, one.to_string(), two.to_string()))
        .collect()
}

/// A row a folder, three columns a core.
fn table(tallies: &[(Core, Tally)]) -> String {
    let folders: BTreeSet<&str> = tallies.iter().flat_map(|(_, tally)| tally.tests.keys().map(|n| folder(n))).collect();
    let width = folders.iter().map(|folder| folder.len()).max().unwrap_or(0).max("folder".len());
    let row = |name: &str, cells: Vec<[String; 3]>| {
        let cells = cells.iter().map(|[a, b, c]| format!("   {a:>6} {b:>6} {c:>11}")).collect::<String>();
        format!("{name:<width$}{cells}\n")
    };
    let numbers = |t: Totals| [t.passed, t.failed, t.skipped].map(|n| n.to_string());
    let mut text = format!("{:<width$}", "");
    for (core, _) in tallies {
        text += &format!("   {:<25}", core.name());
    }
    text = text.trim_end().to_owned() + "\n";
    text += &row("folder", tallies.iter().map(|_| ["passed", "failed", "unsupported"].map(str::to_owned)).collect());
    for folder in folders {
        text += &row(folder, tallies.iter().map(|(_, tally)| numbers(tally.folder(folder))).collect());
    }
    text + &row("total", tallies.iter().map(|(_, tally)| numbers(tally.total())).collect())
}

/// What a failed test's commands wrote to stderr, else lit's own errors: the first lines.
fn useful_lines(output: &str) -> Vec<String> {
    let some = |lines: Vec<&str>| lines.into_iter().take(LINES_SHOWN).map(str::to_owned).collect::<Vec<_>>();
    let written = output.lines().filter_map(|line| line.strip_prefix("# | ")).filter(|line| !line.trim().is_empty());
    let written: Vec<&str> = written.collect();
    if written.is_empty() {
        some(output.lines().filter(|line| line.contains("error")).collect())
    } else {
        some(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r##"{"tests": [
        {"code": "FAIL", "name": "s :: t :: mapping/b.c",
         "output": "# executed command: x\n# | b.c:16:12: error: CHECK\n# | \n# |  // CHECK: yes\n# error: status 1\n"},
        {"code": "PASS", "name": "s :: t :: mapping/a.c", "output": ""},
        {"code": "UNSUPPORTED", "name": "s :: t :: api/c.c", "output": ""},
        {"code": "TIMEOUT", "name": "s :: t :: api/d.c", "output": ""}]}"##;

    fn tally() -> Tally {
        let mut tally = Tally::default();
        parse(JSON).expect("the sample is JSON").into_iter().for_each(|test| tally.add(test));
        tally
    }

    #[test]
    fn every_outcome_is_counted() {
        assert_eq!(tally().total(), Totals { passed: 1, failed: 2, skipped: 1 });
        assert!(parse("{}").is_err());
        assert!(parse(r#"{"tests": [{"name": "x"}]}"#).is_err());
    }

    #[test]
    fn the_table_has_a_row_a_folder() {
        let expected = "          stock                       rust
folder    passed failed unsupported   passed failed unsupported
api            0      1           1        0      1           1
mapping        1      1           0        1      1           0
total          1      2           1        1      2           1
";
        assert_eq!(table(&[(Core::Stock, tally()), (Core::Rust, tally())]), expected);
    }

    #[test]
    fn a_failure_shows_what_its_commands_said() {
        let of = |name: &str| useful_lines(&tally().tests[name].1);
        assert_eq!(of("mapping/b.c"), ["b.c:16:12: error: CHECK", " // CHECK: yes"]);
        assert_eq!(of("api/d.c"), ["# error: took more than 300 s"]);
    }

    #[test]
    fn a_test_that_fares_differently_is_named() {
        let (one, mut two) = (tally(), tally());
        assert!(differences(&one, &two).is_empty());
        two.add(Test { name: "mapping/a.c".to_owned(), outcome: Outcome::Failed, output: String::new() });
        let expected = ("mapping/a.c", "1 passed, 0 failed".to_owned(), "1 passed, 1 failed".to_owned());
        assert_eq!(differences(&one, &two), [expected]);
    }
}
