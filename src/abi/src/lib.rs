//! The C types and codes that libomptarget and its plugins exchange, as LLVM 14's `omptarget.h` and
//! `omptargetplugin.h` lay them out.
//!
//! Sizes and offsets are checked here at compile time, and against LLVM's headers by `static_assert`s in the C++ face.

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};

/// A call did what it was asked for.
pub const OFFLOAD_SUCCESS: i32 = 0;
/// A call failed.
pub const OFFLOAD_FAIL: i32 = !0;

/// `OMP_REQ_UNIFIED_SHARED_MEMORY`: the program says `requires unified_shared_memory`.
pub const REQUIRES_UNIFIED_SHARED_MEMORY: i64 = 0x008;

/// Bits of the information level (`OpenMPInfoType`, the variable `LIBOMPTARGET_INFO`) that the core prints for.
pub mod info {
    /// `OMP_INFOTYPE_MAPPING_EXISTS`: a host address that is mapped already.
    pub const MAPPING_EXISTS: u32 = 0x0002;
    /// `OMP_INFOTYPE_MAPPING_CHANGED`: an entry made or removed.
    pub const MAPPING_CHANGED: u32 = 0x0008;
    /// `OMP_INFOTYPE_DATA_TRANSFER`: a copy to or from the device.
    pub const DATA_TRANSFER: u32 = 0x0020;
}

/// `__tgt_async_info`: the queue on which a call issues its work. Null until the plugin has chosen one.
#[repr(C)]
#[derive(Debug)]
pub struct AsyncInfo {
    /// A queue of the plugin (a `CUstream` for CUDA), or null.
    pub queue: *mut c_void,
}

/// `__tgt_offload_entry`: a function or global of an image, or of the host program.
#[repr(C)]
#[derive(Debug)]
pub struct OffloadEntry {
    /// Address of the function or global.
    pub addr: *mut c_void,
    /// Its symbol name, NUL-terminated.
    pub name: *mut c_char,
    /// Bytes of a global; 0 for a function.
    pub size: usize,
    /// `OMP_DECLARE_TARGET_*` bits.
    pub flags: i32,
    /// Reserved for the runtime.
    pub reserved: i32,
}

/// `__tgt_target_table`: the entries of one image as its device sees them.
#[repr(C)]
#[derive(Debug)]
pub struct TargetTable {
    /// First entry.
    pub entries_begin: *mut OffloadEntry,
    /// One past the last entry.
    pub entries_end: *mut OffloadEntry,
}

/// `__tgt_device_image`: the code for one kind of device inside the program.
#[repr(C)]
#[derive(Debug)]
pub struct DeviceImage {
    /// First byte of the code.
    pub image_start: *mut c_void,
    /// One past the last byte.
    pub image_end: *mut c_void,
    /// First entry.
    pub entries_begin: *mut OffloadEntry,
    /// One past the last entry.
    pub entries_end: *mut OffloadEntry,
}

/// `__tgt_device_info`: what interoperability objects tell of a device.
#[repr(C)]
#[derive(Debug)]
pub struct DeviceInfo {
    /// Its context, or null.
    pub context: *mut c_void,
    /// The driver's device, or null.
    pub device: *mut c_void,
}

/// A target region to launch: what `run_target_region` and `run_target_team_region` are told. Not a type of LLVM's.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its entry point, from the table that the plugin made of its image.
    pub entry: *mut c_void,
    /// Device addresses of the arguments, `count` of them.
    pub arguments: *mut *mut c_void,
    /// What to add to each, `count` of them.
    pub offsets: *mut isize,
    /// Number of arguments; the arrays are not read if it is 0.
    pub count: i32,
    /// Teams asked for, 0 for the plugin's choice.
    pub teams: i32,
    /// Threads a team at most, 0 for the plugin's choice.
    pub thread_limit: i32,
    /// Iterations of the loop, 0 if unknown.
    pub trip_count: u64,
}

const _: () = assert!(size_of::<DeviceImage>() == 32 && size_of::<DeviceInfo>() == 16);
const _: () = assert!(size_of::<AsyncInfo>() == 8);
const _: () = assert!(size_of::<TargetTable>() == 16);
const _: () = assert!(size_of::<OffloadEntry>() == 32 && offset_of!(OffloadEntry, flags) == 24);
