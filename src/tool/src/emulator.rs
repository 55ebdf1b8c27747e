//! The emulated CUDA driver as a library folder.

use std::path::PathBuf;

use anyhow::Result;

use crate::{artifact, paths};

/// Builds the emulated driver, if need be, and answers the folder that holds it as `libcuda.so` and `libcuda.so.1`.
pub fn ensure() -> Result<PathBuf> {
    let _lock = paths::lock("cuda-emulator")?;
    let built = artifact::build("omptarget-cuda-emulator", "the emulated CUDA driver", &[])?;
    let library = built.file("libomptarget_cuda_emulator.so")?;
    let dir = paths::out_root().join("cuda-emulator");
    for name in ["libcuda.so", "libcuda.so.1"] {
        paths::update(&library, &dir.join(name))?;
    }
    Ok(dir)
}
