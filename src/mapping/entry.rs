//! One mapping: a host range, its address on the device, its counts, and the state of its transfers.

#![forbid(unsafe_code)]

use super::call::{CallId, Caller, Calls};
use super::counts::{Count, RefCounts};
use super::lookup::HostRange;
use crate::rules::{Rule, broken};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Counter, Mutex, Ordering, Rank, wait_until};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::num::{NonZeroU64, NonZeroUsize};
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

/// A call that uses an entry, and what it did there: the bits of its [`CallId`], and three more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User(NonZeroU64);

impl User {
    /// It made the entry: until it has issued all of its copies, parts of the entry may have no data.
    const MADE: u64 = 1 << CallId::BITS;
    /// It recorded the entry's event last.
    const RECORDED: u64 = 2 << CallId::BITS;
    /// It copied back.
    const COPIED_BACK: u64 = 4 << CallId::BITS;

    const fn call(self) -> CallId {
        CallId::from_bits(self.0.get())
    }

    /// Whether it is this call.
    #[inline(always)]
    const fn is_call(self, call: CallId) -> bool {
        (self.0.get() ^ call.bits().get()) << (u64::BITS - CallId::BITS) == 0
    }

    const fn is(self, what: u64) -> bool {
        self.0.get() & what != 0
    }

    fn set(&mut self, what: u64) {
        self.0 |= what;
    }

    fn unset(&mut self, what: u64) {
        *self = Self(self.call().bits() | self.0.get() & !what);
    }
}

/// What is known about an entry's copies to the device; guarded by the entry's lock.
///
/// There is one for each mapping, so it is small: most have one user at a time.
#[derive(Debug, Default)]
pub struct Transfer {
    /// Recorded after the newest copy to the device. Made at the first copy, kept as long as the entry.
    pub event: Option<Event>,
    /// A call that uses the entry and may not be done. The others are in `more`, and none if there is none here.
    user: Option<User>,
    more: Option<Box<More>>,
}

/// What only some entries have. Without anything in it, it is as none.
#[derive(Debug, Default)]
struct More {
    users: Vec<User>,
    attached: Attached,
    failed: bool,
}

impl More {
    #[cold]
    fn clear(&mut self) {
        self.users.clear();
        self.attached = Attached::default();
        self.failed = false;
    }
}

/// The pointers in an entry that point to device memory: offsets and values, by offset. All are in one of the two.
#[derive(Debug, Default)]
struct Attached {
    few: SmallVec<[(usize, usize); 2]>,
    many: Option<BTreeMap<usize, usize>>,
}

impl Attached {
    /// As many are searched one by one.
    const FEW: usize = 16;

    fn insert(&mut self, offset: usize, value: usize) {
        let index = self.few.iter().position(|(later, _)| offset <= *later).unwrap_or(self.few.len());
        if self.few.get(index).is_some_and(|(same, _)| *same == offset) {
            self.few[index].1 = value;
        } else if self.many.is_none() && self.few.len() < Self::FEW {
            self.few.insert(index, (offset, value));
        } else {
            let many = self.many.get_or_insert_default();
            many.extend(self.few.drain(..));
            many.insert(offset, value);
        }
    }

    fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    fn get(&self, offset: usize) -> Option<usize> {
        let few = self.few.iter().find(|(at, _)| *at == offset).map(|(_, value)| *value);
        few.or_else(|| self.many.as_ref()?.get(&offset).copied())
    }

    /// Does something with each offset in a range.
    #[inline]
    fn each_in<E>(&self, range: Range<usize>, mut work: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
        for (offset, _) in &self.few {
            if range.contains(offset) {
                work(*offset)?;
            }
        }
        self.many.as_ref().map_or(Ok(()), |many| many.range(range).try_for_each(|(offset, _)| work(*offset)))
    }
}

impl Transfer {
    /// Notes that `call` uses the entry until it is done. Says whether it [alone](Self::is_only_of) does.
    #[inline(always)]
    pub fn add_user(&mut self, call: CallId, calls: &Calls) -> bool {
        match self.user {
            Some(user) if user.is_call(call) => self.is_alone(),
            // The usual cases, in short.
            Some(user) if self.is_alone() && (user.call().is_before(call) || calls.is_done(user.call())) => {
                self.user = Some(User(call.bits()));
                true
            }
            _ => {
                self.user(call, calls);
                self.is_only_of(call)
            }
        }
    }

