//! The C++ border: the only user of cxx. One file a class of LLVM's; each function converts, calls, converts.
//!
//! C++ calls from many threads, so everything takes `&self`. Nothing here returns a `Result`: LLVM is built without
//! exceptions. A panic ends the program with the name of the function, which cxx sees to: a table whose counts are
//! wrong must not go on.

pub mod device;
pub mod entry;
pub mod list;

use crate::mapping::{BeginRequest, EndRequest};
use cxx::{ExternType, type_id};
use std::ffi::c_void;
use std::ptr::NonNull;

/// C++'s `void`, which cxx has no name for.
#[repr(transparent)]
pub struct Void(c_void);

// SAFETY: `omprs::Void` is an alias of `void` (include/omptarget/aliases.h), and used behind pointers only.
unsafe impl ExternType for Void {
    type Id = type_id!("omprs::Void");
    type Kind = cxx::kind::Opaque;
}

/// `__tgt_async_info`, whose name cxx would refuse.
#[repr(transparent)]
pub struct AsyncInfo(omptarget_abi::AsyncInfo);

// SAFETY: `omprs::AsyncInfo` is an alias of `__tgt_async_info` (include/omptarget/aliases.h), and used behind pointers
// only.
unsafe impl ExternType for AsyncInfo {
    type Id = type_id!("omprs::AsyncInfo");
    type Kind = cxx::kind::Opaque;
}

// SAFETY: `omprs::BeginRequest` (include/omptarget/requests.h) has the same layout, as both sides check.
unsafe impl ExternType for BeginRequest {
    type Id = type_id!("omprs::BeginRequest");
    type Kind = cxx::kind::Opaque;
}

// SAFETY: as for the other one.
unsafe impl ExternType for EndRequest {
    type Id = type_id!("omprs::EndRequest");
    type Kind = cxx::kind::Opaque;
}

/// The `__tgt_async_info` of a call.
fn call(info: *mut AsyncInfo) -> NonNull<omptarget_abi::AsyncInfo> {
    NonNull::new(info.cast()).expect("AsyncInfoTy converts to the address of its member")
}
