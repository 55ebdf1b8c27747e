//! `cpp/harness.cpp`, linked with LLVM's core and with ours, both loaded into this process.

use crate::plugin::{self, Abilities, Function, Functions, Plugin, PluginCall};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use omptarget_tool::core::Core;
use omptarget_tool::{build, process};
use std::ffi::{CStr, c_char, c_void};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{IntoRawFd, RawFd};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A call into the runtime: an `AsyncInfoTy` of LLVM's.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Call(*mut c_void);

/// The arguments of `getTargetPointer`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    pub host: usize,
    pub base: usize,
    pub size: i64,
    pub name: usize,
    pub to: bool,
    pub always: bool,
    pub implicit: bool,
    pub update: bool,
    pub close: bool,
    pub present: bool,
    pub hold: bool,
}

/// The arguments of the long `getTgtPtrBegin`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub host: usize,
    pub size: i64,
    pub update: bool,
    pub hold: bool,
    pub must_contain: bool,
    pub force_delete: bool,
}

/// What both answer.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Answer {
    pub target: usize,
    /// First host address of the entry; 0 if there is none to look at.
    pub entry: usize,
    pub has_entry: bool,
    pub is_new: bool,
    pub is_host: bool,
    pub is_last: bool,
    /// `is_host` once more: `getTgtPtrBegin` says it twice.
    pub is_host_too: bool,
}

/// A row of the table as the harness writes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawRow {
    begin: usize,
    end: usize,
    name: usize,
    target: usize,
    dynamic: [c_char; 24],
    hold: [c_char; 24],
    attached: bool,
}

/// A row of the table: one mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub begin: usize,
    pub end: usize,
    pub name: usize,
    pub target: usize,
    /// The counts as LLVM prints them.
    pub dynamic: String,
    pub hold: String,
    pub attached: bool,
}

macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The harness on one core. Device numbers and calls must be those of the running session.
        pub struct Side { $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)* }

        impl Side {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self { $($name: {
                    // SAFETY: the types are those of cpp/harness.cpp, from which the library was built just now.
                    *unsafe { library.get($symbol) }?
                },)* })
            }

            $(pub fn $name(&self, $($argument: $type),*) $(-> $result)? {
                // SAFETY: addresses are numbers to the harness, as only our plugin could look behind them. A `Call` is
                // from `new_call`, and what is passed by reference is only used during the call.
                unsafe { (self.$name)($($argument),*) }
            })*
        }
    };
}

functions! {
    redirect_errors = "harness_redirect_errors"(to: RawFd) -> RawFd;
    start = "harness_start"(functions: &Functions, devices: i32, use_events: bool);
    stop = "harness_stop"();
    new_call = "harness_new_call"(device: i32) -> Call;
    delete_call = "harness_delete_call"(call: Call);
    synchronize = "harness_synchronize"(call: Call) -> i32;
    set_requires = "harness_set_requires"(flags: i64);
    init_once = "harness_init_once"(device: i32) -> i32;
    is_ready = "harness_is_ready"(device: i32) -> bool;
    print_device_info = "harness_print_device_info"(device: i32) -> bool;
    load_binary = "harness_load_binary"(device: i32, image: usize) -> usize;
    begin = "harness_get_target_pointer"(device: i32, begin: &Begin, call: Call) -> Answer;
    attach = "harness_attach"(device: i32, target: usize, pointer: usize, call: Call) -> i32;
    forget = "harness_forget"();
    end = "harness_get_tgt_ptr_begin"(device: i32, end: &End) -> Answer;
    address = "harness_address"(device: i32, host: usize, size: i64) -> usize;
    map_global = "harness_map_global"(device: i32, host: usize, size: i64, target: usize, hold: bool, infinite: bool) -> usize;
    dealloc = "harness_dealloc"(device: i32, host: usize, size: i64, hold: bool) -> i32;
    associate = "harness_associate"(device: i32, host: usize, target: usize, size: i64) -> i32;
    disassociate = "harness_disassociate"(device: i32, host: usize) -> i32;
    alloc = "harness_alloc"(device: i32, size: i64, host: usize, kind: i32) -> usize;
    delete = "harness_delete"(device: i32, target: usize) -> i32;
    submit = "harness_submit"(device: i32, target: usize, host: usize, size: i64, call: Call) -> i32;
    retrieve = "harness_retrieve"(device: i32, host: usize, target: usize, size: i64, call: Call) -> i32;
    is_exchangable = "harness_is_exchangable"(device: i32, to: i32) -> bool;
    exchange = "harness_exchange"(device: i32, source: usize, to: i32, target: usize, size: i64, call: Call) -> i32;
    run = "harness_run"(device: i32, entry: usize, teams: bool, call: Call) -> i32;
    create_event = "harness_create_event"(device: i32, event: &mut usize) -> i32;
    record_event = "harness_record_event"(device: i32, event: usize, call: Call) -> i32;
    wait_event = "harness_wait_event"(device: i32, event: usize, call: Call) -> i32;
    sync_event = "harness_sync_event"(device: i32, event: usize) -> i32;
    destroy_event = "harness_destroy_event"(device: i32, event: usize) -> i32;
    is_empty = "harness_is_empty"(device: i32) -> bool;
    raw_table = "harness_table"(device: i32, rows: &mut [RawRow; MAX_ROWS]) -> usize;
}

/// More rows than the host memory of the tests has bytes.
const MAX_ROWS: usize = 128;

