//! Libraries that cargo builds for us.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{paths, process, progress};

/// What cargo said of a build.
#[derive(Debug)]
pub struct Built {
    package: &'static str,
    messages: Vec<Value>,
}

/// Builds the library of a workspace package in release form, with `env` set for its build script. `what` is the
/// library's name in messages.
pub fn build(package: &'static str, what: &str, env: &[(&str, &str)]) -> Result<Built> {
    let _progress = progress::step(format!("building {what}"));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::root()).envs(env.iter().copied());
    command.args(["build", "--release", "--quiet", "--package", package, "--lib"]);
    let output = process::run(command.arg("--message-format=json-render-diagnostics"))
        .with_context(|| format!("{what} does not build (`cargo build --release --package {package}` says more)"))?;
    Ok(Built::read(package, &String::from_utf8_lossy(&output.stdout)))
}

impl Built {
    fn read(package: &'static str, messages: &str) -> Self {
        Built { package, messages: messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() }
    }

    /// The built file of this name.
    pub fn file(&self, name: &str) -> Result<PathBuf> {
        Ok(self.artifact(name)?.0)
    }

    /// Where the build script of the package that has the built file `name` wrote its output.
    pub fn script_output(&self, name: &str) -> Result<PathBuf> {
        let package = self.artifact(name)?.1;
        let script = self.all("build-script-executed").find(|message| message["package_id"] == *package);
        let dir = script.and_then(|message| message["out_dir"].as_str());
        dir.map(PathBuf::from).with_context(|| format!("cargo ran no build script of package {}", self.package))
    }

    /// A built file, and the id of its package.
    fn artifact(&self, name: &str) -> Result<(PathBuf, &Value)> {
        let found = self.all("compiler-artifact").find_map(|message| {
            let mut files = message["filenames"].as_array()?.iter().filter_map(|file| file.as_str()).map(PathBuf::from);
            Some((files.find(|file| file.ends_with(name))?, &message["package_id"]))
        });
        found.with_context(|| format!("cargo built no {name} of package {}", self.package))
    }

    fn all(&self, reason: &'static str) -> impl Iterator<Item = &Value> {
        self.messages.iter().filter(move |message| message["reason"] == reason)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn cargos_messages_name_files_and_what_the_build_script_wrote() {
        let messages = r#"
            {"reason":"build-script-executed","package_id":"other#1","out_dir":"/wrong"}
            {"reason":"build-script-executed","package_id":"omptarget#1","out_dir":"/t/out"}
            {"reason":"compiler-artifact","package_id":"x#1","filenames":["/t/libx.rlib"]}
            {"reason":"compiler-artifact","package_id":"omptarget#1","filenames":["/t/libomptarget.rlib","/t/libomptarget.a"]}
            {"reason":"build-finished","success":true}"#;
        let built = Built::read("omptarget", messages);
        assert_eq!(built.file("libomptarget.a").expect("a file"), Path::new("/t/libomptarget.a"));
        assert_eq!(built.script_output("libomptarget.a").expect("a folder"), Path::new("/t/out"));
        let error = |result: Result<PathBuf>| result.expect_err("not there").to_string();
        assert_eq!(error(built.file("liby.a")), "cargo built no liby.a of package omptarget");
        assert_eq!(error(built.script_output("libx.rlib")), "cargo ran no build script of package omptarget");
    }
}
