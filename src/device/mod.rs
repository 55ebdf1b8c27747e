//! One device: LLVM's `DeviceTy`. Asks the mapping what must happen, does it through the plugin, writes the log.
//!
//! Log lines stand where LLVM 14's `device.cpp` has them, word for word; see [`crate::report`] for those of our own.

mod call;
mod pin;

pub use call::{CallRecord, caller, set_locked, unset_held};
pub use pin::{Handle, Pin, destroy};

use crate::event;
use crate::mapping::{
    Association, Begin, BeginRequest, CallId, Caller, Calls, Changes, CountAction, CountKind, CountedOut, End,
    EndRequest, Entry, HostRange, Mappings, Origin, Overlap, RefCounts, Released, SharedTables, Tables, Transfer, Uses,
};
use crate::plugin_api::{Done, Failed, Plugin};
use crate::report::{self, Address, dp, info, message, report};
use crate::rules::{Rule, broken};
use crate::sync::{Arc, Guard, OnceLock};
use call::{Idle, Thread};
use omptarget_abi::{AsyncInfo, OFFLOAD_FAIL, OFFLOAD_SUCCESS, Region, TargetTable, info as flag};
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::{NonNull, null, null_mut};

/// `TARGET_ALLOC_DEFAULT`: memory of the plugin's default kind.
const ALLOC_DEFAULT: i32 = 3;

/// A device, its plugin and its mappings.
#[derive(Debug)]
pub struct Device {
    shared: Arc<Shared>,
    ready: OnceLock<bool>,
    /// Whether copies are ordered by events (`LIBOMPTARGET_MAP_FORCE_ATOMIC`).
    use_events: bool,
}

/// What the records of a device's calls need of it.
#[derive(Debug)]
pub struct Shared {
    plugin: Plugin,
    mappings: Mappings,
    calls: Calls,
    idle: Idle,
}

/// When a map clause copies to the device.
#[derive(Clone, Copy, Debug)]
pub struct CopyIn {
    /// `to` or `tofrom`: if the mapping is new.
    pub to: bool,
    /// `always`: if it is not, too.
    pub always: bool,
}

/// Where a host pointer is on the device.
#[derive(Debug)]
pub struct TargetPointer<'d> {
    /// What was found.
    pub found: Found,
    /// The mapping, if one was found.
    pub entry: Option<Handle<'d>>,
    /// The address; null if there is none, or on failure.
    pub target: *mut c_void,
}

/// What a look-up found. As wide as a pointer, so that a [`TargetPointer`] is copied as it was written: a processor waits
/// where it reads several small things at once that have just been written one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Found {
    /// Nothing, or a failure.
    Nothing,
    /// The host's own memory: unified shared memory.
    Host,
    /// A mapping.
    Mapped,
    /// A mapping that is new, or was made by the same construct.
    New,
    /// A mapping whose last user the caller is, who calls [`Device::release`] in the end.
    Last,
}

impl<'d> TargetPointer<'d> {
    /// No address.
    const NONE: Self = Self { found: Found::Nothing, entry: None, target: null_mut() };

    fn host(range: HostRange) -> Self {
        Self { found: Found::Host, target: range.begin() as *mut c_void, ..Self::NONE }
    }

    fn mapped(found: Found, entry: Handle<'d>, range: HostRange) -> Self {
        let target = entry.target_of(range.begin()) as *mut c_void;
        Self { found, target, entry: Some(entry) }
    }
}

/// How an attempt to map ended without an address.
enum Refused {
    /// The call fails; the lines are written.
    Fails,
    /// The entry turned out to be of a call that failed to fill it: look again.
    Again,
}

/// A mapping that was found and cannot be used: how the attempt ended, and whether nobody can use it.
struct Unused {
    refused: Refused,
    failed: bool,
}

impl Device {
    /// A device of `plugin`, with nothing mapped.
    pub fn new(plugin: Plugin, use_events: bool) -> Self {
        let mappings = Mappings::default();
        let shared = Shared { plugin, mappings, calls: Calls::default(), idle: Idle::default() };
        Self { shared: Arc::new(shared), ready: OnceLock::new(), use_events }
    }

    /// The device's plugin.
    pub fn plugin(&self) -> &Plugin {
        &self.shared.plugin
    }

    /// The mappings; their locks are LLVM's `DataMapMtx`.
    pub fn mappings(&self) -> &Mappings {
        &self.shared.mappings
    }

    /// The record of the call that `info` belongs to.
    ///
    /// # Safety
    ///
    /// See [`CallRecord::of`].
    pub unsafe fn record<'r>(&self, info: NonNull<AsyncInfo>) -> &'r mut CallRecord {
        // SAFETY: the same contract.
        unsafe { CallRecord::of(info, &self.shared) }
    }

