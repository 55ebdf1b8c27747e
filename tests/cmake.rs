//! Builds LLVM's untouched tree by LLVM's own CMake files with the Rust core swapped in, and runs a program on it.
//!
//! The build directories stay in `target/tmp/cmake`, and a later run goes on from there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use omptarget_tool::core::Core;
use omptarget_tool::llvm::Tree;
use omptarget_tool::{abi, build, paths, process};

/// Where the build directories are.
const SCRATCH: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cmake");

/// What LLVM's sources are compiled from, but for `device.cpp`.
const LLVM_SOURCES: [&str; 5] = ["api.cpp", "interface.cpp", "interop.cpp", "omptarget.cpp", "rtl.cpp"];

/// A way in which LLVM's build can be configured.
struct Way {
    /// The variable that names our file.
    include: &'static str,
    /// Its build directory is called so too.
    generator: &'static str,
    compilers: [&'static str; 2],
    build_type: &'static str,
    profiling: &'static str,
}

#[test]
fn ninja_and_clang_without_profiling() -> Result<()> {
    check(&Way {
        include: "CMAKE_PROJECT_openmp_INCLUDE",
        generator: "Ninja",
        compilers: ["clang-14", "clang++-14"],
        build_type: "Release",
        profiling: "OFF",
    })
}

/// With LLVM's assertions; those in our face too.
#[test]
fn make_and_gcc_with_profiling() -> Result<()> {
    check(&Way {
        include: "CMAKE_PROJECT_INCLUDE",
        generator: "Unix Makefiles",
        compilers: ["gcc", "g++"],
        build_type: "Debug",
        profiling: "ON",
    })
}

fn check(way: &Way) -> Result<()> {
    let tree = Tree::locate(None)?;
    tree.check(false)?;
    let before = contents(&tree.openmp)?;

    let dir = Path::new(SCRATCH).join(way.generator);
    configure(way, &tree, &dir)?;
    let mut build = Command::new(process::tool("cmake")?);
    build.arg("--build").arg(&dir).args(["--parallel", "2", "--target", "omptarget", "omptarget.rtl.x86_64"]);
    let output = run(&mut build)?;
    let ours = [paths::root().join("cpp"), paths::root().join("include"), dir.join("omptarget-rs")];
    let is_ours = |line: &str| ours.iter().any(|dir| line.contains(&*dir.to_string_lossy()));
    ensure!(!output.lines().any(|line| line.contains("warning:") && is_ours(line)), "our C++ has warnings:\n{output}");

    check_sources(&tree, &dir)?;
    check_headers(way, &tree, &dir)?;
    check_exports(&dir)?;
    check_program(way, &dir)?;

    ensure!(contents(&tree.openmp)? == before, "something has changed in {}", tree.openmp.display());
    let again = run(&mut build)?;
    ensure!(!again.contains("Linking"), "a second build finds something to do:\n{again}");
    Ok(())
}

fn configure(way: &Way, tree: &Tree, dir: &Path) -> Result<()> {
    let mut cmake = Command::new(process::tool("cmake")?);
    cmake.arg("-S").arg(&tree.openmp).arg("-B").arg(dir).args(["-G", way.generator]);
    let llvm = paths::machine_llvm();
    for (name, value) in [
        (way.include, paths::root().join("cpp/omptarget-rs.cmake")),
        ("CMAKE_C_COMPILER", process::tool(way.compilers[0])?),
        ("CMAKE_CXX_COMPILER", process::tool(way.compilers[1])?),
        ("CMAKE_BUILD_TYPE", way.build_type.into()),
        ("CMAKE_EXPORT_COMPILE_COMMANDS", "ON".into()),
        ("OPENMP_ENABLE_LIBOMPTARGET_PROFILING", way.profiling.into()),
        ("OPENMP_LLVM_TOOLS_DIR", llvm.join("bin")),
        ("LLVM_DIR", llvm.join("lib/cmake/llvm")),
    ] {
        cmake.arg(format!("-D{name}={}", value.display()));
    }
    run(&mut cmake).map(drop)
}

/// Runs a command and returns all that it says, which is the error too if it fails.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed:\n{text}");
    Ok(text.into_owned())
}

/// Target omptarget compiles LLVM's sources, but for `device.cpp`, and our shim.
fn check_sources(tree: &Tree, dir: &Path) -> Result<()> {
    let commands = fs::read_to_string(dir.join("compile_commands.json"))?;
    let commands: Vec<serde_json::Value> = serde_json::from_str(&commands)?;
    let compiled: BTreeSet<PathBuf> = commands
        .iter()
        .filter(|command| command["command"].as_str().is_some_and(|c| c.contains("CMakeFiles/omptarget.dir/")))
        .filter_map(|command| command["file"].as_str().map(PathBuf::from))
        .collect();
    let mut expected: BTreeSet<PathBuf> = LLVM_SOURCES.map(|name| tree.libomptarget().join("src").join(name)).into();
    expected.insert(paths::root().join("cpp/llvm14/device.cpp"));
    ensure!(compiled == expected, "compiled are {compiled:?}");
    Ok(())
}

/// They have all read our headers, and not LLVM's `device.h`.
fn check_headers(way: &Way, tree: &Tree, dir: &Path) -> Result<()> {
    for name in LLVM_SOURCES {
        let object = format!("libomptarget/src/CMakeFiles/omptarget.dir/{name}.o");
        let read = if way.generator == "Ninja" {
            run(Command::new(process::tool("ninja")?).arg("-C").arg(dir).args(["-t", "deps", &object]))?
        } else {
            fs::read_to_string(dir.join(object + ".d"))?
        };
        let reads = |header: PathBuf| read.contains(&*header.to_string_lossy());
        for ours in ["device.h", "omptarget.h", "Debug.h"] {
            ensure!(reads(paths::root().join("include/llvm14").join(ours)), "{name} has not read our {ours}");
        }
        ensure!(!reads(tree.libomptarget().join("include/device.h")), "{name} has read LLVM's device.h");
    }
    Ok(())
}

