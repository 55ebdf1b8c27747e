//! `DeviceTy`, and what `PluginManager` tells the core at start-up.

use super::{AsyncInfo, Void, call};
use crate::device::{self, CopyIn, Device, Found, Handle, TargetPointer};
use crate::mapping::{BeginRequest, CountKind, EndRequest, Event, HostRange};
use crate::plugin_api::{Done, Plugin};
use crate::report;
use omptarget_abi::{OFFLOAD_SUCCESS, Region};
use std::ptr::{NonNull, null};

/// The declarations; see the functions of the same names around.
#[allow(missing_docs, clippy::multiple_unsafe_ops_per_block)]
#[cxx::bridge(namespace = "omprs")]
pub mod ffi {
    /// A plugin function that LLVM's `RTLInfoTy` knows.
    struct PluginFunction<'a> {
        name: &'a str,
        address: *const Void,
    }

    /// See [`crate::device::Found`].
    #[repr(u64)]
    enum Found {
        Nothing,
        Host,
        Mapped,
        New,
        Last,
    }

    /// What both answer. `entry` is null, or lives as long as the call; `counted` is the same if it is a handle, which
    /// lives as long as it is kept.
    struct Answer {
        target: *mut Void,
        entry: *const Entry,
        counted: *const Entry,
        found: Found,
    }

    /// The arguments of `runRegion` and `runTeamRegion`.
    struct Launch {
        tgt_entry_ptr: *mut Void,
        tgt_vars_ptr: *mut *mut Void,
        tgt_offsets: *mut isize,
        tgt_vars_size: i32,
        num_teams: i32,
        thread_limit: i32,
        loop_trip_count: u64,
        is_team: bool,
    }

    unsafe extern "C++" {
        include!("omptarget/aliases.h");
        include!("omptarget/requests.h");
        type Void = super::Void;
        type AsyncInfo = super::AsyncInfo;
        type Entry = crate::mapping::Entry;
        type BeginRequest = crate::mapping::BeginRequest;
        type EndRequest = crate::mapping::EndRequest;
    }

    extern "Rust" {
        #[derive(ExternType)]
        type Device;

        #[cxx_name = "startReport"]
        unsafe fn start_report(debug_level: u32, built_in: bool, info_level: *const u32);
        #[cxx_name = "deviceIsMissing"]
        fn device_is_missing(number: i32);

        #[cxx_name = "newDevice"]
        unsafe fn new_device(library: *mut Void, functions: &[PluginFunction], use_events: bool) -> Box<Device>;
        #[cxx_name = "deviceID"]
        fn device_id(device: &Device) -> *mut i32;
        #[cxx_name = "rtlDeviceID"]
        fn rtl_device_id(device: &Device) -> *mut i32;
        #[cxx_name = "makeReady"]
        fn make_ready(self: &Device, number: i32, requires_flags: i64) -> bool;
        #[cxx_name = "initOnce"]
        fn init_once_ffi(device: &Device, requires_flags: i64) -> i32;
        #[cxx_name = "printDeviceInfo"]
        fn print_device_info(device: &Device, rtl_device_id: i32) -> bool;
        #[cxx_name = "loadBinary"]
        unsafe fn load_binary_ffi(device: &Device, image: *mut Void) -> *mut Void;

        #[cxx_name = "getTargetPointer"]
        unsafe fn get_target_pointer(
            device: &Device,
            request: &BeginRequest,
            has_flag_to: bool,
            has_flag_always: bool,
            info: *mut AsyncInfo,
            answer: *mut Answer,
        );
        #[cxx_name = "getTgtPtrBegin"]
        unsafe fn get_tgt_ptr_begin(device: &Device, request: &EndRequest, answer: *mut Answer);
        #[cxx_name = "deallocTgtPtr"]
        unsafe fn dealloc_tgt_ptr(device: &Device, hst_ptr_begin: *mut Void, size: i64, hold: bool) -> i32;
        #[cxx_name = "associatePtr"]
        unsafe fn associate_ptr(device: &Device, hst_ptr_begin: *mut Void, tgt_ptr_begin: *mut Void, size: i64) -> i32;
        #[cxx_name = "isAttached"]
        unsafe fn is_attached(device: &Device, hst_ptr: *mut Void, tgt_ptr_val: *mut Void) -> bool;
        #[cxx_name = "disassociatePtr"]
        unsafe fn disassociate_ptr(device: &Device, hst_ptr_begin: *mut Void) -> i32;

        #[cxx_name = "allocData"]
        unsafe fn alloc_data(device: &Device, size: i64, hst_ptr: *mut Void, kind: i32) -> *mut Void;
        #[cxx_name = "deleteData"]
        unsafe fn delete_data(device: &Device, tgt_ptr: *mut Void) -> i32;
        #[cxx_name = "submitData"]
        unsafe fn submit_data(
            device: &Device,
            tgt_ptr: *mut Void,
            hst_ptr: *mut Void,
            size: i64,
            info: *mut AsyncInfo,
        ) -> i32;
        #[cxx_name = "retrieveData"]
        unsafe fn retrieve_data(
            device: &Device,
            hst_ptr: *mut Void,
            tgt_ptr: *mut Void,
            size: i64,
            info: *mut AsyncInfo,
        ) -> i32;
        #[cxx_name = "isDataExchangable"]
        fn is_data_exchangable(device: &Device, other: &Device) -> bool;
        #[cxx_name = "dataExchange"]
        unsafe fn data_exchange(
            device: &Device,
            src_ptr: *mut Void,
            other: &Device,
            dst_ptr: *mut Void,
            size: i64,
            info: *mut AsyncInfo,
        ) -> i32;
        #[cxx_name = "run"]
        unsafe fn run_ffi(device: &Device, launch: &Launch, info: *mut AsyncInfo) -> i32;
        unsafe fn synchronize(info: *mut AsyncInfo) -> i32;

        #[cxx_name = "createEvent"]
        unsafe fn create_event(device: &Device, event: *mut *mut Void) -> i32;
        #[cxx_name = "recordEvent"]
        unsafe fn record_event(device: &Device, event: *mut Void, info: *mut AsyncInfo) -> i32;
        #[cxx_name = "waitEvent"]
        unsafe fn wait_event(device: &Device, event: *mut Void, info: *mut AsyncInfo) -> i32;
        #[cxx_name = "syncEvent"]
        unsafe fn sync_event(device: &Device, event: *mut Void) -> i32;
        #[cxx_name = "destroyEvent"]
        unsafe fn destroy_event(device: &Device, event: *mut Void) -> i32;
    }
}

