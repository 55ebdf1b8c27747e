//! Whole programs on the emulated CUDA device, with our plugin.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use omptarget_tool::build::{self, Libs};
use omptarget_tool::core::Core;
use omptarget_tool::{emulator, paths, plugin, program, retarget};

/// The folder that has the emulated driver.
pub fn driver_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| emulator::ensure().expect("a driver"))
}

/// The folder that has the plugin.
pub fn plugin_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| plugin::ensure().expect("a plugin"))
}

/// The libraries with this core, built when first asked for.
fn libs(core: Core) -> &'static Libs {
    static LIBS: [OnceLock<Libs>; 2] = [OnceLock::new(), OnceLock::new()];
    LIBS[core as usize].get_or_init(|| build::ensure(core).expect("a library"))
}

/// Compiles a program of `tests/programs/` for the emulated device.
pub fn compile(source: &str, flags: &[&str]) -> PathBuf {
    let source = paths::root().join("tests/programs").join(source);
    // Tests run side by side, and some use the same program.
    static COMPILED: AtomicUsize = AtomicUsize::new(0);
    let number = COMPILED.fetch_add(1, Ordering::Relaxed);
    let name = source.file_stem().expect("a file").to_string_lossy();
    let exe = format!("{}-{name}-{number}", env!("CARGO_CRATE_NAME"));
    let exe = Path::new(env!("CARGO_TARGET_TMPDIR")).join(exe);
    program::compile(&source, &exe, libs(Core::Rust), flags).expect("it compiles");
    retarget::retarget(&exe).expect("it has a device image");
    exe
}

/// A command that runs a program on the emulated device; without one it fails.
pub fn command(exe: &Path, core: Core, switches: &[(&str, &str)]) -> Command {
    let libs = libs(core);
    // In the order in which they are looked for.
    let dirs = [plugin_folder(), driver_folder(), &libs.dir, &paths::machine_llvm().join("lib")];
    let mut command: Command = program::command(exe, libs);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(dirs).expect("plain paths"));
    // libomp 14's hidden helper tasks have races of their own.
    command.env("LIBOMP_USE_HIDDEN_HELPER_TASK", "0").env("OMP_NUM_THREADS", "6");
    command.env("OMP_TARGET_OFFLOAD", "mandatory").env("EMU_ACCOUNT", "strict");
    command.env("EMU_CONTEXT", "strict").envs(switches.iter().copied());
    command
}
