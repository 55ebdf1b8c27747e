//! LLVM's source tree: Debian's source package or the user's checkout, and whether it is the release that we support.
//!
//! The tree is only read. Debian's is the pristine upstream archive, as `apt-get source` fetches and verifies it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use sha2::{Digest, Sha256};

use crate::paths::{self, LLVM_VERSION};
use crate::{apt, process, progress};

/// LLVM's `openmp/`, of the supported version.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The directory `openmp`.
    pub openmp: PathBuf,
}

/// What the release's files under `libomptarget/` hash to (SHA-256): all that we compile, replace or rely on.
const RELEASE: [(&str, &str); 18] = [
    ("include/Debug.h", "93f426af4ae67633fdd80bde9b2f3fab437c5f60378eaa07564d0567e5a0b468"),
    ("include/DeviceEnvironment.h", "0cd7fc9acc7d228c5136374c4499dbde851b0e3b295647da636463e53a0a6f66"),
    ("include/SourceInfo.h", "074a0e38ffe5c0e8d3e99bd43495c34bf72fc3d9bcf504279be19d5c25461f13"),
    ("include/device.h", "ab0cab9a7f801e0ce814515d1bb12a26483eb7e47fedb4a82951f5ff21d3e854"),
    ("include/dlwrap.h", "84f989e847fd68a2dee1caf2c5ebb08aab48b4e2c38a45f59bbb6ee807e9db2f"),
    ("include/interop.h", "4c540cd33bb6922af69360c055c0f8ff00e9cc9e9ac9418ea178310218cfa7fd"),
    ("include/omptarget.h", "ba8d6074cee5d33d452a59c52f9e0950271655634e1e57518017246b1e324301"),
    ("include/omptargetplugin.h", "f19eaf72fd295c60a37820ee2326e36f3803d394d3c06fb1223682a12dc6e9ae"),
    ("include/rtl.h", "307d4da5aedff569e0d1f2276e1b125ecd62b842938ec0e0d06e5e31315456f7"),
    ("plugins/exports", "86bd49678e8d8c9a94415571c1f0ac738cd541f827dc384fd7bc907cb571d515"),
    ("src/api.cpp", "651828fcf3d9ecb356cbc12a7d211281fa692464645a8bc850185e036752739b"),
    ("src/device.cpp", "0567f77f054203207cac9fcd5cfaaf36c9ce2222e74c87ca11f1387ca2bc702d"),
    ("src/exports", "160298e83573c9432c504051efcb2a253c8bb8cf7d07c69bb2dcf4b1c7c6e942"),
    ("src/interface.cpp", "178a9f13090d09aac6a16799399899f739ccd6bc750441a6b5b2038e9b004610"),
    ("src/interop.cpp", "9eb55365e2e73d4730bdd724ebd5e6b3a9432ca67f58a0d08cadc1aefe48c701"),
    ("src/omptarget.cpp", "28702ea555ebc3f7b5f4828ffa40cfcfe0ee697a0dd8914e9b969b7a601a8e15"),
    ("src/private.h", "0e68454ffdb3b15b6c66f37cb079939ffa09b52b8ed674837a982a6a34c645c5"),
    ("src/rtl.cpp", "c44b2d64d7a1b48474e40d633ef9555beaac1c6b83816bb99ba1e5e6e0c68f5d"),
];

/// The same for what LLVM's CUDA plugin is compiled from; see [`Tree::check_cuda_plugin`].
const CUDA_PLUGIN: [(&str, &str); 6] = [
    (
        "plugins/common/MemoryManager/MemoryManager.h",
        "c6059d53bca90e3f501bfdea7d08e9a00215edbda90ab5642c9d981a9930dc95",
    ),
    ("plugins/common/elf_common/elf_common.cpp", "012de13c0d7d2ac1109f6944a92156fd0b1d90c8c106c5d4c86999725cd8d108"),
    ("plugins/common/elf_common/elf_common.h", "c943f6141cb5d73f1a8bdcf6f9fb9e7021d80658f7c6db28ced85ee4405db839"),
    ("plugins/cuda/dynamic_cuda/cuda.cpp", "6a6694f8ed89bc704e2465bae198d010d178366c9cbadd74cdffad866ff921a1"),
    ("plugins/cuda/dynamic_cuda/cuda.h", "1d32abf5feb7bd921884b92f61bee68f463eb532c200ab636f1d6bfc242a15c2"),
    ("plugins/cuda/src/rtl.cpp", "0f636ef83d2b43495ce0d6c432210229433a21deabfc989909e01c959044f5ec"),
];

