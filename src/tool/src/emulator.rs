//! The emulated CUDA driver as a library folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{paths, process, progress};

/// Builds the emulated driver, if need be, and answers the folder that holds it as `libcuda.so` and `libcuda.so.1`.
pub fn ensure() -> Result<PathBuf> {
    let _lock = paths::lock("cuda-emulator")?;
    let library = library()?;
    let dir = paths::out_root().join("cuda-emulator");
    for name in ["libcuda.so", "libcuda.so.1"] {
        let to = dir.join(name);
        if !is_same(&library, &to) {
            paths::place(&library, &to)?;
        }
    }
    Ok(dir)
}

/// Builds the library with cargo.
fn library() -> Result<PathBuf> {
    let _progress = progress::step("building the emulated CUDA driver");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command.current_dir(paths::root());
    command.args(["build", "--release", "--quiet", "--package", "omptarget-cuda-emulator", "--lib"]);
    let output = process::run(command.arg("--message-format=json-render-diagnostics")).context(
        "the emulated CUDA driver does not build (`cargo build --release --package omptarget-cuda-emulator` says more)",
    )?;
    artifact(&String::from_utf8_lossy(&output.stdout))
        .context("cargo built no shared library of package omptarget-cuda-emulator")
}

/// Finds the library in cargo's messages.
fn artifact(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let files = message["filenames"].as_array()?.iter().filter_map(|file| file.as_str());
        files.map(PathBuf::from).find(|file| file.ends_with("libomptarget_cuda_emulator.so"))
    })
}

/// Whether a copy is of this size and not older.
fn is_same(from: &Path, to: &Path) -> bool {
    let of = |path: &Path| path.metadata().and_then(|meta| Ok((meta.len(), meta.modified()?)));
    matches!((of(from), of(to)), (Ok((from_len, from_time)), Ok((to_len, to_time))) if from_len == to_len && from_time <= to_time)
}
