//! Programs on the emulated CUDA device: compiled by `cc`, re-tagged, and run by stock libomptarget and stock plugin
//! where nothing else is said.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use omptarget_tool::build::{self, Libs};
use omptarget_tool::core::Core;
use omptarget_tool::{emulator, paths, program};

const PROGRAM: &str = r#"
#include <stdio.h>
#pragma omp declare target
int factor = 3;
#pragma omp end declare target
int main(void) {
  int x[64], y = 0;
  for (int i = 0; i < 64; ++i) x[i] = i;
  #pragma omp target map(tofrom : x)
  for (int i = 0; i < 64; ++i) x[i] *= factor;
  factor = 5;
  #pragma omp target update to(factor)
  #pragma omp target map(from : y)
  y = factor;
  printf("%d %d\n", x[63], y);
  return 0;
}
"#;

const CONSTRUCTOR: &str = r#"
#include <cmath>
#include <cstdio>
#pragma omp declare target
double Global = std::sqrt(16.0);
struct Counted { int N; Counted() : N(11) {} } Object;
#pragma omp end declare target
int main(int Count, char **) {
  double X = Count; int N = 0;
  #pragma omp target map(from : X, N)
  { X = Global; N = Object.N; }
  printf("%g %d\n", X, N);
}
"#;

fn omptarget(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_omptarget")).args(args).output().expect("the command starts")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn stock() -> Libs {
    build::ensure(Core::Stock).expect("a stock library")
}

