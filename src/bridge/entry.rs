//! `HostDataToTargetTy`: C++ sees the head of an [`Entry`], and calls these for the rest.

use super::{AsyncInfo, call};
use crate::device::{self, Device, Pin};
use crate::mapping::Entry;
use crate::sync::Arc;
use omptarget_abi::{OFFLOAD_FAIL, OFFLOAD_SUCCESS};

/// The declarations; see the functions of the same names around.
#[allow(missing_docs, clippy::multiple_unsafe_ops_per_block)]
#[cxx::bridge(namespace = "omprs")]
pub mod ffi {
    unsafe extern "C++" {
        include!("omptarget/aliases.h");
        type AsyncInfo = crate::bridge::AsyncInfo;
        type Device = crate::device::Device;
    }

    extern "Rust" {
        #[derive(ExternType)]
        type Entry;

        unsafe fn retain(entry: *const Entry);
        unsafe fn release(device: &Device, entry: *const Entry);

        #[cxx_name = "dynRefCountToStr"]
        fn dyn_ref_count_to_str(entry: &Entry) -> String;
        #[cxx_name = "holdRefCountToStr"]
        fn hold_ref_count_to_str(entry: &Entry) -> String;
        #[cxx_name = "setMayContainAttachedPointers"]
        fn set_may_contain_attached_pointers(self: &Entry);
        #[cxx_name = "getMayContainAttachedPointers"]
        fn may_contain_attached_pointers(self: &Entry) -> bool;
        fn lock(entry: &Entry);
        unsafe fn unlock(entry: &Entry);
        #[cxx_name = "addEventIfNecessary"]
        unsafe fn add_event_if_necessary(entry: &Entry, device: &Device, info: *mut AsyncInfo) -> i32;
    }
}

/// One handle more.
///
/// # Safety
///
/// `entry` is a handle that C++ holds.
unsafe fn retain(entry: *const Entry) {
    // SAFETY: every handle that C++ holds is from `Arc::into_raw`, see `Pin::into_raw`.
    unsafe { Arc::increment_strong_count(entry) };
}

/// One handle less. The last one gives memory and event back to `device`.
///
/// # Safety
///
/// `entry` is a handle that C++ holds on an entry of `device`, and gives up here.
unsafe fn release(device: &Device, entry: *const Entry) {
    device::unset_held(entry);
    // SAFETY: every handle that C++ holds is from `Arc::into_raw`, see `Pin::into_raw`.
    let entry = unsafe { Arc::from_raw(entry) };
    drop(Pin::new(entry, device.plugin()));
}

fn dyn_ref_count_to_str(entry: &Entry) -> String {
    entry.counts().dynamic().to_string()
}

fn hold_ref_count_to_str(entry: &Entry) -> String {
    entry.counts().hold().to_string()
}

fn lock(entry: &Entry) {
    entry.transfer().lock_raw();
    device::set_locked(entry);
}

/// # Safety
///
/// This thread holds the lock through `lock`: LLVM's `LockGuard` sees to that.
unsafe fn unlock(entry: &Entry) {
    device::set_locked(std::ptr::null());
    // SAFETY: the same contract.
    unsafe { entry.transfer().unlock_raw() };
}

/// # Safety
///
/// This thread holds the lock of `entry` through `lock`: `targetDataBegin` does. `info` is the call's own.
unsafe fn add_event_if_necessary(entry: &Entry, device: &Device, info: *mut AsyncInfo) -> i32 {
    // SAFETY: the lock is held by this function's contract, and this is the only use of its value.
    let mut transfer = unsafe { entry.transfer().assume_locked() };
    // SAFETY: `info` is the call's own.
    let record = unsafe { device.record(call(info)) };
    // LLVM does not pass the plugin's code on here.
    device.record_copy(&mut transfer, record).map_or(OFFLOAD_FAIL, |()| OFFLOAD_SUCCESS)
}
