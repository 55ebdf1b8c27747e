//! Programs for a real GPU: built here without a CUDA toolkit and without a GPU, into a folder that is run where a GPU
//! is, with LLVM's CUDA plugin and with ours.
//!
//! clang finds a folder that looks like a toolkit. Its `ptxas` is NVIDIA's, from the package that `--setup` installs, and
//! assembles for the GPU that is asked for; its `nvlink` has nothing to link, since a program is one file.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};
use object::Endianness;
use object::read::elf::{ElfFile64, FileHeader};
use object::{Object, ObjectSymbol, SymbolKind};
use regex::Regex;
use tempfile::TempDir;

use crate::build::{self, Libs};
use crate::core::{Core, Parts};
use crate::totals::Totals;
use crate::{emulator, paths, plugin, process, program, progress, setup, tag, wrap};

/// Below the repository's root.
const PROGRAMS: [&str; 9] = [
    "tests/gpu/bench.c",
    "tests/programs/demo.c",
    "tests/programs/cases/b31_struct_stress.cpp",
    "tests/programs/cases/b71_partial_struct_alignment.c",
    "tests/programs/cases/b37_declare_target_pointer.c",
    "tests/programs/cuda/environment.c",
    "tests/programs/races/lost_update.c",
    "tests/programs/races/shared_input.c",
    "tests/programs/cuda/zero_size.c",
];
const RUN: &str = "tests/gpu/run.sh";

/// In a folder of ours; says what it is.
const MARK: &str = "about.txt";

/// From LLVM's oldest device runtime to the newest GPU that `ptxas` knows.
const GPUS: RangeInclusive<u8> = 35..=90;

/// The newest GPU that clang 14 compiles for with the toolkit that it finds here. Its code runs on newer ones once
/// assembled for them.
const NEWEST: u8 = 80;

/// What every Linux has, in the version that fits its kernel and driver.
const OF_THE_SYSTEM: [&str; 6] = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux"];

/// The largest copy of the bench on the emulated device, in bytes.
const EMULATED_LARGEST: &str = "2097152";

static TOTALS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(?<passed>\d+) passed, (?<failed>\d+) failed(?:, (?<skipped>\d+) skipped)?$")
        .expect("the pattern is a constant that the tests use")
});

/// A GPU's architecture, as the number in `sm_90`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arch(u8);

/// Of an H100.
impl Default for Arch {
    fn default() -> Self {
        Arch(90)
    }
}

impl std::str::FromStr for Arch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            text.strip_prefix("sm_").and_then(|digits| digits.parse().ok()).filter(|number| GPUS.contains(number));
        number.map(Arch).ok_or_else(|| format!("expected sm_{} to sm_{}", GPUS.start(), GPUS.end()))
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}", self.0)
    }
}

/// Where the folder goes when nothing else is asked for.
pub fn default_out() -> PathBuf {
    paths::out_root().join("14/gpu")
}