/// The library exports what LLVM's does.
fn check_exports(dir: &Path) -> Result<()> {
    let ours = abi::exports(&dir.join("libomptarget/libomptarget.so"))?;
    let comparison = abi::compare(&ours, &abi::exports(&build::ensure(Core::Stock)?.library())?);
    ensure!(comparison.missing.is_empty() && comparison.extra.is_empty(), "{comparison}");
    Ok(())
}

/// A program that goes wrong on LLVM's core is right on this library, and profiled where that was asked for.
fn check_program(way: &Way, dir: &Path) -> Result<()> {
    let source = paths::root().join("tests/programs/cases/b04_extended_range.c");
    let libs = [dir.join("libomptarget"), paths::machine_llvm().join("lib")];
    let exe = dir.join("program");
    let mut clang = Command::new(process::tool("clang-14")?);
    clang.args(["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu"]).arg(source).arg("-o").arg(&exe);
    process::run(clang.args(libs.iter().flat_map(|dir| [Path::new("-L"), dir])))?;
    let profile = dir.join("profile.json");
    fs::write(&profile, "")?;
    let mut program = Command::new(&exe);
    program.env("LD_LIBRARY_PATH", std::env::join_paths(libs)?).env("LIBOMPTARGET_PROFILE", &profile);
    let output = process::run(&mut program)?;
    ensure!(output.stdout == b"PASS\n", "the program fails: {}", String::from_utf8_lossy(&output.stdout));
    let profiled = fs::read_to_string(&profile)?.contains("runTargetRegion");
    ensure!(profiled == (way.profiling == "ON"), "profiled: {profiled}");
    Ok(())
}

/// The files under a directory, each with a hash of what is in it.
fn contents(dir: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.append(&mut contents(&path)?);
        } else {
            let mut hasher = DefaultHasher::new();
            fs::read(&path)?.hash(&mut hasher);
            files.insert(path, hasher.finish());
        }
    }
    Ok(files)
}

/// What CMake says about a made-up project with the given lines after `project(openmp)`.
fn made_up(lines: &str, args: &[&str]) -> Result<(Output, String)> {
    let dir = tempfile::tempdir()?;
    let text = format!("cmake_minimum_required(VERSION 3.13.4)\nproject(openmp NONE)\n{lines}");
    fs::write(dir.path().join("CMakeLists.txt"), text)?;
    let mut cmake = Command::new(process::tool("cmake")?);
    cmake.arg("-S").arg(dir.path()).arg("-B").arg(dir.path().join("build")).args(["-G", "Ninja"]);
    cmake.arg(format!("-DCMAKE_MAKE_PROGRAM={}", process::tool("ninja")?.display()));
    let ours = paths::root().join("cpp/omptarget-rs.cmake");
    cmake.arg(format!("-DCMAKE_PROJECT_openmp_INCLUDE={}", ours.display())).args(args);
    // Nothing of this machine's Rust is found, but what `args` name.
    cmake.env("PATH", "").env("HOME", "").env_remove("CARGO_HOME").arg("-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF");
    let output = cmake.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let words = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok((output, words))
}

#[test]
fn what_cannot_be_built_is_refused() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cargo = |name: &str, version: &str| -> Result<String> {
        use std::os::unix::fs::PermissionsExt;
        let file = dir.path().join(name);
        fs::write(&file, format!("#!/bin/sh\necho 'cargo {version} (0 2000-01-01)'\n"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        Ok(format!("-DOMPTARGET_RS_CARGO={}", file.display()))
    };
    let (old, new) = (cargo("old", "1.63.0")?, cargo("new", "1.95.0")?);
    let llvm = |major: u32, sources: &str| {
        format!(
            "set(LLVM_VERSION_MAJOR {major})\nset(LLVM_VERSION_MINOR 0)\nset(LLVM_VERSION_PATCH 6)\nadd_library(omptarget SHARED {sources})"
        )
    };
    let known = "api.cpp device.cpp interface.cpp interop.cpp omptarget.cpp rtl.cpp";
    for (lines, args, message) in [
        (llvm(14, known), &[][..], "needs cargo, which was not found: install Rust 1.95 or newer (https://rustup.rs)"),
        (llvm(14, known), &[&*old], "old (cargo 1.63.0 (0 2000-01-01)): install Rust 1.95 or newer"),
        (llvm(15, known), &[&*new], "supports LLVM 14; this build uses LLVM 15.0.6."),
        (
            llvm(14, "api.cpp rtl.cpp LegacyAPI.cpp"),
            &[&*new],
            "are not those of LLVM 14: LegacyAPI.cpp;api.cpp;rtl.cpp",
        ),
        (String::new(), &[&*new], "nothing here builds libomptarget"),
        (
            String::new(),
            &["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"],
            "supports native builds on x86-64 Linux; this build is for aarch64 Linux.",
        ),
    ] {
        let (output, stderr) = made_up(&lines, args)?;
        ensure!(!output.status.success() && stderr.contains(message), "expected {message:?}, not {stderr:?}");
    }
    // Switched off, it asks for nothing.
    let (output, stderr) = made_up("", &["-DOMPTARGET_RS_CORE=OFF"])?;
    ensure!(output.status.success(), "{stderr}");
    Ok(())
}
