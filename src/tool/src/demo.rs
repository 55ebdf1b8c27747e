//! Shows an offload program at work: compiles it, runs it on our libraries with the debug log on, and tells in plain
//! words what the log says, and what the emulated CUDA driver was asked for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use regex::{Captures, Regex};
use serde_json::Value;

use crate::build;
use crate::core::Parts;
use crate::{abi, emulator, gpu, paths, program, setup, wrap};

/// The program, below the repository's root.
const SOURCE: &str = "tests/programs/demo.c";

/// Where the program runs.
#[derive(Clone, Copy, clap::ValueEnum, PartialEq, Eq, Debug)]
pub enum Device {
    /// A CUDA device whose driver is emulated on this machine's CPU.
    CudaEmulated,
    /// A real GPU of NVIDIA's.
    Cuda,
    /// This machine, through LLVM's host plugin.
    Host,
}

/// LIBOMPTARGET_INFO: 1 logs where in the source a region starts, 32 each transfer.
const INFO: &str = "33";

/// The lines of the log that matter here, by what they say.
static LINE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^Libomptarget (?:message:|error:|fatal error \d+:) ?(?<error>.*)",
        r"|^Libomptarget --> (?:",
        r"Successfully loaded library '(?<loaded>[^']+)'",
        r"|Unable to load library '(?<unloadable>[^']+)': (?<why>.*)!",
        r"|Invalid plugin as (?<invalid>necessary)",
        r"|(?<no_devices>No devices supported in this RTL)",
        r"|Registering RTL (?<registered>\S+) supporting (?<devices>\d+) devices",
        r"|Device (?<device>\d+) is ready to use",
        r"|Registering image 0x[0-9a-f]+ with RTL (?<image>[^!]+)!",
        r"|(?<region>Entering OpenMP data region|Exiting OpenMP data region|Entering OpenMP kernel|Updating OpenMP data)",
        r" at (?<file>\S+):(?<line>\d+):\d+ with",
        r"|Creating new map entry with HstPtrBegin=0x[0-9a-f]+, TgtPtrBegin=0x(?<made>[0-9a-f]+), Size=(?<made_size>\d+),",
        r".* Name=(?<made_name>.*)",
        r"|Mapping exists.* with HstPtrBegin=0x[0-9a-f]+, TgtPtrBegin=0x[0-9a-f]+, Size=(?<reused_size>\d+),",
        r" DynRefCount=(?<count>\d+|INF) \(incremented\),.* Name=(?<reused_name>.*)",
        r"|Removing map entry with HstPtrBegin=0x[0-9a-f]+, TgtPtrBegin=0x(?<removed>[0-9a-f]+), Size=(?<removed_size>\d+),",
        r" Name=(?<removed_name>.*)",
        r"|Copying data from (?<from>host|device) to (?:host|device), .*TgtPtr=0x(?<moved>[0-9a-f]+).*, Size=(?<moved_size>\d+),",
        r"|Update pointer \(0x(?<pointer>[0-9a-f]+)\) -> \[0x(?<pointee>[0-9a-f]+)\]",
        r"|Launching target execution (?:__omp_offloading_+[0-9a-f]+_[0-9a-f]+_)?(?<kernel>\S+) with",
        r"|(?<failure>.*\b[Ff]ail.*)",
        r")"
    ))
    .expect("the pattern is a constant that the tests use")
});

/// What became of a plugin, as far as the log says.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Plugin {
    Devices(usize),
    NoDevices,
    Invalid,
    Absent,
    Unloadable(String),
    /// Loaded, and nothing more was said.
    Loaded,
}

/// Memory on the device that belongs to a mapping.
#[derive(Clone, Debug)]
struct Mapping {
    name: String,
    size: u64,
}