    fn pin(&self, entry: Arc<Entry>) -> Pin<'_> {
        Pin::new(entry, &self.shared.plugin)
    }

    /// Initialises the device unless that has been tried, and says whether it can be used: `device_is_ready`.
    ///
    /// `number` is the device number that was asked for, `requires` the program's `requires` clauses.
    pub fn make_ready(&self, number: i32, requires: i64) -> bool {
        dp!("Checking whether device {number} is ready.");
        let is_init = self.ready.get().copied().unwrap_or(false);
        dp!(
            "Is the device {number} (local ID {}) initialized? {}",
            self.shared.plugin.numbers()[1].load(crate::sync::Ordering::Relaxed),
            i32::from(is_init)
        );
        if !is_init && !self.init_once(requires) {
            dp!("Failed to init device {number}");
            return false;
        }
        dp!("Device {number} is ready to use.");
        true
    }

    /// Initialises the device at the first call; every call answers what came of it.
    pub fn init_once(&self, requires: i64) -> bool {
        *self.ready.get_or_init(|| self.shared.plugin.init_device(requires).is_ok())
    }

    /// Finds or makes the mapping of a map clause, and copies to the device if the clause asks for it:
    /// `getTargetPointer`.
    ///
    /// If it fails, the count or the entry that it made is gone again.
    ///
    /// # Safety
    ///
    /// `request.range` is host memory of the program that stays valid until the call has been synchronised;
    /// `request.name` is a valid name or 0. `info` is as for [`CallRecord::of`].
    #[inline(always)]
    pub unsafe fn target_pointer<'d, A>(
        &'d self,
        request: &BeginRequest,
        copy: CopyIn,
        info: NonNull<AsyncInfo>,
        answer: impl FnOnce(TargetPointer<'d>) -> A,
    ) -> A {
        // SAFETY: `info` is as this function's contract says.
        let record = unsafe { self.record(info) };
        log_look_up(request.range);
        match self.shared.mappings.share_only(request.range, record.caller()) {
            Some(table) => {
                let found = table.begin(request, record.caller(), &mut record.uses);
                drop(table);
                // SAFETY: the same contract.
                unsafe { self.target_pointer_as(request, copy, found, record, answer) }
            }
            // SAFETY: the same contract.
            None => unsafe { self.target_pointer_in_parts(request, copy, record, answer) },
        }
    }

    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    #[inline(never)]
    unsafe fn target_pointer_in_parts<'d, A>(
        &'d self,
        request: &BeginRequest,
        copy: CopyIn,
        record: &mut CallRecord,
        answer: impl FnOnce(TargetPointer<'d>) -> A,
    ) -> A {
        let mappings = &self.shared.mappings;
        if mappings.has_detached() {
            self.let_go_of_detached(record.caller());
        }
        let found = mappings.begin(request, record.caller(), &mut record.uses);
        // SAFETY: the same contract.
        unsafe { self.target_pointer_as(request, copy, found, record, answer) }
    }

    /// Does what a look-up has answered.
    ///
    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    #[inline(always)]
    unsafe fn target_pointer_as<'d, A>(
        &'d self,
        request: &BeginRequest,
        copy: CopyIn,
        (overlap, begin): (Overlap, Begin),
        record: &mut CallRecord,
        answer: impl FnOnce(TargetPointer<'d>) -> A,
    ) -> A {
        log_overlap(overlap);
        let is_new = match begin {
            // SAFETY: the same contract.
            Begin::Exists { counts, is_new } => unsafe { self.exists(request, copy, (counts, is_new), record) },
            // SAFETY: the same contract.
            Begin::Create(seen) => unsafe { self.create(request, copy, seen, record) },
            begin => return answer(self.without_mapping(request, &begin)),
        };
        match is_new {
            Ok(is_new) => {
                let found = if is_new { Found::New } else { Found::Mapped };
                answer(TargetPointer::mapped(found, Handle::of_call(record.uses.newest()), request.range))
            }
            Err(Refused::Fails) => answer(TargetPointer::NONE),
            Err(Refused::Again) => {
                log_look_up(request.range);
                // SAFETY: the same contract.
                unsafe { self.target_pointer_in_parts(request, copy, record, answer) }
            }
        }
    }

    /// A former call of this thread may have ended without giving these back.
    #[cold]
    fn let_go_of_detached(&self, caller: Caller) {
        for entry in self.shared.mappings.take_detached(caller) {
            pin::let_go(&self.shared.plugin, entry);
        }
    }

    /// Uses the newest of the call's uses. Says whether it is new after all.
    ///
    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    #[inline(always)]
    unsafe fn exists(
        &self,
        request: &BeginRequest,
        copy: CopyIn,
        (counts, is_new): (RefCounts, bool),
        record: &mut CallRecord,
    ) -> Result<bool, Refused> {
        let entry = Handle::of_call(record.uses.newest());
        if report::info_is_on(flag::MAPPING_EXISTS) {
            // SAFETY: the name is valid by this function's contract.
            unsafe { self.log_exists(request, &entry, counts) };
        }
        // SAFETY: the host range is valid by this function's contract.
        unsafe { self.use_existing(&entry, request, is_new, copy, record) }.map_err(|Unused { refused, failed }| {
            self.take_back(request, failed, &mut record.uses);
            refused
        })
    }

    /// # Safety
    ///
    /// The request's name is valid or 0.
    #[cold]
    unsafe fn log_exists(&self, request: &BeginRequest, entry: &Entry, counts: RefCounts) {
        let range = request.range;
        let action = if request.update { CountAction::Incremented } else { CountAction::Suppressed };
        report::info_line(
            self.shared.plugin.device(),
            format_args!(
                "Mapping exists{} with HstPtrBegin={}, TgtPtrBegin={}, Size={}, {}, Name={}",
                if request.implicit { " (implicit)" } else { "" },
                Address(range.begin()),
                Address(entry.target_of(range.begin())),
                range.size(),
                Counts(counts, Some(action), request.kind),
                // SAFETY: the name is valid by this function's contract.
                unsafe { report::variable_name(request.name) },
            ),
        );
    }

    /// Makes the mapping that a map clause asks for, which becomes the newest of the call's uses. No lock is held while
    /// the plugin allocates.
    ///
    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    #[inline(always)]
    unsafe fn create(
        &self,
        request: &BeginRequest,
        copy: CopyIn,
        seen: Changes,
        record: &mut CallRecord,
    ) -> Result<bool, Refused> {
        let range = request.range;
        let target = self.shared.plugin.data_alloc(range.size(), range.begin(), ALLOC_DEFAULT);
        if target.is_null() {
            return Err(Refused::Fails);
        }
        let counts = RefCounts::first(request.kind, false);
        let entry = Entry::new(range, request.base, target.addr(), request.name, Origin::Mapped, counts);
        let entry = self.shared.idle.make(entry, record.caller());
        let made = Handle::of_call(&entry);
        // Locked before the table is let go: nobody can use the entry before its copy has been issued, nor miss it.
        let lock = || (!broken(Rule::EntryLockBeforeTableUnlock)).then(|| made.transfer().lock_unshared());
        let transfer = match self.shared.mappings.insert(entry, request, seen, &mut record.uses, lock) {
            Ok(transfer) => transfer.unwrap_or_else(|| made.transfer().lock()),
            Err(entry) => {
                // Somebody was faster. The memory goes with its entry.
                pin::let_go(&self.shared.plugin, entry);
                return Err(Refused::Again);
            }
        };
        // SAFETY: the host range is valid by this function's contract.
        if unsafe { self.use_new(transfer, &made, request, copy.to, record) }.is_err() {
            let entry = Arc::clone(record.uses.newest());
            record.uses.take_back(&entry);
            self.shared.mappings.lock_table_of(&entry).remove(&entry);
            return Err(Refused::Fails);
        }
        Ok(true)
    }

    /// What a map clause gets where no mapping is made.
    #[cold]
    fn without_mapping(&self, request: &BeginRequest, begin: &Begin) -> TargetPointer<'_> {
        let range = request.range;
        let (host, size) = (Address(range.begin()), range.size());
        match *begin {
            Begin::Extension { host_begin, size: mapped } => {
                message!(
                    "explicit extension not allowed: host address specified is {host} ({size} bytes), but device \
                     allocation maps to host at {} ({mapped} bytes)",
                    Address(host_begin)
                );
                if request.present {
                    message_not_present(range);
                }
                TargetPointer::NONE
            }
            Begin::Host => {
                dp!("Return HstPtrBegin {host} Size={size} for unified shared memory");
                TargetPointer::host(range)
            }
            Begin::NotPresent => {
                dp!(
                    "Mapping required by 'present' map type modifier does not exist for HstPtrBegin={host}, Size={size}"
                );
                message_not_present(range);
                TargetPointer::NONE
            }
            Begin::Wraps => {
                report::refused(format_args!("cannot map {size} bytes at {host}: the range leaves the address space"));
                TargetPointer::NONE
            }
            Begin::Nothing | Begin::Exists { .. } | Begin::Create(_) => TargetPointer::NONE,
        }
    }

    /// Copies into the mapping that was just made.
    ///
    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    #[inline(always)]
    unsafe fn use_new(
        &self,
        mut transfer: Guard<'_, Transfer>,
        entry: &Entry,
        request: &BeginRequest,
        moves: bool,
        record: &mut CallRecord,
    ) -> Done {
        transfer.set_made(record.id(), record.calls());
        if report::info_is_on(flag::MAPPING_CHANGED) {
            // SAFETY: the name is valid by this function's contract.
            unsafe { self.log_new(request, entry) };
        }
        if !moves {
            return Ok(());
        }
        // SAFETY: the host range is valid by this function's contract, and the target was made for it.
        let copied = unsafe { self.copy_in(&mut transfer, entry, request.range, record) };
        if copied.is_err() {
            transfer.set_failed();
        }
        copied
    }

    /// # Safety
    ///
    /// The request's name is valid or 0.
    #[cold]
    unsafe fn log_new(&self, request: &BeginRequest, entry: &Entry) {
        report::info_line(
            self.shared.plugin.device(),
            format_args!(
                "Creating new map entry with HstPtrBegin={}, TgtPtrBegin={}, Size={}, {}, Name={}",
                Address(entry.host_begin()),
                Address(entry.target_begin()),
                request.range.size(),
                Counts(RefCounts::first(request.kind, false), None, request.kind),
                // SAFETY: the name is valid by this function's contract.
                unsafe { report::variable_name(request.name) },
            ),
        );
    }

    /// Takes back the count of the newest use, and removes its entry if that has `failed`.
    fn take_back(&self, request: &BeginRequest, failed: bool, uses: &mut Uses) {
        let entry = Arc::clone(uses.newest());
        let mut table = self.shared.mappings.lock_table_of(&entry);
        if request.update {
            uses.take_back(&entry);
            table.take_back(&entry, request.kind);
        }
        if failed {
            table.remove(&entry);
        }
    }

    /// Copies into a mapping that was there, or waits for the copy that is on its way. Says whether it is new after all.
    ///
    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    #[inline(always)]
    unsafe fn use_existing(
        &self,
        entry: &Entry,
        request: &BeginRequest,
        mut is_new: bool,
        copy: CopyIn,
        record: &mut CallRecord,
    ) -> Result<bool, Unused> {
        let mut transfer = entry.transfer().lock();
        if !request.update {
            is_new = self.is_first_component_new(&mut transfer, is_new, record);
        }
        let moves = copy.to && (is_new || copy.always);
        if !transfer.add_user(record.id(), record.calls()) {
            record.unfilled.extend(transfer.filled_by_another(record.id(), &self.shared.calls));
            if transfer.has_failed() {
                return Err(Unused { refused: Refused::Again, failed: true });
            }
        } else if !moves {
            return Ok(is_new);
        }
        let done = if moves {
            // SAFETY: the host range is valid by this function's contract, and the entry was found for it.
            unsafe { self.copy_in(&mut transfer, entry, request.range, record) }
        } else {
            event::order_after_copy(&self.shared.plugin, &transfer, record)
        };
        done.map(|()| is_new).map_err(|_| Unused { refused: Refused::Fails, failed: false })
    }

    /// A member, or a mapper's first component. If the call does not know the latter, nothing but the calls in flight
    /// tells whether it is in use, and then the device may have newer data than the host.
    fn is_first_component_new(&self, transfer: &mut Transfer, is_new: bool, record: &mut CallRecord) -> bool {
        let (id, calls) = (record.id(), &self.shared.calls);
        let made = &mut record.uses.newest_mut().made;
        let unused = || broken(Rule::UsedIsNotNew) || transfer.users_beside(id, calls).is_empty();
        let is_new = made.unwrap_or_else(|| is_new && unused());
        *made = Some(is_new);
        if is_new {
            transfer.set_made(id, calls);
        }
        is_new
    }

    /// Copies `range` into its mapping, after the copy before and followed by a record.
    ///
    /// # Safety
    ///
    /// The host range is valid until the call has been synchronised, and `entry` was found or made for it.
    #[inline(always)]
    unsafe fn copy_in(
        &self,
        transfer: &mut Transfer,
        entry: &Entry,
        range: HostRange,
        record: &mut CallRecord,
    ) -> Done {
        let (host, target) = (range.begin(), entry.target_of(range.begin()));
        dp!("Moving {} bytes (hst:{}) -> (tgt:{})", range.size(), Address(host), Address(target));
        event::chain_copy(&self.shared.plugin, &self.shared.calls, transfer, record)?;
        self.log_submit(host as *mut c_void, target as *mut c_void, range.size());
        let call = (record.id(), &self.shared.calls);
        record.issue(|queue| {
            if broken(Rule::RecordAfterCopy) {
                self.record_copy_on(transfer, call, queue)?;
            }
            // SAFETY: the host range is valid by this function's contract.
            let copied = unsafe { self.submit_parts(entry, transfer, range, queue) };
            if copied.is_err() {
                report!("Copying data to device failed.");
            }
            copied?;
            if broken(Rule::RecordAfterCopy) { Ok(()) } else { self.record_copy_on(transfer, call, queue) }
        })
    }

    /// Copies what is mapped of `range` to the device, but not over pointers that have been attached there: other calls
    /// may have attached them, and their regions use them.
    ///
    /// # Safety
    ///
    /// The host range is valid until the call has been synchronised, and `queue` is its own.
    unsafe fn submit_parts(&self, entry: &Entry, transfer: &Transfer, range: HostRange, queue: *mut AsyncInfo) -> Done {
        in_parts(entry, transfer, range, Rule::AttachedStay, |host, target, size| {
            // SAFETY: a part of the range, and where it is mapped.
            unsafe { self.shared.plugin.data_submit(target, host, size, queue) }
        })
    }

    /// Copies a pointer into an entry whose lock is held: LLVM's attachment, which [`record_copy`](Self::record_copy)
    /// follows. The entry remembers it.
    ///
    /// # Safety
    ///
    /// As for [`submit`](Self::submit); `host` may be read now.
    pub unsafe fn submit_locked(
        &self,
        entry: &Entry,
        transfer: &mut Transfer,
        target: *mut c_void,
        host: *mut c_void,
        size: i64,
        record: &mut CallRecord,
    ) -> Done {
        event::chain_copy(&self.shared.plugin, &self.shared.calls, transfer, record)?;
        // SAFETY: the same contract.
        unsafe { self.submit(target, host, size, record) }?;
        if size == size_of::<usize>() as i64 && entry.holds_target(target.addr()) {
            // SAFETY: a pointer that may be read, by this function's contract.
            let pointer = unsafe { host.cast::<usize>().read_unaligned() };
            transfer.attach(target.addr() - entry.target_begin(), pointer);
        }
        Ok(())
    }

    /// `submitData`: [`submit_locked`](Self::submit_locked) if LLVM holds an entry's lock on this thread, else
    /// [`submit_unlocked`](Self::submit_unlocked).
    ///
    /// # Safety
    ///
    /// As for those. What [`set_locked`] was told last is true.
    #[cfg(not(model))]
    pub unsafe fn submit_as_locked(
        &self,
        target: *mut c_void,
        host: *mut c_void,
        size: i64,
        record: &mut CallRecord,
    ) -> Done {
        // SAFETY: null, or an entry that LLVM refers to as long as it holds the lock.
        let Some(entry) = (unsafe { call::locked().as_ref() }) else {
            // SAFETY: the same contract.
            return unsafe { self.submit_unlocked(target, host, size, record) };
        };
        // SAFETY: this thread holds the lock by this function's contract, and this is the only use of its value.
        let mut transfer = unsafe { entry.transfer().assume_locked() };
        // SAFETY: the same contract.
        unsafe { self.submit_locked(entry, &mut transfer, target, host, size, record) }
    }

    /// Records a copy that the call has issued into an entry, whose lock is held: `addEventIfNecessary`.
    pub fn record_copy(&self, transfer: &mut Transfer, record: &mut CallRecord) -> Done {
        let call = (record.id(), &self.shared.calls);
        record.issue(|queue| self.record_copy_on(transfer, call, queue))
    }

    #[inline]
    fn record_copy_on(&self, transfer: &mut Transfer, call: (CallId, &Calls), queue: *mut AsyncInfo) -> Done {
        if self.use_events { event::record_copy(&self.shared.plugin, transfer, call, queue) } else { Ok(()) }
    }

    /// Finds a mapping inside or at the end of a region, and counts it out if asked to: the long `getTgtPtrBegin`.
    ///
    /// `answer` makes of what is found what is returned. So each way to the end writes that itself: a processor waits where it
    /// reads as one what has just been written in parts.
    #[inline(always)]
    pub fn target_begin<'d, A>(&'d self, request: &EndRequest, answer: impl FnOnce(TargetPointer<'d>) -> A) -> A {
        call::on_thread(|thread| {
            log_look_up(request.range);
            // SAFETY: no record is in use here: this function is given none.
            let mut record = unsafe { thread.current(&self.shared) };
            if let Some(uses) = record.as_mut().map(|record| &mut record.uses) {
                let launched = uses.launched;
                // Most often it is what the call has counted itself, whole.
                if let Some(used) = uses.counted_at(request.range) {
                    if let Some(counted) = used.known(request, launched) {
                        return self.found_on_exit(request, Handle::of_call(&used.entry), counted, thread, answer);
                    }
                    // Nobody else sets or takes off this caller's mark.
                    if !request.force_delete
                        && let Some(table) = self.shared.mappings.share_only(request.range, thread.caller())
                        && used.is_counted_out_by(thread.caller())
                    {
                        let counted = table.end_of_own(request, thread.caller(), used, launched);
                        drop(table);
                        return self.found_on_exit(request, Handle::of_call(&used.entry), counted, thread, answer);
                    }
                }
            }
            if request.is_for_address() && !thread.is_in_call() {
                return self.find_address(request, thread, answer);
            }
            self.target_begin_otherwise(request, thread, record, answer)
        })
    }

    /// The same for who needs no handle: `omp_target_is_present` alone asks so, and takes the address.
    #[inline(never)]
    fn find_address<'d, A>(
        &'d self,
        request: &EndRequest,
        thread: &Thread,
        answer: impl FnOnce(TargetPointer<'d>) -> A,
    ) -> A {
        let range = request.range;
        let (overlap, found) = self.shared.mappings.look_up(range, false, thread.caller(), |entry| {
            let counts = entry.counts();
            let last = counts.is_last(request.kind, request.force_delete);
            (
                entry.target_of(range.begin()),
                counts,
                last && entry.leaving().is_none_or(|other| other == thread.caller()),
            )
        });
        log_overlap(overlap);
        let Some((target, counts, last)) = found else {
            let nothing = if request.unified { End::Host } else { End::Nothing };
            return self.on_exit(request, nothing, thread, None, answer);
        };
        thread.set_held(null());
        if report::info_is_on(flag::MAPPING_EXISTS) {
            self.log_exists_on_exit(request, target, counts, CountAction::Suppressed);
        }
        let found = if last { Found::Last } else { Found::Mapped };
        answer(TargetPointer { found, target: target as *mut c_void, ..TargetPointer::NONE })
    }

    /// The same for what the call has not counted.
    #[inline(never)]
    fn target_begin_otherwise<'d, A>(
        &'d self,
        request: &EndRequest,
        thread: &Thread,
        mut record: Option<&mut CallRecord>,
        answer: impl FnOnce(TargetPointer<'d>) -> A,
    ) -> A {
        if !request.force_delete
            && let Some(table) = self.shared.mappings.share_only(request.range, thread.caller())
        {
            let uses = record.as_mut().map(|record| &mut record.uses);
            let (overlap, end) = table.count_end(request, thread.caller(), uses);
            // What might have to be dropped here would be in memory until then.
            let end = ManuallyDrop::new(end);
            drop(table);
            log_overlap(overlap);
            return self.on_exit(request, ManuallyDrop::into_inner(end), thread, record, answer);
        }
        let uses = record.as_mut().map(|record| &mut record.uses);
        let (overlap, end) = self.shared.mappings.end(request, thread.caller(), uses);
        log_overlap(overlap);
        self.on_exit(request, end, thread, record, answer)
    }

    #[cold]
    fn log_exists_on_exit(&self, request: &EndRequest, target: usize, counts: RefCounts, action: CountAction) {
        report::info_line(
            self.shared.plugin.device(),
            format_args!(
                "Mapping exists with HstPtrBegin={}, TgtPtrBegin={}, Size={}, {}",
                Address(request.range.begin()),
                Address(target),
                request.range.size(),
                Counts(counts, Some(action), request.kind),
            ),
        );
    }

    #[inline(always)]
    fn found_on_exit<'d, A>(
        &'d self,
        request: &EndRequest,
        entry: Handle<'d>,
        CountedOut { last, action, counts }: CountedOut,
        thread: &Thread,
        answer: impl FnOnce(TargetPointer<'d>) -> A,
    ) -> A {
        thread.set_held(&raw const *entry);
        let found = if last { Found::Last } else { Found::Mapped };
        let pointer = TargetPointer::mapped(found, entry, request.range);
        if report::info_is_on(flag::MAPPING_EXISTS) {
            self.log_exists_on_exit(request, pointer.target.addr(), counts, action);
        }
        answer(pointer)
    }

    #[inline(always)]
    fn on_exit<'d, A>(
        &'d self,
        request: &EndRequest,
        end: End,
        thread: &Thread,
        record: Option<&mut CallRecord>,
        answer: impl FnOnce(TargetPointer<'d>) -> A,
    ) -> A {
        let range = request.range;
        match end {
            End::Found(entry, counted) => {
                let entry = match (entry, record) {
                    (None, Some(record)) => Handle::of_call(record.uses.newest()),
                    (entry, _) => Handle::Counted(self.pin(entry.expect("without a call there are no uses"))),
                };
                self.found_on_exit(request, entry, counted, thread, answer)
            }
            End::Host => {
                thread.set_held(null());
                let host = Address(range.begin());
                dp!("Get HstPtrBegin {host} Size={} for unified shared memory", range.size());
                answer(TargetPointer::host(range))
            }
            End::Nothing => {
                thread.set_held(null());
                answer(TargetPointer::NONE)
            }
        }
    }

    /// Where `range` is on the device, 0 if nowhere: the short `getTgtPtrBegin`, whose caller has locked the table and
    /// looked it up.
    pub fn target_address(&self, range: HostRange, (overlap, entry): (Overlap, Option<&Arc<Entry>>)) -> usize {
        log_look_up(range);
        log_overlap(overlap);
        entry.map_or(0, |entry| entry.target_of(range.begin()))
    }

    /// The last user is done: removes the mapping unless somebody has joined, and gives back its memory and event if
    /// no other call uses them: `deallocTgtPtr`. While other calls do, it stays, to be joined or to be removed by them.
    ///
    /// A mapping that somebody else has removed meanwhile is no error.
    #[inline(always)]
    pub fn release(&self, range: HostRange, kind: CountKind) -> i32 {
        log_look_up(range);
        let caller = caller();
        match self.shared.mappings.only(range) {
            Some(mut table) => {
                let released = ManuallyDrop::new(table.release_in_table(range, kind, caller));
                drop(table);
                self.after_release(range, ManuallyDrop::into_inner(released), caller)
            }
            None => self.release_in_parts(range, kind, caller),
        }
    }

    #[inline(never)]
    fn release_in_parts(&self, range: HostRange, kind: CountKind, caller: Caller) -> i32 {
        self.after_release(range, self.shared.mappings.release(range, kind, caller), caller)
    }

    #[inline(always)]
    fn after_release(&self, range: HostRange, (overlap, released): (Overlap, Released), caller: Caller) -> i32 {
        log_overlap(overlap);
        match released {
            Released::Removed(entry) | Released::Detached(entry) => self.shared.give_back(entry, range.size(), caller),
            Released::Kept | Released::Missing => OFFLOAD_SUCCESS,
        }
    }

    /// Maps a host range to memory that the user allocated on the device: `associatePtr`.
    pub fn associate(&self, range: HostRange, target: usize) -> i32 {
        let (association, entry) = self.shared.mappings.associate(range, target);
        let host = Address(range.begin());
        match association {
            Association::Made => {
                let entry = self.pin(entry.expect("made just now"));
                dp!(
                    "Creating new map entry: HstBase={}, HstBegin={host}, HstEnd={}, TgtBegin={}, {}",
                    Address(entry.host_base()),
                    Address(entry.host_end()),
                    Address(entry.target_begin()),
                    Counts(entry.counts(), None, CountKind::Dynamic),
                );
                return OFFLOAD_SUCCESS;
            }
            Association::Same => {
                dp!("Attempt to re-associate the same device ptr+offset with the same host ptr, nothing to do");
                return OFFLOAD_SUCCESS;
            }
            Association::Different => {
                report!("Not allowed to re-associate a different device ptr+offset with the same host ptr");
            }
            Association::Overlaps => report::refused(format_args!(
                "cannot associate {} bytes at {host}: the range reaches into another mapping",
                range.size()
            )),
            Association::Wraps => report::refused(format_args!(
                "cannot associate {} bytes at {host}: the range leaves the address space",
                range.size()
            )),
        }
        OFFLOAD_FAIL
    }

    /// Takes back what [`associate`](Self::associate) made, and nothing else: `disassociatePtr`.
    pub fn disassociate(&self, host: usize) -> i32 {
        let (mut held, mut ours) = (false, false);
        let entry = self.shared.mappings.remove_at(host, |entry| {
            held = !entry.counts().hold().is_zero();
            ours = entry.origin() == Origin::Associated;
            ours && !held
        });
        let Some(entry) = entry else {
            report!("Association not found");
            return OFFLOAD_FAIL;
        };
        // The last handle gives the event back.
        let _entry = self.pin(entry);
        if held {
            report!("Trying to disassociate a pointer with a non-zero hold reference count");
        } else if !ours {
            report!("Trying to disassociate a pointer which was not mapped via omp_target_associate_ptr");
        } else {
            dp!("Association found, removing it");
            return OFFLOAD_SUCCESS;
        }
        OFFLOAD_FAIL
    }

    /// Whether the pointer at `host` has been attached where it is mapped now, to `value`.
    pub fn is_attached(&self, host: usize, value: usize) -> bool {
        if broken(Rule::AttachedHere) {
            return true;
        }
        let range = HostRange::new(host, size_of::<usize>() as i64);
        let (_, entry) = self.shared.mappings.look_up(range, false, caller(), Arc::clone);
        entry.map(|entry| self.pin(entry)).is_some_and(|entry| {
            let attached = entry.transfer().lock().attached(host.wrapping_sub(entry.host_begin()));
            attached == Some(value)
        })
    }

    /// Loads an image: `load_binary`.
    ///
    /// # Safety
    ///
    /// See [`Plugin::load_binary`].
    pub unsafe fn load_binary(&self, image: *mut c_void) -> *mut TargetTable {
        // SAFETY: the same contract.
        unsafe { self.shared.plugin.load_binary(image) }
    }

    /// Copies to the device: `submitData`.
    ///
    /// # Safety
    ///
    /// Both ranges are `size` bytes; the host's stays valid until the call has been synchronised. `record` is the
    /// call's.
    pub unsafe fn submit(&self, target: *mut c_void, host: *mut c_void, size: i64, record: &mut CallRecord) -> Done {
        self.log_submit(host, target, size);
        // SAFETY: the same contract.
        record.issue(|queue| unsafe { self.shared.plugin.data_submit(target, host, size, queue) })
    }

    #[inline(always)]
    fn log_submit(&self, host: *mut c_void, target: *mut c_void, size: i64) {
        self.log_transfer(host, size, move |device, host, name| {
            report::info_line(
                device,
                format_args!(
                    "Copying data from host to device, HstPtr={host}, TgtPtr={}, Size={size}, Name={name}",
                    Address(target.addr())
                ),
            );
        });
    }

    /// As [`submit`](Self::submit), for a caller that holds no entry's lock: if the target is in an entry that this
    /// thread has looked up, the copy is ordered with the others into it.
    ///
    /// # Safety
    ///
    /// As for [`submit`](Self::submit).
    pub unsafe fn submit_unlocked(
        &self,
        target: *mut c_void,
        host: *mut c_void,
        size: i64,
        record: &mut CallRecord,
    ) -> Done {
        let Some(entry) = self.held_at(target) else {
            // SAFETY: the same contract.
            return unsafe { self.submit(target, host, size, record) };
        };
        record.pin(&entry);
        let mut transfer = entry.transfer().lock();
        transfer.add_user(record.id(), record.calls());
        event::chain_copy(&self.shared.plugin, &self.shared.calls, &transfer, record)?;
        self.log_submit(host, target, size);
        let range = HostRange::new(host.addr(), size);
        let is_own = entry.target_of(range.begin()) == target.addr();
        let call = (record.id(), &self.shared.calls);
        record.issue(|queue| {
            if is_own {
                // SAFETY: the same contract.
                unsafe { self.submit_parts(&entry, &transfer, range, queue) }?;
            } else {
                // An attached pointer, put back where it is already.
                // SAFETY: the same contract.
                unsafe { self.shared.plugin.data_submit(target, host, size, queue) }?;
            }
            self.record_copy_on(&mut transfer, call, queue)
        })
    }

    /// The entry that this thread has looked up and not dropped, if `target` is in its memory.
    fn held_at(&self, target: *const c_void) -> Option<Handle<'_>> {
        let entry = Handle::OfCall(call::held()?);
        entry.holds_target(target.addr()).then_some(entry)
    }

    /// Copies from the device: `retrieveData`.
    ///
    /// # Safety
    ///
    /// As for [`submit`](Self::submit); the host's range may be written until then.
    #[inline(always)]
    pub unsafe fn retrieve(&self, host: *mut c_void, target: *mut c_void, size: i64, record: &mut CallRecord) -> Done {
        self.log_transfer(host, size, move |device, host, name| {
            report::info_line(
                device,
                format_args!(
                    "Copying data from device to host, TgtPtr={}, HstPtr={host}, Size={size}, Name={name}",
                    Address(target.addr())
                ),
            );
        });
        let entry = self.held_at(target).filter(|entry| entry.target_of(host.addr()) == target.addr());
        let Some(entry) = entry else {
            // SAFETY: the same contract.
            return record.issue(|queue| unsafe { self.shared.plugin.data_retrieve(host, target, size, queue) });
        };
        let mut is_mapped = record.pin(&entry);
        let mut transfer = loop {
            let mut transfer = entry.transfer().lock();
            let is_alone = transfer.add_user(record.id(), record.calls());
            if is_alone || !self.use_events || broken(Rule::CopyBackAfterUsers) {
                break transfer;
            }
            // With the lock held up to the copy, so that copies back come in order. But nobody shall have to wait for the
            // entry while this call waits for another one's end.
            let others = transfer.users_beside(record.id(), record.calls());
            let calls = &self.shared.calls;
            match event::try_order_after_calls(&self.shared.plugin, calls, &others, record)? {
                Ok(()) => break transfer,
                Err(busy) => {
                    drop(transfer);
                    calls.wait_for(busy);
                    is_mapped = entry.is_in_table();
                }
            }
        };
        if !is_mapped {
            // Deleted, or taken over and removed before this call used it. A copy from here could come after what a later
            // mapping copies back.
            return Ok(());
        }
        if self.use_events {
            transfer.set_copied_back(record.id(), record.calls());
        }
        let range = HostRange::new(host.addr(), size);
        in_parts(&entry, &transfer, range, Rule::HostPointersStay, |host, target, size| {
            // SAFETY: a part of the range, and where it is mapped.
            record.issue(|queue| unsafe { self.shared.plugin.data_retrieve(host, target, size, queue) })
        })
    }

    /// Has a line printed for a copy, if LLVM's information level asks for it.
    ///
    /// LLVM calls with an entry lock or `ShadowMtx` held; the table lock is below both, see [`crate::sync::rank`].
    #[inline(always)]
    fn log_transfer(&self, host: *mut c_void, size: i64, print: impl FnOnce(i32, Address, &str)) {
        if report::info_level_has(flag::DATA_TRANSFER) {
            self.say_transfer(host, size, print);
        }
    }

    #[cold]
    fn say_transfer(&self, host: *mut c_void, size: i64, print: impl FnOnce(i32, Address, &str)) {
        let range = HostRange::new(host.addr(), size);
        log_look_up(range);
        let (overlap, name) = self.shared.mappings.look_up(range, false, caller(), |entry| entry.name());
        log_overlap(overlap);
        if report::info_is_on(flag::DATA_TRANSFER) {
            // SAFETY: the entry's name came with a valid request.
            print(self.shared.plugin.device(), Address(range.begin()), &unsafe {
                report::variable_name(name.unwrap_or(0))
            });
        }
    }

    /// Copies to another device of the same plugin: `dataExchange`.
    ///
    /// # Safety
    ///
    /// Both ranges are `size` bytes of their device. `record` is the call's.
    pub unsafe fn exchange(
        &self,
        source: *mut c_void,
        to: &Self,
        target: *mut c_void,
        size: i64,
        record: &mut CallRecord,
    ) -> Done {
        // SAFETY: the same contract.
        record
            .issue(|queue| unsafe { self.shared.plugin.data_exchange(source, &to.shared.plugin, target, size, queue) })
    }

    /// Launches a region: `runTeamRegion`, or `runRegion` without `teams`.
    ///
    /// # Safety
    ///
    /// `region` and its arguments are valid for this device. `record` is the call's.
    pub unsafe fn run(&self, region: &Region, teams: bool, record: &mut CallRecord) -> Done {
        self.end_of_copies_in(record)?;
        record.issue(|queue| {
            if teams {
                // SAFETY: the same contract.
                unsafe { self.shared.plugin.run_team_region(region, queue) }
            } else {
                // SAFETY: the same contract.
                unsafe { self.shared.plugin.run_region(region, queue) }
            }
        })
    }

    /// The call will issue no more copies to the device for its mappings.
    ///
    /// Calls that were still filling what it uses are waited for, until they have issued their copies; each call says
    /// so of itself first, so that none waits for one that waits for it. Then come the copies that were issued since
    /// this call looked up what it uses: the rest of those, and pointers that others have attached, whose entry is
    /// locked from the moment that LLVM knows of the pointer.
    fn end_of_copies_in(&self, record: &mut CallRecord) -> Done {
        record.uses.launched = true;
        record.set_filled();
        let makers = std::mem::take(&mut record.unfilled);
        for maker in &makers {
            self.shared.calls.wait_until_filled(*maker);
        }
        let attached = |entry: &Entry| entry.may_contain_attached_pointers() && !broken(Rule::AttachedBeforeLaunch);
        let changed = record.uses.entries().filter(|entry| !makers.is_empty() || attached(entry));
        for entry in changed.cloned().collect::<Vec<_>>() {
            event::order_after_copy(&self.shared.plugin, &entry.transfer().lock(), record)?;
        }
        Ok(())
    }

    /// Waits for the work of the call that `info` belongs to, on the device that it was given to: `synchronize`.
    ///
    /// # Safety
    ///
    /// See [`CallRecord::take`].
    pub unsafe fn synchronize(info: NonNull<AsyncInfo>) -> Done {
        // SAFETY: the same contract.
        unsafe { CallRecord::take(info) }.map_or(Ok(()), |record| record.finish())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shared.idle.close();
    }
}

