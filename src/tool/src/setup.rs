//! What the machine must have: one table, its installation (`--setup`), and the hints in error messages.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{paths, process};

/// The command that installs what is missing, as messages name it.
pub const SETUP: &str = "cargo run --release -- --setup";

/// lit runs LLVM's tests; a release that comes as a wheel and still reads LLVM 14's configuration.
const LIT: &str = "lit==18.1.8";

/// lit needs it to end a test that takes too long.
const PSUTIL: &str = "psutil==7.2.2";

/// NVIDIA's assembler for GPUs, which programs for a real GPU are built with; the last release for clang 14's code.
const PTXAS: &str = "nvidia-cuda-nvcc-cu11==11.8.89";

/// How the presence of a package shows.
#[derive(Debug)]
pub enum Sign {
    /// A program of this name is found.
    Program(&'static str),
    /// This file is there.
    File(&'static str),
    /// Python can import these modules.
    PythonModules(&'static str),
}

/// One package of the system and what we need of it.
#[derive(Debug)]
pub struct Requirement {
    /// Debian's name of the package.
    pub package: &'static str,
    /// What it is for, in a few words.
    pub purpose: &'static str,
    /// All of these must be there.
    pub signs: &'static [Sign],
}

/// Everything beyond Rust, gcc and libc6-dev.
pub const REQUIREMENTS: [Requirement; 14] = [
    Requirement {
        package: "clang-14",
        purpose: "compiles LLVM's sources and offload programs",
        signs: &[Sign::Program("clang-14"), Sign::Program("clang++-14")],
    },
    Requirement {
        package: "clang-tools-14",
        purpose: "puts device code into programs",
        signs: &[Sign::Program("clang-offload-wrapper-14")],
    },
    Requirement {
        package: "libomp-14-dev",
        purpose: "OpenMP's host runtime, omp.h and the stock plugins",
        signs: &[
            Sign::File("/usr/lib/llvm-14/lib/libomp.so"),
            Sign::File("/usr/lib/llvm-14/lib/clang/14.0.6/include/omp.h"),
            Sign::File("/usr/lib/llvm-14/lib/libomptarget.rtl.x86_64.so"),
        ],
    },
    Requirement {
        package: "llvm-14-tools",
        purpose: "FileCheck and not, which LLVM's tests call",
        signs: &[Sign::Program("FileCheck"), Sign::Program("not")],
    },
    Requirement {
        package: "llvm-14-dev",
        purpose: "LLVM's own CMake build, and its CUDA plugin",
        signs: &[Sign::File("/usr/lib/llvm-14/lib/cmake/llvm/LLVMConfig.cmake")],
    },
    Requirement { package: "cmake", purpose: "LLVM's own CMake build", signs: &[Sign::Program("cmake")] },
    Requirement { package: "ninja-build", purpose: "LLVM's own CMake build", signs: &[Sign::Program("ninja")] },
    Requirement { package: "make", purpose: "LLVM's own CMake build", signs: &[Sign::Program("make")] },
    Requirement {
        package: "g++",
        purpose: "LLVM's own CMake build, with the other compiler",
        signs: &[Sign::Program("g++")],
    },
    Requirement {
        package: "libelf-dev",
        purpose: "LLVM's own CMake build: the host plugin, and zlib for its profiling",
        signs: &[Sign::File("/usr/include/libelf.h"), Sign::File("/usr/include/zlib.h")],
    },
    Requirement {
        package: "valgrind",
        purpose: "counts the instructions of both cores",
        signs: &[Sign::Program("valgrind")],
    },
    Requirement { package: "python3", purpose: "runs lit", signs: &[Sign::Program("python3")] },
    Requirement {
        package: "python3-venv",
        purpose: "a place for lit",
        signs: &[Sign::PythonModules("venv, ensurepip")],
    },
    Requirement { package: "xz-utils", purpose: "unpacks LLVM's sources", signs: &[Sign::Program("xz")] },
];

impl Requirement {
    /// Whether everything that shows its presence is there.
    pub fn is_met(&self) -> bool {
        self.signs.iter().all(|sign| match sign {
            Sign::Program(name) => process::tool(name).is_ok(),
            Sign::File(path) => Path::new(path).exists(),
            Sign::PythonModules(names) => {
                let import = |python| process::run(Command::new(python).args(["-c", &format!("import {names}")]));
                process::tool("python3").and_then(import).is_ok()
            }
        })
    }
}

/// The requirements that this machine does not meet.
pub fn missing() -> Vec<&'static Requirement> {
    REQUIREMENTS.iter().filter(|requirement| !requirement.is_met()).collect()
}

/// Whether lit and what it needs are in our own environment.
pub fn has_lit() -> bool {
    process::run(Command::new(paths::lit_dir().join("bin/python")).args(["-c", "import lit, psutil"])).is_ok()
}

/// NVIDIA's assembler in the same environment, beside the rest of its package.
pub fn ptxas() -> Option<PathBuf> {
    let versions = fs::read_dir(paths::lit_dir().join("lib")).into_iter().flatten().flatten();
    let file = |python: fs::DirEntry| python.path().join("site-packages/nvidia/cuda_nvcc/bin/ptxas");
    versions.map(file).find(|file| file.is_file())
}

/// The message for a program that is not there: its name and the command that installs it.
pub fn how_to_get(program: &str) -> String {
    let provides = |sign: &Sign| matches!(sign, Sign::Program(name) if *name == program);
    let package = REQUIREMENTS.iter().find(|requirement| requirement.signs.iter().any(provides)).map(|r| r.package);
    match (program, package) {
        ("lit" | "ptxas", _) => format!("{program} is not installed: `{SETUP}` installs it"),
        (_, Some(package)) => format!("{program} is not installed: `{SETUP}` installs it (package {package})"),
        _ => format!("{program} is not installed"),
    }
}

/// Says so when this machine is not one that we support.
pub fn check_machine() -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "{} {} is not supported yet; x86-64 Linux is",
        std::env::consts::ARCH,
        std::env::consts::OS
    );
    Ok(())
}