/// Builds the folder, tries it without a GPU, and runs it if this machine has one. Returns whether all was well.
///
/// Without a GPU the images are checked, both plugins must accept them, and the same sources are run for the emulated
/// device.
pub fn report(out: Option<&Path>, arch: Arch) -> Result<(bool, Totals)> {
    let out = std::path::absolute(out.map_or_else(default_out, Path::to_owned)).context("--out is not a path")?;
    build(&out, arch)?;
    println!("{} has {} programs for {arch}. To carry it to a machine with such a GPU,", out.display(), PROGRAMS.len());
    println!("    tar -C {} -cz {} > gpu.tar.gz", parent(&out), name(&out));
    println!("and there: tar -xzf gpu.tar.gz && {}/run", name(&out));

    let driver = emulator::ensure()?;
    let accepted = accepted(&out, &driver)?;
    println!("\nBoth plugins accept all {} images. The same sources on the emulated device:", accepted.passed);
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    emulated(dir.path())?;
    let mut command = Command::new(out.join("run"));
    let tried = run(command.arg(dir.path()).env("LD_LIBRARY_PATH", &driver).env("BENCH_LARGEST", EMULATED_LARGEST))?;
    println!("\nOn a GPU:");
    let real = run(&mut Command::new(out.join("run")))?;
    let totals = [accepted, tried, real].into_iter().sum::<Totals>();
    println!("\n{totals}");
    Ok((totals.failed == 0 && tried.skipped == 0, totals))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn parent(path: &Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}

/// Makes the folder: `programs`, `core` and `plugin` with both forms of each part, `lib` with what they need, and `run`.
fn build(out: &Path, arch: Arch) -> Result<()> {
    setup::check_machine()?;
    let foreign = !out.join(MARK).is_file() && fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!foreign, "{} is not empty and was not made by this tool: give another --out", out.display());
    ensure!(out.is_dir() || !out.exists(), "{} is not a directory: give another --out", out.display());
    let both = [Core::Rust, Core::Stock].map(|form| build::ensure(Parts { core: form, plugin: form }));
    let both = both.into_iter().collect::<Result<Vec<Libs>>>()?;

    let _lock = paths::lock("gpu")?;
    let stage = paths::stage(Path::new(&parent(out)), ".omptarget-gpu")?;
    let toolkit = Toolkit::new(arch)?;
    let programs = stage.path().join("programs");
    fs::create_dir_all(&programs)?;
    let progress = progress::steps(format!("compiling programs for {arch}"), PROGRAMS.len());
    for source in PROGRAMS {
        let exe = programs.join(Path::new(source).file_stem().unwrap_or_default());
        toolkit.compile(source, &exe, &both[0])?;
        progress.inc();
    }
    drop(progress);

    let _progress = progress::step("copying what they need");
    let mut needed = vec![paths::machine_llvm().join("lib/libomp.so.5")];
    for libs in &both {
        for (part, file) in [("core", libs.library()), ("plugin", libs.dir.join(plugin::NAME))] {
            copy(&file, &stage.path().join(part).join(libs.core.name()))?;
            needed.extend(needs(&file)?);
        }
    }
    needed.sort();
    needed.dedup();
    needed.iter().try_for_each(|file| copy(file, &stage.path().join("lib")))?;
    paths::place(&paths::root().join(RUN), &stage.path().join("run"))?;
    fs::set_permissions(stage.path().join("run"), fs::Permissions::from_mode(0o755))?;
    let about = format!("Programs for a GPU of {arch}, made by `omptarget gpu`. To run them: ./run\n");
    fs::write(stage.path().join(MARK), about)?;
    fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o755))?;
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    fs::rename(stage.path(), out).with_context(|| format!("cannot make {}", out.display()))
}

/// A folder that looks like a CUDA toolkit, for one compiler that compiles one file for one GPU.
pub struct Toolkit {
    dir: TempDir,
    arch: Arch,
}

impl Toolkit {
    /// Makes the folder.
    pub fn new(arch: Arch) -> Result<Self> {
        let ptxas = setup::ptxas().with_context(|| setup::how_to_get("ptxas"))?;
        let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
        write_toolkit(dir.path(), &ptxas, arch)?;
        Ok(Toolkit { dir, arch })
    }

    /// Compiles a program, whose source is below the repository's root.
    pub fn compile(&self, source: &str, exe: &Path, libs: &Libs) -> Result<()> {
        let (dir, arch) = (self.dir.path(), self.arch);
        let lib = paths::machine_llvm().join("lib");
        let compile_for = Arch(arch.0.min(NEWEST));
        let runtime = lib.join(format!("libomptarget-new-nvptx-{compile_for}.bc"));
        ensure!(runtime.is_file(), "LLVM has no device runtime for {arch}: {} is not there", runtime.display());
        let mut path = dir.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new(process::tool(compiler(source))?);
        command.env("PATH", path).args(["-O2", "-fopenmp", "-fopenmp-targets=nvptx64-nvidia-cuda", "-Xopenmp-target"]);
        command.args([format!("-march={compile_for}"), format!("--cuda-path={}", dir.display())]);
        command.arg("-fopenmp-target-new-runtime").arg(format!("--libomptarget-nvptx-bc-path={}", lib.display()));
        command.arg(paths::root().join(source)).arg("-o").arg(exe).args(program::link_args(libs));
        process::run(&mut command).with_context(|| format!("{source} does not compile for {arch}"))?;
        check_image(exe, arch)
    }
}

