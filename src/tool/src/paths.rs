//! Where things lie: the repository, what the tool builds in it, and LLVM on this machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::progress;

/// The LLVM release that this version of the project supports.
pub const LLVM_VERSION: &str = "14.0.6";

/// The repository's root, known since this program was compiled; see [`check`].
pub fn root() -> PathBuf {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR"));
    tool.ancestors().nth(2).unwrap_or(tool).to_owned()
}

/// Says so when the repository that this program was compiled from is no longer there.
pub fn check() -> Result<()> {
    ensure!(
        root().join("src/tool/Cargo.toml").is_file(),
        "the repository {} is gone: run `cargo run --release` in the new place",
        root().display()
    );
    Ok(())
}

/// Everything that the tool builds.
pub fn out_root() -> PathBuf {
    root().join("target/omptarget")
}

/// LLVM's `openmp/` as fetched from Debian.
pub fn llvm_dir() -> PathBuf {
    root().join("target/llvm").join(LLVM_VERSION)
}

/// Where lit is installed, a Python virtual environment.
pub fn lit_dir() -> PathBuf {
    root().join("target/lit")
}

/// The machine's own LLVM: compilers in `bin`, libomp and the stock plugins in `lib`.
pub fn machine_llvm() -> PathBuf {
    PathBuf::from("/usr/lib/llvm-14")
}

/// Holds back other processes that would write the same files, until the returned file is dropped.
pub fn lock(name: &str) -> Result<File> {
    let path = out_root().join(format!("{name}.lock"));
    fs::create_dir_all(out_root()).with_context(|| format!("cannot create {}", out_root().display()))?;
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if file.try_lock().is_err() {
        let _waiting = progress::step("waiting for another omptarget to finish");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// An empty directory to work in while a [`lock`] is held. It goes when dropped; what a killed process left there goes
/// first.
pub fn stage(parent: &Path, name: &str) -> Result<TempDir> {
    let path = parent.join(name);
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    if path.exists() {
        fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    let stage = tempfile::Builder::new().prefix(name).rand_bytes(0).tempdir_in(parent);
    stage.with_context(|| format!("cannot create {}", path.display()))
}

/// Copies `from` to `to` so that nobody ever sees half of it; a symbolic link stays one.
pub fn place(from: &Path, to: &Path) -> Result<()> {
    if from.is_symlink() {
        return link(&fs::read_link(from).with_context(|| format!("cannot read {}", from.display()))?, to);
    }
    replace(to, |new| fs::copy(from, new).map(drop))
}

/// Like [`place`] for a file, unless `to` is a copy of this size that is not older.
pub fn update(from: &Path, to: &Path) -> Result<()> {
    let of = |path: &Path| path.metadata().and_then(|meta| Ok((meta.len(), meta.modified()?)));
    let is_copy = |from: (u64, _), to: (u64, _)| from.0 == to.0 && from.1 <= to.1;
    if !to.is_symlink() && matches!((of(from), of(to)), (Ok(from), Ok(to)) if is_copy(from, to)) {
        return Ok(());
    }
    place(from, to)
}

/// Makes `to` a symbolic link to `target`, in place of what is there.
pub fn link(target: &Path, to: &Path) -> Result<()> {
    replace(to, |new| std::os::unix::fs::symlink(target, new))
}

/// Puts what `make` makes where `to` is, in one step.
fn replace(to: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    let dir = to.parent().with_context(|| format!("{} is not a file name", to.display()))?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let stage = tempfile::Builder::new().prefix(".omptarget-").tempdir_in(dir);
    let stage = stage.with_context(|| format!("cannot write to {}", dir.display()))?;
    let new = stage.path().join("new");
    make(&new).and_then(|()| fs::rename(&new, to)).with_context(|| format!("cannot write {}", to.display()))
}
