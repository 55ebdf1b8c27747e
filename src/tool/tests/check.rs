//! The commands that test and compare, run on the built libraries of both cores.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn omptarget(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_omptarget")).args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must end with this code. Returns what it printed.
fn ends_with(code: i32, args: &[&str]) -> String {
    let output = omptarget(args);
    assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The one line on stderr of a command that must fail; lines of long steps may precede it.
fn failure(args: &[&str]) -> String {
    let output = omptarget(args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let lines = stderr.lines().filter(|line| !line.ends_with(" ...")).collect::<Vec<_>>();
    assert_eq!(lines.len(), 1, "{stderr}");
    lines[0].strip_prefix("error: ").expect("an error").to_owned()
}

fn demo_source() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository");
    root.join("tests/programs/demo.c").display().to_string()
}

#[test]
fn the_demo_tells_what_the_log_says() {
    let told = ends_with(0, &["demo", "--device", "host"]);
    for line in [
        "parts     rust core, rust CUDA plugin",
        "plugin    libomptarget.rtl.x86_64.so: 4 devices; the program used device 0",
        "mappings  5 made, 4 times found again, 5 removed",
        "copies    7 to the device (32800 bytes), 2 back (8200 bytes)",
        "kernels   3 launched",
        "it says   sum = 1049600.0, expected 1049600.0",
        "result    right: the program checked it, and ended with 0",
    ] {
        assert!(told.lines().any(|told| told == line), "{line} is not in\n{told}");
    }
}

#[test]
fn the_plugins_make_the_same_calls_and_ours_leaves_nothing() {
    let told = ends_with(0, &["logdiff", "--plugins", &demo_source()]);
    assert!(told.contains("\ndifferent, and meant to be: end: memory goes back (see "), "{told}");
    assert!(
        told.contains("\nleft at exit by our plugin: 0 streams, 0 events, 0 allocations, 0 modules, 0 contexts, "),
        "{told}"
    );
    assert!(told.lines().last().is_some_and(|line| line.starts_with("equal: 188 calls of the driver, ")), "{told}");
}

#[test]
fn the_suite_of_plugins_has_llvms_programs_and_our_own() {
    let told = ends_with(0, &["logdiff", "--plugins", "--suite", "mapping/pr38704.c|programs/cuda/zero_size.c"]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[1].starts_with("mapping ") && lines[2].starts_with("tests/programs/cuda "), "{told}");
    assert!(told.contains("all 6 runs that end by themselves: 0 streams, 0 events, "), "{told}");
    assert_eq!(told.lines().last(), Some("2 passed, 0 failed"), "{told}");
    let none = failure(&["logdiff", "--plugins", "--suite", "no/such/test"]);
    assert_eq!(none, "no test of LLVM's has a name that matches no/such/test");
}

#[test]
fn lit_ends_with_the_sum_of_both_cores() {
    let told = ends_with(0, &["lit", "--core", "both", "api/omp_"]);
    assert!(told.contains("\nstock and rust agree on every test\n"), "{told}");
    assert_eq!(told.lines().last(), Some("4 passed, 0 failed, 6 skipped"), "{told}");
    assert_eq!(failure(&["lit", "no/such/test"]), "no test of LLVM's has a name that matches no/such/test");
}

#[test]
fn a_program_is_equal_to_itself_on_both_cores() {
    let told = ends_with(0, &["logdiff", &demo_source()]);
    assert!(told.starts_with("equal: ") && told.ends_with(" lines of log, output and exit status\n"), "{told}");
}

#[test]
fn the_suite_counts_the_programs_of_a_test() {
    let told = ends_with(0, &["logdiff", "--suite", "present/target_array_extension"]);
    assert_eq!(told.lines().last(), Some("2 passed, 0 failed"), "{told}");
}

#[test]
fn a_program_that_differs_is_shown() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("core.c");
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
                  int main(int argc, char **argv) {\n\
                  #pragma omp target\n{}\n\
                  printf(\"%s %s\\n\", argv[argc - 1], getenv(\"GREETING\"));\n\
                  return strstr(getenv(\"LD_LIBRARY_PATH\"), \"14/rust\") ? 3 : 0; }\n";
    fs::write(&file, source).expect("a file");
    let told = ends_with(1, &["logdiff", "--env", "GREETING=hello", &file.display().to_string(), "--", "world"]);
    assert_eq!(told, "exit status differs:\n--- stock\n+++ rust\n@@ -1 +1 @@\n-exit status: 0\n+exit status: 3\n");

    fs::write(&file, "int main(void) { return missing; }\n").expect("a file");
    let line = failure(&["logdiff", &file.display().to_string()]);
    assert!(line.contains(" does not compile: ") && line.contains("missing"), "{line}");
    assert!(failure(&["logdiff", "no-such-file.c"]).contains("no-such-file.c"));
}
