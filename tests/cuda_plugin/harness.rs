//! A process of its own for each test, as driver and plugin are a process's; in it, the plugin's functions.

use crate::emulated::{driver_folder, plugin_folder};
use crate::support::run_with_limit;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use omptarget_abi::{DeviceImage, OffloadEntry, TargetTable};
use omptarget_tool::{paths, plugin, process, tag};
use std::ffi::{CString, c_char, c_void};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

/// Set in the child: the device image.
const IMAGE: &str = "CUDA_PLUGIN_TEST_IMAGE";

/// How a child ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// What the account says at the end of a child that leaves nothing.
pub const NOTHING_LEFT: &str =
    "emulator: left at exit: 0 streams, 0 events, 0 allocations, 0 modules, 0 contexts, 0 frees too early";

impl Ended {
    /// The account at the end: streams, events, allocations, modules, contexts, frees too early.
    pub fn left(&self) -> Option<[u64; 6]> {
        let line = self.stderr.lines().find_map(|line| line.strip_prefix("emulator: left at exit: "))?;
        let counts: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        counts.try_into().ok()
    }

    /// The lines of the plugin.
    pub fn errors(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("CUDA ")).collect()
    }

    /// Panics unless the child ended well.
    pub fn well(self) -> Self {
        assert!(self.status.success(), "{self}");
        self
    }

    /// Panics unless the child ended well and left nothing.
    pub fn clean(self) -> Self {
        assert!(self.status.success() && self.stderr.contains(NOTHING_LEFT), "{self}");
        self
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}\n{}", self.status, self.stdout, self.stderr)
    }
}

/// The tests' device image as a file.
fn image_file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-plugin-image.so");
        let source = paths::root().join("tests/cuda_plugin/kernels.c");
        let mut compiler = Command::new(process::tool("clang-14").expect("a compiler"));
        process::run(compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&file).arg(source)).expect("it compiles");
        let mut image = std::fs::read(&file).expect("an image");
        let sum = tag::check_sum(&image);
        image[tag::MACHINE_AT..tag::MACHINE_AT + 2].copy_from_slice(&tag::EM_CUDA.to_le_bytes());
        image[tag::FLAGS_AT..tag::FLAGS_AT + 4].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&file, image).expect("a place to write");
        file
    })
}

/// Whether this process is the child of a test.
pub fn is_child() -> bool {
    std::env::var_os(IMAGE).is_some()
}

/// Runs test `name` of this file in a process of its own: in it [`is_child`] is true.
pub fn child(name: &str, switches: &[(&str, &str)]) -> Ended {
    child_with(driver_folder(), name, switches)
}

/// As [`child`], with the driver in `folder`.
pub fn child_with(folder: &Path, name: &str, switches: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(std::env::current_exe().expect("a test has a file"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    for (variable, _) in std::env::vars_os() {
        let text = variable.to_string_lossy();
        if ["OMP_", "LIBOMP", "EMU_", "CUDA_"].iter().any(|start| text.starts_with(start)) {
            command.env_remove(&variable);
        }
    }
    command.env("LD_LIBRARY_PATH", folder).env(IMAGE, image_file());
    command.env(PLUGIN, plugin_folder().join(plugin::NAME));
    command.env("EMU_ACCOUNT", "1").envs(switches.iter().copied());
    let (status, stdout, stderr) = run_with_limit(command).expect("the child ends");
    assert_ne!(status.signal(), Some(libc::SIGKILL), "{stderr}");
    Ended { status, stdout, stderr }
}

/// Set in the child: the plugin's file.
const PLUGIN: &str = "CUDA_PLUGIN_TEST_PLUGIN";

/// Ends the child, as a program ends that returns from `main`.
pub fn end() -> ! {
    std::process::exit(0)
}

/// A `__tgt_async_info`.
pub type Info = usize;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The plugin's functions. Addresses are numbers; the tests give those that they were given, or such as must be
        /// refused.
        pub struct Plugin {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            counts: Option<unsafe extern "C" fn(*mut [u64; 6])>,
        }

        impl Plugin {
            /// Opens the plugin, which opens the driver.
            pub fn open() -> Self {
                let file = std::env::var_os(PLUGIN).expect("in a child");
                // SAFETY: the plugin's initialiser only opens the driver.
                let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.expect("the plugin opens");
                let functions = Self {
                    $($name: {
                        let name = concat!("__tgt_rtl_", stringify!($name), "\0");
                        // SAFETY: the types are those of LLVM's omptargetplugin.h.
                        *unsafe { library.get(name.as_bytes()) }.expect("the plugin has its functions")
                    },)*
                    counts: counts(),
                };
                // Open to the end.
                std::mem::forget(library);
                functions
            }

            $(#[allow(clippy::too_many_arguments, reason = "as many as LLVM's functions have")]
            pub fn $name(&self, $($argument: $type),*) $(-> $result)? {
                // SAFETY: see above; what is passed by reference is used during the call only.
                unsafe { (self.$name)($($argument),*) }
            })*
        }
    };
}

/// The emulator's own function, if it is there.
fn counts() -> Option<unsafe extern "C" fn(*mut [u64; 6])> {
    // SAFETY: the emulated driver, which is loaded already, or is looked for under a name that no other library has.
    let driver = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL) }.ok()?;
    // SAFETY: the emulator's type.
    let counts = unsafe { driver.get(b"emu_counts\0") }.ok().map(|function| *function);
    std::mem::forget(driver);
    counts
}

