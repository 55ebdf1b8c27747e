//! Log and error lines of the plugin, in LLVM's words; one write each.

use crate::driver::{Driver, codes};
use std::ffi::{c_char, c_int};
use std::fmt;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// `OMP_INFOTYPE_PLUGIN_KERNEL`.
pub const INFO_KERNEL: u32 = 0x0010;

/// Whether `LIBOMPTARGET_DEBUG` asks for debug lines.
pub fn debug_is_on() -> bool {
    static LEVEL: OnceLock<bool> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        crate::env::number("LIBOMPTARGET_DEBUG", i64::from(i32::MIN)..=i64::from(i32::MAX)).unwrap_or(0) > 0
    })
}

/// The information level, from `LIBOMPTARGET_INFO` until the runtime sets another one.
fn info_level() -> &'static AtomicU32 {
    static LEVEL: OnceLock<AtomicU32> = OnceLock::new();
    LEVEL.get_or_init(|| {
        let level = crate::env::number("LIBOMPTARGET_INFO", i64::from(i32::MIN)..=i64::from(u32::MAX)).unwrap_or(0);
        AtomicU32::new(level as u32)
    })
}

/// Takes over the level that the program sets by `__tgt_set_info_flag`.
pub fn set_info_level(level: u32) {
    info_level().store(level, Ordering::Relaxed);
}

/// Whether information lines of `flag` are printed.
pub fn info_is_on(flag: u32) -> bool {
    debug_is_on() || info_level().load(Ordering::Relaxed) & flag != 0
}

/// Prints a debug line.
macro_rules! dp {
    ($($text:tt)*) => {
        if $crate::report::debug_is_on() {
            $crate::report::debug_line(format_args!($($text)*));
        }
    };
}

/// Prints an error line.
macro_rules! report {
    ($($text:tt)*) => { $crate::report::error_line(format_args!($($text)*)) };
}

pub(crate) use {dp, report};

/// The text behind `dp!`.
pub fn debug_line(text: fmt::Arguments<'_>) {
    write(format_args!("Target CUDA RTL --> {text}\n"));
}

/// The text behind `report!`.
pub fn error_line(text: fmt::Arguments<'_>) {
    if debug_is_on() { debug_line(text) } else { write(format_args!("CUDA error: {text}\n")) }
}

/// An information line for a device.
pub fn info_line(device: i32, text: fmt::Arguments<'_>) {
    if debug_is_on() { debug_line(text) } else { write(format_args!("CUDA device {device} info: {text}\n")) }
}

fn write(line: fmt::Arguments<'_>) {
    // Nobody could be told that standard error is gone.
    let _ = std::io::stderr().write_all(line.to_string().as_bytes());
}

/// Prints what the driver says of a code.
pub fn driver_error(driver: &Driver, code: u32) {
    match (driver.error_string(code), debug_is_on()) {
        (Ok(text), true) => report!("CUDA error is: {text}"),
        (Ok(text), false) => report!("{text} "),
        (Err(failed), true) if failed.0 == codes::INVALID_VALUE => report!("Unrecognized CUDA error code: {code}"),
        (Err(failed), true) => {
            report!("Unresolved CUDA error code: {code}");
            report!("Unsuccessful cuGetErrorString return status: {}", failed.0);
        }
        // The code is all there is to tell.
        (Err(_), false) => report!("code {code}"),
    }
}

/// Prints to the program's standard output, through C's buffer, so that lines keep their order with the program's own.
pub fn print(text: &str) {
    unsafe extern "C" {
        fn printf(format: *const c_char, ...) -> c_int;
    }
    let size = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
    // SAFETY: the format takes a length and that many bytes.
    unsafe { printf(c"%.*s".as_ptr(), size, text.as_ptr()) };
}

/// An address as LLVM prints it.
pub struct Address(pub usize);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}
