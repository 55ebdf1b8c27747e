//! Makes the x86-64 device images inside a program into images of the emulated CUDA device: their machine number and
//! check sum are changed in place, nothing else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection};

use crate::tag;

/// What [`retarget`] found in a file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Found {
    /// Images that it changed.
    pub changed: usize,
    /// Images that were the emulated device's already.
    pub already: usize,
}

/// Re-tags the device images in a program or shared object. The file is replaced in one step, or not at all.
pub fn retarget(file: &Path) -> Result<Found> {
    let mut bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let images = images(&bytes).with_context(|| format!("{} is not a program or shared object", file.display()))?;
    let mut found = Found::default();
    for range in images {
        let image = &mut bytes[range];
        if tag::machine(image) == Some(tag::EM_CUDA) && tag::flags(image) == Some(tag::check_sum(image)) {
            found.already += 1;
            continue;
        }
        let sum = tag::check_sum(image);
        image[tag::MACHINE_AT..tag::MACHINE_AT + 2].copy_from_slice(&tag::EM_CUDA.to_le_bytes());
        image[tag::FLAGS_AT..tag::FLAGS_AT + 4].copy_from_slice(&sum.to_le_bytes());
        found.changed += 1;
    }
    if found.changed > 0 {
        replace(file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(found)
}

/// Where in a linked file its device images are: shared objects of their own inside one of its sections.
fn images(bytes: &[u8]) -> Result<Vec<Range<usize>>> {
    let host = object::File::parse(bytes)?;
    ensure!(matches!(host.kind(), object::ObjectKind::Executable | object::ObjectKind::Dynamic), "it is not linked");
    let mut images = Vec::new();
    for (start, len) in host.sections().filter_map(|section| section.file_range()) {
        let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len)) else { bail!("it is too large") };
        let Some(section) = start.checked_add(len).and_then(|end| bytes.get(start..end)) else { continue };
        let mut at = 0;
        while let Some(next) = section[at..].windows(4).position(|word| word == b"\x7fELF") {
            let image = at + next;
            at = match image_len(&section[image..]) {
                Some(len) => {
                    images.push(start + image..start + image + len);
                    image + len
                }
                None => image + 4,
            };
        }
    }
    Ok(images)
}

/// The length of the device image at the start of `bytes`, if there is one.
fn image_len(bytes: &[u8]) -> Option<usize> {
    let machine = tag::machine(bytes)?;
    if !matches!(machine, tag::EM_X86_64 | tag::EM_CUDA) || tag::headers_len(bytes)? > bytes.len() {
        return None;
    }
    let len = tag::len(bytes)?;
    let image = object::File::parse(bytes.get(..len)?).ok()?;
    // Four letters and some zeroes can happen by chance; a dynamic section that is one, not.
    image
        .section_by_name(".dynamic")
        .and_then(|section| section.data().ok())
        .filter(|data| !data.is_empty())
        .map(|_| len)
}

/// Writes a file anew, with the permissions of the old one, so that nobody ever sees half of it, and waits until it can
/// be run.
fn replace(file: &Path, bytes: &[u8]) -> Result<()> {
    // A link stays one: what it leads to is replaced.
    let file = file.canonicalize()?;
    let dir = file.parent().context("it has no folder")?;
    let mut new = tempfile::Builder::new().prefix(".omptarget-").tempfile_in(dir)?;
    // A process that another thread starts meanwhile has the open file too until it runs its own program, and as long
    // as that is so the system runs no program from this file. The lock goes with the last of them.
    let supported = |result: io::Result<()>| match result {
        // Some file systems have no locks.
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
        _ => Ok(()),
    };
    supported(new.as_file().lock())?;
    new.write_all(bytes)?;
    fs::set_permissions(new.path(), fs::metadata(&file)?.permissions())?;
    let new = new.into_temp_path();
    supported(File::open(&new)?.lock_shared())?;
    new.persist(&file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn what_is_replaced_can_be_run_while_others_start_processes() {
        const PROGRAM: &str = "/bin/true";
        let dir = tempfile::tempdir().expect("a folder");
        let bytes = fs::read(PROGRAM).expect("a program");
        let replace_and_run = &|name: &str| {
            let file = dir.path().join(name);
            fs::copy(PROGRAM, &file).expect("a copy");
            for _ in 0..300 {
                replace(&file, &bytes).expect("it is replaced");
                assert!(Command::new(&file).status().expect("it can be run").success());
            }
        };
        thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                scope.spawn(move || replace_and_run(name));
            }
        });
    }
}
