//! One mapping: a host range, its address on the device, its counts, and the state of its transfers.

#![forbid(unsafe_code)]

use super::call::{Call, Caller};
use super::counts::{Count, RefCounts};
use super::lookup::HostRange;
use crate::sync::{Arc, AtomicBool, AtomicU64, Counter, Mutex, Ordering, Rank};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::ops::Range;

/// An event of the plugin, by its address. What it is belongs to the plugin alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(NonZeroUsize);

impl Event {
    /// The event at `address`; none for null, which is what a plugin without events answers.
    pub fn from_address(address: usize) -> Option<Self> {
        NonZeroUsize::new(address).map(Self)
    }

    /// Its address.
    pub const fn address(self) -> usize {
        self.0.get()
    }
}

/// Bytes of a pointer.
const POINTER: usize = size_of::<usize>();

/// Who made an entry, and so who may take it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A map clause. The entry owns its device memory.
    Mapped,
    /// An image: `declare target` data. The memory belongs to the image.
    Global,
    /// `omp_target_associate_ptr`. The memory belongs to the user.
    Associated,
}

/// What is known about an entry's copies to the device; guarded by the entry's lock.
#[derive(Debug, Default)]
pub struct Transfer {
    /// Recorded after the newest copy to the device. Made at the first copy, kept as long as the entry.
    pub event: Option<Event>,
    /// The call that recorded the event last.
    pub recorded_by: Option<Arc<Call>>,
    /// The call that copied back last.
    pub copied_back_by: Option<Arc<Call>>,
    /// The call that made the entry: until it has issued all of its copies, parts of the entry may have no data.
    pub made_by: Option<Arc<Call>>,
    /// The calls that use the entry and may not be done.
    users: Vec<Arc<Call>>,
    /// The pointers in the entry that point to device memory: offset and value, by offset.
    attached: BTreeMap<usize, usize>,
    /// The first copy could not be issued: the entry has no data, and whoever meets it looks the range up again.
    pub failed: bool,
}

impl Transfer {
    /// Notes that `call` uses the entry until it is done.
    pub fn add_user(&mut self, call: &Arc<Call>) {
        self.users.retain(|user| !user.is_done());
        if !self.users.iter().any(|user| Arc::ptr_eq(user, call)) {
            self.users.push(Arc::clone(call));
        }
    }

    /// Notes that the pointer at `offset` of the entry has been given this value on the device.
    pub fn attach(&mut self, offset: usize, value: usize) {
        self.attached.insert(offset, value);
    }

    /// The value of the pointer that has been attached at `offset`.
    pub fn attached(&self, offset: usize) -> Option<usize> {
        self.attached.get(&offset).copied()
    }

    /// The parts of a range of offsets that hold no attached pointers, by offset.
    fn without_attached(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut from = range.start;
        let reaching_in = range.start.saturating_sub(POINTER - 1)..range.end.max(range.start);
        let pointers = self.attached.range(reaching_in).map(|(offset, _)| (*offset, offset + POINTER));
        pointers.chain([(range.end, range.end)]).filter_map(move |(upto, next)| {
            let part = from..upto;
            from = next;
            (!part.is_empty()).then_some(part)
        })
    }

    /// The other calls that use the entry and may not be done.
    pub fn users_beside(&self, call: &Arc<Call>) -> Vec<Arc<Call>> {
        self.users.iter().filter(|user| !user.is_done() && !Arc::ptr_eq(user, call)).map(Arc::clone).collect()
    }

    /// The call whose copy `call` has to come after, if there is one: not its own, and not one that is done.
    pub fn recorded_by_another(&self, call: &Arc<Call>) -> Option<Event> {
        let other = self.recorded_by.as_ref()?;
        self.event.filter(|_| !Arc::ptr_eq(other, call) && !other.is_done())
    }

