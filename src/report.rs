//! Log and error lines: the one place that prints.
//!
//! Texts, prefixes and conditions are LLVM's (`Debug.h`), so that logs can be compared; each line is one write, so that
//! lines of several threads do not mix. Lines of our own, which LLVM does not have, come from [`plugin_failed`] and
//! [`refused`] alone.

use crate::sync::{AtomicPtr, AtomicU8, Counter32, Ordering};
use std::ffi::{CStr, c_char};
use std::fmt;
use std::io::Write;
use std::ptr::NonNull;

/// Whether debug output is printed: not before the C++ face has passed LLVM's level.
static DEBUG: AtomicU8 = AtomicU8::new(0);

/// LLVM's information level, which `__tgt_set_info_flag` changes at run time.
static INFO: AtomicPtr<Counter32> = AtomicPtr::new((&raw const NOTHING).cast_mut());
/// The same, unless debug output decides what is printed: all or nothing.
static PRINTED: AtomicPtr<Counter32> = AtomicPtr::new((&raw const NOTHING).cast_mut());
static NOTHING: Counter32 = Counter32::new(0);
static ALL: Counter32 = Counter32::new(u32::MAX);

/// Takes over LLVM's settings.
///
/// `debug` is whether `LIBOMPTARGET_DEBUG` asks for debug output, `built_in` whether LLVM's files print any. `info` is
/// LLVM's own atomic information level.
///
/// # Safety
///
/// `info` points to a live 32-bit atomic for the rest of the program.
pub unsafe fn start(debug: bool, built_in: bool, info: NonNull<Counter32>) {
    let (debug, printed) = match (debug, built_in) {
        (false, _) => (false, info.as_ptr().cast_const()),
        (true, true) => (true, &raw const ALL),
        // LLVM's `INFO` then prints nothing at all.
        (true, false) => (false, &raw const NOTHING),
    };
    INFO.store(info.as_ptr(), Ordering::Relaxed);
    PRINTED.store(printed.cast_mut(), Ordering::Relaxed);
    DEBUG.store(u8::from(debug), Ordering::Relaxed);
}

/// Whether debug lines are printed.
#[inline]
pub fn debug_is_on() -> bool {
    DEBUG.load(Ordering::Relaxed) != 0
}

/// Whether LLVM's information level has any of `flags`.
#[inline]
pub fn info_level_has(flags: u32) -> bool {
    has(&INFO, flags)
}

#[inline]
fn has(level: &AtomicPtr<Counter32>, flags: u32) -> bool {
    // SAFETY: a static, or what `start` was given, whose caller promises that it stays valid.
    unsafe { &*level.load(Ordering::Relaxed) }.load(Ordering::Relaxed) & flags != 0
}

/// Prints a debug line: LLVM's `DP`.
macro_rules! dp {
    ($($text:tt)*) => {
        if $crate::report::debug_is_on() {
            $crate::report::debug_line(format_args!($($text)*));
        }
    };
}

/// Prints an error line: LLVM's `REPORT`.
macro_rules! report {
    ($($text:tt)*) => { $crate::report::error_line(format_args!($($text)*)) };
}

/// Prints a line for the user whatever the level: LLVM's `MESSAGE`.
macro_rules! message {
    ($($text:tt)*) => { $crate::report::write("Libomptarget message: ", format_args!($($text)*)) };
}

/// Prints an information line for `device`, if the level has `flag`: LLVM's `INFO`.
macro_rules! info {
    ($flag:expr, $device:expr, $($text:tt)*) => {
        if $crate::report::info_is_on($flag) {
            $crate::report::info_line($device, format_args!($($text)*));
        }
    };
}

pub(crate) use {dp, info, message, report};

/// Whether an information line of `flag` is printed, in either form.
#[inline]
pub fn info_is_on(flag: u32) -> bool {
    has(&PRINTED, flag)
}

/// The text behind `dp!`.
pub fn debug_line(text: fmt::Arguments<'_>) {
    write("Libomptarget --> ", text);
}

/// The text behind `report!`.
pub fn error_line(text: fmt::Arguments<'_>) {
    write(if debug_is_on() { "Libomptarget --> " } else { "Libomptarget error: " }, text);
}

/// The text behind `info!`.
pub fn info_line(device: i32, text: fmt::Arguments<'_>) {
    if debug_is_on() {
        debug_line(text);
    } else {
        write(format_args!("Libomptarget device {device} info: "), text);
    }
}

/// Says which plugin function failed on which device: a line of our own.
pub fn plugin_failed(function: &str, device: i32) {
    report!("{function} failed on device {device}");
}

/// Says why a request is refused that LLVM 14 would have taken: a line of our own.
pub fn refused(why: fmt::Arguments<'_>) {
    report!("{why}");
}

/// Writes one line, whole.
pub fn write(prefix: impl fmt::Display, text: fmt::Arguments<'_>) {
    let line = format!("{prefix}{text}\n");
    // Nobody could be told that standard error is gone.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// An address as LLVM prints it.
pub struct Address(pub usize);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

/// The variable's name in a compiler's name string (`;name;file;line;column;;`), or `unknown`: `getNameFromMapping`.
///
/// # Safety
///
/// `name` is 0 or the address of a NUL-terminated string that lives as long as the result.
pub unsafe fn variable_name<'s>(name: usize) -> std::borrow::Cow<'s, str> {
    let Some(name) = NonNull::new(name as *mut c_char) else { return "unknown".into() };
    // SAFETY: a NUL-terminated string, by this function's contract.
    let text = unsafe { CStr::from_ptr(name.as_ptr()) };
    String::from_utf8_lossy(text.to_bytes().split(|byte| *byte == b';').nth(1).unwrap_or(text.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_sixteen_digits() {
        assert_eq!(Address(0x7f00).to_string(), "0x0000000000007f00");
    }

    #[test]
    fn a_name_is_the_first_field() {
        let text = c";a[0:n];file.c;3;7;;";
        // SAFETY: a C string literal.
        assert_eq!(unsafe { variable_name(text.as_ptr() as usize) }, "a[0:n]");
        // SAFETY: null is allowed.
        assert_eq!(unsafe { variable_name(0) }, "unknown");
    }
}