functions! {
    number_of_devices() -> i32;
    is_valid_binary(image: &DeviceImage) -> i32;
    init_requires(flags: i64) -> i64;
    is_data_exchangable(from: i32, to: i32) -> i32;
    init_device(device: i32) -> i32;
    load_binary(device: i32, image: &DeviceImage) -> *const TargetTable;
    data_alloc(device: i32, size: i64, host: usize, kind: i32) -> usize;
    data_delete(device: i32, target: usize) -> i32;
    data_submit(device: i32, target: usize, host: usize, size: i64) -> i32;
    data_submit_async(device: i32, target: usize, host: usize, size: i64, info: &mut Info) -> i32;
    data_retrieve(device: i32, host: usize, target: usize, size: i64) -> i32;
    data_retrieve_async(device: i32, host: usize, target: usize, size: i64, info: &mut Info) -> i32;
    data_exchange(from: i32, source: usize, to: i32, target: usize, size: i64) -> i32;
    data_exchange_async(from: i32, source: usize, to: i32, target: usize, size: i64, info: &mut Info) -> i32;
    run_target_region(device: i32, entry: usize, arguments: *const usize, offsets: *const isize, count: i32) -> i32;
    run_target_region_async(
        device: i32, entry: usize, arguments: *const usize, offsets: *const isize, count: i32, info: &mut Info
    ) -> i32;
    run_target_team_region(
        device: i32, entry: usize, arguments: *const usize, offsets: *const isize, count: i32, teams: i32,
        thread_limit: i32, trip_count: u64
    ) -> i32;
    run_target_team_region_async(
        device: i32, entry: usize, arguments: *const usize, offsets: *const isize, count: i32, teams: i32,
        thread_limit: i32, trip_count: u64, info: &mut Info
    ) -> i32;
    synchronize(device: i32, info: &mut Info) -> i32;
    set_info_flag(level: u32);
    print_device_info(device: i32);
    create_event(device: i32, event: &mut usize) -> i32;
    record_event(device: i32, event: usize, info: &mut Info) -> i32;
    wait_event(device: i32, event: usize, info: &mut Info) -> i32;
    sync_event(device: i32, event: usize) -> i32;
    destroy_event(device: i32, event: usize) -> i32;
    init_async_info(device: i32, info: &mut usize) -> i32;
    init_device_info(device: i32, info: &mut [usize; 2], error: &mut usize) -> i32;
}

/// The emulator's account in a running process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    pub streams: u64,
    pub events: u64,
    pub allocations: u64,
    pub modules: u64,
    pub contexts: u64,
    /// Calls that `EMU_FAIL` has made fail.
    pub faults: u64,
}

impl Plugin {
    /// The account as it is now.
    pub fn counts(&self) -> Counts {
        let mut counts = [0; 6];
        if let Some(function) = self.counts {
            // SAFETY: a place for six numbers.
            unsafe { function(&raw mut counts) };
        }
        let [streams, events, allocations, modules, contexts, faults] = counts;
        Counts { streams, events, allocations, modules, contexts, faults }
    }
}

/// The bytes of the tests' device image.
pub fn image_bytes() -> Vec<u8> {
    std::fs::read(std::env::var_os(IMAGE).expect("in a child")).expect("an image")
}

/// A device image with its host entries. It is never freed, as a program's never is.
pub struct Image(pub &'static DeviceImage);

/// An entry of the host program: name and size; 0 for a kernel.
pub type Entry = (&'static str, usize);

impl Image {
    /// The tests' device image with these entries.
    pub fn new(entries: &[Entry]) -> Self {
        let bytes = image_bytes().leak();
        Self(Box::leak(Box::new(device_image(bytes.as_mut_ptr_range(), entries))))
    }
}

/// Describes an image that lies there.
pub fn device_image(bytes: std::ops::Range<*mut u8>, entries: &[Entry]) -> DeviceImage {
    let entry = |(name, size): &Entry| OffloadEntry {
        // The host's variable: a pointer, for those that are linked.
        addr: std::ptr::from_mut(Box::leak(Box::new(0usize))).cast(),
        name: CString::new(*name).expect("a name").into_raw().cast::<c_char>(),
        size: *size,
        flags: 0,
        reserved: 0,
    };
    let entries: &mut [OffloadEntry] = entries.iter().map(entry).collect::<Vec<_>>().leak();
    let entries = entries.as_mut_ptr_range();
    DeviceImage {
        image_start: bytes.start.cast::<c_void>(),
        image_end: bytes.end.cast::<c_void>(),
        entries_begin: entries.start,
        entries_end: entries.end,
    }
}

/// What the device has for entry `index` of a table; 0 if there is none.
pub fn device_address(table: *const TargetTable, index: usize) -> usize {
    // SAFETY: null, or a table that the plugin made, which lives to the end.
    let Some(table) = (unsafe { table.as_ref() }) else { return 0 };
    // SAFETY: the tests ask for entries that they gave.
    unsafe { (*table.entries_begin.wrapping_add(index)).addr.addr() }
}

/// Launches a kernel of `add(to, value)`'s type in one team and waits.
pub fn add(plugin: &Plugin, device: i32, entry: usize, to: usize, value: usize) -> i32 {
    let (arguments, offsets) = ([to, value], [0, 0]);
    plugin.run_target_team_region(device, entry, arguments.as_ptr(), offsets.as_ptr(), 2, 1, 0, 0)
}

/// The address of a value of the test's own.
pub fn address<T>(value: &mut T) -> usize {
    std::ptr::from_mut(value).addr()
}
