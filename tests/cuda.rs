//! The Rust CUDA plugin on the emulated CUDA device: what LLVM's plugin does wrong, and how a core's queues wait for each
//! other. Nothing that the plugin took from the driver may be left at the end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use omptarget_tool::build::{self, Libs};
use omptarget_tool::core::Core;
use omptarget_tool::{abi, emulator, paths, plugin, program, retarget};

/// The plugin and the driver, in the order in which they are looked for.
fn device() -> &'static [PathBuf; 2] {
    static DEVICE: OnceLock<[PathBuf; 2]> = OnceLock::new();
    DEVICE.get_or_init(|| [plugin::ensure().expect("a plugin"), emulator::ensure().expect("a driver")])
}

fn libs(core: Core) -> Libs {
    build::ensure(core).expect("a library")
}

/// Compiles a program of `tests/programs/cuda/` for the emulated device.
fn compile(name: &str) -> PathBuf {
    let source = paths::root().join("tests/programs/cuda").join(name).with_extension("c");
    // Tests run side by side, and some use the same program.
    static COMPILED: AtomicUsize = AtomicUsize::new(0);
    let number = COMPILED.fetch_add(1, Ordering::Relaxed);
    let exe = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-{name}-{number}"));
    program::compile(&source, &exe, &libs(Core::Rust), &["-g"]).expect("it compiles");
    retarget::retarget(&exe).expect("it has a device image");
    exe
}

fn run(exe: &Path, core: Core, switches: &[(&str, &str)]) -> Output {
    let libs = libs(core);
    let mut dirs = device().to_vec();
    dirs.extend([libs.dir.clone(), paths::machine_llvm().join("lib")]);
    let mut command: Command = program::command(exe, &libs);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(dirs).expect("plain paths"));
    // libomp 14's hidden helper tasks have races of their own.
    command.env("LIBOMP_USE_HIDDEN_HELPER_TASK", "0").env("OMP_NUM_THREADS", "6");
    command.env("OMP_TARGET_OFFLOAD", "mandatory").env("EMU_ACCOUNT", "strict").envs(switches.iter().copied());
    command.output().expect("it starts")
}

/// The program says PASS, nothing is left, and nothing else is said; returns what was said on stderr but for the account.
fn passes(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.starts_with("PASS"), "{}\n{stdout}\n{stderr}", output.status);
    let nothing =
        "emulator: left at exit: 0 streams, 0 events, 0 allocations, 0 modules, 0 contexts, 0 frees too early\n";
    assert!(stderr.contains(nothing), "{stderr}");
    stderr.replace(nothing, "")
}

#[test]
fn the_exported_functions_are_llvms() {
    let library = device()[0].join(plugin::NAME);
    let [ours, stock] = [library.clone(), paths::machine_llvm().join("lib").join(plugin::NAME)]
        .map(|file| abi::exports(&file).expect("a shared object"));
    assert_eq!(ours, stock);
    assert_eq!(abi::dropped(&library).expect("a shared object"), None);
}

#[test]
fn two_devices_share_nothing_but_memory() {
    for name in ["peer_access_twice", "events_two_devices"] {
        let exe = compile(name);
        for core in [Core::Rust, Core::Stock] {
            assert_eq!(passes(&run(&exe, core, &[("EMU_DEVICES", "2")])), "", "{name}");
        }
    }
}

#[test]
fn settings_that_are_no_numbers_are_named_and_ignored() {
    let exe = compile("environment");
    let names = [
        "OMP_NUM_TEAMS",
        "OMP_TEAM_LIMIT",
        "OMP_TEAMS_THREAD_LIMIT",
        "LIBOMPTARGET_SHARED_MEMORY_SIZE",
        "LIBOMPTARGET_NUM_INITIAL_STREAMS",
        "LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD",
        "LIBOMPTARGET_STACK_SIZE",
        "LIBOMPTARGET_HEAP_SIZE",
        "LIBOMPTARGET_DEVICE_RTL_DEBUG",
    ];
    for name in names {
        for value in ["", "four", "12abc", "99999999999999999999"] {
            let told = passes(&run(&exe, Core::Rust, &[(name, value)]));
            // libomp has its own to say of its own settings.
            let ours: Vec<&str> = told.lines().filter(|line| line.starts_with("CUDA")).collect();
            assert!(matches!(ours[..], [line] if line.contains(name) && line.contains("ignored")), "{told}");
        }
    }
}

#[test]
fn no_copy_of_zero_bytes_reaches_the_driver() {
    let trace = trace("zero_size", Core::Rust);
    let copies: Vec<&str> = trace.lines().filter(|line| line.contains("\"call\":\"cuMemcpy")).collect();
    assert!(!copies.is_empty() && copies.iter().all(|line| !line.contains("\"size\":0")), "{copies:?}");
}

#[test]
fn a_machine_without_a_gpu_has_no_devices_and_says_nothing() {
    let exe = compile("environment");
    let output = run(&exe, Core::Rust, &[("EMU_DEVICES", "0"), ("OMP_TARGET_OFFLOAD", "default")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr.contains("CUDA"), "{stderr}");
}

/// A program's driver calls, a line each.
fn trace(name: &str, core: Core) -> String {
    let exe = compile(name);
    let trace = exe.with_extension("trace");
    passes(&run(&exe, core, &[("EMU_TRACE", trace.to_str().expect("a plain path"))]));
    std::fs::read_to_string(trace).expect("a trace")
}

#[test]
fn regions_on_what_is_mapped_already_do_not_wait_for_its_copy() {
    let waits =
        |core| trace("waits", core).lines().filter(|line| line.contains("\"call\":\"cuStreamWaitEvent\"")).count();
    // One for each region.
    assert_eq!([Core::Rust, Core::Stock].map(waits), [0, 10_000]);
}

#[test]
fn readers_of_one_mapping_run_at_the_same_time() {
    let exe = compile("readers");
    for core in [Core::Rust, Core::Stock] {
        for (seed, delay) in [("1", "0"), ("2", "1000")] {
            assert_eq!(passes(&run(&exe, core, &[("EMU_SEED", seed), ("EMU_DELAY_US", delay)])), "", "{core}");
        }
    }
}

#[test]
fn a_driver_call_that_fails_is_named_and_nothing_is_left() {
    let exe = compile("environment");
    for call in ["cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuModuleLoadDataEx", "cuMemAlloc_v2", "cuLaunchKernel"]
    {
        // Enough failures that trying again does not help.
        let failures = (1..=64).map(|n| format!("{call}:{n}:1")).collect::<Vec<_>>().join(",");
        let output = run(&exe, Core::Rust, &[("EMU_FAIL", &failures)]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let name = call.trim_end_matches("_v2");
        assert!(stderr.contains(&format!("Error returned from {name}")), "{call}: {stderr}");
        assert!(stderr.contains("fatal error 1"), "{call}: {stderr}");
    }
}
