//! The `omptarget` command: reads the command line and calls the library.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{CommandFactory, Parser};
use omptarget_tool::bench::Scenario;
use omptarget_tool::core::{Core, Parts};
use omptarget_tool::lit::{self, Cores, Device};
use omptarget_tool::logdiff::{self, Sides};
use omptarget_tool::{
    abi, bench, build, demo, doctor, emulator, gpu, install, paths, program, retarget, setup, stress, test, wrap,
};

/// Builds, runs, tests and compares LLVM's OpenMP offload runtime with its Rust core.
#[derive(Parser)]
#[command(
    name = "omptarget",
    version,
    after_help = "\
Examples:
  cargo run --release -- --setup demo          install what is missing, then show an offload program at work
  cargo run --release -- build                 build libomptarget.so with the Rust core
  cargo run --release -- run -- ./my-program   run your own offload program on it"
)]
struct Cli {
    /// First install what is missing on this machine, after printing the commands
    #[arg(long)]
    setup: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

/// One subcommand each; `run` below has an arm for each.
#[derive(clap::Subcommand)]
enum Command {
    /// Build libomptarget.so from LLVM's unpatched sources, with the CUDA plugin and the machine's others beside it
    #[command(after_help = "\
Each part is in Rust unless LLVM's own is asked for.
Examples:
  omptarget build                              both parts in Rust, LLVM's sources from Debian
  omptarget build --plugin stock               the Rust core with LLVM's own CUDA plugin
  omptarget build --core stock --plugin stock  nothing of ours
  omptarget build --llvm ~/llvm-project        from a checkout of LLVM 14.0.6")]
    Build {
        /// LLVM's sources: 14 for Debian's source package, or a checkout of llvm-project or its openmp
        #[arg(long, value_name = "14|DIR")]
        llvm: Option<String>,
        #[command(flatten)]
        parts: Parts,
        /// Where the libraries go [default: target/omptarget/14/rust, or a folder named for other parts]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Take a tree that is not as released
        #[arg(long)]
        allow_patched: bool,
    },
    /// Run your own offload program on our libraries
    #[command(after_help = "\
The program's exit code becomes this command's, and signals reach the program.
Examples:
  omptarget run -- ./my-program 1000
  LIBOMPTARGET_DEBUG=1 omptarget run --core stock -- ./my-program")]
    Run {
        #[command(flatten)]
        parts: Parts,
        /// With the emulated CUDA driver, for programs that `cc` has compiled
        #[arg(long)]
        emulated: bool,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },
    /// Install the libraries into a prefix, with a list of what was installed
    #[command(after_help = "\
Example:
  omptarget install --prefix ~/.local
A program started with LD_LIBRARY_PATH=~/.local/lib then uses them.")]
    Install {
        /// The libraries go into lib/ below it
        #[arg(long, value_name = "DIR")]
        prefix: PathBuf,
        #[command(flatten)]
        parts: Parts,
        /// Overwrite files that this tool did not install
        #[arg(long)]
        force: bool,
    },
    /// Remove what `install` put into a prefix, and nothing else
    Uninstall {
        /// As given to `install`
        #[arg(long, value_name = "DIR")]
        prefix: PathBuf,
    },
    /// Compare the exported symbols of a libomptarget.so or a plugin with stock's
    #[command(after_help = "\
For a plugin, also says whether LLVM's loader would drop it without a word.
The exit code is 1 when something differs.
Examples:
  omptarget abi target/omptarget/14/rust/libomptarget.so
  omptarget abi libomptarget.rtl.cuda.so --against /usr/lib/llvm-14/lib/libomptarget.rtl.cuda.so")]
    Abi {
        /// The shared object
        file: PathBuf,
        /// What to compare with [default: our stock build, or the machine's plugin of that name]
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
    },
    /// Make the x86-64 device images in a program into images of the emulated CUDA device
    #[command(after_help = "\
The program then offloads to a CUDA device whose driver is the emulated one (tests/cuda-emulator).
Example:
  omptarget retarget ./my-program")]
    Retarget {
        /// A program or shared object that was compiled with -fopenmp-targets=x86_64-pc-linux-gnu
        file: PathBuf,
    },
    /// Compile C for the emulated CUDA device: clang, then `retarget` on what it links
    #[command(after_help = "\
A command line for a real GPU may be given as it is.
Example:
  omptarget cc -O2 -fopenmp -fopenmp-targets=nvptx64-nvidia-cuda my-program.c -o my-program")]
    Cc(Compile),
    /// Compile C++ for the emulated CUDA device, like `cc`
    #[command(name = "c++")]
    Cxx(Compile),
    /// Say what is on this machine, what is missing, and what to do
    Doctor,
    /// Show a small offload program at work: which device, mappings, transfers, launches and driver calls
    Demo {
        /// Where it runs
        #[arg(long, value_enum, default_value = "cuda-emulated")]
        device: demo::Device,
        /// The GPU's architecture, for `--device cuda`
        #[arg(long, default_value_t)]
        arch: gpu::Arch,
        #[command(flatten)]
        parts: Parts,
    },
    /// Build programs for a real GPU, and run them with both CUDA plugins where there is one
    #[command(after_help = "\
The folder that it makes runs on a machine that has nothing but NVIDIA's driver: carry it there and start `run` in it.
The images are checked here, both plugins are asked for them, and the same sources run on the emulated CUDA device.
Examples:
  omptarget gpu
  omptarget gpu --arch sm_86 --out /tmp/gpu")]
    Gpu {
        /// The GPU: sm_90 is H100 and H200, sm_86 is RTX 30, sm_80 is A100, sm_70 is V100
        #[arg(long, default_value_t, value_name = "ARCH")]
        arch: gpu::Arch,
        /// Where the folder goes [default: target/omptarget/14/gpu]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Run LLVM's own tests, unedited, on the host device or on the emulated CUDA device
    #[command(after_help = "\
Ends with the sum of all runs as `N passed, N failed, N skipped`; skipped are the tests that LLVM calls unsupported.
The exit code is 1 when a test fails, or with `--core both` fares differently on the two cores.
Examples:
  omptarget lit --core both
  omptarget lit --repeat 20 mapping/present
  omptarget lit --core both --device cuda-emulated --plugin stock")]
    Lit {
        /// Which core they run on
        #[arg(long, value_enum, default_value = "rust")]
        core: Cores,
        /// The device that they offload to
        #[arg(long, value_enum, default_value = "host")]
        device: Device,
        /// The CUDA plugin beside it
        #[arg(long, value_enum, default_value = "rust")]
        plugin: Core,
        /// How often each test is run
        #[arg(long, value_name = "N", default_value = "1")]
        repeat: usize,
        /// Only tests whose names match this regular expression
        filter: Option<String>,
    },
    /// Run programs whose tasks race for mapped data, many times, with random delays on the emulated CUDA device
    #[command(after_help = "\
The programs are those in tests/programs/races, and LLVM's tests with deferred or dependent regions. A run's seed decides
about its delays; the seeds of failing runs are shown, and how to run one again. With `--core both` only ours must be
right, and the table shows what LLVM's core makes of the same programs. The exit code is 1 when a run fails.
Examples:
  omptarget stress --core both
  omptarget stress --runs 1000 races
  omptarget stress --seed 17 --runs 1 races/lost_update.c")]
    Stress {
        /// How often each program is run
        #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
        runs: u32,
        /// Seed of each program's first run; the next run has the next seed
        #[arg(long, value_name = "S", default_value = "1")]
        seed: u64,
        /// Which core they run on
        #[arg(long, value_enum, default_value = "rust")]
        core: Cores,
        /// The device that they offload to; the host has no delays
        #[arg(long, value_enum, default_value = "cuda-emulated")]
        device: Device,
        /// The CUDA plugin beside it
        #[arg(long, value_enum, default_value = "rust")]
        plugin: Core,
        /// Only programs whose names match this regular expression
        filter: Option<String>,
    },
    /// Run a program on both cores, or both CUDA plugins, and compare their debug logs, its output and its exit status
    #[command(after_help = "\
Addresses are named by first appearance, so that only real differences count. The exit code is 1 when something differs.
With --plugins the program runs on the emulated CUDA device; the calls of its driver are compared one by one too, and what
our plugin leaves at exit is counted. tests/DIFFERENCES.md lists what may differ. With --suite our own programs are compared
too, and each program under three settings: debug log, all information lines, and LLVM's core in the place of ours.
Examples:
  omptarget logdiff tests/programs/demo.c
  omptarget logdiff --info 63 --flag=-fopenmp-version=51 x.cpp -- 100
  omptarget logdiff --suite mapping/
  omptarget logdiff --plugins tests/programs/demo.c
  omptarget logdiff --plugins --suite")]
    Logdiff {
        /// The C or C++ program
        #[arg(required_unless_present = "suite")]
        file: Option<PathBuf>,
        /// Compare LLVM's CUDA plugin with ours, on the emulated CUDA device, in place of the cores
        #[arg(long)]
        plugins: bool,
        /// Every program of LLVM's own tests whose name matches this regular expression [default: all]
        #[arg(
            long,
            value_name = "FILTER",
            num_args = 0..=1,
            default_missing_value = "",
            conflicts_with_all = ["file", "env", "info", "flag", "args"]
        )]
        suite: Option<String>,
        /// A variable to set for the program
        #[arg(long, value_name = "K=V", value_parser = variable)]
        env: Vec<(String, String)>,
        /// Sets LIBOMPTARGET_INFO for the program
        #[arg(long, value_name = "BITS")]
        info: Option<u32>,
        /// Goes to the compiler
        #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
        flag: Vec<String>,
        /// The program's arguments
        #[arg(last = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Measure what libomptarget itself costs with each core, on a plugin that does nothing
    #[command(after_help = "\
Both cores do the same work in turn; a ratio is the median of the pairs'. On a machine that does nothing else it takes some
three minutes. Instructions, unlike times, are the same in every run: the exit code is 1 if ours are more than LLVM's, or
more than tests/bench/instructions.csv allows.
Examples:
  omptarget bench
  omptarget bench --scenario launch,reuse --size 10000 --threads 1
  omptarget bench --instructions")]
    Bench {
        /// Which cores are measured
        #[arg(long, value_enum, default_value = "both")]
        core: Cores,
        /// How often each is measured
        #[arg(long, value_name = "N", default_value = "9", value_parser = clap::value_parser!(u16).range(1..))]
        pairs: u16,
        /// What is done [default: all]
        #[arg(long, value_enum, value_delimiter = ',', hide_default_value = true, default_values_t = Scenario::ALL)]
        scenario: Vec<Scenario>,
        /// Live mappings
        #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,10000,1000000",
              value_parser = clap::value_parser!(u32).range(64..=100_000_000))]
        size: Vec<u32>,
        /// Threads that do it at the same time
        #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2,8",
              value_parser = clap::value_parser!(u16).range(1..=64))]
        threads: Vec<u16>,
        /// About how long each piece of work takes
        #[arg(long, value_name = "MS", default_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
        millis: u32,
        /// With LLVM's debug output compiled in, as `build` does and a release of LLVM's does not
        #[arg(long)]
        debug_output: bool,
        /// Where the files go [default: target/omptarget/14/bench]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Count instructions, under valgrind
        #[arg(long, conflicts_with_all = TIMING)]
        instructions: bool,
        /// Count instructions, and record how many ours are now
        #[arg(long, conflicts_with_all = TIMING)]
        record: bool,
        /// Count instructions, and leave what valgrind says of each function there, for callgrind_annotate
        #[arg(long, value_name = "DIR", conflicts_with_all = TIMING)]
        profile: Option<PathBuf>,
    },
    /// Check everything that CI checks
    #[command(after_help = "\
