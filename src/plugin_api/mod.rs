//! A plugin's functions, resolved by name, as Rust calls.
//!
//! LLVM's loader (`rtl.cpp`) opens a plugin and refuses it without its mandatory functions; this module looks the same
//! names up in the same library handle, which is never closed. Where there is no handle (a test harness), the addresses
//! come from LLVM's `RTLInfoTy`.
//!
//! The calls keep LLVM 14's choices: the asynchronous form is used if the plugin has it and can synchronise, else the
//! synchronous one. A function that a plugin lacks answers success where LLVM's `device.cpp` lets it, and otherwise
//! fails with a line that names it.

use crate::mapping::Event;
use crate::report;
use crate::sync::{AtomicI32, Ordering};
use libloading::os::unix::{Library, Symbol};
use omptarget_abi::{AsyncInfo, OFFLOAD_FAIL, OFFLOAD_SUCCESS, Region, TargetTable};
use std::ffi::c_void;
use std::mem::{forget, transmute_copy};
use std::ptr::{null, null_mut};

/// A plugin call failed with this code, and the line that names the function has been printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed(pub i32);

/// A result of a plugin call that has nothing to tell but whether it worked.
pub type Done = Result<(), Failed>;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of one plugin that the core calls; none where the plugin lacks one.
        #[derive(Debug)]
        struct Functions {
            $($(#[$doc])* $name: Option<unsafe extern "C" fn($($argument),*) -> $result>,)*
        }

        /// The symbols, for the lines that name a function.
        #[allow(dead_code, non_upper_case_globals)]
        mod symbol {
            $(pub const $name: &str = $symbol;)*
        }

        impl Functions {
            /// Looks every function up by its symbol.
            ///
            /// # Safety
            ///
            /// What `find` answers for a symbol is null or a function of the type that LLVM 14's `rtl.h` gives it.
            unsafe fn resolve(mut find: impl FnMut(&str) -> *const c_void) -> Self {
                Self {
                    $($name: {
                        let address = find($symbol);
                        // SAFETY: null is no function; otherwise the type is right by this function's contract.
                        unsafe { transmute_copy::<*const c_void, Option<unsafe extern "C" fn($($argument),*) -> $result>>(&address) }
                    },)*
                }
            }
        }
    };
}

type Queue = *mut AsyncInfo;

functions! {
    init_requires = "__tgt_rtl_init_requires"(i64) -> i64;
    init_device = "__tgt_rtl_init_device"(i32) -> i32;
    load_binary = "__tgt_rtl_load_binary"(i32, *mut c_void) -> *mut TargetTable;
    data_alloc = "__tgt_rtl_data_alloc"(i32, i64, *mut c_void, i32) -> *mut c_void;
    data_delete = "__tgt_rtl_data_delete"(i32, *mut c_void) -> i32;
    data_submit = "__tgt_rtl_data_submit"(i32, *mut c_void, *mut c_void, i64) -> i32;
    data_submit_async = "__tgt_rtl_data_submit_async"(i32, *mut c_void, *mut c_void, i64, Queue) -> i32;
    data_retrieve = "__tgt_rtl_data_retrieve"(i32, *mut c_void, *mut c_void, i64) -> i32;
    data_retrieve_async = "__tgt_rtl_data_retrieve_async"(i32, *mut c_void, *mut c_void, i64, Queue) -> i32;
    is_data_exchangable = "__tgt_rtl_is_data_exchangable"(i32, i32) -> i32;
    data_exchange = "__tgt_rtl_data_exchange"(i32, *mut c_void, i32, *mut c_void, i64) -> i32;
    data_exchange_async = "__tgt_rtl_data_exchange_async"(i32, *mut c_void, i32, *mut c_void, i64, Queue) -> i32;
    run_region = "__tgt_rtl_run_target_region"(i32, *mut c_void, *mut *mut c_void, *mut isize, i32) -> i32;
    run_region_async = "__tgt_rtl_run_target_region_async"(i32, *mut c_void, *mut *mut c_void, *mut isize, i32, Queue) -> i32;
    run_team_region = "__tgt_rtl_run_target_team_region"(i32, *mut c_void, *mut *mut c_void, *mut isize, i32, i32, i32, u64) -> i32;
    run_team_region_async = "__tgt_rtl_run_target_team_region_async"(i32, *mut c_void, *mut *mut c_void, *mut isize, i32, i32, i32, u64, Queue) -> i32;
    synchronize = "__tgt_rtl_synchronize"(i32, Queue) -> i32;
    print_device_info = "__tgt_rtl_print_device_info"(i32) -> ();
    create_event = "__tgt_rtl_create_event"(i32, *mut *mut c_void) -> i32;
    record_event = "__tgt_rtl_record_event"(i32, *mut c_void, Queue) -> i32;
    wait_event = "__tgt_rtl_wait_event"(i32, *mut c_void, Queue) -> i32;
    sync_event = "__tgt_rtl_sync_event"(i32, *mut c_void) -> i32;
    destroy_event = "__tgt_rtl_destroy_event"(i32, *mut c_void) -> i32;
}

