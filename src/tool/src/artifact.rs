//! Libraries that cargo builds for us.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{paths, process, progress};

/// Builds the library of a workspace package in release form, and finds its file `name`.
pub fn build(package: &str, name: &str, what: &str) -> Result<PathBuf> {
    let _progress = progress::step(format!("building {what}"));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::root()).args(["build", "--release", "--quiet", "--package", package, "--lib"]);
    let output = process::run(command.arg("--message-format=json-render-diagnostics"))
        .with_context(|| format!("{what} does not build (`cargo build --release --package {package}` says more)"))?;
    find(&String::from_utf8_lossy(&output.stdout), name)
        .with_context(|| format!("cargo built no {name} of package {package}"))
}

/// Finds a file in cargo's messages.
fn find(messages: &str, name: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let files = message["filenames"].as_array()?.iter().filter_map(|file| file.as_str());
        files.map(PathBuf::from).find(|file| file.ends_with(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_among_cargos_messages() {
        let messages = "{\"reason\":\"x\"}\n{\"filenames\":[\"/t/libx.rlib\",\"/t/libx.a\"]}\n";
        assert_eq!(find(messages, "libx.a"), Some(PathBuf::from("/t/libx.a")));
        assert_eq!(find(messages, "liby.a"), None);
    }
}
