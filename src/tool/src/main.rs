//! The `omptarget` command: reads the command line and calls the library.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use omptarget_tool::{build, core::Core, paths};

/// Builds, runs, tests and compares LLVM's offload runtime with its Rust core.
#[derive(Parser)]
#[command(name = "omptarget", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One subcommand each; `run` below has an arm for each.
#[derive(clap::Subcommand)]
enum Command {
    /// Build libomptarget.so from LLVM's tree with one of the cores
    Build {
        /// Which core goes in
        #[arg(long, value_enum, default_value = "rust")]
        core: Core,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    paths::check()?;
    match cli.command {
        Command::Build { core } => {
            let libs = build::build(core, &build::Options::default())?;
            println!("built {}", libs.library().display());
            Ok(ExitCode::SUCCESS)
        }
    }
}
