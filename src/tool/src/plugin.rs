//! The CUDA plugin as a shared object with LLVM's exports: ours, the machine's, and LLVM's own built to compare it with.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use regex::Regex;

use crate::core::Core;
use crate::llvm::Tree;
use crate::{artifact, build, paths, process, progress, setup};

/// Its file name, which LLVM's loader knows, and its soname.
pub const NAME: &str = "libomptarget.rtl.cuda.so";

/// What LLVM's plugin is compiled from, below `plugins/`.
const SOURCES: [&str; 3] = ["cuda/src/rtl.cpp", "cuda/dynamic_cuda/cuda.cpp", "common/elf_common/elf_common.cpp"];

/// Where these find their headers, below `libomptarget/`.
const INCLUDES: [&str; 4] =
    ["include", "plugins/cuda/dynamic_cuda", "plugins/common/MemoryManager", "plugins/common/elf_common"];

/// The file that says how LLVM's plugin was built; the sources need no mention, being as released.
const RECORD: &str = "build-record.txt";

static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b__tgt_rtl_\w+").expect("the pattern is a constant that the tests use"));

/// The plugin's file: ours, built if need be with the list of exports in `tree`, or the machine's.
pub fn file(plugin: Core, tree: &Tree) -> Result<PathBuf> {
    if plugin == Core::Rust {
        return link_ours(tree);
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
        Core::Stock if fs::read_link(&to).is_ok_and(|target| target == file) => Ok(()),
        Core::Stock => paths::link(file, &to),
    }
}

/// Builds our plugin, if need be, and answers the folder that holds it alone.
pub fn ensure() -> Result<PathBuf> {
    let library = link_ours(&Tree::locate(None)?)?;
    Ok(library.parent().unwrap_or(&library).to_owned())
}

/// Where our plugin is once it is built.
pub fn built() -> PathBuf {
    paths::out_root().join("14/cuda").join(NAME)
}

/// Answers the built file.
fn link_ours(tree: &Tree) -> Result<PathBuf> {
    let _lock = paths::lock("cuda-plugin")?;
    let archive = artifact::build("omptarget-rtl-cuda", "the CUDA plugin", &[])?.file("libomptarget_rtl_cuda.a")?;
    let library = built();
    let script = version_script(tree);
    let text = fs::read_to_string(&script).with_context(|| format!("cannot read {}", script.display()))?;
    let stage = paths::stage(&paths::out_root(), "cuda-plugin")?;
    let staged = stage.path().join(NAME);
    let mut command = link(&script)?;
    command.arg("-Wl,--gc-sections");
    // What is in an archive is linked only if it is asked for.
    command.args(functions(&text).map(|name| format!("-Wl,-u,{name}")));
    command.arg(&archive).args(["-ldl", "-lpthread", "-lm", "-o"]).arg(&staged);
    let made = archive.metadata().and_then(|meta| meta.modified());
    let made = made.with_context(|| format!("cannot read {}", archive.display()))?;
    // What is there, if it was linked in the same way.
    let record = paths::out_root().join("14/cuda-plugin-record.txt");
    let now = format!("{command:?}\n{made:?}\n{text}");
    if library.is_file() && fs::read_to_string(&record).is_ok_and(|then| then == now) {
        return Ok(library);
    }
    let _progress = progress::step("linking the CUDA plugin");
    process::run(&mut command).context("the CUDA plugin does not link")?;
    paths::place(&staged, &library)?;
    fs::write(&record, now).with_context(|| format!("cannot write {}", record.display()))?;
    Ok(library)
}

/// Builds LLVM's own plugin, if need be, with the debug output that a release leaves out, and answers the folder that
/// holds it.
pub fn ensure_stock() -> Result<PathBuf> {
    let _lock = paths::lock("cuda-plugin-stock")?;
    let tree = Tree::locate(None)?;
    tree.check_cuda_plugin()?;
    let headers = paths::machine_llvm().join("include");
    ensure!(
        headers.join("llvm/Object/ELFObjectFile.h").is_file(),
        "LLVM's headers are not installed: `{}` installs them (package llvm-14-dev)",
        setup::SETUP
    );
    let (script, runtime) = (version_script(&tree), tree.libomptarget());
    let mut flags: Vec<OsString> = build::FLAGS.map(OsString::from).to_vec();
    flags.push("-DTARGET_NAME=CUDA".into());
    for dir in INCLUDES.iter().map(|dir| runtime.join(dir)).chain([headers]) {
        flags.extend(["-I".into(), dir.into_os_string()]);
    }
    let record = format!("{flags:?} {SOURCES:?} {}\n", script.display());
    let dir = paths::out_root().join("14/cuda-stock");
    let library = dir.join(NAME);
    if library.is_file() && fs::read_to_string(dir.join(RECORD)).is_ok_and(|recorded| recorded == record) {
        return Ok(dir);
    }
    let progress = progress::steps("compiling LLVM's CUDA plugin".to_owned(), SOURCES.len() + 1);
    let stage = paths::stage(&paths::out_root(), "cuda-plugin-stock")?;
    let staged = stage.path().join(NAME);
    let mut command = link(&script)?;
    for source in SOURCES {
        let source = runtime.join("plugins").join(source);
        let object = stage.path().join(source.file_name().unwrap_or_default()).with_extension("o");
        let mut compiler = Command::new(process::tool("clang++-14")?);
        process::run(compiler.args(&flags).arg("-c").arg(&source).arg("-o").arg(&object))?;
        progress.inc();
        command.arg(object);
    }
    command
        .arg("-L")
        .arg(paths::machine_llvm().join("lib"))
        .args(["-lLLVM-14", "-ldl", "-lpthread", "-o"])
        .arg(&staged);
    process::run(&mut command).context("LLVM's CUDA plugin does not link")?;
    paths::place(&staged, &library)?;
    fs::write(stage.path().join(RECORD), record)?;
    paths::place(&stage.path().join(RECORD), &dir.join(RECORD))?;
    Ok(dir)
}

fn version_script(tree: &Tree) -> PathBuf {
    tree.libomptarget().join("plugins/exports")
}

/// The beginning of a link of either plugin.
fn link(script: &Path) -> Result<Command> {
    let mut command = Command::new(process::tool("clang++-14")?);
    command.args(["-shared", "-Wl,-z,defs"]).arg(format!("-Wl,-soname,{NAME}"));
    command.arg(format!("-Wl,--version-script={}", script.display()));
    Ok(command)
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
