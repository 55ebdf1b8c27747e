//! Fetching a Debian source package without touching the system's configuration.
//!
//! Machines rarely have `deb-src` lists, so one is derived from the configured `deb` lists, with the same mirrors and
//! keys, in a directory of our own. apt verifies what it fetches as it does for any package.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Fetches the upstream archive of a source package into `dir` (with scratch files beside it) and returns its path.
pub fn source(package: &str, dir: &Path) -> Result<PathBuf> {
    let apt_get = process::tool("apt-get")?;
    let lists = dir.join("sources.list.d");
    fs::create_dir_all(&lists)?;
    for sub in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(dir.join(sub))?;
    }
    write_source_lists(Path::new("/etc/apt"), &lists)?;
    // The machine's hooks on `apt-get update` clean its caches or refresh its catalogues: not our business.
    let config = dir.join("apt.conf");
    fs::write(
        &config,
        "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n",
    )?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&apt_get);
        command.current_dir(dir).env("LC_ALL", "C.UTF-8").arg("-qq").arg("-c").arg(&config);
        for (key, value) in [
            ("Dir::Etc::SourceList", Path::new("/dev/null")),
            ("Dir::Etc::SourceParts", &lists),
            ("Dir::State::Lists", &dir.join("lists")),
            ("Dir::Cache", &dir.join("cache")),
        ] {
            command.arg("-o").arg(format!("{key}={}", value.display()));
        }
        process::run(command.args(arguments))
    };
    // One list that cannot be read does not matter as long as the package comes from another.
    let update = run(&["update"]);
    if let Err(error) = run(&["source", "--download-only", package]) {
        let said = match update {
            Err(update) => format!("{update:#}"),
            Ok(output) => match process::first_error(&output.stderr) {
                Some(warning) => format!("{warning}; then {error:#}"),
                None => format!("{error:#}"),
            },
        };
        bail!(said);
    }
    let files = fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut archives = files.filter(|file| file.to_string_lossy().contains(".orig.tar."));
    archives.next().context("apt-get source brought no .orig.tar archive")
}

/// Writes `deb-src` lists for every package list configured under `etc` (normally `/etc/apt`).
fn write_source_lists(etc: &Path, to: &Path) -> Result<()> {
    let mut files = vec![etc.join("sources.list")];
    if let Ok(entries) = fs::read_dir(etc.join("sources.list.d")) {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    let (mut lines, mut stanzas) = (BTreeSet::new(), BTreeSet::new());
    for file in &files {
        let Ok(text) = fs::read_to_string(file) else { continue };
        match file.extension().and_then(|e| e.to_str()) {
            Some("list") => lines.extend(from_list(&text)),
            Some("sources") => stanzas.extend(from_sources(&text)),
            _ => {}
        }
    }
    if lines.is_empty() && stanzas.is_empty() {
        bail!("no package list in {}", etc.display());
    }
    fs::write(to.join("derived.list"), lines.into_iter().collect::<Vec<_>>().join("\n") + "\n")?;
    fs::write(to.join("derived.sources"), stanzas.into_iter().collect::<Vec<_>>().join("\n"))?;
    Ok(())
}

/// The `deb-src` lines for the one-line format; options such as `signed-by` stay as they are.
fn from_list(text: &str) -> Vec<String> {
    let entries = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (kind, rest) = line.split_once(char::is_whitespace)?;
        matches!(kind, "deb" | "deb-src").then(|| format!("deb-src {}", rest.trim_start()))
    });
    entries.collect()
}

/// The `deb-src` stanzas for the deb822 format; all fields but `Types` stay as they are.
fn from_sources(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
    let stanzas = lines.split(|line| line.trim().is_empty()).filter(|stanza| !stanza.is_empty());
    let derived = stanzas.filter_map(|stanza| {
        let field = |name: &str| {
            stanza.iter().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then_some(value.trim())
            })
        };
        let off =
            field("Enabled").is_some_and(|value| ["no", "false", "0", "off", "without", "disable"].contains(&value));
        let types = field("Types")?;
        let wanted = types.split_whitespace().any(|kind| matches!(kind, "deb" | "deb-src"));
        (wanted && !off).then(|| {
            let mut out = String::from("Types: deb-src\n");
            for line in stanza.iter().filter(|line| !line.to_ascii_lowercase().starts_with("types:")) {
                out.push_str(line);
                out.push('\n');
            }
            out
        })
    });
    derived.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_lists_become_source_lists() {
        let text = "# a comment\ndeb [arch=amd64 signed-by=/k.gpg] http://a.example/debian bookworm main # end\n\
                    deb-src\thttp://b.example/debian bookworm main\n  deb http://c.example x/\nnonsense\n#deb http://d off\n";
        assert_eq!(
            from_list(text),
            [
                "deb-src [arch=amd64 signed-by=/k.gpg] http://a.example/debian bookworm main",
                "deb-src http://b.example/debian bookworm main",
                "deb-src http://c.example x/",
            ]
        );
    }

    #[test]
    fn deb822_stanzas_become_source_stanzas() {
        let text = "types: deb deb-src\n# a comment inside\nURIs: http://a.example/debian\nSuites: bookworm\n \
                    bookworm-updates\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n\n\
                    Types: deb\nEnabled: no\nURIs: http://off.example\nSuites: x\n\nTypes: other\nURIs: http://other\n";
        assert_eq!(
            from_sources(text),
            ["Types: deb-src\nURIs: http://a.example/debian\nSuites: bookworm\n bookworm-updates\nComponents: main\n\
              Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"]
        );
    }

    #[test]
    fn lists_of_both_formats_are_gathered_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (etc, to) = (dir.path().join("apt"), dir.path().join("to"));
        fs::create_dir_all(etc.join("sources.list.d")).expect("a directory");
        fs::create_dir(&to).expect("a directory");
        assert!(write_source_lists(&etc, &to).is_err());
        let line = "deb http://a.example/debian bookworm main\n";
        fs::write(etc.join("sources.list"), line).expect("a file");
        fs::write(etc.join("sources.list.d/again.list"), line).expect("a file");
        fs::write(etc.join("sources.list.d/x.sources"), "Types: deb\nURIs: u\nSuites: s\n").expect("a file");
        fs::write(etc.join("sources.list.d/old.list.save"), "deb http://old.example x y\n").expect("a file");
        write_source_lists(&etc, &to).expect("lists");
        let read = |name: &str| fs::read_to_string(to.join(name)).expect("a list");
        assert_eq!(read("derived.list"), "deb-src http://a.example/debian bookworm main\n");
        assert_eq!(read("derived.sources"), "Types: deb-src\nURIs: u\nSuites: s\n");
    }
}
