//! The account comes after the teardown of the library that uses the driver, wherever that teardown is.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Like a plugin: opens the driver when it is loaded, makes an event, and gives everything back at the end. With
/// STATIC_OBJECT that is done as C++ destroys static objects, else in the library's `.fini_array`.
const PLUGIN: &str = r#"
#include <dlfcn.h>
#include <stdlib.h>
static void *driver, *context, *event;
#define CALL(name, ...) ((int (*)())dlsym(driver, #name))(__VA_ARGS__)
#ifndef STATIC_OBJECT
__attribute__((destructor))
#endif
static void finish(void) {
  if (CALL(cuEventDestroy_v2, event) || CALL(cuDevicePrimaryCtxRelease_v2, 0)) abort();
}
__attribute__((constructor)) static void start(void) {
  driver = dlopen(DRIVER, RTLD_NOW);
  if (!driver || CALL(cuInit, 0) || CALL(cuDevicePrimaryCtxRetain, &context, 0) || CALL(cuCtxSetCurrent, context) ||
      CALL(cuEventCreate, &event, 0))
    abort();
#ifdef STATIC_OBJECT
  atexit(finish);
#endif
}
"#;

const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **args) {
  if (count < 2 || !dlopen(args[1], RTLD_NOW)) return 2;
  fputs("main ends\n", stdout);
  return 0;
}
"#;

fn compile(dir: &Path, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let (source, file) = (dir.join(name).with_extension("c"), dir.join(name));
    std::fs::write(&source, text).expect("a source");
    let mut command = Command::new("cc");
    let status = command.args(options).arg(&source).arg("-o").arg(&file).arg("-ldl").status();
    assert!(status.expect("a C compiler").success());
    file
}

#[test]
fn the_account_is_last() {
    let dir = tempfile::tempdir().expect("a folder");
    let exe = std::env::current_exe().expect("a test has a file");
    let driver = format!("-DDRIVER=\"{}\"", exe.with_file_name("libomptarget_cuda_emulator.so").display());
    let program = compile(dir.path(), "program", PROGRAM, &[]);
    for way in ["-DSTATIC_OBJECT", "-DFINI_ARRAY"] {
        let plugin = compile(dir.path(), "plugin.so", PLUGIN, &["-shared", "-fPIC", &driver, way]);
        let output = Command::new(&program).arg(&plugin).env("EMU_ACCOUNT", "strict").output().expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let expected =
            "emulator: left at exit: 0 streams, 0 events, 0 allocations, 0 modules, 0 contexts, 0 frees too early\n";
        assert_eq!((stderr.as_ref(), output.status.code()), (expected, Some(0)), "{way}");
        assert_eq!(output.stdout, b"main ends\n");
    }
    // What stays is seen, and buffered output is not lost on the way out.
    let leaky = PLUGIN.replace("CALL(cuEventDestroy_v2, event)", "0");
    let plugin = compile(dir.path(), "leaky.so", &leaky, &["-shared", "-fPIC", &driver]);
    let output = Command::new(&program).arg(&plugin).env("EMU_ACCOUNT", "strict").output().expect("it starts");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(97), b"main ends\n".as_slice()));
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("left: event0\n"));
}
