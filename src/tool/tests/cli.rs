//! The command as users meet it, above all with bad input: one clear line, an exit code, nothing left behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use omptarget_tool::build::{self, Libs};
use omptarget_tool::core::{Core, Parts};
use omptarget_tool::{llvm, paths, plugin, program};

fn omptarget(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omptarget"));
    command.args(args);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The one line on stderr of a command that must fail; lines of long steps may precede it.
fn failure(command: &mut Command) -> String {
    let output = output(command);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let lines = stderr.lines().filter(|line| !line.ends_with(" ...")).collect::<Vec<_>>();
    assert_eq!(lines.len(), 1, "{stderr}");
    lines[0].strip_prefix("error: ").expect("an error").to_owned()
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn stock() -> Libs {
    build::ensure(Core::Stock).expect("a stock library")
}

fn built(core: Core, plugin: Core) -> Libs {
    build::ensure(Parts { core, plugin }).expect("libraries")
}

/// Fails to build from `tree`, and leaves nothing of a build.
fn refused(tree: &Path) -> String {
    let dir = temp();
    let out = dir.path().join("out");
    let line = failure(&mut omptarget(&["build", "--core", "stock", "--llvm", path(tree), "--out", path(&out)]));
    assert!(!out.exists());
    line
}

/// A copy of those parts of the released tree that are compiled.
fn released_tree(to: &Path) {
    let tree = llvm::Tree::locate(None).expect("LLVM's sources");
    for part in ["src", "include", "plugins"] {
        let to = to.join("openmp/libomptarget").join(part);
        fs::create_dir_all(&to).expect("a directory");
        for entry in fs::read_dir(tree.libomptarget().join(part)).expect("a directory") {
            let file = entry.expect("an entry").path();
            if file.is_file() {
                fs::copy(&file, to.join(file.file_name().expect("a name"))).expect("a file");
            }
        }
    }
}

fn append(file: &Path, text: &str) {
    let old = fs::read_to_string(file).expect("a file");
    fs::write(file, old + text).expect("a file");
}

#[test]
fn a_directory_without_a_tree_is_named() {
    let dir = temp();
    let line = refused(dir.path());
    assert!(line.starts_with("no LLVM openmp tree in ") && line.contains(path(dir.path())), "{line}");
    let line = refused(&dir.path().join("absent"));
    assert!(line.starts_with("there is no directory "), "{line}");
}

#[test]
fn a_tree_of_another_version_is_named() {
    let dir = temp();
    fs::create_dir_all(dir.path().join("openmp/libomptarget/src")).expect("a directory");
    fs::write(dir.path().join("openmp/libomptarget/src/LegacyAPI.cpp"), "").expect("a file");
    let expected = format!("LLVM 15 found in {}; this release supports 14.0.6", dir.path().display());
    assert_eq!(refused(dir.path()), expected);
}

#[test]
fn a_patched_tree_is_named_and_can_be_forced() {
    let dir = temp();
    released_tree(dir.path());
    append(&dir.path().join("openmp/libomptarget/include/device.h"), "// changed\n");
    append(&dir.path().join("openmp/libomptarget/src/device.cpp"), "// changed\n");
    let line = refused(dir.path());
    assert!(line.contains("libomptarget/include/device.h, libomptarget/src/device.cpp differs"), "{line}");

    let out = dir.path().join("out");
    let args = ["build", "--core", "stock", "--allow-patched", "--llvm", path(dir.path()), "--out", path(&out)];
    let built = output(&mut omptarget(&args));
    assert!(built.status.success(), "{}", text(&built.stderr));
    assert!(text(&built.stderr).starts_with("warning: "));
    assert!(out.join("libomptarget.so").is_file());
}

#[test]
fn a_source_that_does_not_compile_leaves_nothing() {
    let dir = temp();
    released_tree(dir.path());
    append(&dir.path().join("openmp/libomptarget/src/rtl.cpp"), "#error not compilable\n");
    let out = dir.path().join("out");
    let args = ["build", "--core", "stock", "--allow-patched", "--llvm", path(dir.path()), "--out", path(&out)];
    let built = output(&mut omptarget(&args));
    let stderr = text(&built.stderr);
    assert_eq!(built.status.code(), Some(1));
    let errors = stderr.lines().filter(|line| line.starts_with("error: ")).collect::<Vec<_>>();
    assert_eq!(errors.len(), 1, "{stderr}");
    assert!(errors[0].contains("rtl.cpp:") && errors[0].contains("error: not compilable"), "{stderr}");
    assert!(!out.exists());
}

#[test]
fn a_foreign_out_directory_is_not_touched() {
    let dir = temp();
    fs::write(dir.path().join("precious"), "x").expect("a file");
    let line = failure(&mut omptarget(&["build", "--core", "stock", "--out", path(dir.path())]));
    assert!(line.ends_with("is not empty and was not made by this tool: give another --out"), "{line}");
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
}

#[test]
fn a_missing_compiler_is_named_with_what_installs_it() {
    let dir = temp();
    let out = dir.path().join("out");
    let mut command = omptarget(&["build", "--core", "stock", "--out", path(&out)]);
    assert_eq!(
        failure(command.env("PATH", dir.path())),
        "clang++-14 is not installed: `cargo run --release -- --setup` installs it (package clang-14)"
    );
    assert!(!out.exists());
}

#[test]
fn abi_refuses_what_it_cannot_compare() {
    let dir = temp();
    let absent = dir.path().join("libomptarget.so");
    assert!(failure(&mut omptarget(&["abi", path(&absent)])).starts_with("cannot read "));
    fs::write(&absent, "text").expect("a file");
    let line = failure(&mut omptarget(&["abi", path(&absent)]));
    assert!(line.contains("is not an x86-64 shared object"), "{line}");
    let other = dir.path().join("other.so");
    fs::copy(stock().library(), &other).expect("a file");
    let line = failure(&mut omptarget(&["abi", path(&other)]));
    assert!(line.starts_with("other.so is neither libomptarget.so nor a plugin"), "{line}");
}

#[test]
fn abi_finds_stock_equal_to_the_machines_library_and_a_plugin_different() {
    let libs = stock();
    let equal = output(&mut omptarget(&["abi", "/usr/lib/llvm-14/lib/libomptarget.so"]));
    assert!(equal.status.success());
    assert!(
        text(&equal.stdout).ends_with("equal    51 functions, node VERS1.0, soname libomptarget.so\n"),
        "{}",
        text(&equal.stdout)
    );

    let dir = temp();
    let plugin = dir.path().join("libomptarget.rtl.x86_64.so");
    fs::copy(libs.library(), &plugin).expect("a file");
    let different = output(&mut omptarget(&["abi", path(&plugin)]));
    let said = text(&different.stdout);
    assert_eq!(different.status.code(), Some(1));
    assert!(said.contains("drops this plugin silently: missing __tgt_rtl_is_valid_binary, "), "{said}");
    assert!(said.contains("missing  function __tgt_rtl_data_alloc@VERS1.0\n"), "{said}");
    assert!(said.contains("extra    function __tgt_target@VERS1.0\n"), "{said}");
    assert!(said.contains("extra    soname libomptarget.so\n"), "{said}");
}

#[test]
fn abi_finds_our_plugin_equal_to_llvms() {
    let plugin = built(Core::Stock, Core::Rust).dir.join(plugin::NAME);
    let equal = output(&mut omptarget(&["abi", path(&plugin)]));
    let said = text(&equal.stdout);
    assert!(equal.status.success() && said.starts_with("LLVM's loader accepts this plugin\n"), "{said}");
    assert!(said.ends_with("equal    28 functions, node VERS1.0, soname libomptarget.rtl.cuda.so\n"), "{said}");
}

/// Whose CUDA plugin a folder has: ours is a file, the machine's a link.
fn plugin_in(dir: &Path) -> Core {
    let plugin = dir.join(plugin::NAME);
    match fs::read_link(&plugin) {
        Ok(target) => {
            assert_eq!(target, paths::machine_llvm().join("lib").join(plugin::NAME));
            Core::Stock
        }
        Err(_) => {
            assert_eq!(fs::read(&plugin).expect("a plugin"), fs::read(plugin::built()).expect("our plugin"));
            Core::Rust
        }
    }
}

#[test]
fn each_part_is_chosen_for_itself_and_is_in_rust_by_default() {
    let dir = temp();
    let out = dir.path().join("out");
    for (plugin, chosen) in [(&[][..], Core::Rust), (&["--plugin", "stock"], Core::Stock), (&[], Core::Rust)] {
        let args = [&["build", "--core", "stock", "--out", path(&out)], plugin].concat();
        let built = output(&mut omptarget(&args));
        assert!(built.status.success(), "{}", text(&built.stderr));
        let said = format!(
            "{} is ready: LLVM 14.0.6, stock core, {chosen} CUDA plugin\n",
            out.join("libomptarget.so").display()
        );
        assert_eq!((text(&built.stdout), plugin_in(&out)), (said, chosen));

        let first = ["run", "--core", "stock"];
        let script = ["--", "/bin/sh", "-c", "printf %s \"${LD_LIBRARY_PATH%%:*}\""];
        let ran = text(&output(&mut omptarget(&[&first, plugin, &script].concat())).stdout);
        assert_eq!(Path::new(&ran), self::built(Core::Stock, chosen).dir);
        assert_eq!(plugin_in(Path::new(&ran)), chosen);
    }
}

#[test]
fn run_passes_exit_codes_and_signals_on() {
    stock();
    let shell =
        |script: &str| output(&mut omptarget(&["run", "--core", "stock", "--", "/bin/sh", "-c", script])).status;
    assert_eq!(shell("exit 7").code(), Some(7));
    let signal = std::os::unix::process::ExitStatusExt::signal(&shell("kill -TERM $$"));
    assert_eq!(signal, Some(15));
    let line = failure(&mut omptarget(&["run", "--core", "stock", "./no-such-program"]));
    assert!(line.starts_with("cannot run ./no-such-program: "), "{line}");
}

#[test]
fn a_program_offloads_on_our_library_even_when_linked_to_another() {
    let libs = stock();
    let dir = temp();
    let (source, exe) = (dir.path().join("a.c"), dir.path().join("a"));
    let code = "#include <omp.h>\nint main(void) { int host = 1;\n#pragma omp target map(from: host)\nhost = \
                omp_is_initial_device();\nreturn host; }\n";
    fs::write(&source, code).expect("a file");
    program::compile(&source, &exe, &libs, &["-O1"]).expect("a program");
    assert_eq!(Command::new(&exe).status().expect("it runs").code(), Some(0));

    // Linked by hand to the machine's library, it still gets ours, whose debug output is compiled in.
    let mut clang = Command::new("clang-14");
    clang.args(["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu", "-Wl,-rpath,/usr/lib/llvm-14/lib"]);
    assert!(clang.arg(&source).arg("-o").arg(&exe).status().expect("clang runs").success());
    let mut run = omptarget(&["run", "--core", "stock", "--", path(&exe)]);
    let run = output(run.env("LIBOMPTARGET_DEBUG", "1"));
    assert!(run.status.success());
    assert!(text(&run.stderr).contains("Libomptarget --> Init target library!"), "{}", text(&run.stderr));
}

#[test]
fn a_program_that_does_not_compile_is_one_line_and_leaves_nothing() {
    let libs = stock();
    let dir = temp();
    let exe = dir.path().join("a");
    for (name, code, expected) in [
        ("a.c", "int main(void) { return x; }\n", "a.c:1:25: error: use of undeclared identifier 'x'"),
        ("b.cpp", "int f(); int main() { return f(); }\n", "undefined reference to `f()'"),
        ("c.c", "#include \"absent.h\"\n", "c.c:1:10: fatal error: 'absent.h' file not found"),
        ("d.f90", "", "is not a C or C++ file: expected .c, .cpp, .cc or .cxx"),
    ] {
        let source = dir.path().join(name);
        fs::write(&source, code).expect("a file");
        let error = program::compile(&source, &exe, &libs, &[]).expect_err("must not compile");
        let line = format!("{error:#}");
        assert!(line.ends_with(expected) && !line.contains('\n'), "{line}");
        assert!(!exe.exists());
    }
}

#[test]
fn the_objects_link_to_another_main_program() {
    let libs = stock();
    let dir = temp();
    let (source, exe) = (dir.path().join("a.cpp"), dir.path().join("a"));
    let code = "extern \"C\" int omp_get_initial_device(); int main() { return omp_get_initial_device(); }\n";
    fs::write(&source, code).expect("a file");
    let mut clang = Command::new("clang++-14");
    clang.arg(&source).args(libs.object_files()).args(libs.link_args()).arg("/usr/lib/llvm-14/lib/libomp.so");
    assert!(clang.args(["-Wl,-rpath,/usr/lib/llvm-14/lib", "-o"]).arg(&exe).status().expect("clang runs").success());
    // No image was registered, so no device is known, and the host's number is 0.
    assert_eq!(Command::new(&exe).status().expect("it runs").code(), Some(0));
}

#[test]
fn stock_reads_its_own_header() {
    let libs = stock();
    let headers = libs.headers("omptarget.cpp");
    assert!(headers[0].ends_with("openmp/libomptarget/src/omptarget.cpp"));
    assert!(headers.contains(&libs.tree.libomptarget().join("include/device.h")));
}

#[test]
fn uninstall_removes_what_install_brought_and_nothing_else() {
    let dir = temp();
    let prefix = dir.path().join("prefix");
    let lib = prefix.join("lib");
    let install = ["install", "--core", "stock", "--prefix", path(&prefix)];
    let uninstall = ["uninstall", "--prefix", path(&prefix)];
    let ok = |args: &[&str]| assert!(output(&mut omptarget(args)).status.success());

    ok(&install);
    assert!(lib.join("libomptarget.so").is_file() && lib.join("libomptarget.rtl.x86_64.so").is_file());
    assert_eq!(fs::read_link(lib.join("libomptarget.so.14")).expect("a link"), Path::new("libomptarget.so"));
    assert_eq!(plugin_in(&lib), Core::Rust);
    ok(&[&install[..], &["--plugin", "stock"]].concat());
    assert_eq!(plugin_in(&lib), Core::Stock);
    ok(&install);
    assert_eq!(plugin_in(&lib), Core::Rust);
    ok(&uninstall);
    assert!(!prefix.exists());
    let line = failure(&mut omptarget(&uninstall));
    assert!(line.starts_with("nothing is installed in "), "{line}");

    fs::create_dir_all(&lib).expect("a directory");
    fs::write(lib.join("libomptarget.so.14"), "foreign").expect("a file");
    let line = failure(&mut omptarget(&install));
    assert!(line.ends_with("--force overwrites it"), "{line}");
    assert_eq!(fs::read_dir(&lib).expect("a directory").count(), 1);

    ok(&[&install[..], &["--force"]].concat());
    fs::remove_file(lib.join("libomptarget.so")).expect("a file");
    fs::write(lib.join("libomptarget.so"), "someone else's").expect("a file");
    let line = failure(&mut omptarget(&uninstall));
    assert!(line.starts_with("left in place, since changed after the installation: "), "{line}");
    assert_eq!(fs::read_dir(&lib).expect("a directory").count(), 1);
}

#[test]
fn wrong_usage_is_told_apart_from_failure() {
    assert_eq!(output(&mut omptarget(&["build", "--core", "other"])).status.code(), Some(2));
    assert_eq!(output(&mut omptarget(&["build", "--plugin", "other"])).status.code(), Some(2));
    assert_eq!(output(&mut omptarget(&["run"])).status.code(), Some(2));
}