use ffi::{Answer, Launch, PluginFunction};

/// Takes over LLVM's debug and information level.
///
/// # Safety
///
/// `info_level` is LLVM's `std::atomic<uint32_t>`, which lives as long as the program.
unsafe fn start_report(debug_level: u32, built_in: bool, info_level: *const u32) {
    let info_level = NonNull::new(info_level.cast_mut().cast()).expect("a function-local static");
    // SAFETY: an atomic of 32 bits that lives as long as the program, by this function's contract.
    unsafe { report::start(debug_level > 0, built_in, info_level) };
}

fn device_is_missing(number: i32) {
    device::is_missing(number);
}

/// A device of the plugin behind `library`, or of `functions` where there is no library.
///
/// # Safety
///
/// `library` is null or an open plugin for LLVM 14; `functions` have the types of `rtl.h`.
unsafe fn new_device(library: *mut Void, functions: &[PluginFunction], use_events: bool) -> Box<Device> {
    let plugin = match NonNull::new(library) {
        // SAFETY: an open plugin, by this function's contract.
        Some(library) => unsafe { Plugin::from_library(library.as_ptr().cast()) },
        // SAFETY: the types are right by this function's contract.
        None => unsafe {
            Plugin::from_addresses(functions.iter().map(|function| (function.name, function.address.cast())))
        },
    };
    Box::new(Device::new(plugin, use_events))
}

fn device_id(device: &Device) -> *mut i32 {
    device.plugin().numbers()[0].as_ptr()
}

fn rtl_device_id(device: &Device) -> *mut i32 {
    device.plugin().numbers()[1].as_ptr()
}

fn init_once_ffi(device: &Device, requires_flags: i64) -> i32 {
    if device.init_once(requires_flags) { OFFLOAD_SUCCESS } else { omptarget_abi::OFFLOAD_FAIL }
}

fn print_device_info(device: &Device, rtl_device_id: i32) -> bool {
    device.plugin().print_device_info(rtl_device_id)
}

/// # Safety
///
/// `image` is a `__tgt_device_image` of the device's plugin.
unsafe fn load_binary_ffi(device: &Device, image: *mut Void) -> *mut Void {
    // SAFETY: the same contract.
    unsafe { device.load_binary(image.cast()) }.cast()
}

