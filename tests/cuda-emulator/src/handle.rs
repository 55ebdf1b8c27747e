//! What crosses the border: handles, pointers and places for results, each with a name for the trace.
//!
//! A handle is a number that looks like an address and is never given out twice, so that a freed one is known.

use std::ffi::{CStr, c_char, c_void};

use serde_json::Value;

use crate::code::{self, Code};
use crate::driver;

/// An argument of a driver call as the trace shows it.
pub trait Show {
    /// The text before the call; none for a place where the call puts a result.
    fn before(&self) -> Option<Value> {
        None
    }

    /// The text after the call, for such a place.
    fn after(&self) -> Option<Value> {
        None
    }
}

/// Declares the handle types.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident $kind:literal $word:literal)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub usize);

        impl $name {
            /// No handle.
            pub const NULL: $name = $name(0);

            /// The `serial`-th handle of this kind.
            pub const fn new(serial: usize) -> $name {
                $name((0x5e00 + $kind) << 32 | serial << 4)
            }

            /// The name of the object, whether or not it still exists: the kind and a number in order of creation.
            pub fn name(self) -> String {
                let serial = (self.0 & 0xffff_ffff) >> 4;
                match self.0 {
                    0 => "null".to_owned(),
                    _ if self == Self::new(serial) => format!(concat!($word, "{}"), serial),
                    _ => "?".to_owned(),
                }
            }
        }
    )*};
}

handles! {
    /// `CUcontext`
    CuContext 0 "context"
    /// `CUstream`
    CuStream 1 "stream"
    /// `CUevent`
    CuEvent 2 "event"
    /// `CUmodule`
    CuModule 3 "module"
    /// `CUfunction`
    CuFunction 4 "function"
}

macro_rules! show_by_name {
    ($($name:ident)*) => {$(
        impl Show for $name {
            fn before(&self) -> Option<Value> {
                Some(self.name().into())
            }
        }
    )*};
}
show_by_name!(CuContext CuEvent CuModule);

impl Show for CuStream {
    fn before(&self) -> Option<Value> {
        let special = match self.0 {
            0 | 1 => Some("default".to_owned()),
            2 => Some("per-thread".to_owned()),
            _ => None,
        };
        Some(special.unwrap_or_else(|| self.name()).into())
    }
}

impl Show for CuFunction {
    fn before(&self) -> Option<Value> {
        Some(driver::function_name(*self).unwrap_or_else(|| self.name()).into())
    }
}

/// `CUdeviceptr`
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DevicePtr(pub usize);

impl Show for DevicePtr {
    fn before(&self) -> Option<Value> {
        Some(driver::pointer_name(self.0).into())
    }
}

/// An address in the program's own memory, or what the emulator does not look into.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostPtr(pub *mut c_void);

impl Show for HostPtr {
    fn before(&self) -> Option<Value> {
        // A pinned block has a name; an ordinary address differs from run to run.
        let name = driver::pointer_name(self.0 as usize);
        Some(if name == "?" { "host".to_owned() } else { name }.into())
    }
}

/// A name that the caller gives.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(pub *const c_char);

impl Text {
    /// The text, if there is one.
    pub fn get(&self) -> Result<&str, Code> {
        if self.0.is_null() {
            return Err(code::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and the driver API asks the caller for a string that ends with a zero byte.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| code::CUDA_ERROR_NOT_FOUND)
    }
}

impl Show for Text {
    fn before(&self) -> Option<Value> {
        Some(self.get().unwrap_or("?").into())
    }
}

/// The place of a text that the driver writes, with its size in the next argument.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct TextOut(pub *mut c_char);

impl TextOut {
    /// Writes as much of `text` as goes into `len` bytes, and a zero byte.
    pub fn set(self, text: &str, len: i32) -> Result<(), Code> {
        let len = usize::try_from(len).unwrap_or(0);
        if self.0.is_null() || len == 0 {
            return Err(code::CUDA_ERROR_INVALID_VALUE);
        }
        let count = text.len().min(len - 1);
        // SAFETY: the driver API asks the caller for `len` bytes here, and count is below that.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast(), count) };
        // SAFETY: as above.
        let end = unsafe { self.0.add(count) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

impl Show for TextOut {}

/// The place of a result.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Out<T>(pub *mut T);

impl<T> Out<T> {
    /// Fails when there is no place for the result; to be called before anything is done.
    pub fn check(self) -> Result<Self, Code> {
        if self.0.is_null() { Err(code::CUDA_ERROR_INVALID_VALUE) } else { Ok(self) }
    }

    /// Writes the result, unless the caller does not want it.
    pub fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, and the driver API asks the caller for a place for one T.
            unsafe { self.0.write(value) };
        }
    }
}

impl<T: Show + Copy> Show for Out<T> {
    fn after(&self) -> Option<Value> {
        if self.0.is_null() {
            return Some("null".into());
        }
        // SAFETY: not null; the call has succeeded, so it has written here.
        let value = unsafe { self.0.read() };
        value.before()
    }
}

/// A pointer that the trace leaves out.
impl<T> Show for *const T {}

impl<T> Show for *mut T {}

macro_rules! show_number {
    ($($name:ident)*) => {$(
        impl Show for $name {
            fn before(&self) -> Option<Value> {
                Some((*self).into())
            }
        }
    )*};
}
show_number!(i32 u32 usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_handle_alone() {
        assert_eq!(CuStream::new(12).name(), "stream12");
        assert_eq!(CuEvent(0).name(), "null");
        assert_eq!(CuEvent(CuStream::new(1).0).name(), "?");
        assert_eq!(CuStream(1).before(), Some("default".into()));
    }
}
