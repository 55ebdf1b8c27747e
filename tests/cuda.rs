//! The Rust CUDA plugin on the emulated CUDA device: what LLVM's plugin does wrong, and how a core's queues wait for each
//! other. Nothing that the plugin took from the driver may be left at the end.

#[path = "support/emulated.rs"]
mod emulated;

use std::path::{Path, PathBuf};
use std::process::Output;

use emulated::plugin_folder;
use omptarget_tool::core::Core;
use omptarget_tool::{abi, paths, plugin};

/// Compiles a program of `tests/programs/cuda/` for the emulated device.
fn compile(name: &str) -> PathBuf {
    emulated::compile(&format!("cuda/{name}.c"), &["-g"])
}

fn run(exe: &Path, core: Core, switches: &[(&str, &str)]) -> Output {
    emulated::command(exe, core, switches).output().expect("it starts")
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
    let library = plugin_folder().join(plugin::NAME);
    let [ours, stock] = [library.clone(), paths::machine_llvm().join("lib").join(plugin::NAME)]
        .map(|file| abi::exports(&file).expect("a shared object"));
    assert_eq!(ours, stock);
    // What we build of LLVM's sources is the machine's, but for its debug output.
    let built = plugin::ensure_stock().expect("LLVM's plugin").join(plugin::NAME);
    assert_eq!(abi::exports(&built).expect("a shared object"), stock);
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
    let (int, size) = (["3000000000", "-3000000000"], ["-1", "9223372036854775808"]);
    let settings = [
        ("OMP_NUM_TEAMS", int),
        ("OMP_TEAM_LIMIT", int),
        ("OMP_TEAMS_THREAD_LIMIT", int),
        ("LIBOMPTARGET_SHARED_MEMORY_SIZE", ["-1", "3000000000"]),
        ("LIBOMPTARGET_NUM_INITIAL_STREAMS", ["-1", "5000"]),
        ("LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD", size),
        ("LIBOMPTARGET_STACK_SIZE", size),
        ("LIBOMPTARGET_HEAP_SIZE", size),
        ("LIBOMPTARGET_DEVICE_RTL_DEBUG", int),
    ];
    for (name, out_of_range) in settings {
        for value in ["", "four", "12abc", "99999999999999999999"].into_iter().chain(out_of_range) {
            let told = passes(&run(&exe, Core::Rust, &[(name, value)]));
            // libomp has its own to say of its own settings.
            let ours: Vec<&str> = told.lines().filter(|line| line.starts_with("CUDA")).collect();
            assert!(matches!(ours[..], [line] if line.contains(name) && line.contains("ignored")), "{told}");
        }
    }
}

#[test]
fn no_copy_of_zero_bytes_reaches_the_driver() {
    let sizes: Vec<u64> = trace("zero_size", Core::Rust, &[])
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line of JSON"))
        .filter(|line| line["call"].as_str().is_some_and(|call| call.starts_with("cuMemcpy")))
        .map(|line| line["args"]["len"].as_u64().expect("a copy has a length"))
        .collect();
    assert!(!sizes.is_empty() && !sizes.contains(&0), "{sizes:?}");
}

#[test]
fn a_machine_without_a_gpu_has_no_devices_and_says_nothing() {
    let exe = compile("environment");
    let output = run(&exe, Core::Rust, &[("EMU_DEVICES", "0"), ("OMP_TARGET_OFFLOAD", "default")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr.contains("CUDA"), "{stderr}");
}

/// A program's driver calls, a line each.
fn trace(name: &str, core: Core, switches: &[(&str, &str)]) -> String {
    let exe = compile(name);
    let trace = exe.with_extension("trace");
    let file = ("EMU_TRACE", trace.to_str().expect("a plain path"));
    passes(&run(&exe, core, &[switches, &[file]].concat()));
    std::fs::read_to_string(trace).expect("a trace")
}

#[test]
fn regions_on_what_is_mapped_already_do_not_wait_for_its_copy() {
    let waits = |core| {
        let trace = trace("waits", core, &[("REGIONS", "10000")]);
        trace.lines().filter(|line| line.contains("\"call\":\"cuStreamWaitEvent\"")).count()
    };
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