#[inline(always)]
fn to_cxx(pointer: TargetPointer<'_>) -> Answer {
    let (entry, counted) = match pointer.entry {
        Some(Handle::Counted(entry)) => {
            let entry = entry.into_raw();
            (entry, entry)
        }
        Some(Handle::OfCall(entry)) => (entry.as_ptr().cast_const(), null()),
        None => (null(), null()),
    };
    let found = match pointer.found {
        Found::Nothing => ffi::Found::Nothing,
        Found::Host => ffi::Found::Host,
        Found::Mapped => ffi::Found::Mapped,
        Found::New => ffi::Found::New,
        Found::Last => ffi::Found::Last,
    };
    Answer { target: pointer.target.cast(), entry, counted, found }
}

/// What writes an answer where C++ wants it.
///
/// # Safety
///
/// `place` has room for one; it need not hold one yet.
#[inline(always)]
unsafe fn answer_at<'d>(place: *mut Answer) -> impl FnOnce(TargetPointer<'d>) {
    // SAFETY: the same contract.
    move |pointer| unsafe { place.write(to_cxx(pointer)) }
}

/// # Safety
///
/// The range and the name are valid as `targetDataBegin` got them from the compiler; `info` is the call's own; see
/// [`answer_at`] for `answer`.
unsafe fn get_target_pointer(
    device: &Device,
    request: &BeginRequest,
    has_flag_to: bool,
    has_flag_always: bool,
    info: *mut AsyncInfo,
    answer: *mut Answer,
) {
    let copy = CopyIn { to: has_flag_to, always: has_flag_always };
    // SAFETY: the same contract.
    let answer = unsafe { answer_at(answer) };
    // SAFETY: the same contract.
    unsafe { device.target_pointer(request, copy, call(info), answer) }
}

/// # Safety
///
/// See [`answer_at`].
unsafe fn get_tgt_ptr_begin(device: &Device, request: &EndRequest, answer: *mut Answer) {
    // SAFETY: the same contract.
    device.target_begin(request, unsafe { answer_at(answer) });
}

/// # Safety
///
/// Sound with any arguments; cxx asks for it because of the pointer.
unsafe fn dealloc_tgt_ptr(device: &Device, hst_ptr_begin: *mut Void, size: i64, hold: bool) -> i32 {
    device.release(HostRange::new(hst_ptr_begin.addr(), size), CountKind::from_hold(hold))
}

/// # Safety
///
/// `tgt_ptr_begin` is `size` bytes of the device's memory for as long as the association lasts.
unsafe fn associate_ptr(device: &Device, hst_ptr_begin: *mut Void, tgt_ptr_begin: *mut Void, size: i64) -> i32 {
    device.associate(HostRange::new(hst_ptr_begin.addr(), size), tgt_ptr_begin.addr())
}

/// # Safety
///
/// Sound with any arguments; cxx asks for it because of the pointer.
unsafe fn disassociate_ptr(device: &Device, hst_ptr_begin: *mut Void) -> i32 {
    device.disassociate(hst_ptr_begin.addr())
}

/// # Safety
///
/// Sound with any arguments; cxx asks for it because of the pointer.
unsafe fn is_attached(device: &Device, hst_ptr: *mut Void, tgt_ptr_val: *mut Void) -> bool {
    device.is_attached(hst_ptr.addr(), tgt_ptr_val.addr())
}

/// # Safety
///
/// Sound with any arguments; cxx asks for it because of the pointer.
unsafe fn alloc_data(device: &Device, size: i64, hst_ptr: *mut Void, kind: i32) -> *mut Void {
    device.plugin().data_alloc(size, hst_ptr.addr(), kind).cast()
}

/// # Safety
///
/// `tgt_ptr` is memory of the device that nothing uses any more.
unsafe fn delete_data(device: &Device, tgt_ptr: *mut Void) -> i32 {
    // SAFETY: the same contract.
    device::code(unsafe { device.plugin().data_delete(tgt_ptr.cast()) })
}

/// # Safety
///
/// Both ranges are `size` bytes, the host's valid until the call has been synchronised; `info` is the call's own.
unsafe fn submit_data(device: &Device, tgt_ptr: *mut Void, hst_ptr: *mut Void, size: i64, info: *mut AsyncInfo) -> i32 {
    // SAFETY: `info` is the call's own.
    let record = unsafe { device.record(call(info)) };
    // SAFETY: the ranges are valid by this function's contract, `targetDataBegin` has set the pointer that it attaches, and
    // `lock` has said what it has locked.
    device::code(unsafe { device.submit_as_locked(tgt_ptr.cast(), hst_ptr.cast(), size, record) })
}