/// Fills a toolkit's folder.
fn write_toolkit(dir: &Path, ptxas: &Path, arch: Arch) -> Result<()> {
    let home = ptxas.ancestors().nth(2).unwrap_or(ptxas);
    let libdevice = home.join("nvvm/libdevice/libdevice.10.bc");
    for sub in ["bin", "include", "lib64"] {
        fs::create_dir_all(dir.join(sub))?;
    }
    paths::place(&libdevice, &dir.join("nvvm/libdevice/libdevice.10.bc"))?;
    fs::write(dir.join("include/cuda.h"), "#define CUDA_VERSION 11000\n")?;
    fs::write(dir.join("version.txt"), "CUDA Version 11.0.0\n")?;
    let assemble = format!(
        "for argument; do\n  shift\n  case $argument in\n  -c) ;;\n  sm_*) set -- \"$@\" {arch} ;;\n  \
         *) set -- \"$@\" \"$argument\" ;;\n  esac\ndone\nexec '{}' \"$@\"\n",
        ptxas.display()
    );
    let link = "while [ $# -gt 0 ]; do\n  case $1 in\n  -o) out=$2; shift ;;\n  *.cubin) in=$1 ;;\n  esac\n  shift\ndone\n\
                cp \"$in\" \"$out\"\n";
    for (name, text) in [("ptxas", &*assemble), ("nvlink", link), ("fatbinary", "")] {
        let file = dir.join("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn compiler(source: &str) -> &'static str {
    if source.ends_with(".c") { "clang-14" } else { "clang++-14" }
}

/// Makes sure that a program has one image, for this GPU and with a kernel in it.
fn check_image(exe: &Path, arch: Arch) -> Result<()> {
    let bytes = fs::read(exe).with_context(|| format!("cannot read {}", exe.display()))?;
    let found = kernels(&bytes).with_context(|| format!("the device image of {} is damaged", exe.display()))?;
    match &found[..] {
        [(flags, kernels)] if flags & 0xff == u32::from(arch.0) && *kernels > 0 => Ok(()),
        _ => bail!("{} has no image with kernels for {arch}: found (flags, kernels) {found:x?}", exe.display()),
    }
}

/// The images for NVIDIA's GPUs in a file: each one's `e_flags`, and how many kernels it has.
fn kernels(bytes: &[u8]) -> Result<Vec<(u32, usize)>> {
    let starts = bytes.windows(4).enumerate().filter(|(_, word)| word == b"\x7fELF").map(|(at, _)| at);
    let mut found = Vec::new();
    for image in starts.filter_map(|at| bytes.get(at..)) {
        let machine = image.get(tag::MACHINE_AT..tag::MACHINE_AT + 2);
        if machine != Some(&tag::EM_CUDA.to_le_bytes()) {
            continue;
        }
        let elf = ElfFile64::<Endianness>::parse(image)?;
        let kernel = |name: &str| name.starts_with("__omp_offloading_");
        let functions = elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
        let count = functions.filter(|symbol| symbol.name().is_ok_and(kernel)).count();
        found.push((elf.elf_header().e_flags(elf.endian()).0, count));
    }
    Ok(found)
}

/// The libraries that a file needs, without those that every system has of its own.
fn needs(file: &Path) -> Result<Vec<PathBuf>> {
    let output = process::run(Command::new(process::tool("ldd")?).env("LC_ALL", "C.UTF-8").arg(file))?;
    let output = String::from_utf8_lossy(&output.stdout);
    let paths = output.lines().filter_map(|line| line.split_once(" => ")?.1.split_once(" (").map(|(path, _)| path));
    let own = |path: &&str| !OF_THE_SYSTEM.iter().any(|name| self::name(Path::new(path)).starts_with(name));
    Ok(paths.filter(own).map(PathBuf::from).collect())
}

/// Copies a file, not a link, into a folder.
fn copy(file: &Path, dir: &Path) -> Result<()> {
    let copied = || -> std::io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::copy(file, dir.join(name(file))).map(drop)
    };
    copied().with_context(|| format!("cannot copy {} to {}", file.display(), dir.display()))
}

/// Whether both plugins take each image. They need a driver with a device for that, not a GPU; what comes after, fails.
fn accepted(out: &Path, driver: &Path) -> Result<Totals> {
    let _progress = progress::step("asking both plugins for each image");
    let mut totals = Totals::default();
    for source in PROGRAMS {
        let exe = out.join("programs").join(Path::new(source).file_stem().unwrap_or_default());
        for form in [Core::Stock, Core::Rust] {
            let [plugin, core] = ["plugin", "core"].map(|part| out.join(part).join(form.name()));
            let mut command = program::command_in(&exe, &[driver.to_owned(), plugin, core]);
            let output = command.env("LIBOMPTARGET_DEBUG", "1").env("OMP_TARGET_OFFLOAD", "mandatory").output();
            let output = output.with_context(|| format!("cannot run {}", exe.display()))?;
            let log = String::from_utf8_lossy(&output.stderr);
            let mut taken =
                log.lines().filter(|line| line.ends_with(" is compatible with RTL libomptarget.rtl.cuda.so!"));
            let taken = taken.next().is_some();
            ensure!(taken, "the {form} CUDA plugin does not accept the image of {}", exe.display());
        }
        totals.passed += 1;
    }
    Ok(totals)
}

/// Compiles the programs for the emulated device.
fn emulated(dir: &Path) -> Result<()> {
    let libs = build::ensure(Core::Rust)?;
    let progress = progress::steps("compiling them for the emulated device", PROGRAMS.len());
    for source in PROGRAMS {
        let mut args = ["-O2", "-fopenmp", "-fopenmp-targets=nvptx64-nvidia-cuda"].map(Into::into).to_vec();
        args.extend([paths::root().join(source).into(), "-o".into()]);
        args.push(dir.join(Path::new(source).file_stem().unwrap_or_default()).into());
        args.extend(program::link_args(&libs));
        ensure!(wrap::run(compiler(source), &args)?, "{source} does not compile for the emulated device");
        progress.inc();
    }
    Ok(())
}

/// Runs a folder's programs, showing what is said of them; the counts are in the last line.
fn run(command: &mut Command) -> Result<Totals> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run the programs")?;
    let mut totals = None;
    for line in BufReader::new(child.stdout.take().context("they have no stdout")?).lines() {
        let line = line.context("cannot read what they say")?;
        totals = read_totals(&line).or(totals);
        println!("    {line}");
    }
    let fine = child.wait()?.success();
    let totals = totals.context("the programs did not run to their end")?;
    Ok(if fine || totals.failed > 0 { totals } else { [totals, Totals::one(false)].into_iter().sum() })
}

