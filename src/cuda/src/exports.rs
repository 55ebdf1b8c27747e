//! Every `__tgt_rtl_` function that LLVM's CUDA plugin exports, and nothing else.
//!
//! Each catches a panic, says which function had it, and answers that function's failed value. Bad device numbers, null
//! pointers and negative sizes are refused with one line.

use crate::device::{Direction, Done, Refused};
use crate::info::print_device_info;
use crate::module::{self, Loading};
use crate::plugin::{plugin, stop};
use crate::report::{self, report};
use omptarget_abi::{AsyncInfo, DeviceImage, DeviceInfo, OFFLOAD_FAIL, OFFLOAD_SUCCESS, Region, TargetTable};
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};

/// Makes the plugin when the library is loaded, as LLVM's does.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        guard("the CUDA plugin's start", (), || {
            plugin();
        });
    }
    start
};

/// Gives everything back when the library is unloaded, after the runtime's last call.
#[used]
#[unsafe(link_section = ".fini_array")]
static STOP: extern "C" fn() = {
    extern "C" fn end() {
        guard("the CUDA plugin's end", (), stop);
    }
    end
};

fn guard<T>(function: &str, failed: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        report!("Bug: panic in {function}");
        failed
    })
}

fn code(done: Done) -> i32 {
    if done.is_ok() { OFFLOAD_SUCCESS } else { OFFLOAD_FAIL }
}

/// The thing behind a pointer that must not be null.
fn given<T>(pointer: *mut T, what: &str, function: &str) -> Done<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| {
        report!("{function}: {what} is null");
        Refused
    })
}

fn bytes(size: i64, function: &str) -> Done<usize> {
    usize::try_from(size).map_err(|_| {
        report!("{function}: a size of {size} bytes");
        Refused
    })
}

/// Defines an export: its panics and refusals become `$failed`.
macro_rules! export {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $failed:expr, $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Pointers are null or as LLVM's `omptargetplugin.h` says of this function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            #[allow(dead_code)]
            const NAME: &str = stringify!($name);
            guard(NAME, $failed, || $body)
        }
    };
}

/// Defines an export that answers a code, with `?` inside.
macro_rules! export_code {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) |$function:ident| $body:block) => {
        export! {
            $(#[$doc])*
            fn $name($($argument: $type),*) -> i32, OFFLOAD_FAIL, {
                let body = |$function: &'static str| -> Done { $body };
                code(body(stringify!($name)))
            }
        }
    };
}

/// Runs an asynchronous operation and waits for it, on a queue of its own.
fn at_once(number: i32, issue: impl FnOnce(&mut AsyncInfo) -> Done) -> Done {
    let mut info = AsyncInfo { queue: null_mut() };
    let issued = issue(&mut info);
    if info.queue.is_null() {
        return issued;
    }
    // The stream goes back to its pool even if nothing was issued on it.
    let synchronized = plugin().synchronize(number, &mut info);
    issued.and(synchronized)
}

export! {
    /// Whether this plugin can use an image: an ELF file for CUDA.
    fn __tgt_rtl_is_valid_binary(image: *mut DeviceImage) -> i32, 0, {
        let Ok(image) = given(image, "the image", NAME) else { return 0 };
        // SAFETY: an image of the program, by the function's contract.
        let image = unsafe { image.as_ref() };
        // SAFETY: as above.
        i32::from(unsafe { module::is_for_cuda(image) })
    }
}

export! {
    /// How many devices there are.
    fn __tgt_rtl_number_of_devices() -> i32, 0, {
        plugin().count() as i32
    }
}

export! {
    /// Takes over what the program requires, and answers it.
    fn __tgt_rtl_init_requires(flags: i64) -> i64, flags, {
        plugin().set_requires(flags);
        flags
    }
}

export! {
    /// Whether two devices can copy to each other.
    fn __tgt_rtl_is_data_exchangable(from: i32, to: i32) -> i32, 0, {
        i32::from(plugin().has(from) && plugin().has(to))
    }
}