Ends with `N passed, N failed`: tests of cargo, tests of LLVM's on each core, programs whose logs are compared, and one
for each step without such a count. The exit code is 1 when any failed.")]
    Test,
    /// What `logdiff --suite` lets lit start in place of a test's program
    #[command(name = logdiff::WRAPPER, hide = true)]
    CompareRun {
        #[arg(long)]
        modes: PathBuf,
        #[arg(long)]
        records: PathBuf,
        #[arg(long)]
        test: PathBuf,
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
}

/// What `bench` takes for times.
const TIMING: [&str; 8] = ["core", "pairs", "scenario", "size", "threads", "millis", "debug_output", "out"];

/// What `cc` and `c++` take.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
struct Compile {
    /// The compiler's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    args: Vec<OsString>,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does what was asked; whether all was well is the exit code.
fn run(cli: Cli) -> Result<bool> {
    paths::check()?;
    if cli.setup {
        setup::install()?;
    }
    let Some(command) = cli.command else {
        if !cli.setup {
            Cli::command().print_help()?;
        }
        return Ok(cli.setup);
    };
    match command {
        Command::Build { llvm, parts, out, allow_patched } => {
            let libs = build::build(parts, &build::Options { llvm, out, allow_patched, release: false })?;
            println!("{} is ready: LLVM {}, {parts}", libs.library().display(), paths::LLVM_VERSION);
        }
        Command::Run { parts, emulated, program } => return exec(parts, emulated, &program),
        Command::Install { prefix, parts, force } => {
            for file in install::install(&build::ensure(parts)?, &prefix, force)? {
                println!("installed {}", file.display());
            }
        }
        Command::Uninstall { prefix } => {
            let count = install::uninstall(&prefix)?;
            println!("removed {count} files from {}", prefix.display());
        }
        Command::Abi { file, against } => return abi::report(&file, against.as_deref()),
        Command::Retarget { file } => {
            let found = retarget::retarget(&file)?;
            ensure!(
                found != retarget::Found::default(),
                "{} has no device image for x86-64: compile it with -fopenmp-targets=x86_64-pc-linux-gnu",
                file.display()
            );
            println!("{}: {} images changed, {} as they should be", file.display(), found.changed, found.already);
        }
        Command::Cc(compile) => return wrap::run("clang-14", &compile.args),
        Command::Cxx(compile) => return wrap::run("clang++-14", &compile.args),
        Command::Doctor => return doctor::report(),
        Command::Demo { device, arch, parts } => return demo::report(device, parts, arch),
        Command::Gpu { arch, out } => return Ok(gpu::report(out.as_deref(), arch)?.0),
        Command::Lit { core, device, plugin, repeat, filter } => {
            return Ok(lit::report(core, device, plugin, repeat, filter.as_deref())?.0);
        }
        Command::Stress { runs, seed, core, device, plugin, filter } => {
            let runs = stress::Runs::all(usize::try_from(runs)?);
            let options = stress::Options { cores: core, device, plugin, runs, seed, filter: filter.as_deref() };
            return Ok(stress::report(options)?.0);
        }
        Command::Logdiff { suite: Some(filter), plugins, .. } => {
            return Ok(logdiff::suite(sides(plugins), Some(filter.as_str()).filter(|f| !f.is_empty()))?.0);
        }
        Command::Logdiff { file, plugins, env, info, flag, args, .. } => {
            let info = info.map(|bits| ("LIBOMPTARGET_INFO".to_owned(), bits.to_string()));
            let env: Vec<_> = info.into_iter().chain(env).collect();
            return logdiff::report(sides(plugins), &file.context("no file given")?, &flag, &args, &env);
        }
        Command::Bench { instructions, record, profile, .. } if instructions || record || profile.is_some() => {
            return Ok(bench::instructions::report(record, profile.as_deref())?.0);
        }
        Command::Bench { core, pairs, scenario, size, threads, millis, debug_output, out, .. } => {
            bench::report(&bench::Options {
                cores: core,
                pairs: pairs.into(),
                scenarios: scenario,
                sizes: size.into_iter().map(usize::try_from).collect::<Result<_, _>>()?,
                threads: threads.into_iter().map(usize::from).collect(),
                millis: millis.into(),
                debug_output,
                out,
            })?;
        }
        Command::Test => return test::report(),
        Command::CompareRun { modes, records, test, program } => {
            logdiff::wrapper(&modes, &records, &test, &program)?;
        }
    }
    Ok(true)
}

fn sides(plugins: bool) -> Sides {
    if plugins { Sides::Plugins } else { Sides::Cores }
}

/// Splits `K=V`.
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected K=V")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Becomes the program; returns only when that fails.
fn exec(parts: Parts, emulated: bool, program: &[OsString]) -> Result<bool> {
    let (exe, args) = program.split_first().context("no program given")?;
    let libs = build::ensure(parts)?;
    let driver = if emulated { Some(emulator::ensure()?) } else { None };
    let folders: Vec<PathBuf> = driver.into_iter().chain([libs.dir]).collect();
    let error = program::command_in(Path::new(exe), &folders).args(args).exec();
    Err(error).with_context(|| format!("cannot run {}", exe.display()))
}
