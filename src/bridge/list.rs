//! `HostDataToTargetListTy` and its lock, `DataMapMtx`.
//!
//! LLVM takes the lock, then walks or fills the list: while it dumps the table, and while it maps an image's globals.
//! So these functions, but for `is_empty`, are called with the lock held.

use super::Void;
use crate::device::Device;
use crate::mapping::{CountKind, Entry, HostRange, Several, SharedTables, Table, Tables};
use crate::sync::{Arc, ReadMostly};
use std::ops::DerefMut;
use std::ptr::null;

/// The declarations; see the functions of the same names around.
#[allow(missing_docs, clippy::multiple_unsafe_ops_per_block)]
#[cxx::bridge(namespace = "omprs")]
pub mod ffi {
    /// The arguments of `emplace`.
    struct NewEntry {
        hst_ptr_base: usize,
        hst_ptr_begin: usize,
        hst_ptr_end: usize,
        tgt_ptr_begin: usize,
        use_hold_ref_count: bool,
        hst_ptr_name: *mut Void,
        is_ref_count_inf: bool,
    }

    unsafe extern "C++" {
        include!("omptarget/aliases.h");
        type Void = crate::bridge::Void;
        type Device = crate::device::Device;
        type Entry = crate::mapping::Entry;
    }

    extern "Rust" {
        #[cxx_name = "lockTable"]
        fn lock_table(device: &Device);
        #[cxx_name = "unlockTable"]
        unsafe fn unlock_table(device: &Device);
        #[cxx_name = "isEmpty"]
        fn is_empty(device: &Device) -> bool;
        #[cxx_name = "firstEntry"]
        unsafe fn first_entry(device: &Device) -> *const Entry;
        #[cxx_name = "entryAfter"]
        unsafe fn entry_after(device: &Device, entry: &Entry) -> *const Entry;
        #[cxx_name = "emplaceEntry"]
        unsafe fn emplace_entry(device: &Device, entry: &NewEntry);
        #[cxx_name = "getTgtPtrBegin"]
        unsafe fn tgt_ptr_begin_locked(device: &Device, hst_ptr_begin: *mut Void, size: i64) -> *mut Void;
    }
}

use ffi::NewEntry;

fn lock_table(device: &Device) {
    device.mappings().locks().for_each(ReadMostly::lock_raw);
}

/// # Safety
///
/// This thread holds the lock through `lock_table`.
unsafe fn unlock_table(device: &Device) {
    // SAFETY: the same contract.
    device.mappings().locks().rev().for_each(|part| unsafe { part.unlock_raw() });
}

fn is_empty(device: &Device) -> bool {
    device.mappings().is_empty()
}

/// All parts of the table, while this thread holds their locks.
///
/// # Safety
///
/// This thread holds the lock through `lock_table` for as long as the result is used, and uses one such result at a time.
unsafe fn all_parts(device: &Device) -> Several<impl DerefMut<Target = Table>> {
    // SAFETY: the same contract.
    device.mappings().all_locked(device.mappings().locks().map(|part| unsafe { part.assume_locked() }))
}

fn handle(entry: Option<&Arc<Entry>>) -> *const Entry {
    entry.map_or(null(), |entry| Arc::into_raw(Arc::clone(entry)))
}

/// A handle on the first entry, null if there is none.
///
/// # Safety
///
/// This thread holds the lock through `lock_table`.
unsafe fn first_entry(device: &Device) -> *const Entry {
    // SAFETY: the same contract.
    handle(unsafe { all_parts(device) }.first())
}

/// A handle on the next entry, null if there is none.
///
/// # Safety
///
/// This thread holds the lock through `lock_table`.
unsafe fn entry_after(device: &Device, entry: &Entry) -> *const Entry {
    // SAFETY: the same contract.
    handle(unsafe { all_parts(device) }.after(entry.host_begin()))
}

/// Adds an entry, unless its range is taken.
///
/// # Safety
///
/// This thread holds the lock through `lock_table`.
unsafe fn emplace_entry(device: &Device, entry: &NewEntry) {
    let size = entry.hst_ptr_end.wrapping_sub(entry.hst_ptr_begin);
    let range = HostRange::new(entry.hst_ptr_begin, size.cast_signed() as i64);
    let kind = CountKind::from_hold(entry.use_hold_ref_count);
    // SAFETY: the same contract.
    let mut table = unsafe { all_parts(device) };
    device.mappings().widen(range, entry.hst_ptr_base);
    table.emplace(
        range,
        entry.hst_ptr_base,
        entry.tgt_ptr_begin,
        entry.hst_ptr_name.addr(),
        kind,
        entry.is_ref_count_inf,
    );
}

/// Where a range is on the device, null if nowhere.
///
/// # Safety
///
/// This thread holds the lock through `lock_table`: `InitLibrary` does.
unsafe fn tgt_ptr_begin_locked(device: &Device, hst_ptr_begin: *mut Void, size: i64) -> *mut Void {
    // SAFETY: the same contract.
    let table = unsafe { all_parts(device) };
    let range = HostRange::new(hst_ptr_begin.addr(), size);
    device.target_address(range, table.look_up(range, false)) as *mut Void
}