export_code! {
    /// Initialises a device.
    fn __tgt_rtl_init_device(number: i32) |_function| {
        let plugin = plugin();
        let (device, driver) = plugin.device(number)?;
        device.initialise(driver, &plugin.settings)
    }
}

export! {
    /// Loads an image on a device; null if that fails.
    fn __tgt_rtl_load_binary(number: i32, image: *mut DeviceImage) -> *mut TargetTable, null_mut(), {
        let plugin = plugin();
        let Ok((device, driver)) = plugin.device(number) else { return null_mut() };
        let Ok(image) = given(image, "the image", NAME) else { return null_mut() };
        let (settings, requires, devices) = (&plugin.settings, plugin.requires(), plugin.count());
        // SAFETY: an image of the program, by the function's contract.
        let image = unsafe { image.as_ref() };
        // SAFETY: as above.
        unsafe { device.load(Loading { driver, settings, requires, devices }, image) }.unwrap_or(null_mut())
    }
}

export! {
    /// Allocates memory; null if that fails.
    fn __tgt_rtl_data_alloc(number: i32, size: i64, _host: *mut c_void, kind: i32) -> *mut c_void, null_mut(), {
        let Ok(size) = bytes(size, NAME) else { return null_mut() };
        plugin().allocate(number, size, kind).unwrap_or(null_mut())
    }
}

export_code! {
    /// Frees memory.
    fn __tgt_rtl_data_delete(number: i32, target: *mut c_void) |function| {
        plugin().free(number, given(target, "the memory", function)?.as_ptr())
    }
}

/// Copies between the host and a device on the queue of `info`.
///
/// # Safety
///
/// The ranges are valid, the host's until the queue has been synchronised.
unsafe fn copy(
    number: i32,
    direction: Direction,
    host: *mut c_void,
    target: *mut c_void,
    size: usize,
    info: &mut AsyncInfo,
) -> Done {
    let (device, driver) = plugin().device(number)?;
    // SAFETY: the same contract.
    unsafe { device.copy(driver, direction, host, target, size, info) }
}

export_code! {
    /// Copies to a device on a queue.
    fn __tgt_rtl_data_submit_async(number: i32, target: *mut c_void, host: *mut c_void, size: i64, info: *mut AsyncInfo) |function| {
        let (size, mut info) = (bytes(size, function)?, given(info, "the async info", function)?);
        // SAFETY: the call's own, by the function's contract.
        let info = unsafe { info.as_mut() };
        // SAFETY: the ranges are valid, by the function's contract.
        unsafe { copy(number, Direction::ToDevice, host, target, size, info) }
    }
}

export_code! {
    /// Copies to a device and waits.
    fn __tgt_rtl_data_submit(number: i32, target: *mut c_void, host: *mut c_void, size: i64) |function| {
        let size = bytes(size, function)?;
        // SAFETY: the ranges are valid, by the function's contract.
        at_once(number, |info| unsafe { copy(number, Direction::ToDevice, host, target, size, info) })
    }
}

export_code! {
    /// Copies from a device on a queue.
    fn __tgt_rtl_data_retrieve_async(number: i32, host: *mut c_void, target: *mut c_void, size: i64, info: *mut AsyncInfo) |function| {
        let (size, mut info) = (bytes(size, function)?, given(info, "the async info", function)?);
        // SAFETY: the call's own, by the function's contract.
        let info = unsafe { info.as_mut() };
        // SAFETY: the ranges are valid, by the function's contract.
        unsafe { copy(number, Direction::FromDevice, host, target, size, info) }
    }
}

export_code! {
    /// Copies from a device and waits.
    fn __tgt_rtl_data_retrieve(number: i32, host: *mut c_void, target: *mut c_void, size: i64) |function| {
        let size = bytes(size, function)?;
        // SAFETY: the ranges are valid, by the function's contract.
        at_once(number, |info| unsafe { copy(number, Direction::FromDevice, host, target, size, info) })
    }
}

