//! Putting a built library where the user wants it, and taking exactly that away again.
//!
//! A manifest beside the library lists what was installed; files that are not in it are never touched.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::build::Libs;
use crate::{llvm, paths, setup};

/// The list of what was installed, in the `lib` directory.
const MANIFEST: &str = "omptarget-rs.manifest";

/// One line of the manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Entry {
    /// A directory that was not there before, relative to the prefix.
    Dir(String),
    /// A file in `lib`, with the hash of its content.
    File { hash: String, name: String },
    /// A symbolic link in `lib`, with its target.
    Link { name: String, target: String },
}

/// Installs the library and the plugins beside it (links to the machine's, copies of ours) into `prefix/lib`; returns what is there now.
pub fn install(libs: &Libs, prefix: &Path, force: bool) -> Result<Vec<PathBuf>> {
    let prefix = std::path::absolute(prefix).with_context(|| format!("not a path: {}", prefix.display()))?;
    let lib = prefix.join("lib");
    let earlier = read_manifest(&lib)?;
    let mut names = vec!["libomptarget.so".to_owned(), "libomptarget.so.14".to_owned()];
    names.extend(
        setup::plugins_in(&libs.dir).iter().filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned())),
    );

    let ours = |name: &str| earlier.iter().flatten().any(|entry| entry.name() == name);
    let foreign = names.iter().find(|name| lib.join(name).symlink_metadata().is_ok() && !ours(name));
    if let Some(name) = foreign.filter(|_| !force) {
        bail!("{} is there and was not installed by this tool: --force overwrites it", lib.join(name).display());
    }

    let mut entries = earlier.unwrap_or_else(|| new_dirs(&prefix));
    entries.retain(|entry| !names.iter().any(|name| name == entry.name()));
    for name in &names {
        entries.push(Entry::of(&libs.dir, name)?);
    }
    let text = entries.iter().map(|entry| entry.line() + "\n").collect::<String>();
    let stage = tempfile::tempdir().context("cannot write a temporary file")?;
    let manifest = stage.path().join(MANIFEST);
    fs::write(&manifest, text).context("cannot write a temporary file")?;
    // First the list, so that an installation that is cut off can be taken away.
    let placed = paths::place(&manifest, &lib.join(MANIFEST))
        .and_then(|()| names.iter().try_for_each(|name| paths::place(&libs.dir.join(name), &lib.join(name))));
    if let Err(error) = placed {
        // What failed is the news, not that cleaning up failed too.
        let _ = uninstall(&prefix);
        return Err(error);
    }
    Ok(names.iter().map(|name| lib.join(name)).collect())
}

/// Removes what [`install`] put into `prefix`, and nothing else; returns how many files that were.
pub fn uninstall(prefix: &Path) -> Result<usize> {
    let prefix = std::path::absolute(prefix).with_context(|| format!("not a path: {}", prefix.display()))?;
    let lib = prefix.join("lib");
    let Some(entries) = read_manifest(&lib)? else {
        bail!("nothing is installed in {}: there is no {}", prefix.display(), lib.join(MANIFEST).display());
    };
    let (mut removed, mut changed) = (0, Vec::new());
    for entry in &entries {
        let path = lib.join(entry.name());
        let is_dir = matches!(entry, Entry::Dir(_));
        if is_dir || path.symlink_metadata().is_err() {
            continue;
        }
        if Entry::of(&lib, entry.name()).is_ok_and(|now| now == *entry) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            removed += 1;
        } else {
            changed.push(path.display().to_string());
        }
    }
    fs::remove_file(lib.join(MANIFEST)).with_context(|| format!("cannot remove {}", lib.join(MANIFEST).display()))?;
    for entry in entries.iter().rev() {
        if let Entry::Dir(dir) = entry {
            // Someone else may use it by now: then it is not empty and stays.
            let _ = fs::remove_dir(prefix.join(dir));
        }
    }
    ensure!(changed.is_empty(), "left in place, since changed after the installation: {}", changed.join(", "));
    Ok(removed)
}

/// The directories that installing will make, outermost first.
fn new_dirs(prefix: &Path) -> Vec<Entry> {
    let wanted = [("", prefix.to_owned()), ("lib", prefix.join("lib"))];
    wanted.iter().filter(|(_, dir)| !dir.exists()).map(|(name, _)| Entry::Dir((*name).to_owned())).collect()
}

fn read_manifest(lib: &Path) -> Result<Option<Vec<Entry>>> {
    let path = lib.join(MANIFEST);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let entries = text.lines().map(Entry::parse).collect::<Option<Vec<_>>>();
    entries.map(Some).with_context(|| format!("{} is damaged", path.display()))
}

impl Entry {
    fn of(dir: &Path, name: &str) -> Result<Entry> {
        let path = dir.join(name);
        let name = name.to_owned();
        if path.is_symlink() {
            let target = fs::read_link(&path).with_context(|| format!("cannot read {}", path.display()))?;
            return Ok(Entry::Link { name, target: target.to_string_lossy().into_owned() });
        }
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Entry::File { hash: llvm::sha256(&content), name })
    }

    fn name(&self) -> &str {
        match self {
            Entry::Dir(name) | Entry::File { name, .. } | Entry::Link { name, .. } => name,
        }
    }

    fn line(&self) -> String {
        match self {
            Entry::Dir(name) => format!("dir {name}"),
            Entry::File { hash, name } => format!("file {hash} {name}"),
            Entry::Link { name, target } => format!("link {name} {target}"),
        }
    }

    fn parse(line: &str) -> Option<Entry> {
        let (kind, rest) = line.split_once(' ')?;
        if kind == "dir" {
            return Some(Entry::Dir(rest.to_owned()));
        }
        let (first, second) = rest.split_once(' ')?;
        let (first, second) = (first.to_owned(), second.to_owned());
        match kind {
            "file" => Some(Entry::File { hash: first, name: second }),
            "link" => Some(Entry::Link { name: first, target: second }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_lines_are_read_as_written() {
        for entry in [
            Entry::Dir(String::new()),
            Entry::Dir("lib".to_owned()),
            Entry::File { hash: "0f".to_owned(), name: "a.so".to_owned() },
            Entry::Link { name: "b.so".to_owned(), target: "/a place/b.so".to_owned() },
        ] {
            assert_eq!(Entry::parse(&entry.line()), Some(entry));
        }
        assert_eq!(Entry::parse("socket x y"), None);
        assert_eq!(Entry::parse(""), None);
    }
}