/// A plugin as one of its devices uses it.
#[derive(Debug)]
pub struct Plugin {
    functions: Functions,
    /// The device's OpenMP number, for lines. The C++ face's `DeviceID` is this very integer.
    device: AtomicI32,
    /// The device's number within the plugin. The C++ face's `RTLDeviceID` is this very integer.
    local: AtomicI32,
}

/// Calls a function that the plugin may lack, which then counts as success.
macro_rules! optional {
    ($plugin:ident.$name:ident $(, $argument:expr)*) => {
        match $plugin.functions.$name {
            // SAFETY: the type is right, see `resolve`; the arguments are valid by the contract of the method around.
            Some(function) => $plugin.done(unsafe { function($plugin.local() $(, $argument)*) }, symbol::$name),
            None => Ok(()),
        }
    };
}

/// Calls a function without which the plugin cannot do what is asked.
macro_rules! required {
    ($plugin:ident.$name:ident $(, $argument:expr)*) => {
        match $plugin.functions.$name {
            Some(_) => optional!($plugin.$name $(, $argument)*),
            None => Err($plugin.missing(symbol::$name)),
        }
    };
}

impl Plugin {
    fn new(functions: Functions) -> Self {
        Self { functions, device: AtomicI32::new(-1), local: AtomicI32::new(-1) }
    }

    /// The device's OpenMP number; -1 until LLVM has given it one.
    pub fn device(&self) -> i32 {
        self.device.load(Ordering::Relaxed)
    }

    fn local(&self) -> i32 {
        self.local.load(Ordering::Relaxed)
    }

    /// Where the C++ face keeps `DeviceID` and `RTLDeviceID`.
    pub const fn numbers(&self) -> [&AtomicI32; 2] {
        [&self.device, &self.local]
    }

    #[inline(always)]
    fn done(&self, code: i32, function: &str) -> Done {
        if code == OFFLOAD_SUCCESS { Ok(()) } else { Err(self.failed(code, function)) }
    }

    #[cold]
    fn failed(&self, code: i32, function: &str) -> Failed {
        report::plugin_failed(function, self.device());
        Failed(code)
    }

    #[cold]
    fn missing(&self, function: &str) -> Failed {
        report::refused(format_args!("the plugin of device {} has no {function}", self.device()));
        Failed(OFFLOAD_FAIL)
    }

    /// The functions of an open library.
    ///
    /// # Safety
    ///
    /// `library` is a handle from `dlopen` of a plugin for LLVM 14, and stays open.
    pub unsafe fn from_library(library: *mut c_void) -> Self {
        // SAFETY: a handle from `dlopen`, by this function's contract.
        let library = unsafe { Library::from_raw(library) };
        let find = |name: &str| {
            // SAFETY: only the address is taken here; `resolve` gives it its type.
            let found = unsafe { library.get::<*const c_void>(name) };
            found.map_or(null(), |found: Symbol<_>| found.into_raw().cast_const())
        };
        // SAFETY: a plugin's symbols have the types of LLVM's loader.
        let functions = unsafe { Functions::resolve(find) };
        // LLVM keeps plugins open, and the addresses are in use.
        forget(library);
        Self::new(functions)
    }

