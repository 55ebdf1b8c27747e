//! Our CUDA plugin, as a shared object with LLVM's exports.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex::Regex;

use crate::llvm::Tree;
use crate::{artifact, paths, process, progress};

/// Its file name, which LLVM's loader knows, and its soname.
pub const NAME: &str = "libomptarget.rtl.cuda.so";

static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b__tgt_rtl_\w+").expect("the pattern is a constant that the tests use"));

/// Builds the plugin, if need be, and answers the folder that holds it alone.
pub fn ensure() -> Result<PathBuf> {
    let _lock = paths::lock("cuda-plugin")?;
    let archive = artifact::build("omptarget-rtl-cuda", "libomptarget_rtl_cuda.a", "the CUDA plugin")?;
    let dir = paths::out_root().join("14/cuda");
    let library = dir.join(NAME);
    let built = |path: &PathBuf| path.metadata().and_then(|meta| meta.modified());
    if matches!((built(&archive), built(&library)), (Ok(archive), Ok(library)) if archive < library) {
        return Ok(dir);
    }
    let script = Tree::locate(None)?.libomptarget().join("plugins/exports");
    let text = std::fs::read_to_string(&script).with_context(|| format!("cannot read {}", script.display()))?;
    let _progress = progress::step("linking the CUDA plugin");
    let stage = paths::stage(&paths::out_root(), "cuda-plugin")?;
    let staged = stage.path().join(NAME);
    let mut command = Command::new(process::tool("clang++-14")?);
    command.args(["-shared", "-Wl,-z,defs", "-Wl,--gc-sections"]).arg(format!("-Wl,-soname,{NAME}"));
    command.arg(format!("-Wl,--version-script={}", script.display()));
    // What is in an archive is linked only if it is asked for.
    command.args(functions(&text).map(|name| format!("-Wl,-u,{name}")));
    command.arg(&archive).args(["-ldl", "-lpthread", "-lm", "-o"]).arg(&staged);
    process::run(&mut command).context("the CUDA plugin does not link")?;
    paths::place(&staged, &library)?;
    Ok(dir)
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
