//! `omptarget cc` and `omptarget c++`: clang for the emulated CUDA device. It compiles for x86-64 and re-tags what it
//! has linked, and takes command lines that were written for a real GPU.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{process, retarget};

/// The offload target that stands in for a GPU.
const HOST_TARGET: &str = "x86_64-pc-linux-gnu";

/// Runs `compiler` with the arguments as this device needs them, then re-tags its output. Answers whether all went
/// well; what the compiler says goes where it always goes.
pub fn run(compiler: &str, args: &[OsString]) -> Result<bool> {
    let plan = Plan::new(args);
    let mut command = Command::new(process::tool(compiler)?);
    let status = command.args(&plan.args).status().with_context(|| format!("cannot run {compiler}"))?;
    if status.success()
        && let Some(output) = &plan.output
        && output.is_file()
    {
        retarget::retarget(output)?;
    }
    Ok(status.success())
}

/// A command line taken apart.
#[derive(PartialEq, Eq, Debug)]
struct Plan {
    /// What clang gets.
    args: Vec<OsString>,
    /// What it links, if it does.
    output: Option<PathBuf>,
}

impl Plan {
    fn new(given: &[OsString]) -> Plan {
        let mut args = Vec::new();
        let mut output = PathBuf::from("a.out");
        let mut links = true;
        let mut rest = given.iter();
        while let Some(arg) = rest.next() {
            let text = arg.to_string_lossy();
            if let Some(targets) = text.strip_prefix("-fopenmp-targets=") {
                args.push(format!("-fopenmp-targets={}", host_targets(targets)).into());
            } else if ["--libomptarget-nvptx-bc-path=", "--cuda-path="].iter().any(|option| text.starts_with(option)) {
                // Where a GPU's libraries are.
                continue;
            } else if text == "-Xopenmp-target" || text.starts_with("-Xopenmp-target=nvptx64") {
                // The argument that follows is for the device's compiler; what chooses a GPU means nothing here.
                let for_device = rest.next();
                let chooses_gpu = for_device.is_some_and(|a| a.as_bytes().starts_with(b"-march=sm_"));
                if !chooses_gpu {
                    args.push(if text == "-Xopenmp-target" {
                        arg.clone()
                    } else {
                        format!("-Xopenmp-target={HOST_TARGET}").into()
                    });
                    args.extend(for_device.cloned());
                }
            } else if text == "-o" {
                args.push(arg.clone());
                if let Some(file) = rest.next() {
                    output = file.into();
                    args.push(file.clone());
                }
            } else {
                if let Some(file) = arg.as_bytes().strip_prefix(b"-o").filter(|_| !text.starts_with("-object")) {
                    output = OsStr::from_bytes(file).into();
                }
                links &= !is_no_link(&text);
                args.push(arg.clone());
            }
        }
        Plan { args, output: links.then_some(output) }
    }
}

/// Options with which clang stops before it links.
fn is_no_link(arg: &str) -> bool {
    matches!(arg, "-c" | "-S" | "-E" | "-M" | "-MM" | "-fsyntax-only" | "-r" | "-###" | "--version" | "-emit-llvm")
}

/// A list of offload targets with each GPU replaced, and no target twice.
fn host_targets(targets: &str) -> String {
    let mut list: Vec<&str> = Vec::new();
    for target in targets.split(',') {
        let target = if target.starts_with("nvptx64") { HOST_TARGET } else { target };
        if !list.contains(&target) {
            list.push(target);
        }
    }
    list.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> (String, Option<String>) {
        let plan = Plan::new(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let args = plan.args.join(" ".as_ref()).into_string().expect("plain text");
        (args, plan.output.map(|output| output.display().to_string()))
    }

    #[test]
    fn a_command_line_for_a_gpu_becomes_one_for_the_host() {
        let line = "-O2 -fopenmp -fopenmp-targets=nvptx64-nvidia-cuda -Xopenmp-target -march=sm_80 --cuda-path=/c \
                    --libomptarget-nvptx-bc-path=/b -fno-openmp-target-new-runtime x.c -o x";
        let expected = "-O2 -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu -fno-openmp-target-new-runtime x.c -o x";
        assert_eq!(plan(line), (expected.to_owned(), Some("x".to_owned())));
    }

    #[test]
    fn other_device_options_are_kept() {
        let line =
            "-Xopenmp-target=nvptx64-nvidia-cuda -DX -Xopenmp-target -DY -Xopenmp-target=x86_64-pc-linux-gnu -DZ";
        let expected = "-Xopenmp-target=x86_64-pc-linux-gnu -DX -Xopenmp-target -DY \
                        -Xopenmp-target=x86_64-pc-linux-gnu -DZ";
        assert_eq!(plan(line).0, expected);
        assert_eq!(host_targets("nvptx64-nvidia-cuda,x86_64-pc-linux-gnu,amdgcn"), "x86_64-pc-linux-gnu,amdgcn");
    }

    #[test]
    fn what_is_linked_is_known() {
        assert_eq!(plan("x.c").1.as_deref(), Some("a.out"));
        assert_eq!(plan("-oy x.c").1.as_deref(), Some("y"));
        for line in ["-c x.c", "-S x.c -o x.s", "x.c -E", "-### x.c"] {
            assert_eq!(plan(line).1, None, "{line}");
        }
    }
}