/// Files under `openmp/` that tell a version where the tree names none itself; the first that is there decides.
const SIGNS: [(&str, &str); 5] = [
    ("libomptarget/src/OpenMP", "18 or later"),
    ("libomptarget/src/OmptCallback.cpp", "17"),
    ("libomptarget/src/ompt_callback.cpp", "16"),
    ("libomptarget/src/LegacyAPI.cpp", "15"),
    ("libomptarget/src/device.h", "13 or earlier"),
];

impl Tree {
    /// Finds the tree that `--llvm` names: nothing or `14` is Debian's source package, fetched when it is not there
    /// yet; else a directory, a checkout of llvm-project or its `openmp/`. A tree of another version is refused.
    pub fn locate(arg: Option<&str>) -> Result<Tree> {
        let supported_major = LLVM_VERSION.split('.').next();
        match arg {
            None => Tree::debian(),
            Some(version) if Some(version) == supported_major || version == LLVM_VERSION => Tree::debian(),
            Some(dir) if !Path::new(dir).is_dir() => {
                let is_version = dir.starts_with(|c: char| c.is_ascii_digit()) && !dir.contains('/');
                ensure!(!is_version, "LLVM {dir} is not supported; this release supports {LLVM_VERSION}");
                bail!("there is no directory {dir}: --llvm takes 14 or a checkout of llvm-project");
            }
            Some(dir) => Tree::in_directory(Path::new(dir)),
        }
    }

    /// LLVM's offload runtime in this tree.
    pub fn libomptarget(&self) -> PathBuf {
        self.openmp.join("libomptarget")
    }

    /// Refuses a tree of which a file that we compile, replace or rely on is not as released. `allow_patched` makes
    /// that a warning; a missing file stays an error.
    pub fn check(&self, allow_patched: bool) -> Result<()> {
        self.check_files(&RELEASE, allow_patched)
    }

    /// Refuses a tree of which a file that LLVM's CUDA plugin is compiled from is not as released.
    pub fn check_cuda_plugin(&self) -> Result<()> {
        self.check_files(&RELEASE, false)?;
        self.check_files(&CUDA_PLUGIN, false)
    }

    fn check_files(&self, files: &[(&str, &str)], allow_patched: bool) -> Result<()> {
        let mut patched = Vec::new();
        for (file, hash) in files {
            let path = self.libomptarget().join(file);
            ensure!(path.is_file(), "the LLVM tree is not complete: {} is missing", path.display());
            let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if sha256(&content) != *hash {
                patched.push(format!("libomptarget/{file}"));
            }
        }
        if patched.is_empty() {
            return Ok(());
        }
        let what =
            format!("{} is not LLVM {LLVM_VERSION} as released: {} differs", self.openmp.display(), patched.join(", "));
        ensure!(allow_patched, "{what}; give an untouched tree, or --allow-patched to try this one");
        eprintln!("warning: {what}");
        Ok(())
    }

    fn in_directory(dir: &Path) -> Result<Tree> {
        let dir = dir.canonicalize().with_context(|| format!("cannot read {}", dir.display()))?;
        let found = [dir.join("openmp"), dir.clone()].into_iter().find(|d| d.join("libomptarget").is_dir());
        let Some(openmp) = found else {
            // From 19 on the offload runtime lies in a directory of its own.
            if dir.join("offload").is_dir() {
                bail!(wrong_version(&version_text(&dir).unwrap_or_else(|| "19 or later".to_owned()), &dir));
            }
            bail!("no LLVM openmp tree in {}: expected openmp/libomptarget or libomptarget there", dir.display());
        };
        let tree = Tree { openmp };
        match tree.version() {
            Some(version) if version != LLVM_VERSION => bail!(wrong_version(&version, &dir)),
            _ => Ok(tree),
        }
    }

    /// The version as the checkout around the tree says it, or as far as the tree's own files tell it.
    fn version(&self) -> Option<String> {
        self.openmp.parent().and_then(version_text).or_else(|| {
            let sign = SIGNS.iter().find(|(file, _)| self.openmp.join(file).exists());
            sign.map(|(_, version)| (*version).to_owned())
        })
    }

    fn debian() -> Result<Tree> {
        let tree = Tree { openmp: paths::llvm_dir().join("openmp") };
        if tree.openmp.is_dir() {
            return Ok(tree);
        }
        let _lock = paths::lock("llvm")?;
        if !tree.openmp.is_dir() {
            fetch().context("cannot get LLVM's sources from Debian (a checkout can be given with --llvm DIR)")?;
        }
        Ok(tree)
    }
}

fn wrong_version(version: &str, dir: &Path) -> String {
    format!("LLVM {version} found in {}; this release supports {LLVM_VERSION}", dir.display())
}

/// The version that an llvm-project checkout sets for its own build.
fn version_text(project: &Path) -> Option<String> {
    let files = ["llvm/CMakeLists.txt", "cmake/Modules/LLVMVersion.cmake"];
    files.iter().find_map(|file| parse_version(&fs::read_to_string(project.join(file)).ok()?))
}