    /// Whether there is one user at most, and the first copy has been issued if there was one.
    #[inline]
    fn is_alone(&self) -> bool {
        self.more.as_ref().is_none_or(|more| more.users.is_empty() && !more.failed)
    }

    /// Whether nobody but `call` uses the entry, and the first copy has been issued if there was one.
    #[inline]
    pub fn is_only_of(&self, call: CallId) -> bool {
        self.user.is_some_and(|user| user.is_call(call)) && self.is_alone()
    }

    /// Notes what `call` has done.
    #[inline]
    fn note(&mut self, call: CallId, what: u64, calls: &Calls) {
        match &mut self.user {
            Some(user) if user.is_call(call) => user.set(what),
            none @ None => *none = Some(User(call.bits() | what)),
            _ => self.user(call, calls).set(what),
        }
    }

    /// What is known of a user, noted now if it is none yet.
    #[inline(never)]
    fn user(&mut self, call: CallId, calls: &Calls) -> &mut User {
        if self.user.is_none_or(|user| !user.is_call(call)) {
            self.forget_done(calls);
        }
        match &mut self.user {
            none @ None => none.insert(User(call.bits())),
            Some(user) if user.is_call(call) => user,
            Some(_) => {
                let users = &mut self.more.get_or_insert_default().users;
                let index = users.iter().position(|user| user.is_call(call)).unwrap_or_else(|| {
                    users.push(User(call.bits()));
                    users.len() - 1
                });
                &mut users[index]
            }
        }
    }

    fn forget_done(&mut self, calls: &Calls) {
        if let Some(more) = &mut self.more {
            more.users.retain(|user| !calls.is_done(user.call()));
        }
        if self.user.is_some_and(|user| calls.is_done(user.call())) {
            self.user = self.more.as_mut().and_then(|more| more.users.pop());
        }
    }

    fn users(&self) -> impl Iterator<Item = User> {
        self.user.into_iter().chain(self.more.iter().flat_map(|more| more.users.iter().copied()))
    }

    /// The calls, other than `call`, that did `what` and may not be done.
    fn others(&self, call: CallId, what: u64, calls: &Calls) -> impl Iterator<Item = CallId> {
        let others = self.users().filter(move |user| !user.is_call(call) && (what == 0 || user.is(what)));
        others.map(User::call).filter(|other| !calls.is_done(*other))
    }

    /// The other calls that use the entry and may not be done.
    pub fn users_beside(&self, call: CallId, calls: &Calls) -> Vec<CallId> {
        self.others(call, 0, calls).collect()
    }

    /// Notes that `call` has made the entry.
    pub fn set_made(&mut self, call: CallId, calls: &Calls) {
        self.note(call, User::MADE, calls);
    }

    /// The call that is still filling the entry, if it is another one.
    pub fn filled_by_another(&self, call: CallId, calls: &Calls) -> Option<CallId> {
        self.others(call, User::MADE, calls).find(|maker| !calls.is_filled(*maker))
    }

    /// Notes that `call` has recorded the event.
    #[inline]
    pub fn set_recorded(&mut self, call: CallId, calls: &Calls) {
        if !self.is_only_of(call) {
            let more = self.more.iter_mut().flat_map(|more| &mut more.users);
            self.user.iter_mut().chain(more).for_each(|user| user.unset(User::RECORDED));
        }
        self.note(call, User::RECORDED, calls);
    }

    /// Whether some call has recorded the event and may not be done.
    pub fn is_recorded(&self) -> bool {
        self.users().any(|user| user.is(User::RECORDED))
    }

    /// The event, if a call other than `call` recorded it and may not be done.
    pub fn recorded_by_another(&self, call: CallId, calls: &Calls) -> Option<Event> {
        self.event.filter(|_| self.others(call, User::RECORDED, calls).next().is_some())
    }

    /// Notes that `call` has copied back.
    pub fn set_copied_back(&mut self, call: CallId, calls: &Calls) {
        self.note(call, User::COPIED_BACK, calls);
    }

    /// The calls whose copies back a copy of `call` has to come after.
    pub fn copied_back_by_others(&self, call: CallId, calls: &Calls) -> impl Iterator<Item = CallId> {
        self.others(call, User::COPIED_BACK, calls)
    }

    /// Notes that the pointer at `offset` of the entry has been given this value on the device.
    pub fn attach(&mut self, offset: usize, value: usize) {
        self.more.get_or_insert_default().attached.insert(offset, value);
    }

    /// Whether any pointers have been attached.
    #[inline]
    pub fn has_attached(&self) -> bool {
        self.more.as_ref().is_some_and(|more| !more.attached.is_empty())
    }

