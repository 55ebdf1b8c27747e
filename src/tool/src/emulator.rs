//! The emulated CUDA driver as a library folder.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{artifact, paths};

/// Builds the emulated driver, if need be, and answers the folder that holds it as `libcuda.so` and `libcuda.so.1`.
pub fn ensure() -> Result<PathBuf> {
    let _lock = paths::lock("cuda-emulator")?;
    let library =
        artifact::build("omptarget-cuda-emulator", "libomptarget_cuda_emulator.so", "the emulated CUDA driver")?;
    let dir = paths::out_root().join("cuda-emulator");
    for name in ["libcuda.so", "libcuda.so.1"] {
        let to = dir.join(name);
        if !is_same(&library, &to) {
            paths::place(&library, &to)?;
        }
    }
    Ok(dir)
}

/// Whether a copy is of this size and not older.
fn is_same(from: &Path, to: &Path) -> bool {
    let of = |path: &Path| path.metadata().and_then(|meta| Ok((meta.len(), meta.modified()?)));
    matches!((of(from), of(to)), (Ok((from_len, from_time)), Ok((to_len, to_time))) if from_len == to_len && from_time <= to_time)
}
