//! The CUDA plugin: ours as a shared object with LLVM's exports, or the machine's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use regex::Regex;

use crate::core::Core;
use crate::llvm::Tree;
use crate::{artifact, paths, process, progress, setup};

/// Its file name, which LLVM's loader knows, and its soname.
pub const NAME: &str = "libomptarget.rtl.cuda.so";

static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b__tgt_rtl_\w+").expect("the pattern is a constant that the tests use"));

/// The plugin's file: ours, built if need be with the list of exports in `tree`, or the machine's.
pub fn file(plugin: Core, tree: &Tree) -> Result<PathBuf> {
    if plugin == Core::Rust {
        return build(tree);
    }
    let stock = paths::machine_llvm().join("lib").join(NAME);
    ensure!(stock.is_file(), "LLVM's CUDA plugin {} is not there: `{}` installs it", stock.display(), setup::SETUP);
    Ok(stock)
}

/// Puts a plugin's [`file`] into a folder: a copy of ours, or a link to the machine's.
pub fn put(plugin: Core, file: &Path, dir: &Path) -> Result<()> {
    let to = dir.join(NAME);
    match plugin {
        Core::Rust => paths::update(file, &to),
        Core::Stock if std::fs::read_link(&to).is_ok_and(|target| target == file) => Ok(()),
        Core::Stock => paths::link(file, &to),
    }
}

/// Builds our plugin, if need be, and answers the folder that holds it alone.
pub fn ensure() -> Result<PathBuf> {
    let library = build(&Tree::locate(None)?)?;
    Ok(library.parent().unwrap_or(&library).to_owned())
}

/// Where our plugin is once it is built.
pub fn built() -> PathBuf {
    paths::out_root().join("14/cuda").join(NAME)
}

/// Answers the built file.
fn build(tree: &Tree) -> Result<PathBuf> {
    let _lock = paths::lock("cuda-plugin")?;
    let archive = artifact::build("omptarget-rtl-cuda", "the CUDA plugin", &[])?.file("libomptarget_rtl_cuda.a")?;
    let library = built();
    let script = tree.libomptarget().join("plugins/exports");
    let text = std::fs::read_to_string(&script).with_context(|| format!("cannot read {}", script.display()))?;
    let stage = paths::stage(&paths::out_root(), "cuda-plugin")?;
    let staged = stage.path().join(NAME);
    let mut command = Command::new(process::tool("clang++-14")?);
    command.args(["-shared", "-Wl,-z,defs", "-Wl,--gc-sections"]).arg(format!("-Wl,-soname,{NAME}"));
    command.arg(format!("-Wl,--version-script={}", script.display()));
    // What is in an archive is linked only if it is asked for.
    command.args(functions(&text).map(|name| format!("-Wl,-u,{name}")));
    command.arg(&archive).args(["-ldl", "-lpthread", "-lm", "-o"]).arg(&staged);
    let made = archive.metadata().and_then(|meta| meta.modified());
    let made = made.with_context(|| format!("cannot read {}", archive.display()))?;
    // What is there, if it was linked in the same way.
    let record = paths::out_root().join("14/cuda-plugin-record.txt");
    let now = format!("{command:?}\n{made:?}\n{text}");
    if library.is_file() && std::fs::read_to_string(&record).is_ok_and(|then| then == now) {
        return Ok(library);
    }
    let _progress = progress::step("linking the CUDA plugin");
    process::run(&mut command).context("the CUDA plugin does not link")?;
    paths::place(&staged, &library)?;
    std::fs::write(&record, now).with_context(|| format!("cannot write {}", record.display()))?;
    Ok(library)
}

/// The functions that a version script exports.
fn functions(script: &str) -> impl Iterator<Item = &str> {
    FUNCTION.find_iter(script).map(|found| found.as_str())
}

#[cfg(test)]
mod tests {
    #[test]
    fn functions_are_read_from_a_version_script() {
        let script = "V {\n  global:\n    __tgt_rtl_a;\n    __tgt_rtl_b_c;\n  local:\n    *;\n};\n";
        assert!(super::functions(script).eq(["__tgt_rtl_a", "__tgt_rtl_b_c"]));
    }
}