    /// The value of the pointer that has been attached at `offset`.
    pub fn attached(&self, offset: usize) -> Option<usize> {
        self.more.as_ref()?.attached.get(offset)
    }

    /// Does something with each part of a range of offsets that holds no attached pointers, in order.
    #[inline]
    pub fn each_without_attached<E>(
        &self,
        range: Range<usize>,
        mut work: impl FnMut(Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut from = range.start;
        let mut upto = |offset| {
            let part = std::mem::replace(&mut from, offset + POINTER)..offset;
            if part.is_empty() { Ok(()) } else { work(part) }
        };
        if let Some(more) = &self.more {
            let reaching_in = range.start.saturating_sub(POINTER - 1)..range.end.max(range.start);
            more.attached.each_in(reaching_in, &mut upto)?;
        }
        upto(range.end)
    }

    /// Notes that the first copy could not be issued.
    pub fn set_failed(&mut self) {
        self.more.get_or_insert_default().failed = true;
    }

    /// The first copy could not be issued: the entry has no data, and whoever meets it looks the range up again.
    pub fn has_failed(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.failed)
    }
}

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
    // What calls write lies together: two threads that use an entry hand each other its lines.
    /// How many calls use the entry and have not been synchronised, and [`Self::LEFT`], [`Self::GONE`].
    pins: AtomicU32,
    may_contain_attached_pointers: AtomicBool,
    /// Somebody who shares the table is changing the counts or the mark.
    counting: AtomicBool,
    origin: Origin,
    dynamic: Counter,
    hold: Counter,
    /// The caller whose last use leaves the entry, 0 if nobody does. Its one count is left, to be taken over.
    leaving: AtomicU64,
    transfer: Mutex<Transfer>,
    host_base: usize,
}

// The C++ face declares these four members at these places.
const _: () = assert!(offset_of!(Entry, host_begin) == 0 && offset_of!(Entry, host_end) == 8);
const _: () = assert!(offset_of!(Entry, name) == 16 && offset_of!(Entry, target_begin) == 24);
// With the counts of its handles it fits in 128 bytes of the system's allocator.
#[cfg(not(any(model, debug_assertions)))]
const _: () = assert!(size_of::<Entry>() <= 104);