impl Shared {
    /// Lets go of the entries that a finished call used, and removes those whose last users have left them to that.
    #[inline(always)]
    fn finish_uses(&self, uses: &mut Uses) {
        uses.drain(
            |entry, is_left| {
                if is_left { self.let_go_of_left(entry) } else { pin::let_go(&self.plugin, entry) }
            },
        );
    }

    #[cold]
    fn let_go_of_left(&self, entry: Arc<Entry>) {
        let removed = self.mappings.lock_table_of(&entry).remove_left_alone(&entry);
        pin::let_go(&self.plugin, entry);
        if let Some(entry) = removed {
            let size = entry.size() as i64;
            self.give_back(entry, size, call::caller());
        }
    }

    /// Writes the lines for an entry that has left the table, and drops the handle on it.
    fn give_back(&self, entry: Arc<Entry>, size: i64, caller: Caller) -> i32 {
        let (host, target, name) = (entry.host_begin(), Address(entry.target_begin()), entry.name());
        dp!("Deleting tgt data {target} of size {size}");
        let (event, memory) = pin::free_if_last(&self.plugin, entry);
        if let Some(memory) = memory {
            self.idle.keep(memory, caller);
        }
        info!(
            flag::MAPPING_CHANGED,
            self.plugin.device(),
            "Removing map entry with HstPtrBegin={}, TgtPtrBegin={target}, Size={size}, Name={}",
            Address(host),
            // SAFETY: the entry's name came with a valid request.
            unsafe { report::variable_name(name) },
        );
        if event.is_none_or(|event| destroy(&self.plugin, event)) { OFFLOAD_SUCCESS } else { OFFLOAD_FAIL }
    }
}

