//! Each driver call under whole programs, in turn made to fail: LLVM's runtime ends the program with its own line, or
//! the program goes on and is right. One of our lines names the call, and nothing hangs or crashes.

use crate::emulated::{command, compile};
use crate::support::{complaints_of, run_with_limit};
use crate::sweep::{calls, is_sticky, plain, report};
use omptarget_tool::core::Core;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

/// Set to `full`: all faults of each program, and not an even sample of so many at most.
const SWEEP: &str = "OMPTARGET_SWEEP";
const SAMPLE: usize = 140;

/// Out of memory, and an illegal address, which a context keeps.
const CODES: [u32; 2] = [2, 700];

/// One thread, but for the last two.
const PROGRAMS: [(&str, &[&str]); 12] = [
    ("demo.c", &[]),
    ("log/counts.c", &[]),
    ("log/declare_target.cpp", &[]),
    ("log/target_update.c", &["-fopenmp-version=50"]),
    ("log/declare_mapper.cpp", &[]),
    ("log/delete.c", &["-fopenmp-extensions"]),
    ("cases/b08_member_mapped_twice.cpp", &[]),
    ("cases/b44_slice_delete_loop.c", &[]),
    ("cuda/events_two_devices.c", &[]),
    ("cuda/peer_access_twice.c", &[]),
    ("races/concurrent_delete.c", &[]),
    ("races/shared_input.c", &[]),
];

/// These hear of failures from OpenMP's functions, and say so themselves.
const TOLD: [&str; 2] = ["cuda/peer_access_twice.c", "log/delete.c"];

struct Program {
    name: &'static str,
    exe: PathBuf,
}

#[derive(Debug)]
struct Fault {
    program: &'static str,
    call: String,
    n: u64,
    code: u32,
}

/// The account of a program that leaves something is not its exit code here.
const SWITCHES: [(&str, &str); 4] =
    [("EMU_DEVICES", "2"), ("EMU_ACCOUNT", "1"), ("EMU_POISON", "1"), ("LIBOMPTARGET_NUM_INITIAL_STREAMS", "1")];

fn run(exe: &Path, more: &[(&str, &str)]) -> (std::process::ExitStatus, String, String) {
    run_with_limit(command(exe, Core::Rust, &[&SWITCHES, more].concat())).expect("it ends")
}

fn complaints(program: &Program, fault: &Fault) -> Vec<String> {
    let Fault { call, n, code, .. } = fault;
    let (status, stdout, stderr) = run(&program.exe, &[("EMU_FAIL", &format!("{call}:{n}:{code}"))]);
    let mut complaints = Vec::new();
    let aborted = status.signal() == Some(libc::SIGABRT) && stderr.contains("Libomptarget fatal error 1: ");
    let noticed = status.code() == Some(1) && stdout.contains("does not hold");
    let told = noticed && TOLD.contains(&program.name);
    if !(aborted || told || status.success()) {
        complaints.push(format!("ends with {status}"));
    }
    // A kernel's error is heard by whoever uses the context next; so is one that a context keeps, by another thread, which
    // may end the program before the one that was told first has said so.
    let any_call = call == "kernel" || is_sticky(*code) && has_threads(program.name);
    let name = if any_call { "cu" } else { plain(call) };
    let line = format!("CUDA error: Error returned from {name}");
    let is_name = |rest: &str| any_call || !rest.starts_with(char::is_alphanumeric);
    let named = stderr.lines().any(|text| text.strip_prefix(&line).is_some_and(is_name));
    // With threads, the call may not have been made so often.
    let reached = named || !stderr.contains("CUDA error") && status.success() && has_threads(program.name);
    if !reached {
        complaints.push("no line names the call".to_owned());
    }
    if let Some(line) = stderr.lines().find(|line| line.contains("Bug: ") || line.contains("panicked")) {
        complaints.push(line.to_owned());
    }
    // What a good end leaves: the one thing that could not be given back, or what a broken context has.
    let account = stderr.lines().find(|line| line.starts_with("emulator: left at exit: "));
    let left: u64 = account.map_or(0, |line| line.split(' ').filter_map(|word| word.parse::<u64>().ok()).sum());
    if status.success() && left > 1 && !is_sticky(*code) && call != "cuCtxSetCurrent" {
        complaints.push(format!("{left} things are left"));
    }
    if !complaints.is_empty() {
        complaints.push(format!("{stdout}\n{stderr}"));
    }
    complaints
}

fn has_threads(program: &str) -> bool {
    PROGRAMS[PROGRAMS.len() - 2..].iter().any(|(name, _)| *name == program)
}

/// Every fault of a program, from a run without one.
fn faults_of(program: &Program) -> Vec<Fault> {
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    let (status, stdout, stderr) = run(&program.exe, &[("EMU_TRACE", trace.path().to_str().expect("a plain path"))]);
    assert!(status.success() && !stderr.contains("CUDA error"), "{}: {status}\n{stdout}\n{stderr}", program.name);
    let calls = calls(&std::fs::read_to_string(trace.path()).expect("a trace"));
    let launches = calls.iter().filter(|(call, _)| call == "cuLaunchKernel").count() as u64;
    let kernels = (1..=launches).map(|n| (("kernel".to_owned(), n), 700));
    let calls = calls.into_iter().flat_map(|call| CODES.map(|code| (call.clone(), code)));
    calls.chain(kernels).map(|((call, n), code)| Fault { program: program.name, call, n, code }).collect()
}

#[test]
fn whole_programs_end_as_llvm_ends_them() {
    let programs = PROGRAMS.map(|(name, flags)| Program { name, exe: compile(name, flags) });
    let full = std::env::var(SWEEP).is_ok_and(|sweep| sweep == "full");
    let (mut faults, mut total) = (Vec::new(), 0);
    for program in &programs {
        let all = faults_of(program);
        let stride = if full { 1 } else { all.len().div_ceil(SAMPLE) };
        println!("{}: {} faults, one in {stride}", program.name, all.len());
        total += all.len();
        faults.extend(all.into_iter().step_by(stride));
    }
    let found = complaints_of(&faults, |fault| {
        let program = programs.iter().find(|program| program.name == fault.program).expect("it is from there");
        complaints(program, fault)
    });
    report(&faults, &found);
    println!("{} faults of {total} in {} programs", faults.len(), programs.len());
    assert!(faults.len() >= 700, "{}", faults.len());
}

/// Without a device the program runs on the host, where that is allowed.
#[test]
fn a_driver_that_does_not_start_leaves_the_program_to_the_host() {
    let exe = compile("demo.c", &[]);
    for fault in ["cuInit:1:2", "cuInit:1:999", "cuDeviceGetCount:1:3", "cuDeviceGetCount:1:999"] {
        let (status, _, stderr) = run(&exe, &[("EMU_FAIL", fault), ("OMP_TARGET_OFFLOAD", "default")]);
        let call = fault.split(':').next().unwrap_or_default();
        let lines: Vec<&str> = stderr.lines().filter(|line| line.contains(call)).collect();
        assert!(status.success(), "{fault}: {status}\n{stderr}");
        assert_eq!(lines, [format!("CUDA error: Error returned from {call}")], "{fault}: {stderr}");
    }
}