impl Side {
    /// What the last user of a mapping does: it counts itself out, and releases.
    pub fn leave(&self, device: i32, host: usize, size: i64) -> i32 {
        let exit = End { host, size, update: true, hold: false, must_contain: true, force_delete: false };
        assert!(self.end(device, &exit).is_last, "somebody else uses it");
        self.dealloc(device, host, size, false)
    }

    /// The mappings of device 0, by host address.
    pub fn table(&self) -> Vec<Row> {
        let none = RawRow { begin: 0, end: 0, name: 0, target: 0, dynamic: [0; 24], hold: [0; 24], attached: false };
        let mut rows = [none; MAX_ROWS];
        let count = self.raw_table(0, &mut rows);
        let text = |text: &[c_char; 24]| {
            // SAFETY: the harness ends each count with a zero, within the array.
            unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().expect("a count is ASCII").to_owned()
        };
        let row = |row: &RawRow| Row {
            begin: row.begin,
            end: row.end,
            name: row.name,
            target: row.target,
            dynamic: text(&row.dynamic),
            hold: text(&row.hold),
            attached: row.attached,
        };
        rows[..count].iter().map(row).collect()
    }
}

/// Builds and loads the harness with one of the cores.
fn load(core: Core) -> anyhow::Result<Side> {
    let libs = build::ensure(core)?;
    let stage = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let (library, exports) = (stage.path().join("harness.so"), stage.path().join("exports"));
    // Each library keeps everything but the harness to itself: both have LLVM's names.
    fs::write(&exports, "{ global: harness_*; local: *; };")?;
    let mut command = Command::new(process::tool("clang++-14")?);
    command.args(libs.compile_args());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp/harness.cpp"));
    command.args(libs.object_files()).args(libs.link_args()).args(["-shared", "-Wl,-z,defs", "-Wl,-Bsymbolic"]);
    command.arg(format!("-Wl,--version-script={}", exports.display())).arg("-o").arg(&library);
    process::run(&mut command)?;
    // SAFETY: LLVM's initialisers only read the environment, which nobody changes after `sides` did.
    let library = unsafe { Library::open(Some(&library), RTLD_NOW | RTLD_LOCAL) }?;
    let side = Side::of(&library)?;
    // Its functions are in use until the process ends.
    std::mem::forget(library);
    Ok(side)
}

/// Both harnesses, ours first. They are one each: whoever has the guard has the process to itself.
fn sides() -> MutexGuard<'static, [Side; 2]> {
    static SIDES: OnceLock<Mutex<[Side; 2]>> = OnceLock::new();
    let sides = SIDES.get_or_init(|| {
        // SAFETY: the tests of this process wait for this function before they do anything.
        unsafe { std::env::set_var("LIBOMPTARGET_DEBUG", "1") };
        // Stock's report of a transfer uses entries that are not there.
        // SAFETY: as above.
        unsafe { std::env::remove_var("LIBOMPTARGET_INFO") };
        Mutex::new([Core::Rust, Core::Stock].map(|core| load(core).expect("the harness builds")))
    });
    sides.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of one request to one side.
#[derive(Debug)]
pub struct Outcome<R> {
    /// What it answered.
    pub value: R,
    /// Its calls of the plugin.
    pub trace: Vec<(i32, PluginCall)>,
    /// A plugin function failed.
    pub failed: bool,
    /// What it printed.
    pub log: String,
}

/// The two sides, with a plugin each, and all that they print.
pub struct Bench {
    sides: MutexGuard<'static, [Side; 2]>,
    log: File,
    errors_before: RawFd,
}

impl Bench {
    /// Takes hold of both sides. Standard error goes to a file meanwhile, where the last session's lines stay,
    /// should the core abort.
    pub fn open() -> Self {
        let sides = sides();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("differential.log");
        let log = OpenOptions::new().create(true).read(true).append(true).open(&path).expect("the target is writable");
        let errors_before = sides[0].redirect_errors(log.try_clone().expect("a descriptor is left").into_raw_fd());
        Self { sides, log, errors_before }
    }

    /// Starts anew on both sides: two devices, nothing mapped.
    pub fn start(&self, abilities: Abilities, use_events: bool, host_base: usize) {
        self.log.set_len(0).expect("the log is a file");
        for core in [Core::Rust, Core::Stock] {
            plugin::install(core, Plugin::new(host_base, abilities));
            self.side(core).start(&plugin::functions(core, abilities), 2, use_events);
        }
    }

    /// One of the sides.
    pub fn side(&self, core: Core) -> &Side {
        &self.sides[core as usize]
    }

    /// Lets one side act within call `call`, and `failure` happen.
    pub fn on<R>(
        &mut self,
        core: Core,
        call: usize,
        failure: Option<(Function, u8)>,
        act: impl FnOnce(&Side) -> R,
    ) -> Outcome<R> {
        let start = self.log.seek(SeekFrom::End(0)).expect("the log is a file");
        plugin::with(core, |plugin| {
            plugin.trace.clear();
            (plugin.call, plugin.failure, plugin.failed) = (call, failure, false);
        });
        let value = act(self.side(core));
        let mut log = String::new();
        self.log.seek(SeekFrom::Start(start)).expect("the log is a file");
        self.log.read_to_string(&mut log).expect("LLVM and the core print text");
        let (trace, failed) = plugin::with(core, |plugin| {
            plugin.failure = None;
            (std::mem::take(&mut plugin.trace), plugin.failed)
        });
        Outcome { value, trace, failed, log }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.sides[0].redirect_errors(self.errors_before);
    }
}
