//! Other programs: finding them, running them, and saying in one line what went wrong.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{paths, setup};

/// Finds a program on `PATH`, in LLVM's own `bin`, or in lit's environment. The error says how to install it.
pub fn tool(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([paths::machine_llvm().join("bin"), paths::lit_dir().join("bin")])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .with_context(|| setup::how_to_get(name))
}

/// Runs a command to its end, with its output captured. An exit status other than 0 is an error of one line.
pub fn run(command: &mut Command) -> Result<Output> {
    let name = name(command);
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(setup::how_to_get(&name)),
        other => other.with_context(|| format!("cannot run {name}"))?,
    };
    if !output.status.success() {
        bail!(
            "{name} failed ({}){}",
            output.status,
            first_error(&output.stderr).map_or(String::new(), |e| format!(": {e}"))
        );
    }
    Ok(output)
}

/// What is left of a process that [`run_within`] has run.
#[derive(Debug)]
pub struct Run {
    /// How it ended; `None` if it did not.
    pub status: Option<ExitStatus>,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
}

/// Runs a command with its output captured, and kills it when it has not ended after `limit`.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<Run> {
    let mut stdout = tempfile::tempfile().context("cannot make a temporary file")?;
    let mut stderr = tempfile::tempfile().context("cannot make a temporary file")?;
    let name = name(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if start.elapsed() > limit => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    Ok(Run { status, stdout: contents(&mut stdout)?, stderr: contents(&mut stderr)? })
}

/// All that was written to a file.
fn contents(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The program's name as a person says it: the last part of its path.
fn name(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    program.file_name().map_or_else(OsString::new, OsString::from).to_string_lossy().into_owned()
}

/// The line of an error output that says most: the first that names an error, else the first that is not blank.
pub fn first_error(stderr: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stderr);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let says_error = |line: &&str| {
        line.contains("error:")
            || line.contains("error[")
            || line.contains("undefined reference")
            || line.starts_with("E: ")
            || line.starts_with("ERROR")
    };
    lines().find(says_error).or_else(|| lines().next()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_killed_and_what_it_said_is_kept() {
        let shell = |script: &str, limit: u64| {
            run_within(Command::new("sh").args(["-c", script]), Duration::from_secs(limit)).expect("a shell")
        };
        let hung = shell("echo out; echo err >&2; exec sleep 600", 1);
        assert_eq!((hung.status, &*hung.stdout, &*hung.stderr), (None, &b"out\n"[..], &b"err\n"[..]));
        let ended = shell("exit 3", 600);
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
    }
}