/// Installs what is missing, printing each command before it runs.
pub fn install() -> Result<()> {
    check_machine()?;
    let packages = missing().iter().map(|requirement| requirement.package).collect::<Vec<_>>();
    if !packages.is_empty() {
        install_packages(&packages)?;
        if let Some(still) = missing().first() {
            bail!("{} is installed, but what it is for was not found: {}", still.package, still.purpose);
        }
    }
    if !has_lit() {
        install_lit().context("cannot install lit")?;
    }
    if ptxas().is_none() {
        pip(&[PTXAS]).context("cannot install ptxas")?;
    }
    println!("everything that is needed is installed");
    Ok(())
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let Ok(apt_get) = process::tool("apt-get") else {
        bail!("this is no Debian system: install with its package manager what Debian calls {}", packages.join(" "));
    };
    let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    let mut as_root = as_root(&apt_get, &install)?;
    // Without package lists, or with old ones, the first try fails and the lists have to be fetched.
    let known = process::run(Command::new(&apt_get).args(["--simulate", "-qq"]).args(&install)).is_ok();
    if known && run_shown(&mut as_root).is_ok() {
        return Ok(());
    }
    run_shown(&mut self::as_root(&apt_get, &["update"])?)?;
    run_shown(&mut as_root)
}

/// apt-get as root, through sudo where we are not root.
fn as_root(apt_get: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new("env");
    if fs::metadata("/proc/self").is_ok_and(|me| me.uid() != 0) {
        let Ok(sudo) = process::tool("sudo") else {
            bail!("only root can install packages: as root, run `apt-get {}`", arguments.join(" "));
        };
        command = Command::new(sudo);
        command.arg("env");
    }
    command.arg("DEBIAN_FRONTEND=noninteractive").arg(apt_get).args(arguments);
    Ok(command)
}

fn install_lit() -> Result<()> {
    let home = paths::lit_dir();
    let in_place = || -> Result<()> {
        run_shown(Command::new(process::tool("python3")?).args(["-m", "venv"]).arg(&home))?;
        pip(&[LIT, PSUTIL])
    };
    // A virtual environment cannot be moved into place, so what is half made is taken away again.
    in_place().inspect_err(|_| drop(fs::remove_dir_all(&home)))
}

/// Installs packages of Python into our environment.
fn pip(packages: &[&str]) -> Result<()> {
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run_shown(Command::new(paths::lit_dir().join("bin/python")).args(install).args(packages))
}

/// Prints a command, then runs it with its output shown.
fn run_shown(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let text = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    println!("> {text}");
    let status = command.status().with_context(|| format!("cannot run {text}"))?;
    ensure!(status.success(), "this failed ({status}): {text}");
    Ok(())
}

/// The plugins that the machine's LLVM has.
pub fn machine_plugins() -> Vec<PathBuf> {
    plugins_in(&paths::machine_llvm().join("lib"))
}

/// The plugins in a folder.
pub fn plugins_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_plugin = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libomptarget.rtl.") && name.ends_with(".so")
    };
    let mut plugins = files.filter(is_plugin).collect::<Vec<_>>();
    plugins.sort();
    plugins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_requirement_can_be_detected_and_is_named_once() {
        let mut packages = REQUIREMENTS.iter().map(|requirement| requirement.package).collect::<Vec<_>>();
        assert!(REQUIREMENTS.iter().all(|requirement| !requirement.signs.is_empty()));
        packages.sort_unstable();
        packages.dedup();
        assert_eq!(packages.len(), REQUIREMENTS.len());
    }

    #[test]
    fn a_missing_program_is_named_with_what_installs_it() {
        assert_eq!(
            how_to_get("clang++-14"),
            "clang++-14 is not installed: `cargo run --release -- --setup` installs it (package clang-14)"
        );
        assert_eq!(how_to_get("frobnicate"), "frobnicate is not installed");
    }

    #[test]
    fn absent_things_are_not_met() {
        let absent = |sign| Requirement { package: "x", purpose: "y", signs: sign }.is_met();
        assert!(!absent(&[Sign::Program("no-such-program")]));
        assert!(!absent(&[Sign::Program("sh"), Sign::File("/no/such/file")]));
        assert!(!absent(&[Sign::PythonModules("no_such_module")]));
        assert!(absent(&[Sign::Program("sh"), Sign::File("/proc/self")]));
    }
}