export_code! {
    /// Copies between devices on a queue of the first.
    fn __tgt_rtl_data_exchange_async(from: i32, source: *mut c_void, to: i32, target: *mut c_void, size: i64, info: *mut AsyncInfo) |function| {
        let (size, mut info) = (bytes(size, function)?, given(info, "the async info", function)?);
        // SAFETY: the call's own, by the function's contract.
        let info = unsafe { info.as_mut() };
        // SAFETY: the ranges are valid, by the function's contract.
        unsafe { plugin().exchange(from, source, to, target, size, info) }
    }
}

export_code! {
    /// Copies between devices and waits.
    fn __tgt_rtl_data_exchange(from: i32, source: *mut c_void, to: i32, target: *mut c_void, size: i64) |function| {
        let size = bytes(size, function)?;
        // SAFETY: the ranges are valid, by the function's contract.
        at_once(from, |info| unsafe { plugin().exchange(from, source, to, target, size, info) })
    }
}

/// Launches a region on the queue of `info`.
///
/// # Safety
///
/// The arrays are as the kernel takes them.
unsafe fn launch(number: i32, region: &Region, info: &mut AsyncInfo) -> Done {
    let plugin = plugin();
    let (device, driver) = plugin.device(number)?;
    // SAFETY: the same contract.
    unsafe { device.launch(driver, &plugin.settings, region, info) }
}

export_code! {
    /// Launches a region by teams on a queue.
    fn __tgt_rtl_run_target_team_region_async(
        number: i32, entry: *mut c_void, arguments: *mut *mut c_void, offsets: *mut isize, count: i32, teams: i32,
        thread_limit: i32, trip_count: u64, info: *mut AsyncInfo
    ) |function| {
        let mut info = given(info, "the async info", function)?;
        let region = Region { entry, arguments, offsets, count, teams, thread_limit, trip_count };
        // SAFETY: the call's own, by the function's contract.
        let info = unsafe { info.as_mut() };
        // SAFETY: the arrays are as the kernel takes them, by the function's contract.
        unsafe { launch(number, &region, info) }
    }
}

export_code! {
    /// Launches a region by teams and waits.
    fn __tgt_rtl_run_target_team_region(
        number: i32, entry: *mut c_void, arguments: *mut *mut c_void, offsets: *mut isize, count: i32, teams: i32,
        thread_limit: i32, trip_count: u64
    ) |_function| {
        let region = Region { entry, arguments, offsets, count, teams, thread_limit, trip_count };
        // SAFETY: the arrays are as the kernel takes them, by the function's contract.
        at_once(number, |info| unsafe { launch(number, &region, info) })
    }
}

export_code! {
    /// Launches a region by one thread on a queue.
    fn __tgt_rtl_run_target_region_async(
        number: i32, entry: *mut c_void, arguments: *mut *mut c_void, offsets: *mut isize, count: i32,
        info: *mut AsyncInfo
    ) |function| {
        let mut info = given(info, "the async info", function)?;
        let region = Region { entry, arguments, offsets, count, teams: 1, thread_limit: 1, trip_count: 0 };
        // SAFETY: the call's own, by the function's contract.
        let info = unsafe { info.as_mut() };
        // SAFETY: the arrays are as the kernel takes them, by the function's contract.
        unsafe { launch(number, &region, info) }
    }
}

export_code! {
    /// Launches a region by one thread and waits.
    fn __tgt_rtl_run_target_region(
        number: i32, entry: *mut c_void, arguments: *mut *mut c_void, offsets: *mut isize, count: i32
    ) |_function| {
        let region = Region { entry, arguments, offsets, count, teams: 1, thread_limit: 1, trip_count: 0 };
        // SAFETY: the arrays are as the kernel takes them, by the function's contract.
        at_once(number, |info| unsafe { launch(number, &region, info) })
    }
}

export_code! {
    /// Waits for a queue and gives it back.
    fn __tgt_rtl_synchronize(number: i32, info: *mut AsyncInfo) |function| {
        let mut info = given(info, "the async info", function)?;
        // SAFETY: the call's own, by the function's contract.
        plugin().synchronize(number, unsafe { info.as_mut() })
    }
}