fn parse_version(cmake: &str) -> Option<String> {
    let part = |name: &str| {
        let pattern = Regex::new(&format!(r"(?m)^\s*set\(LLVM_VERSION_{name} (\d+)\)")).ok()?;
        Some(pattern.captures(cmake)?[1].to_owned())
    };
    Some([part("MAJOR")?, part("MINOR")?, part("PATCH")?].join("."))
}

/// A content's hash, in hexadecimal digits.
pub(crate) fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fetches Debian's source package and keeps `openmp/` of the upstream archive in it.
fn fetch() -> Result<()> {
    let xz = process::tool("xz")?;
    let home = paths::llvm_dir();
    let parent = home.parent().context("no parent directory")?;
    let stage = paths::stage(parent, "fetching")?;

    let archive = {
        let _progress = progress::step("fetching LLVM 14's source package from Debian, about 130 MB");
        apt::source("llvm-toolchain-14", stage.path())?
    };
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let top = format!("llvm-toolchain-14_{LLVM_VERSION}");
    ensure!(
        name == format!("{top}.orig.tar.xz"),
        "this system's source package is {name}; this release supports {LLVM_VERSION}"
    );

    let _progress = progress::step("unpacking openmp from it");
    let unpacked = stage.path().join("unpacked");
    fs::create_dir(&unpacked)?;
    let mut tar = Command::new(process::tool("tar")?);
    tar.arg("-x").arg("-I").arg(xz).arg("-f").arg(&archive).arg("-C").arg(&unpacked);
    process::run(tar.args(["--no-same-owner", "--strip-components=1"]).arg(format!("{top}/openmp")))?;
    Tree { openmp: unpacked.join("openmp") }.check(false)?;
    fs::rename(&unpacked, &home).with_context(|| format!("cannot write {}", home.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree_with(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, "").expect("a file");
        }
        dir
    }

    fn refusal(dir: &tempfile::TempDir) -> String {
        let arg = dir.path().to_str().expect("a plain path");
        Tree::locate(Some(arg)).expect_err("must be refused").to_string()
    }

    #[test]
    fn version_is_read_from_cmake() {
        let text = "if(NOT DEFINED LLVM_VERSION_MAJOR)\n  set(LLVM_VERSION_MAJOR 15)\nendif()\n  \
                    set(LLVM_VERSION_MINOR 0)\n  set(LLVM_VERSION_PATCH 7)\n";
        assert_eq!(parse_version(text).as_deref(), Some("15.0.7"));
        assert_eq!(parse_version("set(LLVM_VERSION_MAJOR 15)"), None);
    }

    #[test]
    fn other_versions_are_named() {
        for (sign, version) in [
            ("libomptarget/src/device.h", "13 or earlier"),
            ("openmp/libomptarget/src/LegacyAPI.cpp", "15"),
            ("openmp/libomptarget/src/ompt_callback.cpp", "16"),
            ("libomptarget/src/OmptCallback.cpp", "17"),
            ("openmp/libomptarget/src/OpenMP/API.cpp", "18 or later"),
            ("offload/CMakeLists.txt", "19 or later"),
        ] {
            let dir = tree_with(&[sign]);
            let message = refusal(&dir);
            assert!(message.starts_with(&format!("LLVM {version} found in ")), "{sign}: {message}");
            assert!(message.ends_with("; this release supports 14.0.6"), "{sign}: {message}");
        }
    }

    #[test]
    fn the_checkout_knows_its_version_better_than_signs() {
        let dir = tree_with(&["openmp/libomptarget/src/LegacyAPI.cpp", "llvm/CMakeLists.txt"]);
        let cmake = "set(LLVM_VERSION_MAJOR 14)\nset(LLVM_VERSION_MINOR 0)\nset(LLVM_VERSION_PATCH 3)\n";
        fs::write(dir.path().join("llvm/CMakeLists.txt"), cmake).expect("a file");
        assert!(refusal(&dir).starts_with("LLVM 14.0.3 found in "));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        assert!(refusal(&tree_with(&["README"])).starts_with("no LLVM openmp tree in "));
        let message = |arg| Tree::locate(Some(arg)).expect_err("must be refused").to_string();
        assert_eq!(message("15"), "LLVM 15 is not supported; this release supports 14.0.6");
        assert!(message("no/such/place").starts_with("there is no directory no/such/place"));
    }

    #[test]
    fn a_missing_file_is_named_even_when_patches_are_allowed() {
        let dir = tree_with(&["libomptarget/include/Debug.h"]);
        let tree = Tree::locate(dir.path().to_str()).expect("nothing tells another version");
        let message = tree.check(true).expect_err("not complete").to_string();
        assert!(message.contains("include/DeviceEnvironment.h is missing"), "{message}");
    }
}
