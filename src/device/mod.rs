//! One device: LLVM's `DeviceTy`. Asks the mapping what must happen, does it through the plugin, writes the log.
//!
//! Log lines stand where LLVM 14's `device.cpp` has them, word for word; see [`crate::report`] for those of our own.

mod call;
mod pin;

pub use call::{CallRecord, caller, open_on_this_thread, set_held, set_locked, unset_held};
pub use pin::{Pin, destroy};

use crate::event;
use crate::mapping::{
    Association, Begin, BeginRequest, CountAction, CountKind, End, EndRequest, Entry, HostRange, Origin, Overlap,
    RefCounts, Released, Table, Transfer,
};
use crate::plugin_api::{Done, Failed, Plugin};
use crate::report::{self, Address, dp, info, message, report};
use crate::rules::{Rule, broken};
use crate::sync::{Arc, Guard, Mutex, OnceLock, Rank};
use omptarget_abi::{AsyncInfo, OFFLOAD_FAIL, OFFLOAD_SUCCESS, Region, TargetTable, info as flag};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{NonNull, null_mut};

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
    table: Mutex<Table>,
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
    /// The mapping is new, or was made by the same construct.
    pub is_new: bool,
    /// The pointer is the host's own: unified shared memory.
    pub is_host: bool,
    /// The mapping, if one was found.
    pub entry: Option<Pin<'d>>,
    /// The address; null if there is none, or on failure.
    pub target: *mut c_void,
}

impl<'d> TargetPointer<'d> {
    /// No address.
    const NONE: Self = Self { is_new: false, is_host: false, entry: None, target: null_mut() };

    fn host(range: HostRange) -> Self {
        Self { is_host: true, target: range.begin() as *mut c_void, ..Self::NONE }
    }

    fn mapped(entry: Pin<'d>, range: HostRange, is_new: bool) -> Self {
        let target = entry.target_of(range.begin()) as *mut c_void;
        Self { is_new, target, entry: Some(entry), ..Self::NONE }
    }
}

/// How an attempt to map ended without an address.
enum Refused {
    /// The call fails; the lines are written.
    Fails,
    /// The entry turned out to be of a call that failed to fill it: look again.
    Again,
}

impl From<Failed> for Refused {
    fn from(_: Failed) -> Self {
        Self::Fails
    }
}

impl Device {
    /// A device of `plugin`, with nothing mapped.
    pub fn new(plugin: Plugin, use_events: bool) -> Self {
        let table = Mutex::new(Rank::TABLE, Table::default());
        Self { shared: Arc::new(Shared { plugin, table }), ready: OnceLock::new(), use_events }
    }

    /// The device's plugin.
    pub fn plugin(&self) -> &Plugin {
        &self.shared.plugin
    }