fn read_totals(line: &str) -> Option<Totals> {
    let found = TOTALS.captures(line)?;
    let number = |name: &str| found.name(name).map_or(Some(0), |digits| digits.as_str().parse().ok());
    Some(Totals { passed: number("passed")?, failed: number("failed")?, skipped: number("skipped")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        for totals in [Totals::one(true), Totals { passed: 0, failed: 2, skipped: 9 }] {
            assert_eq!(read_totals(&totals.to_string()), Some(totals));
        }
        assert_eq!(read_totals("passed: 3 passed, 0 failed"), None);
    }

    #[test]
    fn architectures_are_told_from_other_words() {
        assert_eq!("sm_90".parse(), Ok(Arch(90)));
        for text in ["90", "sm_", "sm_20", "sm_100", "sm_x", "sm_900"] {
            assert!(text.parse::<Arch>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_image_is_not_taken_for_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let exe = dir.path().join("x");
        let mut header = b"\x7fELF\x02\x01\x01".to_vec();
        header.resize(tag::HEADER_LEN, 0);
        header[tag::MACHINE_AT] = 190;
        header[tag::FLAGS_AT] = 90;
        let mut without_tables = header.clone();
        without_tables[40] = 64;
        without_tables[60] = 1;
        for (bytes, why) in [
            (&b"text"[..], "has no image with kernels for sm_90: found (flags, kernels) []"),
            (&header, "has no image with kernels for sm_90: found (flags, kernels) [(5a, 0)]"),
            (&without_tables, "is damaged"),
        ] {
            fs::write(&exe, bytes).expect("a file");
            let message = check_image(&exe, Arch(90)).expect_err("no image").to_string();
            assert!(message.ends_with(why), "{message}");
        }
    }
}