/// What happened, in the order of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Event {
    Region {
        what: &'static str,
        line: String,
    },
    Made {
        name: String,
        size: u64,
        address: u64,
    },
    Reused {
        name: String,
        size: u64,
        count: String,
    },
    Removed {
        name: String,
        size: u64,
    },
    Copied {
        to_device: bool,
        name: String,
        size: u64,
    },
    /// The next copy carries a pointer, which is given the address of the named mapping.
    Attached {
        name: String,
    },
    Launched {
        kernel: String,
    },
    Failed {
        text: String,
    },
}

/// What the log says.
#[derive(Default, Debug)]
struct Story {
    plugins: Vec<(String, Plugin)>,
    /// The plugin that took the program's image.
    image: Option<String>,
    device: Option<usize>,
    events: Vec<Event>,
}

impl Story {
    fn read(log: &str) -> Story {
        let mut story = Story::default();
        let mut live: BTreeMap<u64, Mapping> = BTreeMap::new();
        for found in log.lines().filter_map(|line| LINE.captures(line)) {
            story.add(&found, &mut live);
        }
        story
    }

    fn add(&mut self, found: &Captures, live: &mut BTreeMap<u64, Mapping>) {
        let text = |name: &str| found.name(name).map(|m| m.as_str().to_owned());
        let number = |name: &str| text(name).and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let address = |name: &str| u64::from_str_radix(&text(name)?, 16).ok();
        let holder = |live: &BTreeMap<u64, Mapping>, address: u64| {
            let (start, mapping) = live.range(..=address).next_back()?;
            (address - start < mapping.size).then(|| mapping.name.clone())
        };
        let unknown = || "memory that the log does not name".to_owned();
        if let Some(name) = text("loaded") {
            self.plugins.push((name, Plugin::Loaded));
        } else if let (Some(name), Some(why)) = (text("unloadable"), text("why")) {
            let absent = why.starts_with(&name) && why.ends_with("No such file or directory");
            self.plugins.push((name, if absent { Plugin::Absent } else { Plugin::Unloadable(why) }));
        } else if found.name("invalid").is_some() {
            self.say_of_last_plugin(Plugin::Invalid);
        } else if found.name("no_devices").is_some() {
            self.say_of_last_plugin(Plugin::NoDevices);
        } else if found.name("registered").is_some() {
            self.say_of_last_plugin(Plugin::Devices(number("devices") as usize));
        } else if let Some(plugin) = text("image") {
            self.image = Some(plugin);
        } else if found.name("device").is_some() {
            self.device = Some(number("device") as usize);
        } else if let (Some(what), Some(line)) = (text("region"), text("line")) {
            let what = match what.as_str() {
                "Entering OpenMP data region" => "data region begins",
                "Exiting OpenMP data region" => "data region ends",
                "Updating OpenMP data" => "target update",
                _ => "target region",
            };
            self.events.push(Event::Region { what, line });
        } else if let (Some(at), Some(name)) = (address("made"), text("made_name")) {
            let size = number("made_size");
            live.insert(at, Mapping { name: name.clone(), size });
            self.events.push(Event::Made { name, size, address: at });
        } else if let Some(name) = text("reused_name") {
            self.events.push(Event::Reused {
                name,
                size: number("reused_size"),
                count: text("count").unwrap_or_default(),
            });
        } else if let (Some(at), Some(name)) = (address("removed"), text("removed_name")) {
            live.remove(&at);
            self.events.push(Event::Removed { name, size: number("removed_size") });
        } else if let (Some(from), Some(at)) = (text("from"), address("moved")) {
            let name = holder(live, at).unwrap_or_else(unknown);
            self.events.push(Event::Copied { to_device: from == "host", name, size: number("moved_size") });
        } else if let Some(at) = address("pointee") {
            self.events.push(Event::Attached { name: holder(live, at).unwrap_or_else(unknown) });
        } else if let Some(kernel) = text("kernel") {
            self.events.push(Event::Launched { kernel });
        } else if let Some(text) = text("failure").or_else(|| text("error")) {
            self.events.push(Event::Failed { text });
        }
    }

    fn say_of_last_plugin(&mut self, state: Plugin) {
        if let Some((_, last)) = self.plugins.last_mut() {
            *last = state;
        }
    }

    fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| which(event)).count()
    }
}

/// One line of the time line: what happened, to what, how many bytes, and a remark.
struct Row(&'static str, String, Option<u64>, String);

impl Event {
    /// `pointer` names what the next copy's pointer points to.
    fn row(&self, pointer: Option<&str>) -> Option<Row> {
        let row = match self {
            Event::Region { .. } | Event::Attached { .. } => return None,
            Event::Made { name, size, address } => {
                Row("+ mapped", name.clone(), Some(*size), format!("at device address {address:#x}"))
            }
            Event::Reused { name, size, count } => {
                Row("= found mapped", name.clone(), Some(*size), format!("reference count {count}"))
            }
            Event::Removed { name, size } => Row("- removed", name.clone(), Some(*size), String::new()),
            Event::Copied { to_device, name, size } => {
                let remark = pointer.map_or(String::new(), |to| format!("a pointer in it, set to {to} on the device"));
                let what = if *to_device { "> host to device" } else { "< device to host" };
                Row(what, name.clone(), Some(*size), remark)
            }
            Event::Launched { kernel } => Row("* kernel launched", kernel_name(kernel), None, String::new()),
            Event::Failed { text } => Row("! failure", text.clone(), None, String::new()),
        };
        Some(row)
    }
}

/// clang ends a kernel's name with its function and line.
fn kernel_name(kernel: &str) -> String {
    match kernel.rsplit_once("_l") {
        Some((function, line)) => format!("of {function}, line {line}"),
        None => kernel.to_owned(),
    }
}

/// The plugins, one line for each that matters: which serve devices, and why the others do not.
fn tell_plugins(story: &Story, libs: &Path) -> String {
    let mut text = String::new();
    let list = |what: &str, state: Plugin| {
        let short = |name: &str| name.trim_start_matches("libomptarget.rtl.").trim_end_matches(".so").to_owned();
        let names = story.plugins.iter().filter(|(_, s)| *s == state).map(|(name, _)| short(name));
        let names = names.collect::<Vec<_>>().join(", ");
        if names.is_empty() { String::new() } else { format!("{what} {names}") }
    };
    let passed_over = [list("no device of", Plugin::NoDevices), list("not installed:", Plugin::Absent)];
    for (name, state) in &story.plugins {
        match state {
            Plugin::Devices(count) => {
                let used = match (&story.image, story.device) {
                    (Some(image), Some(device)) if image == name => format!("; the program used device {device}"),
                    (Some(image), None) if image == name => "; it took the program's device code".to_owned(),
                    _ => String::new(),
                };
                let devices = if *count == 1 { "device" } else { "devices" };
                let _ = writeln!(text, "plugin    {name}: {count} {devices}{used}");
            }
            Plugin::Invalid | Plugin::Unloadable(_) => {
                let log_says = match state {
                    Plugin::Unloadable(why) => why.as_str(),
                    _ => "it lacks functions of a plugin",
                };
                let reason = abi::dropped(&libs.join(name)).ok().flatten().unwrap_or_else(|| log_says.to_owned());
                let _ = writeln!(text, "DROPPED   {name}: {reason}");
            }
            Plugin::Loaded | Plugin::NoDevices | Plugin::Absent => {}
        }
    }
    let passed_over = passed_over.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
    if !passed_over.is_empty() {
        let _ = writeln!(text, "          {passed_over}");
    }
    text
}

/// The time line: each region with what happened in it.
fn tell_events(story: &Story) -> String {
    let mut rows = Vec::new();
    let mut pointer = None;
    for event in &story.events {
        match event {
            Event::Attached { name } => pointer = Some(name.as_str()),
            Event::Region { what, line } => rows.push(Err(format!("line {line:<4} {what}"))),
            _ => {
                let used = if matches!(event, Event::Copied { .. }) { pointer.take() } else { None };
                rows.extend(event.row(used).map(Ok));
            }
        }
    }
    let width = rows.iter().flatten().filter(|row| row.2.is_some()).map(|row| row.1.len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let line = match row {
            Err(region) => region,
            Ok(Row(what, object, None, _)) => format!("          {what:<18} {object}"),
            Ok(Row(what, object, Some(size), remark)) => {
                format!("          {what:<18} {object:<width$} {size:>7} bytes   {remark}")
            }
        };
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Sums over the whole run.
fn tell_sums(story: &Story) -> String {
    let bytes = |towards: bool| -> (usize, u64) {
        let copies = story.events.iter().filter_map(|event| match event {
            Event::Copied { to_device, size, .. } if *to_device == towards => Some(*size),
            _ => None,
        });
        copies.fold((0, 0), |(count, sum), size| (count + 1, sum + size))
    };
    let (there, back) = (bytes(true), bytes(false));
    let made = story.count(|event| matches!(event, Event::Made { .. }));
    let reused = story.count(|event| matches!(event, Event::Reused { .. }));
    let removed = story.count(|event| matches!(event, Event::Removed { .. }));
    let launched = story.count(|event| matches!(event, Event::Launched { .. }));
    format!(
        "mappings  {made} made, {reused} times found again, {removed} removed\n\
         copies    {} to the device ({} bytes), {} back ({} bytes)\n\
         kernels   {launched} launched\n",
        there.0, there.1, back.0, back.1
    )
}

/// What the emulated driver was asked for: how often each call was made, in the order of first calls, and which failed.
fn tell_driver_calls(trace: &str) -> String {
    let mut calls: Vec<(String, usize)> = Vec::new();
    let mut failed = String::new();
    for line in trace.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let name = line["call"].as_str().unwrap_or_default().trim_end_matches("_v2");
        if line["result"] != 0 {
            let of = line["args"]["name"].as_str().map_or(String::new(), |name| format!(" of {name}"));
            let _ = writeln!(failed, "          ! {name}{of} answered {}", line["result"]);
        }
        match calls.iter_mut().find(|(call, _)| call == name) {
            Some((_, count)) => *count += 1,
            None => calls.push((name.to_owned(), 1)),
        }
    }
    let sum: usize = calls.iter().map(|(_, count)| count).sum();
    let mut text = format!("driver    {sum} calls");
    let mut width = usize::MAX;
    for (call, count) in calls {
        let word = format!("{count} {call}");
        if width.saturating_add(word.len()) > 100 {
            text += "\n          ";
            width = word.len();
        } else {
            text += ", ";
            width += word.len() + 2;
        }
        text += &word;
    }
    text + "\n" + &failed
}

/// Compiles the program, runs it and tells what happened. Returns whether it used a device and found its result right.
///
/// `arch` is the real GPU's.
pub fn report(device: Device, parts: Parts, arch: gpu::Arch) -> Result<bool> {
    let libs = build::ensure(parts)?;
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let (exe, trace) = (dir.path().join("demo"), dir.path().join("trace"));
    let source = paths::root().join(SOURCE);
    let mut command = match device {
        Device::Host => {
            program::compile(&source, &exe, &libs, &["-g"])?;
            program::command(&exe, &libs)
        }
        Device::Cuda => {
            gpu::Toolkit::new(arch)?.compile(SOURCE, &exe, &libs)?;
            program::command(&exe, &libs)
        }
        Device::CudaEmulated => {
            let driver = emulator::ensure()?;
            let mut args = ["-g", "-fopenmp", "-fopenmp-targets=nvptx64-nvidia-cuda"].map(Into::into).to_vec();
            args.extend([source.into(), "-o".into(), exe.clone().into()]);
            args.extend(program::link_args(&libs));
            ensure!(wrap::run("clang-14", &args)?, "{SOURCE} does not compile");
            let mut command = program::command_in(&exe, &[driver, libs.dir.clone()]);
            command.env("EMU_TRACE", &trace).env("EMU_ACCOUNT", "1");
            command
        }
    };
    // A setting of the user's would change what is shown.
    command.env_remove("OMP_TARGET_OFFLOAD").env("LIBOMPTARGET_DEBUG", "1").env("LIBOMPTARGET_INFO", INFO);
    let output = command.output().context("cannot run the demo's program")?;
    let log = String::from_utf8_lossy(&output.stderr);
    let story = Story::read(&log);
    println!("{}\n", heading(&format!("{SOURCE} on {}", libs.library().display())));
    println!("parts     {parts}\ndevice    {}", device.words());
    print!("{}", tell_plugins(&story, &libs.dir));
    println!("\n{}\n{}", heading("What happened"), tell_events(&story));
    print!("{}", tell_sums(&story));
    if let Ok(trace) = fs::read_to_string(&trace) {
        print!("{}", tell_driver_calls(&trace));
    }
    if let Some(left) = log.lines().find_map(|line| line.strip_prefix("emulator: left at exit: ")) {
        println!("left      {left}");
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        println!("it says   {line}");
    }
    let used = story.device.is_some() && story.count(|event| matches!(event, Event::Launched { .. })) > 0;
    match (used, output.status.success()) {
        (true, true) => println!("result    right: the program checked it, and ended with 0"),
        (true, false) => println!("result    WRONG: the program ended with {}", output.status),
        (false, _) => println!(
            "result    no device ran anything. `{}` installs what is missing, but for a GPU and its driver; \
             `omptarget doctor` says more",
            setup::SETUP
        ),
    }
    Ok(used && output.status.success())
}

impl Device {
    fn words(self) -> &'static str {
        match self {
            Device::CudaEmulated => "CUDA, emulated: the driver is ours and runs kernels on this machine's CPU",
            Device::Cuda => "CUDA: a GPU of NVIDIA's",
            Device::Host => "this machine's CPU, through LLVM's host plugin",
        }
    }
}

fn heading(text: &str) -> String {
    if std::io::stdout().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the demo's program logs, shortened.
    const LOG: &str = "\
Libomptarget --> Loading library 'libomptarget.rtl.ppc64.so'...
Libomptarget --> Unable to load library 'libomptarget.rtl.ppc64.so': libomptarget.rtl.ppc64.so: cannot open shared object file: No such file or directory!
Libomptarget --> Successfully loaded library 'libomptarget.rtl.x86_64.so'!
Libomptarget --> Registering RTL libomptarget.rtl.x86_64.so supporting 4 devices!
Libomptarget --> Successfully loaded library 'libomptarget.rtl.cuda.so'!
Libomptarget --> No devices supported in this RTL
Libomptarget --> Successfully loaded library 'libomptarget.rtl.ve.so'!
Libomptarget --> Invalid plugin as necessary interface is not found.
Libomptarget --> Registering image 0x000055aa00001000 with RTL libomptarget.rtl.x86_64.so!
Libomptarget --> Device 0 is ready to use.
Libomptarget --> Entering OpenMP data region at demo.c:20:1 with 2 arguments:
Libomptarget --> Creating new map entry with HstPtrBegin=0x00007ffc00000000, TgtPtrBegin=0x000055aa00002000, Size=16, DynRefCount=1, HoldRefCount=0, Name=s
Libomptarget --> Moving 16 bytes (hst:0x00007ffc00000000) -> (tgt:0x000055aa00002000)
Libomptarget --> Copying data from host to device, HstPtr=0x00007ffc00000000, TgtPtr=0x000055aa00002000, Size=16, Name=s
Libomptarget --> Creating new map entry with HstPtrBegin=0x00007ffc00001000, TgtPtrBegin=0x000055aa00003000, Size=8192, DynRefCount=1, HoldRefCount=0, Name=s.values[:1024]
Libomptarget --> Update pointer (0x000055aa00002008) -> [0x000055aa00003000]
Libomptarget --> Copying data from host to device, HstPtr=0x000055aa00000010, TgtPtr=0x000055aa00002008, Size=8, Name=unknown
Libomptarget --> Entering OpenMP kernel at demo.c:22:1 with 1 arguments:
Libomptarget --> Mapping exists (implicit) with HstPtrBegin=0x00007ffc00000000, TgtPtrBegin=0x000055aa00002000, Size=16, DynRefCount=2 (incremented), HoldRefCount=0, Name=s
Libomptarget --> Mapping exists with HstPtrBegin=0x00007ffc00000000, TgtPtrBegin=0x000055aa00002000, Size=16, DynRefCount=2 (update suppressed), HoldRefCount=0
Libomptarget --> Launching target execution __omp_offloading_fe00_98e74a_main_l22 with pointer 0x00007f0000000000 (index=0).
Libomptarget --> Exiting OpenMP data region at demo.c:20:1 with 2 arguments:
Libomptarget --> Copying data from device to host, TgtPtr=0x000055aa00003008, HstPtr=0x00007ffc00001008, Size=64, Name=s.values[:1024]
Libomptarget --> Removing map entry with HstPtrBegin=0x00007ffc00001000, TgtPtrBegin=0x000055aa00003000, Size=8192, Name=s.values[:1024]
";

    #[test]
    fn the_log_is_told_in_plain_words() {
        let expected = "\
line 20   data region begins
          + mapped           s                    16 bytes   at device address 0x55aa00002000
          > host to device   s                    16 bytes
          + mapped           s.values[:1024]    8192 bytes   at device address 0x55aa00003000
          > host to device   s                     8 bytes   a pointer in it, set to s.values[:1024] on the device
line 22   target region
          = found mapped     s                    16 bytes   reference count 2
          * kernel launched  of main, line 22
line 20   data region ends
          < device to host   s.values[:1024]      64 bytes
          - removed          s.values[:1024]    8192 bytes
";
        assert_eq!(tell_events(&Story::read(LOG)), expected);
    }

    #[test]
    fn only_what_was_logged_is_counted() {
        let expected = "mappings  2 made, 1 times found again, 1 removed\n\
                        copies    2 to the device (24 bytes), 1 back (64 bytes)\n\
                        kernels   1 launched\n";
        assert_eq!(tell_sums(&Story::read(LOG)), expected);
        assert!(tell_sums(&Story::read("")).contains("0 launched"));
        assert_eq!(Story::read("").device, None);
    }

    #[test]
    fn plugins_are_named_with_what_became_of_them() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join("libomptarget.rtl.ve.so"), "").expect("a file");
        let told = tell_plugins(&Story::read(LOG), dir.path());
        let lines: Vec<&str> = told.lines().collect();
        let [used, dropped, others] = lines[..] else { panic!("three lines expected: {told}") };
        assert_eq!(used, "plugin    libomptarget.rtl.x86_64.so: 4 devices; the program used device 0");
        assert!(dropped.starts_with("DROPPED   libomptarget.rtl.ve.so: "), "{dropped}");
        assert_eq!(others, "          no device of cuda; not installed: ppc64");
    }

    #[test]
    fn driver_calls_are_counted_and_their_failures_too() {
        let trace = "{\"call\":\"cuInit\",\"result\":0}\n{\"call\":\"cuMemAlloc_v2\",\"result\":0}\n\
                     {\"call\":\"cuMemAlloc_v2\",\"result\":2}\n";
        let expected = "driver    3 calls\n          1 cuInit, 2 cuMemAlloc\n          ! cuMemAlloc answered 2\n";
        assert_eq!(tell_driver_calls(trace), expected);
    }

    #[test]
    fn a_failure_is_shown() {
        let log = "Libomptarget --> Copying data to device failed.\n\
                   Libomptarget fatal error 1: failure of target construct while offloading is mandatory\n";
        let failed = |text: &str| Event::Failed { text: text.to_owned() };
        assert_eq!(
            Story::read(log).events,
            [
                failed("Copying data to device failed."),
                failed("failure of target construct while offloading is mandatory")
            ]
        );
    }
}