export! {
    /// Sets the information level.
    fn __tgt_rtl_set_info_flag(level: u32) -> (), (), {
        report::set_info_level(level);
    }
}

export! {
    /// Prints what the driver says of a device.
    fn __tgt_rtl_print_device_info(number: i32) -> (), (), {
        if let Ok((_, driver)) = plugin().device(number) {
            print_device_info(driver, number);
        }
    }
}

export_code! {
    /// Makes an event of a device.
    fn __tgt_rtl_create_event(number: i32, event: *mut *mut c_void) |function| {
        let event = given(event, "the event's place", function)?;
        let (device, driver) = plugin().device(number)?;
        let created = device.create_event(driver)?;
        // SAFETY: may be written to, by the function's contract.
        unsafe { event.write(created) };
        Ok(())
    }
}

export_code! {
    /// Records what is on a queue now.
    fn __tgt_rtl_record_event(number: i32, event: *mut c_void, info: *mut AsyncInfo) |function| {
        let (event, mut info) = (given(event, "the event", function)?, given(info, "the async info", function)?);
        let (device, driver) = plugin().device(number)?;
        // SAFETY: the call's own, by the function's contract.
        device.record_event(driver, event.as_ptr(), unsafe { info.as_mut() })
    }
}

export_code! {
    /// Makes a queue wait for an event.
    fn __tgt_rtl_wait_event(number: i32, event: *mut c_void, info: *mut AsyncInfo) |function| {
        let (event, mut info) = (given(event, "the event", function)?, given(info, "the async info", function)?);
        let (device, driver) = plugin().device(number)?;
        // SAFETY: the call's own, by the function's contract.
        device.wait_event(driver, event.as_ptr(), unsafe { info.as_mut() })
    }
}

export_code! {
    /// Blocks until an event's work is done.
    fn __tgt_rtl_sync_event(number: i32, event: *mut c_void) |function| {
        let event = given(event, "the event", function)?;
        let (device, driver) = plugin().device(number)?;
        device.sync_event(driver, event.as_ptr())
    }
}

export_code! {
    /// Gives an event back.
    fn __tgt_rtl_destroy_event(number: i32, event: *mut c_void) |function| {
        let event = given(event, "the event", function)?;
        plugin().device(number)?.0.destroy_event(event.as_ptr())
    }
}

export_code! {
    /// Makes an async info with a queue, for an interoperability object.
    fn __tgt_rtl_init_async_info(number: i32, info: *mut *mut AsyncInfo) |function| {
        let place = given(info, "the async info's place", function)?;
        let (device, driver) = plugin().device(number)?;
        device.enter(driver)?;
        let mut info = Box::new(AsyncInfo { queue: null_mut() });
        device.stream(driver, &mut info)?;
        // The runtime of LLVM 14 never gives it back.
        // SAFETY: may be written to, by the function's contract.
        unsafe { place.write(Box::into_raw(info)) };
        Ok(())
    }
}

export_code! {
    /// Tells an interoperability object the device's context and the driver's device, where it has none.
    fn __tgt_rtl_init_device_info(number: i32, info: *mut DeviceInfo, error: *mut *const c_char) |function| {
        let mut info = given(info, "the device info", function)?;
        let (device, driver) = plugin().device(number)?;
        // SAFETY: may be read and written, by the function's contract.
        let info = unsafe { info.as_mut() };
        if info.context.is_null() {
            info.context = device.context()?.cast();
        }
        if info.device.is_null() {
            let mut found = 0;
            // SAFETY: `found` may be written to.
            if let Err(crate::driver::Failed(code)) = unsafe { driver.device_get(&raw mut found, number) } {
                if let Some(error) = NonNull::new(error) {
                    // SAFETY: may be written to; the driver answers a string of its own, or an error that leaves it.
                    let _ = unsafe { driver.get_error_string(code, error.as_ptr()) };
                }
                crate::device::report_call(driver, "cuDeviceGet", code);
                return Err(Refused);
            }
            info.device = found as usize as *mut c_void;
        }
        Ok(())
    }
}