    /// The mappings; the lock is LLVM's `DataMapMtx`.
    pub fn table(&self) -> &Mutex<Table> {
        &self.shared.table
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
        let [_, local] = self.shared.plugin.numbers().map(|number| number.load(crate::sync::Ordering::Relaxed));
        let is_init = self.ready.get().copied().unwrap_or(false);
        dp!("Is the device {number} (local ID {local}) initialized? {}", i32::from(is_init));
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
    pub unsafe fn target_pointer(
        &self,
        request: &BeginRequest,
        copy: CopyIn,
        info: NonNull<AsyncInfo>,
    ) -> TargetPointer<'_> {
        // SAFETY: `info` is as this function's contract says.
        let record = unsafe { self.record(info) };
        // A former call of this thread may have ended without giving these back.
        for entry in self.shared.table.lock().take_detached(caller()) {
            pin::let_go(&self.shared.plugin, entry);
        }
        loop {
            // SAFETY: the same contract.
            match unsafe { self.try_target_pointer(request, copy, record) } {
                Ok(pointer) => return pointer,
                Err(Refused::Fails) => return TargetPointer::NONE,
                Err(Refused::Again) => {}
            }
        }
    }

    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    unsafe fn try_target_pointer(
        &self,
        request: &BeginRequest,
        copy: CopyIn,
        record: &mut CallRecord,
    ) -> Result<TargetPointer<'_>, Refused> {
        let range = request.range;
        let (host, size) = (Address(range.begin()), range.size());
        log_look_up(range);
        let mut table = self.shared.table.lock();
        let (overlap, begin) = table.begin(request, caller(), &mut record.uses);
        log_overlap(overlap);
        match begin {
            Begin::Exists { entry, counts, is_new } => {
                drop(table);
                let entry = self.pin(entry);
                let action = if request.update { CountAction::Incremented } else { CountAction::Suppressed };
                info!(
                    flag::MAPPING_EXISTS,
                    self.shared.plugin.device(),
                    "Mapping exists{} with HstPtrBegin={host}, TgtPtrBegin={}, Size={size}, {}, Name={}",
                    if request.implicit { " (implicit)" } else { "" },
                    Address(entry.target_of(range.begin())),
                    Counts(counts, Some(action), request.kind),
                    // SAFETY: the name is valid by this function's contract.
                    unsafe { report::variable_name(request.name) },
                );
                // SAFETY: the host range is valid by this function's contract.
                unsafe { self.use_existing(entry, request, is_new, copy, record) }
                    .map(|(entry, is_new)| TargetPointer::mapped(entry, range, is_new))
            }
            Begin::Create => {
                let target = self.shared.plugin.data_alloc(size, range.begin(), ALLOC_DEFAULT);
                if target.is_null() {
                    return Err(Refused::Fails);
                }
                let entry = self.pin(table.insert(request, target.addr(), &mut record.uses));
                // SAFETY: the host range is valid by this function's contract.
                unsafe { self.use_new(table, &entry, request, copy.to, record) }?;
                Ok(TargetPointer::mapped(entry, range, true))
            }
            Begin::Extension { host_begin, size: mapped } => {
                message!(
                    "explicit extension not allowed: host address specified is {host} ({size} bytes), but device \
                     allocation maps to host at {} ({mapped} bytes)",
                    Address(host_begin)
                );
                if request.present {
                    message_not_present(range);
                }
                Err(Refused::Fails)
            }
            Begin::Host => {
                dp!("Return HstPtrBegin {host} Size={size} for unified shared memory");
                Ok(TargetPointer::host(range))
            }
            Begin::NotPresent => {
                dp!(
                    "Mapping required by 'present' map type modifier does not exist for HstPtrBegin={host}, Size={size}"
                );
                message_not_present(range);
                Err(Refused::Fails)
            }
            Begin::Wraps => {
                report::refused(format_args!("cannot map {size} bytes at {host}: the range leaves the address space"));
                Err(Refused::Fails)
            }
            Begin::Nothing => Ok(TargetPointer::NONE),
        }
    }

    /// Lets go of the table, and copies into the mapping that was just made there.
    ///
    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    unsafe fn use_new(
        &self,
        table: Guard<'_, Table>,
        entry: &Pin<'_>,
        request: &BeginRequest,
        moves: bool,
        record: &mut CallRecord,
    ) -> Done {
        // Locked before the table is let go: nobody can use the entry before its copy has been issued, nor miss it.
        let counts = entry.counts();
        let mut transfer = if broken(Rule::EntryLockBeforeTableUnlock) {
            drop(table);
            entry.transfer().lock()
        } else {
            let transfer = entry.transfer().lock_unshared();
            drop(table);
            transfer
        };
        transfer.add_user(record.call());
        transfer.made_by = Some(Arc::clone(record.call()));
        info!(
            flag::MAPPING_CHANGED,
            self.shared.plugin.device(),
            "Creating new map entry with HstPtrBegin={}, TgtPtrBegin={}, Size={}, {}, Name={}",
            Address(entry.host_begin()),
            Address(entry.target_begin()),
            request.range.size(),
            Counts(counts, None, request.kind),
            // SAFETY: the name is valid by this function's contract.
            unsafe { report::variable_name(request.name) },
        );
        if !moves {
            return Ok(());
        }
        // SAFETY: the host range is valid by this function's contract, and the target was made for it.
        let copied = unsafe { self.copy_in(&mut transfer, entry, request.range, record) };
        transfer.failed = copied.is_err();
        drop(transfer);
        if copied.is_err() {
            record.uses.take_back(entry);
            self.shared.table.lock().remove(entry);
        }
        copied
    }

    /// Copies into a mapping that was there, or waits for the copy that is on its way. Says whether it is new after all.
    ///
    /// # Safety
    ///
    /// As for [`target_pointer`](Self::target_pointer).
    unsafe fn use_existing<'d>(
        &'d self,
        entry: Pin<'d>,
        request: &BeginRequest,
        mut is_new: bool,
        copy: CopyIn,
        record: &mut CallRecord,
    ) -> Result<(Pin<'d>, bool), Refused> {
        let mut transfer = entry.transfer().lock();
        if !request.update {
            // A mapper's first component, unless this call knows it: nothing but the calls in flight tells whether it is in
            // use, and then the device may have newer data than the host.
            let known = record.uses.of(&entry).made;
            let unused = || broken(Rule::UsedIsNotNew) || transfer.users_beside(record.call()).is_empty();
            is_new = known.unwrap_or_else(|| is_new && unused());
            record.uses.of(&entry).made = Some(is_new);
            if is_new {
                transfer.made_by = Some(Arc::clone(record.call()));
            }
        }
        let moves = copy.to && (is_new || copy.always);
        transfer.add_user(record.call());
        record.unfilled.extend(transfer.filled_by_another(record.call()));
        let failed = transfer.failed;
        let done = if failed {
            Err(Refused::Again)
        } else if moves {
            // SAFETY: the host range is valid by this function's contract, and the entry was found for it.
            unsafe { self.copy_in(&mut transfer, &entry, request.range, record) }.map_err(Refused::from)
        } else {
            event::order_after_copy(&self.shared.plugin, &transfer, record).map_err(Refused::from)
        };
        drop(transfer);
        if let Err(refused) = done {
            let mut table = self.shared.table.lock();
            if request.update {
                record.uses.take_back(&entry);
                table.take_back(&entry, request.kind);
            }
            if failed {
                table.remove(&entry);
            }
            return Err(refused);
        }
        Ok((entry, is_new))
    }

    /// Copies `range` into its mapping, after the copy before and followed by a record.
    ///
    /// # Safety
    ///
    /// The host range is valid until the call has been synchronised, and `entry` was found or made for it.
    unsafe fn copy_in(
        &self,
        transfer: &mut Transfer,
        entry: &Entry,
        range: HostRange,
        record: &mut CallRecord,
    ) -> Done {
        let (host, target) = (range.begin(), entry.target_of(range.begin()));
        dp!("Moving {} bytes (hst:{}) -> (tgt:{})", range.size(), Address(host), Address(target));
        event::chain_copy(&self.shared.plugin, transfer, record)?;
        if broken(Rule::RecordAfterCopy) {
            self.record_copy(transfer, record)?;
        }
        // SAFETY: the host range is valid by this function's contract.
        let copied = unsafe { self.submit_parts(entry, transfer, range, record) };
        if copied.is_err() {
            report!("Copying data to device failed.");
        }
        copied?;
        if broken(Rule::RecordAfterCopy) {
            return Ok(());
        }
        self.record_copy(transfer, record)
    }

    /// Copies what is mapped of `range` to the device, but not over pointers that have been attached there: other calls
    /// may have attached them, and their regions use them.
    ///
    /// # Safety
    ///
    /// The host range is valid until the call has been synchronised.
    unsafe fn submit_parts(
        &self,
        entry: &Entry,
        transfer: &Transfer,
        range: HostRange,
        record: &mut CallRecord,
    ) -> Done {
        self.log_submit(range.begin() as *mut c_void, entry.target_of(range.begin()) as *mut c_void, range.size());
        in_parts(entry, transfer, range, Rule::AttachedStay, |host, target, size| {
            // SAFETY: a part of the range, and where it is mapped.
            record.issue(|queue| unsafe { self.shared.plugin.data_submit(target, host, size, queue) })
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
        event::chain_copy(&self.shared.plugin, transfer, record)?;
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
        if self.use_events { event::record_copy(&self.shared.plugin, transfer, record) } else { Ok(()) }
    }

    /// Finds a mapping inside or at the end of a region, and counts it out if asked to: the long `getTgtPtrBegin`.
    ///
    /// The second result is whether the caller is its last user, who calls [`release`](Self::release) in the end.
    pub fn target_begin(&self, request: &EndRequest) -> (TargetPointer<'_>, bool) {
        let range = request.range;
        log_look_up(range);
        // SAFETY: no record is in use here: this function is given none.
        let record = unsafe { call::current(&self.shared) };
        let (overlap, end) = self.shared.table.lock().end(request, caller(), record.map(|record| &mut record.uses));
        log_overlap(overlap);
        match end {
            End::Found { entry, counts, last, action } => {
                let pointer = TargetPointer::mapped(self.pin(entry), range, false);
                info!(
                    flag::MAPPING_EXISTS,
                    self.shared.plugin.device(),
                    "Mapping exists with HstPtrBegin={}, TgtPtrBegin={}, Size={}, {}",
                    Address(range.begin()),
                    Address(pointer.target.addr()),
                    range.size(),
                    Counts(counts, Some(action), request.kind),
                );
                (pointer, last)
            }
            End::Host => {
                let host = Address(range.begin());
                dp!("Get HstPtrBegin {host} Size={} for unified shared memory", range.size());
                (TargetPointer::host(range), false)
            }
            End::Nothing => (TargetPointer::NONE, false),
        }
    }

    /// Where `range` is on the device, 0 if nowhere: the short `getTgtPtrBegin`, whose caller has locked `table`.
    pub fn target_address(&self, table: &Table, range: HostRange) -> usize {
        log_look_up(range);
        let (overlap, entry) = table.look_up(range, false);
        log_overlap(overlap);
        entry.map_or(0, |entry| entry.target_of(range.begin()))
    }

    /// The last user is done: removes the mapping unless somebody has joined, and gives back its memory and event if
    /// no other call uses them: `deallocTgtPtr`. While other calls do, it stays, to be joined or to be removed by them.
    ///
    /// A mapping that somebody else has removed meanwhile is no error.
    pub fn release(&self, range: HostRange, kind: CountKind) -> i32 {
        log_look_up(range);
        let (overlap, released) = self.shared.table.lock().release(range, kind, caller());
        log_overlap(overlap);
        match released {
            Released::Removed(entry) => self.shared.give_back(entry, range.size()),
            Released::Kept | Released::Missing => OFFLOAD_SUCCESS,
        }
    }

    /// Maps a host range to memory that the user allocated on the device: `associatePtr`.
    pub fn associate(&self, range: HostRange, target: usize) -> i32 {
        let (association, entry) = self.shared.table.lock().associate(range, target);
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
        let mut table = self.shared.table.lock();
        let Some(entry) = table.exact(host).map(Arc::clone) else {
            drop(table);
            report!("Association not found");
            return OFFLOAD_FAIL;
        };
        let held = !entry.counts().hold().is_zero();
        let ours = entry.origin() == Origin::Associated;
        if ours && !held {
            table.remove(&entry);
        }
        drop(table);
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
        let entry = self.shared.table.lock().look_up(HostRange::new(host, size_of::<usize>() as i64), false).1.cloned();
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

    fn log_submit(&self, host: *mut c_void, target: *mut c_void, size: i64) {
        self.log_transfer(host, size, |device, host, name| {
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
        transfer.add_user(record.call());
        event::chain_copy(&self.shared.plugin, &transfer, record)?;
        if entry.target_of(host.addr()) == target.addr() {
            // SAFETY: the same contract.
            unsafe { self.submit_parts(&entry, &transfer, HostRange::new(host.addr(), size), record) }?;
        } else {
            // An attached pointer, put back where it is already.
            // SAFETY: the same contract.
            unsafe { self.submit(target, host, size, record) }?;
        }
        self.record_copy(&mut transfer, record)
    }

    /// The entry that this thread has looked up and not dropped, if `target` is in its memory.
    fn held_at(&self, target: *const c_void) -> Option<Pin<'_>> {
        let entry = self.pin(call::held()?);
        entry.holds_target(target.addr()).then_some(entry)
    }

    /// Copies from the device: `retrieveData`.
    ///
    /// # Safety
    ///
    /// As for [`submit`](Self::submit); the host's range may be written until then.
    pub unsafe fn retrieve(&self, host: *mut c_void, target: *mut c_void, size: i64, record: &mut CallRecord) -> Done {
        self.log_transfer(host, size, |device, host, name| {
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
        record.pin(&entry);
        if self.use_events && !broken(Rule::CopyBackAfterUsers) {
            let others = {
                let mut transfer = entry.transfer().lock();
                transfer.add_user(record.call());
                transfer.users_beside(record.call())
            };
            event::order_after_calls(&self.shared.plugin, &others, record)?;
        }
        let mut transfer = entry.transfer().lock();
        if !self.shared.table.lock().holds(&entry) {
            // Deleted, or taken over and removed before this call used it. A copy from here could come after what a later
            // mapping copies back.
            return Ok(());
        }
        if self.use_events {
            if !broken(Rule::CopiesBackInOrder) {
                event::order_after_copy_back(&self.shared.plugin, &transfer, record)?;
            }
            transfer.copied_back_by = Some(Arc::clone(record.call()));
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
    fn log_transfer(&self, host: *mut c_void, size: i64, print: impl FnOnce(i32, Address, &str)) {
        if !report::info_level_has(flag::DATA_TRANSFER) {
            return;
        }
        let range = HostRange::new(host.addr(), size);
        log_look_up(range);
        let table = self.shared.table.lock();
        let (overlap, entry) = table.look_up(range, false);
        let name = entry.map_or(0, |entry| entry.name());
        drop(table);
        log_overlap(overlap);
        if report::info_is_on(flag::DATA_TRANSFER) {
            // SAFETY: the entry's name came with a valid request.
            print(self.shared.plugin.device(), Address(range.begin()), &unsafe { report::variable_name(name) });
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
        record.call().set_filled();
        let makers = std::mem::take(&mut record.unfilled);
        for maker in &makers {
            maker.wait_until_filled();
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
        unsafe { CallRecord::take(info) }.map_or(Ok(()), CallRecord::finish)
    }
}

impl Shared {
    /// Lets go of an entry that a finished call used, and removes it if its last user has left it to that.
    fn finish_use(&self, entry: Arc<Entry>) {
        if entry.unpin() && self.table.lock().remove_left(&entry) {
            let size = entry.size() as i64;
            self.give_back(entry, size);
        } else {
            pin::let_go(&self.plugin, entry);
        }
    }

    /// Writes the lines for an entry that has left the table, and drops the handle on it.
    fn give_back(&self, entry: Arc<Entry>, size: i64) -> i32 {
        let (host, target, name) = (entry.host_begin(), Address(entry.target_begin()), entry.name());
        dp!("Deleting tgt data {target} of size {size}");
        let event = pin::free_if_last(&self.plugin, entry);
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
fn in_parts(
    entry: &Entry,
    transfer: &Transfer,
    range: HostRange,
    stay: Rule,
    mut copy: impl FnMut(*mut c_void, *mut c_void, i64) -> Done,
) -> Done {
    let nothing_attached = Transfer::default();
    let transfer = if broken(stay) { &nothing_attached } else { transfer };
    entry.parts(range, transfer).try_for_each(|part| {
        let [host, target] = [entry.host_begin(), entry.target_begin()].map(|begin| begin + part.start);
        copy(host as *mut c_void, target as *mut c_void, part.len() as i64)
    })
}

/// The code that LLVM's callers get.
pub fn code(done: Done) -> i32 {
    done.map_or_else(|Failed(code)| code, |()| OFFLOAD_SUCCESS)
}

/// The first lines of `device_is_ready`: whether device `number` is one of `count`.
pub fn exists(number: i32, count: usize) -> bool {
    dp!("Checking whether device {number} is ready.");
    let exists = usize::try_from(number).is_ok_and(|number| number < count);
    if !exists {
        dp!("Device ID  {number} does not have a matching RTL");
    }
    exists
}

fn message_not_present(range: HostRange) {
    message!(
        "device mapping required by 'present' map type modifier does not exist for host address {} ({} bytes)",
        Address(range.begin()),
        range.size()
    );
}

fn log_look_up(range: HostRange) {
    dp!("Looking up mapping(HstPtrBegin={}, Size={})...", Address(range.begin()), range.size());
}

fn log_overlap(overlap: Overlap) {
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