impl Entry {
    /// An entry with the counts of its first user.
    ///
    /// `host` is the mapped section; `host_base` is the address of the variable or pointer it is a section of.
    /// `target_begin` is the device address of the section, `name` the address of the compiler's name string or 0.
    ///
    /// # Panics
    ///
    /// When the range wraps around the address space.
    pub fn new(
        host: HostRange,
        host_base: usize,
        target_begin: usize,
        name: usize,
        origin: Origin,
        counts: RefCounts,
    ) -> Self {
        Self {
            host_begin: host.begin(),
            host_end: host.end().expect("the table has refused ranges that wrap"),
            name,
            target_begin,
            host_base,
            dynamic: Counter::new(counts.dynamic.0),
            hold: Counter::new(counts.hold.0),
            transfer: Mutex::new(Rank::ENTRY, Transfer::default()),
            leaving: AtomicU64::new(0),
            pins: AtomicU32::new(Self::GONE),
            may_contain_attached_pointers: AtomicBool::new(false),
            counting: AtomicBool::new(false),
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

    /// All of it.
    pub const fn range(&self) -> HostRange {
        HostRange::new(self.host_begin, self.size() as i64)
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

    /// What is mapped of `range`, by offset.
    pub fn offsets(&self, range: HostRange) -> Range<usize> {
        let offset = |host: usize| host.saturating_sub(self.host_begin).min(self.size());
        offset(range.begin())..offset(range.end_or_max())
    }

    /// Waits until nobody else who shares the table changes the counts or the mark; nobody does then before
    /// [`end_counting`](Self::end_counting). Only the table does that.
    #[inline(always)]
    pub(super) fn start_counting(&self) {
        let take = || self.counting.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !take() && !broken(Rule::CountAlone) {
            wait_until(|| !self.counting.load(Ordering::Relaxed) && take());
        }
    }

    /// Lets others change the counts and the mark.
    #[inline(always)]
    pub(super) fn end_counting(&self) {
        self.counting.store(false, Ordering::Release);
    }

    /// Both counts. Exact under the table lock, or [alone](Self::start_counting) while it is shared; else each is a value
    /// that it had.
    pub fn counts(&self) -> RefCounts {
        RefCounts {
            dynamic: Count(self.dynamic.load(Ordering::Relaxed)),
            hold: Count(self.hold.load(Ordering::Relaxed)),
        }
    }

    /// Changes the counts. Only the table does that, under its lock or [alone](Self::start_counting).
    pub(super) fn set_counts(&self, counts: RefCounts) {
        self.dynamic.store(counts.dynamic.0, Ordering::Relaxed);
        self.hold.store(counts.hold.0, Ordering::Relaxed);
    }

    /// Its last user has left the entry to the calls that use it, and the last of them removes it.
    const LEFT: u32 = 1 << 31;
    /// The entry is not in a table: not yet, or not any more.
    const GONE: u32 = 1 << 30;

    /// Notes that one call more uses the entry. If it is in its table after that, nobody but a `delete` takes it out
    /// before the call is done.
    pub(super) fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a call is done with the entry. True if it was the last one of an entry that has been left to them, and
    /// so has to remove it if it can: see [`leave_alone`](Self::leave_alone).
    #[must_use]
    pub(super) fn unpin(&self) -> bool {
        self.pins.fetch_sub(1, Ordering::AcqRel) == Self::LEFT + 1
    }

    /// The entry leaves the table if it has been left to calls that are done by now. Only the table does that, under its
    /// lock.
    pub(super) fn leave_alone(&self) -> bool {
        let (left, gone) = (Self::LEFT, Self::LEFT | Self::GONE);
        self.pins.compare_exchange(left, gone, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The last user goes: the entry leaves the table, unless calls still use it. Then it is left to them, and the
    /// answer is false. Only the table does that, under its lock.
    pub(super) fn leave(&self) -> bool {
        let mut pins = self.pins.load(Ordering::Acquire);
        loop {
            let (next, leaves) = if pins == 0 { (Self::GONE, true) } else { (pins | Self::LEFT, false) };
            match self.pins.compare_exchange(pins, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return leaves,
                Err(now) => pins = now,
            }
        }
    }

    /// Notes that the entry is in a table now, where nobody has seen it yet, and used by so many calls. Only the table
    /// does that.
    pub(super) fn set_in_table(&self, pins: u32) {
        self.pins.store(pins, Ordering::Release);
    }

    /// Notes that the entry is in no table any more. Only the table does that, under its lock.
    pub(super) fn set_gone(&self) {
        self.pins.fetch_or(Self::GONE, Ordering::AcqRel);
    }

    /// Whether the entry is in its table. That does not change under the table lock.
    pub fn is_in_table(&self) -> bool {
        self.pins.load(Ordering::Acquire) & Self::GONE == 0
    }

    /// The caller that leaves the entry. Exact as [`counts`](Self::counts) are.
    pub fn leaving(&self) -> Option<Caller> {
        Some(Caller(self.leaving.load(Ordering::Relaxed))).filter(|caller| caller.0 != 0)
    }

    /// Marks the entry as left by a caller, or takes the mark off. Only the table does that,
    /// under its lock or [alone](Self::start_counting).
    pub(super) fn set_leaving(&self, caller: Option<Caller>) {
        if self.leaving() == Some(Caller::NOBODY) {
            self.pins.fetch_and(!Self::LEFT, Ordering::AcqRel);
        }
        self.leaving.store(caller.map_or(0, |caller| caller.0), Ordering::Relaxed);
    }

    /// The lock that is held while a copy to the device is issued and recorded.
    pub const fn transfer(&self) -> &Mutex<Transfer> {
        &self.transfer
    }

    /// Forgets all copies of an entry that nobody else can reach any more, and answers their event.
    pub fn clear(&mut self) -> Option<Event> {
        let transfer = self.transfer.get_mut();
        transfer.user = None;
        if let Some(more) = &mut transfer.more {
            more.clear();
        }
        transfer.event.take()
    }

    /// Puts a new entry in the place of one that has been [cleared](Self::clear).
    #[inline(always)]
    pub fn replace(&mut self, mut entry: Self) {
        if let Some(more) = self.transfer.get_mut().more.take() {
            entry.transfer.get_mut().more = Some(more);
        }
        *self = entry;
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

#[cfg(test)]
impl Entry {
    /// Eight bytes at `begin`, counted once.
    pub fn of_eight_bytes(begin: usize) -> Self {
        let counts = RefCounts::first(super::counts::CountKind::Dynamic, false);
        Self::new(HostRange::new(begin, 8), begin, begin, 0, Origin::Mapped, counts)
    }
}