    /// The call whose copy back a copy of `call` has to come after.
    pub fn copied_back_by_another(&self, call: &Arc<Call>) -> Option<Arc<Call>> {
        self.copied_back_by.as_ref().filter(|other| !other.is_done() && !Arc::ptr_eq(other, call)).map(Arc::clone)
    }

    /// The call that is still filling the entry, if it is another one.
    pub fn filled_by_another(&self, call: &Arc<Call>) -> Option<Arc<Call>> {
        self.made_by.as_ref().filter(|maker| !maker.is_filled() && !Arc::ptr_eq(maker, call)).map(Arc::clone)
    }
}

/// One call in [`Entry::pins`].
const PIN: u64 = 2;
/// In [`Entry::pins`]: the last user has left the entry to the calls that use it.
const LEFT: u64 = 1;

/// A mapping of a host range to a device address.
///
/// **An entry may outlive its place in the table.** A handle that was taken before the removal still finds its
/// addresses, its event and its memory; the counts of such an entry mean nothing any more.
///
/// The first four fields are the members of LLVM's `HostDataToTargetTy` that its C++ sources read, in the layout that
/// the C++ face declares. They never change.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    host_begin: usize,
    host_end: usize,
    name: usize,
    target_begin: usize,
    host_base: usize,
    dynamic: Counter,
    hold: Counter,
    transfer: Mutex<Transfer>,
    /// The caller whose last use leaves the entry, 0 if nobody does. Its one count is left, to be taken over.
    leaving: AtomicU64,
    /// Calls that use the entry and have not been synchronised, times [`PIN`], and [`LEFT`].
    pins: AtomicU64,
    may_contain_attached_pointers: AtomicBool,
    origin: Origin,
}

// The C++ face declares these four members at these places.
const _: () = assert!(offset_of!(Entry, host_begin) == 0 && offset_of!(Entry, host_end) == 8);
const _: () = assert!(offset_of!(Entry, name) == 16 && offset_of!(Entry, target_begin) == 24);

impl Entry {
    /// An entry with the counts of its first user.
    ///
    /// `host` begins at the mapped section; `host_base` is the address of the variable or pointer it is a section of.
    /// `target_begin` is the device address of the section, `name` the address of the compiler's name string or 0.
    pub(super) fn new(
        host: (usize, usize),
        host_base: usize,
        target_begin: usize,
        name: usize,
        origin: Origin,
        counts: RefCounts,
    ) -> Self {
        Self {
            host_begin: host.0,
            host_end: host.1,
            name,
            target_begin,
            host_base,
            dynamic: Counter::new(counts.dynamic.0),
            hold: Counter::new(counts.hold.0),
            transfer: Mutex::new(Rank::ENTRY, Transfer::default()),
            leaving: AtomicU64::new(0),
            pins: AtomicU64::new(0),
            may_contain_attached_pointers: AtomicBool::new(false),
            origin,
        }
    }

    /// First host address.
    pub const fn host_begin(&self) -> usize {
        self.host_begin
    }

    /// One past the last host address.
    pub const fn host_end(&self) -> usize {
        self.host_end
    }

    /// Host address of the whole variable, or value of the base pointer.
    pub const fn host_base(&self) -> usize {
        self.host_base
    }

    /// Bytes.
    pub const fn size(&self) -> usize {
        self.host_end - self.host_begin
    }

    /// Device address of the first byte.
    pub const fn target_begin(&self) -> usize {
        self.target_begin
    }

    /// Address of the compiler's name string (`map_var_info_t`), or 0.
    pub const fn name(&self) -> usize {
        self.name
    }

    /// Who made the entry.
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// Device address of host address `host`, which need not lie inside.
    pub const fn target_of(&self, host: usize) -> usize {
        self.target_begin.wrapping_add(host.wrapping_sub(self.host_begin))
    }

    /// Whether device address `target` is in the entry's memory.
    pub const fn holds_target(&self, target: usize) -> bool {
        target.wrapping_sub(self.target_begin) < self.size()
    }