/// Compiles a program with `omptarget cc` or `c++`, as for a GPU.
fn compile(compiler: &str, dir: &Path, text: &str) -> PathBuf {
    let (source, exe) = (dir.join(if compiler == "cc" { "x.c" } else { "x.cpp" }), dir.join("x"));
    fs::write(&source, text).expect("a source");
    let (libs, llvm) = (stock(), paths::machine_llvm().join("lib"));
    let output = omptarget(&[
        compiler,
        "-O1",
        "-fopenmp",
        "-fopenmp-targets=nvptx64-nvidia-cuda",
        "-Xopenmp-target",
        "-march=sm_80",
        "--cuda-path=/nowhere",
        "-L",
        path(&libs.dir),
        "-L",
        path(&llvm),
        path(&source),
        "-o",
        path(&exe),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    exe
}

/// Runs a program on the emulated device alone.
fn run(exe: &Path, switches: &[(&str, &str)]) -> Output {
    let mut command = program::command(exe, &stock());
    let dirs = [stock().dir, emulator::ensure().expect("an emulator"), paths::machine_llvm().join("lib")];
    command.env("LD_LIBRARY_PATH", std::env::join_paths(dirs).expect("plain paths"));
    command.env("OMP_TARGET_OFFLOAD", "mandatory").envs(switches.iter().copied());
    command.output().expect("the program starts")
}

#[test]
fn a_program_runs_its_kernels_and_leaves_the_same_trace_each_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let exe = compile("cc", dir.path(), PROGRAM);
    let trace = |name: &str| {
        let file = dir.path().join(name);
        let output = run(&exe, &[("EMU_TRACE", path(&file))]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "189 5\n", "{}", String::from_utf8_lossy(&output.stderr));
        fs::read_to_string(file).expect("a trace")
    };
    let text = trace("one");
    assert_eq!(text, trace("two"));
    assert_eq!(text.matches("\"call\":\"cuLaunchKernel\"").count(), 2);
    assert!(text.contains("module0:factor"), "{text}");
}

#[test]
fn run_gives_a_program_the_emulated_driver_and_the_chosen_parts() {
    let dir = tempfile::tempdir().expect("a folder");
    let exe = compile("cc", dir.path(), PROGRAM);
    for plugin in ["rust", "stock"] {
        let output = omptarget(&["run", "--emulated", "--core", "stock", "--plugin", plugin, path(&exe)]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "189 5\n", "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_demo_tells_what_both_of_our_parts_did_on_the_emulated_device() {
    let output = omptarget(&["demo"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "parts     rust core, rust CUDA plugin\n",
        "plugin    libomptarget.rtl.cuda.so: 1 device; the program used device 0\n",
        "          > host to device   weights[:1024]     8192 bytes\n",
        "          * kernel launched  of main, line 22\n",
        " 3 cuLaunchKernel",
        "left      0 streams, 0 events, 0 allocations, 0 modules, 0 contexts, 0 frees too early\n",
        "result    right: the program checked it, and ended with 0\n",
    ] {
        assert!(told.contains(line), "{line:?} is not in:\n{told}");
    }
}

#[test]
fn the_account_comes_after_the_plugins_teardown() {
    let dir = tempfile::tempdir().expect("a folder");
    let exe = compile("cc", dir.path(), PROGRAM);
    let output = run(&exe, &[("EMU_ACCOUNT", "strict"), ("LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD", "0")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // The plugin destroys its pools in a destructor; before that there would be 32 streams.
    assert!(stderr.contains("left at exit: 0 streams, 0 events, 0 allocations, 0 modules, 0 contexts"), "{stderr}");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "189 5\n");
}

#[test]
fn an_abort_has_its_account() {
    let dir = tempfile::tempdir().expect("a folder");
    let exe = compile("cc", dir.path(), PROGRAM);
    let output = run(&exe, &[("EMU_ACCOUNT", "1"), ("EMU_FAIL", "cuLaunchKernel:1:1")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("fatal error") && stderr.contains("left at abort: 32 streams"), "{stderr}");
}

#[test]
fn constructors_of_device_globals_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let output = run(&compile("c++", dir.path(), CONSTRUCTOR), &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "4 11\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn retarget_changes_images_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let (source, exe) = (dir.path().join("x.c"), dir.path().join("x"));
    fs::write(&source, PROGRAM).expect("a source");
    program::compile(&source, &exe, &stock(), &[]).expect("it compiles");
    fs::set_permissions(&exe, fs::Permissions::from_mode(0o750)).expect("permissions");
    let before = fs::read(&exe).expect("a program");
    assert!(omptarget(&["retarget", path(&exe)]).status.success());
    let after = fs::read(&exe).expect("a program");
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    // The machine number is two bytes, the second 0 in both; the check sum is four.
    assert!(before.len() == after.len() && (1..=5).contains(&changed), "{changed} bytes");
    assert_eq!(fs::metadata(&exe).expect("a program").permissions().mode() & 0o777, 0o750);
    // Again changes nothing.
    let again = omptarget(&["retarget", path(&exe)]);
    assert!(String::from_utf8_lossy(&again.stdout).ends_with(": 0 images changed, 1 as they should be\n"));
    assert_eq!(fs::read(&exe).expect("a program"), after);
    let files = fs::read_dir(dir.path()).expect("a folder").count();
    assert_eq!(files, 2);
}

#[test]
fn retarget_refuses_what_has_no_image() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = dir.path().join("text");
    fs::write(&text, "no program").expect("a file");
    let missing = dir.path().join("missing");
    let cases = [
        (text.as_path(), "is not a program or shared object"),
        (Path::new("/bin/true"), "has no device image for x86-64: compile it with"),
        (missing.as_path(), "cannot read"),
    ];
    for (file, expected) in cases {
        let output = omptarget(&["retarget", path(file)]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert_eq!(fs::read(&text).expect("a file"), b"no program");
}

#[test]
fn stress_names_the_seeds_that_go_wrong_and_shows_one_again() {
    // LLVM's core fails here whatever the schedule.
    let name = "races/from_and_release.c";
    let output = omptarget(&["stress", "--core", "both", "--runs", "2", name]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    // Only ours has to be right.
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains(&format!("\nstock: {name}: seeds 1, 2\n")) && !stdout.contains("\nrust:"), "{stdout}");
    assert!(stdout.contains("eight readers of one mapping: ") && stdout.ends_with("1 passed, 0 failed\n"), "{stdout}");

    let again = stdout.lines().find_map(|line| line.trim().strip_prefix("omptarget ")).expect("a command");
    let output = omptarget(&again.split(' ').collect::<Vec<_>>());
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{stdout}");
    assert!(stdout.contains(&format!("\nstock: {name}: seeds 1\n")), "{stdout}");
    assert!(stdout.ends_with("0 passed, 1 failed\n"), "{stdout}");
}

#[test]
fn stress_says_what_it_cannot_run() {
    for (args, why) in [
        (&["stress", "no/such"][..], "error: no program has a name that matches no/such\n"),
        (&["stress", "("], "error: ( is not a regular expression\n"),
        (&["stress", "--runs", "0"], "error: invalid value '0'"),
    ] {
        let output = omptarget(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(why), "{stderr}");
    }
}
