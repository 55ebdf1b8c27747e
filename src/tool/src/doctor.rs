//! What is on this machine, what is missing, and what to do about it.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::{abi, paths, plugin, setup};

/// Is there where the kernel has NVIDIA's driver.
const NVIDIA_DRIVER: &str = "/proc/driver/nvidia/version";

/// Prints the machine's state; returns whether everything that is needed is there.
pub fn report() -> Result<bool> {
    let mut fine = true;
    let mut line = |ok: bool, name: &str, text: &str| {
        fine &= ok;
        println!("{}  {name:<28} {text}", if ok { "ok     " } else { "missing" });
    };
    let supported = setup::check_machine();
    let machine = format!("{} {}", std::env::consts::ARCH, std::env::consts::OS);
    let system = system_name().unwrap_or_else(|| "unknown system".to_owned());
    match &supported {
        Ok(()) => line(true, &machine, &format!("{system}; x86-64 Linux is the supported architecture")),
        Err(error) => line(false, &machine, &error.to_string()),
    }
    for requirement in &setup::REQUIREMENTS {
        line(requirement.is_met(), requirement.package, requirement.purpose);
    }
    line(setup::has_lit(), "lit", "runs LLVM's tests");
    line(setup::ptxas().is_some(), "ptxas", "NVIDIA's assembler: programs for a real GPU");
    println!();
    let verdict = |plugin: &Path| -> Result<String> {
        Ok(match abi::dropped(plugin)? {
            Some(reason) => format!("LLVM's loader drops this plugin silently: {reason}"),
            None => "LLVM's loader accepts this plugin".to_owned(),
        })
    };
    for plugin in setup::machine_plugins() {
        let name = plugin.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("plugin   {name:<28} {}", verdict(&plugin)?);
    }
    let ours = plugin::built();
    let state = if ours.is_file() { verdict(&ours)? } else { "the first build makes it".to_owned() };
    println!("plugin   {:<28} {state}", "CUDA, in Rust");
    let driver = if Path::new(NVIDIA_DRIVER).exists() {
        "is there: programs for GPUs run on it"
    } else {
        "is not there: programs for GPUs run on the emulated CUDA device (`cc`)"
    };
    println!("driver   {:<28} {driver}", "NVIDIA's");
    let sources = paths::llvm_dir();
    let state = if sources.is_dir() { "fetched" } else { "the first build fetches them, about 130 MB" };
    println!("sources  LLVM {:<23} {state}", paths::LLVM_VERSION);

    if fine {
        println!("\nEverything that is needed is there. To see it work: cargo run --release -- demo");
    } else if supported.is_ok() {
        println!("\nTo install what is missing: {}", setup::SETUP);
    }
    Ok(fine)
}

/// The distribution's name for itself.
fn system_name() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    parse_os_release(&text)
}

fn parse_os_release(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_named_as_it_names_itself() {
        let text = "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(parse_os_release(text).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(parse_os_release("PRETTY_NAME=Arch"), Some("Arch".to_owned()));
        assert_eq!(parse_os_release(""), None);
    }
}