    /// What a copy of `range` moves, by offset: what is mapped of it, without attached pointers. Those are right as they
    /// are, on both sides, and others read them at any time.
    pub fn parts(&self, range: HostRange, transfer: &Transfer) -> impl Iterator<Item = Range<usize>> {
        let offset = |host: usize| host.clamp(self.host_begin, self.host_end) - self.host_begin;
        transfer.without_attached(offset(range.begin())..offset(range.end_or_max()))
    }

    /// Both counts. Exact under the table lock; without it, each is a value that it had.
    pub fn counts(&self) -> RefCounts {
        RefCounts {
            dynamic: Count(self.dynamic.load(Ordering::Relaxed)),
            hold: Count(self.hold.load(Ordering::Relaxed)),
        }
    }

    /// Changes the counts and returns the new ones. Only the table does that, under its lock.
    pub(super) fn update_counts(&self, change: impl FnOnce(&mut RefCounts)) -> RefCounts {
        let mut counts = self.counts();
        change(&mut counts);
        self.dynamic.store(counts.dynamic.0, Ordering::Relaxed);
        self.hold.store(counts.hold.0, Ordering::Relaxed);
        counts
    }

    /// Notes that one call more uses the entry.
    pub(super) fn pin(&self) {
        self.pins.fetch_add(PIN, Ordering::Relaxed);
    }

    /// Notes that a call is done with the entry. True if it was the last one, and the entry's last user has left it to
    /// that: the table has to be asked whether it is still so.
    pub fn unpin(&self) -> bool {
        self.pins.fetch_sub(PIN, Ordering::AcqRel) == PIN | LEFT
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) >= PIN
    }

    /// Leaves the entry to the calls that use it; false if there is none, and nothing has changed then. Only the table
    /// does that, under its lock.
    pub(super) fn leave_to_users(&self) -> bool {
        let used = self.pins.fetch_or(LEFT, Ordering::AcqRel) >= PIN;
        if used {
            self.leaving.store(Caller::NOBODY.0, Ordering::Relaxed);
        } else {
            self.pins.store(0, Ordering::Relaxed);
        }
        used
    }

    /// The caller that leaves the entry. Exact under the table lock.
    pub fn leaving(&self) -> Option<Caller> {
        Some(Caller(self.leaving.load(Ordering::Relaxed))).filter(|caller| caller.0 != 0)
    }

    /// Marks the entry as left by a caller, or takes the mark off. Only the table does that, under its lock.
    pub(super) fn set_leaving(&self, caller: Option<Caller>) {
        if self.leaving() == Some(Caller::NOBODY) {
            self.pins.fetch_and(!LEFT, Ordering::Relaxed);
        }
        self.leaving.store(caller.map_or(0, |caller| caller.0), Ordering::Relaxed);
    }

    /// The lock that is held while a copy to the device is issued and recorded.
    pub const fn transfer(&self) -> &Mutex<Transfer> {
        &self.transfer
    }

    /// The transfer state of an entry that nobody else can reach any more.
    pub fn into_transfer(self) -> Transfer {
        self.transfer.into_inner()
    }

    /// Notes that a pointer inside the range may have been replaced by a device address.
    pub fn set_may_contain_attached_pointers(&self) {
        self.may_contain_attached_pointers.store(true, Ordering::Relaxed);
    }

    /// Whether a pointer inside the range may have been replaced by a device address.
    pub fn may_contain_attached_pointers(&self) -> bool {
        self.may_contain_attached_pointers.load(Ordering::Relaxed)
    }

    /// Whether a look-up of `range` would find this entry.
    pub(super) fn matches(&self, range: HostRange) -> bool {
        let extended = range.size() == 0 && self.host_base <= range.begin() && range.begin() < self.host_end;
        extended || self.overlaps(range)
    }

    pub(super) fn overlaps(&self, range: HostRange) -> bool {
        self.host_begin < range.end_or_max() && range.begin() < self.host_end
    }
}