/// Has `copy` move what is mapped of `range`, by host and device address and size. What is attached is left out: by
/// `stay`, which a test may break.
#[inline(always)]
fn in_parts(
    entry: &Entry,
    transfer: &Transfer,
    range: HostRange,
    stay: Rule,
    mut copy: impl FnMut(*mut c_void, *mut c_void, i64) -> Done,
) -> Done {
    let mut copy_part = |part: Range<usize>| {
        let [host, target] = [entry.host_begin(), entry.target_begin()].map(|begin| begin + part.start);
        copy(host as *mut c_void, target as *mut c_void, part.len() as i64)
    };
    let whole = entry.offsets(range);
    let mut rest = Some(whole.start..whole.start);
    if transfer.has_attached() && !broken(stay) {
        transfer.each_without_attached(whole, |part| {
            rest = None;
            copy_part(part)
        })?;
    } else if !whole.is_empty() {
        rest = None;
        copy_part(whole)?;
    }
    // A copy of nothing is one, too, as LLVM's: what follows may need the queue that the plugin gives a call.
    rest.map_or(Ok(()), copy_part)
}

/// The code that LLVM's callers get.
pub fn code(done: Done) -> i32 {
    done.map_or_else(|Failed(code)| code, |()| OFFLOAD_SUCCESS)
}

