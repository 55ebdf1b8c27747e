//! The folder of programs for a real GPU, on a machine without one: built, tried, and run as far as that goes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use omptarget_tool::core::Core;
use omptarget_tool::{build, emulator, program, retarget};

fn gpu(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_omptarget")).arg("gpu").args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The one line on stderr of a command that must fail; lines of long steps may precede it.
fn failure(output: &Output) -> String {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let lines = stderr.lines().filter(|line| !line.ends_with(" ...")).collect::<Vec<_>>();
    assert_eq!(lines.len(), 1, "{stderr}");
    lines[0].to_owned()
}

/// A folder with one program, for the emulated device.
fn emulated(dir: &Path, code: &str) {
    let source = dir.with_extension("c");
    fs::create_dir(dir).expect("a folder");
    fs::write(&source, code).expect("a source");
    let exe = dir.join("x");
    program::compile(&source, &exe, &build::ensure(Core::Stock).expect("libraries"), &[]).expect("it compiles");
    retarget::retarget(&exe).expect("it has an image");
}

#[test]
fn the_folder_is_built_without_a_gpu_and_its_run_is_right_about_what_it_finds() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("gpu");
    let built = gpu(&["--out", path(&out)]);
    let said = text(&built.stdout);
    assert!(built.status.success(), "{said}\n{}", text(&built.stderr));
    assert!(said.contains("Both plugins accept all 9 images.") && said.contains("    9 passed, 0 failed\n"), "{said}");
    assert!(said.contains("copy back, 2 MiB "), "{said}");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);

    let driver = emulator::ensure().expect("a driver");
    let run = |programs: &Path, switches: &[(&str, &str)]| {
        let mut command = Command::new(out.join("run"));
        command.arg(programs).env("LD_LIBRARY_PATH", &driver).envs(switches.iter().copied());
        let output = command.output().expect("it starts");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let good = dir.path().join("good");
    emulated(&good, "int main(void) { int x = 1;\n#pragma omp target map(tofrom: x)\nx = 0;\nreturn x; }\n");
    assert_eq!(run(&good, &[]).1, "passed: x\n\n1 passed, 0 failed\n");
    assert_eq!(run(&good, &[("CORE", "stock")]).1, "passed: x\n\n1 passed, 0 failed\n");

    // Where there is a GPU, none may be said to be missing.
    if !Path::new("/dev/nvidiactl").exists() {
        let (code, said, _) = run(&good, &[("EMU_DEVICES", "0")]);
        assert!(code == Some(0) && said.starts_with("skipped: this machine has no GPU: "), "{said}");
        assert!(said.ends_with("\n0 passed, 0 failed, 1 skipped\n"), "{said}");
    }

    let (code, said, _) = run(&good, &[("EMU_FAIL", "cuLaunchKernel:1:1")]);
    assert!(code == Some(1) && said.contains("FAILED: x with the rust plugin ended with 134\n"), "{said}");
    assert!(said.ends_with("\n0 passed, 1 failed\n"), "{said}");

    // Which plugin is there decides what it says.
    let differs = dir.path().join("differs");
    let code = "#include <stdio.h>\n#include <string.h>\nint main(void) { char line[999]; int ours = 0, x = 1;\n\
                #pragma omp target map(tofrom: x)\nx = 0;\nFILE *maps = fopen(\"/proc/self/maps\", \"r\");\n\
                while (fgets(line, 999, maps)) ours |= !!strstr(line, \"plugin/rust\");\nprintf(\"%d\\n\", ours);\n\
                return x; }\n";
    emulated(&differs, code);
    let (code, said, _) = run(&differs, &[]);
    assert!(code == Some(1) && said.starts_with("FAILED: x says something else with each plugin\n"), "{said}");

    let (code, said, error) = run(&dir.path().join("absent"), &[]);
    assert_eq!((code, said.as_str(), error.lines().count()), (Some(1), "", 1), "{error}");
    assert!(error.starts_with("error: there are no programs in "), "{error}");
}

#[test]
fn what_cannot_be_built_is_one_line_and_leaves_nothing() {
    for arch in ["sm_100", "90"] {
        let refused = gpu(&["--arch", arch]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("expected sm_35 to sm_90"), "{}", text(&refused.stderr));
    }
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("precious"), "x").expect("a file");
    let line = failure(&gpu(&["--out", path(dir.path())]));
    assert!(line.ends_with("is not empty and was not made by this tool: give another --out"), "{line}");
    let line = failure(&gpu(&["--out", path(&dir.path().join("precious"))]));
    assert!(line.ends_with("is not a directory: give another --out"), "{line}");
    let line = failure(&gpu(&["--arch", "sm_36", "--out", path(&dir.path().join("out"))]));
    assert!(line.contains("LLVM has no device runtime for sm_36: "), "{line}");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
}