    /// The functions of a plugin that has no library, as name and address.
    ///
    /// # Safety
    ///
    /// Each address is null or that of a function of the type that LLVM 14's `rtl.h` gives that name.
    pub unsafe fn from_addresses<'n>(functions: impl Iterator<Item = (&'n str, *const c_void)> + Clone) -> Self {
        let find =
            |name: &str| functions.clone().find(|(known, _)| *known == name).map_or(null(), |(_, address)| address);
        // SAFETY: the types are right by this function's contract.
        Self::new(unsafe { Functions::resolve(find) })
    }

    /// Tells the plugin what the program requires, then initialises the device.
    pub fn init_device(&self, requires: i64) -> Done {
        if let Some(init_requires) = self.functions.init_requires {
            // SAFETY: a function of this type, see `resolve`; it takes no pointers.
            unsafe { init_requires(requires) };
        }
        required!(self.init_device)
    }

    /// Loads an image; null if the plugin cannot.
    ///
    /// # Safety
    ///
    /// `image` is a `__tgt_device_image` of this plugin.
    pub unsafe fn load_binary(&self, image: *mut c_void) -> *mut TargetTable {
        let Some(load_binary) = self.functions.load_binary else {
            self.missing(symbol::load_binary);
            return null_mut();
        };
        // SAFETY: the image is valid by this function's contract.
        let table = unsafe { load_binary(self.local(), image) };
        if table.is_null() {
            report::plugin_failed(symbol::load_binary, self.device());
        }
        table
    }

    /// Allocates device memory; null if there is none. `host` is a hint that LLVM's plugins ignore.
    pub fn data_alloc(&self, size: i64, host: usize, kind: i32) -> *mut c_void {
        let Some(data_alloc) = self.functions.data_alloc else {
            self.missing(symbol::data_alloc);
            return null_mut();
        };
        // SAFETY: a function of this type, see `resolve`; it does not read behind `host`.
        let memory = unsafe { data_alloc(self.local(), size, host as *mut c_void, kind) };
        if memory.is_null() {
            report::plugin_failed(symbol::data_alloc, self.device());
        }
        memory
    }

    /// Frees device memory.
    ///
    /// # Safety
    ///
    /// `target` is from [`data_alloc`](Self::data_alloc) of this device and nothing uses it any more.
    pub unsafe fn data_delete(&self, target: *mut c_void) -> Done {
        required!(self.data_delete, target)
    }

    fn can_synchronize(&self) -> bool {
        self.functions.synchronize.is_some()
    }

    /// Copies to the device, on `queue` if the plugin can.
    ///
    /// # Safety
    ///
    /// Both ranges are `size` bytes; the host's stays valid and unchanged until `queue` has been synchronised. `queue`
    /// belongs to this device.
    pub unsafe fn data_submit(&self, target: *mut c_void, host: *mut c_void, size: i64, queue: Queue) -> Done {
        if self.functions.data_submit_async.is_some() && self.can_synchronize() {
            required!(self.data_submit_async, target, host, size, queue)
        } else {
            required!(self.data_submit, target, host, size)
        }
    }

    /// Copies from the device, on `queue` if the plugin can.
    ///
    /// # Safety
    ///
    /// As for [`data_submit`](Self::data_submit); the host's range may be written until then.
    pub unsafe fn data_retrieve(&self, host: *mut c_void, target: *mut c_void, size: i64, queue: Queue) -> Done {
        if self.functions.data_retrieve_async.is_some() && self.can_synchronize() {
            required!(self.data_retrieve_async, host, target, size, queue)
        } else {
            required!(self.data_retrieve, host, target, size)
        }
    }

    /// Whether this device can copy to device `to` of the same plugin.
    pub fn is_data_exchangable(&self, to: &Self) -> bool {
        let Some(is_data_exchangable) = self.functions.is_data_exchangable else { return false };
        // SAFETY: a function of this type, see `resolve`; it takes no pointers.
        let yes = unsafe { is_data_exchangable(self.local(), to.local()) } != 0;
        yes && (self.functions.data_exchange.is_some() || self.functions.data_exchange_async.is_some())
    }

    /// Copies from this device to device `to` of the same plugin, on `queue` if the plugin can.
    ///
    /// # Safety
    ///
    /// Both ranges are `size` bytes of their device, and `queue` belongs to this one.
    pub unsafe fn data_exchange(
        &self,
        source: *mut c_void,
        to: &Self,
        target: *mut c_void,
        size: i64,
        queue: Queue,
    ) -> Done {
        if self.functions.data_exchange_async.is_some() && self.can_synchronize() {
            required!(self.data_exchange_async, source, to.local(), target, size, queue)
        } else {
            required!(self.data_exchange, source, to.local(), target, size)
        }
    }

    /// Launches a region by one thread, on `queue` if the plugin can.
    ///
    /// # Safety
    ///
    /// `region` and its arguments are valid for this device, and `queue` belongs to it.
    pub unsafe fn run_region(&self, region: &Region, queue: Queue) -> Done {
        let Region { entry, arguments, offsets, count, .. } = *region;
        if self.functions.run_region_async.is_some() && self.can_synchronize() {
            required!(self.run_region_async, entry, arguments, offsets, count, queue)
        } else {
            required!(self.run_region, entry, arguments, offsets, count)
        }
    }

    /// Launches a region by teams, on `queue` if the plugin can.
    ///
    /// # Safety
    ///
    /// As for [`run_region`](Self::run_region).
    pub unsafe fn run_team_region(&self, region: &Region, queue: Queue) -> Done {
        let Region { entry, arguments, offsets, count, teams, thread_limit, trip_count } = *region;
        if self.functions.run_team_region_async.is_some() && self.can_synchronize() {
            required!(
                self.run_team_region_async,
                entry,
                arguments,
                offsets,
                count,
                teams,
                thread_limit,
                trip_count,
                queue
            )
        } else {
            required!(self.run_team_region, entry, arguments, offsets, count, teams, thread_limit, trip_count)
        }
    }

    /// Waits for all work on `queue` and gives it back.
    ///
    /// # Safety
    ///
    /// `queue` belongs to this device.
    pub unsafe fn synchronize(&self, queue: Queue) -> Done {
        optional!(self.synchronize, queue)
    }

    /// Prints what the plugin knows of the device; false if it cannot.
    pub fn print_device_info(&self, local: i32) -> bool {
        let Some(print_device_info) = self.functions.print_device_info else { return false };
        // SAFETY: a function of this type, see `resolve`; it takes no pointers.
        unsafe { print_device_info(local) };
        true
    }

    /// Makes an event; none if the plugin has no events.
    pub fn create_event(&self) -> Result<Option<Event>, Failed> {
        let mut event = null_mut();
        optional!(self.create_event, &raw mut event)?;
        Ok(Event::from_address(event.addr()))
    }

    /// Makes `event` stand for all work that is on `queue` now.
    ///
    /// # Safety
    ///
    /// `event` is from [`create_event`](Self::create_event) of this device, `queue` belongs to it.
    pub unsafe fn record_event(&self, event: Event, queue: Queue) -> Done {
        optional!(self.record_event, event.address() as *mut c_void, queue)
    }

    /// Makes later work on `queue` wait for what `event` stands for, without blocking the host.
    ///
    /// # Safety
    ///
    /// As for [`record_event`](Self::record_event).
    pub unsafe fn wait_event(&self, event: Event, queue: Queue) -> Done {
        optional!(self.wait_event, event.address() as *mut c_void, queue)
    }

    /// Blocks until what `event` stands for is done.
    ///
    /// # Safety
    ///
    /// `event` is from [`create_event`](Self::create_event) of this device.
    pub unsafe fn sync_event(&self, event: Event) -> Done {
        optional!(self.sync_event, event.address() as *mut c_void)
    }

    /// Gives an event back.
    ///
    /// # Safety
    ///
    /// As for [`sync_event`](Self::sync_event), and nobody uses `event` any more.
    pub unsafe fn destroy_event(&self, event: Event) -> Done {
        optional!(self.destroy_event, event.address() as *mut c_void)
    }
}
