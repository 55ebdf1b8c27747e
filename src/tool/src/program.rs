//! OpenMP offload programs: compiling them, and running them on one of our libraries.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::build::Libs;
use crate::{paths, process};

/// Compiles one C or C++ program for the host device, linked to `libs`; `extra` goes to the compiler as it is.
pub fn compile(source: &Path, exe: &Path, libs: &Libs, extra: &[&str]) -> Result<()> {
    let compiler = match source.extension().and_then(|e| e.to_str()) {
        Some("c") => "clang-14",
        Some("cpp" | "cc" | "cxx" | "C") => "clang++-14",
        _ => bail!("{} is not a C or C++ file: expected .c, .cpp, .cc or .cxx", source.display()),
    };
    if !source.is_file() {
        bail!("there is no file {}", source.display());
    }
    let mut command = Command::new(process::tool(compiler)?);
    command.args(["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu"]).args(extra).arg(source).arg("-o").arg(exe);
    command.args(link_args(libs));
    let output = command.output()?;
    if !output.status.success() {
        let why = process::first_error(&output.stderr).unwrap_or_else(|| output.status.to_string());
        bail!("{} does not compile: {why}", source.display());
    }
    Ok(())
}

/// What links a program to `libs`, and lets it find them.
pub fn link_args(libs: &Libs) -> Vec<OsString> {
    let mut args = Vec::new();
    for dir in [libs.dir.clone(), paths::machine_llvm().join("lib")] {
        let mut rpath = OsString::from("-Wl,-rpath,");
        rpath.push(&dir);
        args.extend(["-L".into(), dir.into_os_string(), rpath]);
    }
    args
}

/// A command that runs `exe` on `libs`, whether or not it was linked to them.
pub fn command(exe: &Path, libs: &Libs) -> Command {
    command_in(exe, std::slice::from_ref(&libs.dir))
}

/// Like [`command`], for libraries of which only the folders are known, in the order in which they are looked for.
pub fn command_in(exe: &Path, folders: &[PathBuf]) -> Command {
    let mut dirs = folders.to_vec();
    dirs.push(paths::machine_llvm().join("lib"));
    dirs.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    let mut command = Command::new(exe);
    command.env("LD_LIBRARY_PATH", dirs.iter().map(|dir| dir.as_os_str()).collect::<Vec<_>>().join(":".as_ref()));
    command
}