/// What `device_is_ready` says of a device that there is none of.
pub fn is_missing(number: i32) {
    dp!("Checking whether device {number} is ready.");
    dp!("Device ID  {number} does not have a matching RTL");
}

fn message_not_present(range: HostRange) {
    message!(
        "device mapping required by 'present' map type modifier does not exist for host address {} ({} bytes)",
        Address(range.begin()),
        range.size()
    );
}

#[inline]
fn log_look_up(range: HostRange) {
    if report::debug_is_on() {
        say_look_up(range);
    }
}

#[cold]
fn say_look_up(range: HostRange) {
    dp!("Looking up mapping(HstPtrBegin={}, Size={})...", Address(range.begin()), range.size());
}

#[inline]
fn log_overlap(overlap: Overlap) {
    if !matches!(overlap, Overlap::None | Overlap::Inside) {
        say_overlap(overlap);
    }
}

#[cold]
fn say_overlap(overlap: Overlap) {
    if overlap.extends_before() {
        dp!("WARNING: Pointer is not mapped but section extends into already mapped data");
    }
    if overlap.extends_after() {
        dp!("WARNING: Pointer is already mapped but section extends beyond mapped region");
    }
}

/// Both counts, and what was done to one of them.
struct Counts(RefCounts, Option<CountAction>, CountKind);

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = |kind| self.1.filter(|_| kind == self.2).map_or(String::new(), |action| action.to_string());
        let (dynamic, hold) = (self.0.dynamic(), self.0.hold());
        write!(f, "DynRefCount={dynamic}{}, HoldRefCount={hold}{}", action(CountKind::Dynamic), action(CountKind::Hold))
    }
}