/// # Safety
///
/// As for `submit_data`; the host's range may be written until then.
unsafe fn retrieve_data(
    device: &Device,
    hst_ptr: *mut Void,
    tgt_ptr: *mut Void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    // SAFETY: `info` is the call's own.
    let record = unsafe { device.record(call(info)) };
    // SAFETY: the ranges are valid by this function's contract.
    device::code(unsafe { device.retrieve(hst_ptr.cast(), tgt_ptr.cast(), size, record) })
}

fn is_data_exchangable(device: &Device, other: &Device) -> bool {
    device.plugin().is_data_exchangable(other.plugin())
}

/// # Safety
///
/// Both ranges are `size` bytes of their device; `info` is the call's own.
unsafe fn data_exchange(
    device: &Device,
    src_ptr: *mut Void,
    other: &Device,
    dst_ptr: *mut Void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    // SAFETY: `info` is the call's own.
    let record = unsafe { device.record(call(info)) };
    // SAFETY: the ranges are valid by this function's contract.
    device::code(unsafe { device.exchange(src_ptr.cast(), other, dst_ptr.cast(), size, record) })
}

/// # Safety
///
/// The entry point and the arrays are the device's, as `target` made them; `info` is the call's own.
unsafe fn run_ffi(device: &Device, launch: &Launch, info: *mut AsyncInfo) -> i32 {
    let region = Region {
        entry: launch.tgt_entry_ptr.cast(),
        arguments: launch.tgt_vars_ptr.cast(),
        offsets: launch.tgt_offsets,
        count: launch.tgt_vars_size,
        teams: launch.num_teams,
        thread_limit: launch.thread_limit,
        trip_count: launch.loop_trip_count,
    };
    // SAFETY: `info` is the call's own.
    let record = unsafe { device.record(call(info)) };
    // SAFETY: entry point and arguments are valid by this function's contract.
    device::code(unsafe { device.run(&region, launch.is_team, record) })
}

/// # Safety
///
/// `info` is the call's own.
unsafe fn synchronize(info: *mut AsyncInfo) -> i32 {
    // SAFETY: the same contract.
    device::code(unsafe { Device::synchronize(call(info)) })
}

/// # Safety
///
/// `event` may be written to.
unsafe fn create_event(device: &Device, event: *mut *mut Void) -> i32 {
    let created = device.plugin().create_event();
    let address = created.ok().flatten().map_or(0, Event::address);
    // SAFETY: may be written to, by this function's contract.
    unsafe { event.write(address as *mut Void) };
    device::code(created.map(drop))
}

/// Uses an event; a plugin without events gives out null, and all succeeds there.
fn with_event(event: *mut Void, act: impl FnOnce(Event) -> Done) -> i32 {
    device::code(Event::from_address(event.addr()).map_or(Ok(()), act))
}

/// # Safety
///
/// `event` is null or from `createEvent` of this device; `info` is the call's own.
unsafe fn record_event(device: &Device, event: *mut Void, info: *mut AsyncInfo) -> i32 {
    with_event(event, |event| {
        // SAFETY: `info` is the call's own.
        let record = unsafe { device.record(call(info)) };
        // SAFETY: the event is valid by this function's contract.
        record.issue(|queue| unsafe { device.plugin().record_event(event, queue) })
    })
}

/// # Safety
///
/// As for `record_event`.
unsafe fn wait_event(device: &Device, event: *mut Void, info: *mut AsyncInfo) -> i32 {
    with_event(event, |event| {
        // SAFETY: `info` is the call's own.
        let record = unsafe { device.record(call(info)) };
        // SAFETY: the event is valid by this function's contract.
        record.issue(|queue| unsafe { device.plugin().wait_event(event, queue) })
    })
}

/// # Safety
///
/// `event` is null or from `createEvent` of this device.
unsafe fn sync_event(device: &Device, event: *mut Void) -> i32 {
    // SAFETY: the event is valid by this function's contract.
    with_event(event, |event| unsafe { device.plugin().sync_event(event) })
}

/// # Safety
///
/// As for `sync_event`, and nobody uses the event any more.
unsafe fn destroy_event(device: &Device, event: *mut Void) -> i32 {
    // SAFETY: the event is valid by this function's contract.
    with_event(event, |event| unsafe { device.plugin().destroy_event(event) })
}
