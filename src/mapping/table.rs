//! A mapping table, and what is asked of one or several.

#![forbid(unsafe_code)]

use super::call::Caller;
use super::counts::{CountKind, RefCounts};
use super::entry::{Entry, Origin};
use super::exact::Exact;
use super::lookup::{HostRange, Overlap};
use super::ordered::Ordered;
use super::uses::{Use, Uses};
use crate::rules::{Rule, broken};
use crate::sync::{Arc, ShareGuard};
use std::fmt;
use std::mem::offset_of;

/// A map clause on entry to a region, as `getTargetPointer` gets it.
///
/// C++ writes this and [`EndRequest`], in the layout that include/omptarget/requests.h declares.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BeginRequest {
    /// The section to map.
    pub range: HostRange,
    /// Address of the variable, or value of the base pointer.
    pub base: usize,
    /// Address of the compiler's name string, or 0.
    pub name: usize,
    /// Which count it moves.
    pub kind: CountKind,
    /// The map was not written by the user: it may extend what is mapped.
    pub implicit: bool,
    /// Whether it counts; members of a struct do not, their struct does.
    pub update: bool,
    /// `close`: a device copy even under unified shared memory.
    pub close: bool,
    /// `present`: an error if there is no mapping.
    pub present: bool,
    /// The program requires unified shared memory.
    pub unified: bool,
}

const _: () = assert!(offset_of!(BeginRequest, base) == 16 && offset_of!(BeginRequest, unified) == 37);
const _: () = assert!(offset_of!(EndRequest, kind) == 16 && offset_of!(EndRequest, unified) == 20);

/// What a map clause on entry asks for.
#[derive(Debug)]
pub enum Begin {
    /// A mapping was found, and counted if that was asked for. It is the newest of the call's uses.
    Exists {
        /// Its counts now.
        counts: RefCounts,
        /// An uncounted look-up met an entry with one user: it was made by the same construct.
        is_new: bool,
    },
    /// The user extends what is mapped, which OpenMP forbids.
    Extension {
        /// First host address of the mapping.
        host_begin: usize,
        /// Its bytes.
        size: usize,
    },
    /// Unified shared memory: use the host address.
    Host,
    /// `present` was asked for and nothing is there.
    NotPresent,
    /// Nothing is mapped and nothing is to be mapped: a zero-length section.
    Nothing,
    /// The range wraps around the address space.
    Wraps,
    /// The device needs memory, and the table then an entry: see [`Tables::insert`].
    Create(Changes),
}

/// How often a table has changed, and which one: see [`Tables::insert`].
#[derive(Clone, Copy, Debug)]
pub struct Changes(u64);

impl Changes {
    /// Nothing is known of what has changed in several tables.
    pub(super) const OF_SEVERAL: Self = Self(u64::MAX);

    /// Whether there were none from `self` to `now`.
    fn are_none(self, now: Self) -> bool {
        self.0 == now.0 && self.0 != Self::OF_SEVERAL.0
    }
}

/// A look-up on exit from a region or inside it, as `getTgtPtrBegin` gets it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EndRequest {
    /// The section.
    pub range: HostRange,
    /// Which count it moves.
    pub kind: CountKind,
    /// Whether it counts.
    pub update: bool,
    /// Only a mapping that contains the whole range matches.
    pub must_contain: bool,
    /// `delete`: the count goes to zero at once.
    pub force_delete: bool,
    /// The program requires unified shared memory.
    pub unified: bool,
}

impl EndRequest {
    /// Whether nothing but an address is asked for, as `omp_target_is_present` does.
    pub const fn is_for_address(&self) -> bool {
        !self.update && !self.must_contain && self.range.size() == 0
    }

    /// Whether an entry to which the range lies so is what is asked for.
    fn accepts(&self, overlap: Overlap) -> bool {
        overlap == Overlap::Inside || !self.must_contain
    }
}

/// What a look-up on exit found.
#[derive(Debug)]
pub enum End {
    /// A mapping, and what was counted; none if the call has counted it: the newest of its uses.
    Found(Option<Arc<Entry>>, CountedOut),
    /// Unified shared memory: use the host address.
    Host,
    /// No mapping.
    Nothing,
}

/// What a look-up on exit has counted.
#[derive(Clone, Copy, Debug)]
pub struct CountedOut {
    /// The caller is the last user. Its count stays until [`Tables::release`].
    pub last: bool,
    /// What was done to the count.
    pub action: CountAction,
    /// The counts now.
    pub counts: RefCounts,
}

/// What [`find_on_exit`] found.
enum OnExit<'u> {
    /// What the call has counted.
    Own(&'u mut Use),
    /// Another mapping.
    Other(Arc<Entry>),
    Nothing,
}

/// What a look-up did to a count, printed as LLVM 14 prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountAction {
    /// One more.
    Incremented,
    /// One less.
    Decremented,
    /// Not touched.
    Suppressed,
    /// Set to one and then one less.
    Reset,
    /// The last user leaves the count at one until the memory is given back.
    Deferred,
    /// Set to one for the last user, who leaves it there.
    ResetDeferred,
}

impl fmt::Display for CountAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Incremented => " (incremented)",
            Self::Decremented => " (decremented)",
            Self::Suppressed => " (update suppressed)",
            Self::Reset => " (reset)",
            Self::Deferred => " (deferred final decrement)",
            Self::ResetDeferred => " (reset, deferred final decrement)",
        })
    }
}

/// What became of a mapping that its last user gave back.
#[derive(Debug)]
pub enum Released {
    /// Out of the table: its memory goes with the last handle.
    Removed(Arc<Entry>),
    /// The same, but the caller's own `delete` had taken it out before.
    Detached(Arc<Entry>),
    /// It stays. It does not carry the caller's mark, as somebody took it over or it is another mapping; or other calls
    /// still use it, and the last of them removes it.
    Kept,
    /// It is not there any more: somebody else removed it.
    Missing,
}

/// What came of an association.
#[derive(Debug, PartialEq, Eq)]
pub enum Association {
    /// Made, with infinite count.
    Made,
    /// The same association exists.
    Same,
    /// The host address is mapped to something else.
    Different,
    /// The range reaches into another mapping.
    Overlaps,
    /// The range wraps around the address space.
    Wraps,
}

/// Mappings, of which no two overlap.
#[derive(Debug, Default)]
pub struct Table {
    /// By first host address, for what is looked up most: whole mappings.
    exact: Exact,
    /// The same addresses in order, for everything else.
    ordered: Ordered,
    /// No entry begins further than this from its base: how far a zero-length look-up has to search.
    widest: usize,
    /// Entries made and removed so far.
    changes: u64,
    /// What a `delete` took out and its caller has not released yet.
    detached: Vec<(Caller, Arc<Entry>)>,
}

impl Table {
    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.ordered.is_empty()
    }

    /// The entry with the lowest host address.
    pub fn first(&self) -> Option<&Arc<Entry>> {
        self.exact(self.ordered.first()?)
    }

    /// The entry that follows the one at `host_begin`.
    pub fn after(&self, host_begin: usize) -> Option<&Arc<Entry>> {
        self.exact(self.ordered.first_above(host_begin)?)
    }

    /// The entry that begins exactly at `host_begin`.
    #[inline(always)]
    pub fn exact(&self, host_begin: usize) -> Option<&Arc<Entry>> {
        self.exact.get(host_begin)
    }

    /// How `range` lies to the nearest entry, which is none if they do not touch.
    ///
    /// With `extended`, a zero-length range that is inside no entry still matches one whose *extended* range
    /// `[host_base, host_end)` holds its address: a pointer to an array of which only a later section is mapped.
    #[inline(always)]
    pub fn look_up(&self, range: HostRange, extended: bool) -> (Overlap, Option<&Arc<Entry>>) {
        match self.exact(range.begin()) {
            Some(entry) if range.begin() < entry.host_end() => (Overlap::with_left(entry, range), Some(entry)),
            _ => self.look_up_in_order(range, extended),
        }
    }

    #[inline(never)]
    fn look_up_in_order(&self, range: HostRange, extended: bool) -> (Overlap, Option<&Arc<Entry>>) {
        let found = |overlap, entry| (overlap, Some(entry));
        // One search is enough if nothing begins inside the range, as for most.
        let last = range.begin().max(range.end_or_max().saturating_sub(1));
        let nearest = self.ordered.last_up_to(last);
        let begins_inside = nearest.is_some_and(|begin| begin > range.begin());
        let left = if begins_inside { self.ordered.last_up_to(range.begin()) } else { nearest };
        if let Some(left) = left.and_then(|begin| self.exact(begin)) {
            let overlap = Overlap::with_left(left, range);
            if overlap != Overlap::None {
                return found(overlap, left);
            }
        }
        if begins_inside && let Some(right) = self.after(range.begin()) {
            return found(Overlap::with_right(right, range), right);
        }
        match Some(range.begin()).filter(|_| extended && range.size() == 0).and_then(|host| self.extended(host)) {
            Some(entry) => found(Overlap::Inside, entry),
            None => (Overlap::None, None),
        }
    }

    /// The nearest later entry that is a section of something which begins at or before `host`.
    fn extended(&self, host: usize) -> Option<&Arc<Entry>> {
        let reach = host.saturating_add(self.widest);
        let holds = |begin| self.exact(begin).is_some_and(|entry| entry.host_base() <= host);
        self.exact(self.ordered.first_between(host, reach, holds)?)
    }

    /// Whether an entry begins exactly where `range` does, and is not empty.
    #[inline(always)]
    pub(super) fn begins_with(&self, range: HostRange) -> bool {
        self.exact(range.begin()).is_some_and(|entry| range.begin() < entry.host_end())
    }

    pub(super) fn is_free(&self, range: HostRange) -> bool {
        let before = self.ordered.last_up_to(range.begin()).and_then(|begin| self.exact(begin));
        let mut neighbours = before.into_iter().chain(self.after(range.begin()));
        range.end().is_some() && !neighbours.any(|entry| entry.host_begin() == range.begin() || entry.overlaps(range))
    }

    #[inline(always)]
    fn add(&mut self, entry: Arc<Entry>, pins: u32) {
        entry.set_in_table(pins);
        self.take_over(entry);
    }

    /// Adds an entry that has been in another table.
    #[inline(always)]
    pub(super) fn take_over(&mut self, entry: Arc<Entry>) {
        let begin = entry.host_begin();
        self.widest = self.widest.max(begin.saturating_sub(entry.host_base()));
        self.changes += 1;
        self.exact.insert(entry);
        self.ordered.insert(begin);
    }

    /// What was in the table, by host address, and what has been detached.
    pub(super) fn into_entries(self) -> (impl Iterator<Item = Arc<Entry>>, Vec<(Caller, Arc<Entry>)>) {
        let exact = self.exact;
        let entry = move |begin| Arc::clone(exact.get(begin).expect("both have the same"));
        (self.ordered.into_sorted().into_iter().map(entry), self.detached)
    }

    /// Keeps for `caller` what its `delete` has taken out.
    pub(super) fn detach(&mut self, caller: Caller, entry: Arc<Entry>) {
        self.detached.push((caller, entry));
    }

    /// The last user leaves an entry, if it still carries the caller's mark: to the other calls that use it, or, by the
    /// answer true, to be taken out of the table.
    #[inline]
    fn leave(entry: &Entry, kind: CountKind, caller: Caller) -> bool {
        if entry.leaving() != Some(caller) {
            return false;
        }
        let mut counts = entry.counts();
        counts.decrement(kind);
        if counts.is_zero() && !entry.leave() {
            if !broken(Rule::JoinableWhileUsed) {
                entry.set_leaving(Some(Caller::NOBODY));
                return false;
            }
            entry.set_gone();
        }
        entry.set_leaving(None);
        entry.set_counts(counts);
        counts.is_zero()
    }

    /// Takes an entry out. None if it is not there (any more).
    fn take(&mut self, entry: &Entry) -> Option<Arc<Entry>> {
        let begin = entry.host_begin();
        let at = self.exact.find(begin).filter(|at| std::ptr::eq(&**self.exact.at(at), entry))?;
        let entry = self.exact.remove(at);
        entry.set_gone();
        self.forget(begin);
        Some(entry)
    }

    /// What is left to do for an entry that has been taken out.
    fn forget(&mut self, host_begin: usize) {
        self.changes += 1;
        self.ordered.remove(host_begin);
    }

    /// Somebody may have counted out more than it had counted in, by listing an item twice: the count that is left is
    /// then this call's.
    #[inline(always)]
    fn give_back_what_was_taken(used: &Use, caller: Caller) {
        let left_by_another = used.entry.leaving().is_some_and(|other| other != caller);
        if left_by_another && used.settled.is_none() && used.entry.is_in_table() && !broken(Rule::LastInTurn) {
            used.entry.set_leaving(None);
        }
    }

    /// A member's look-up at the end of a region: the first one counts the struct out, so that all members and the
    /// struct answer alike. The counts are shown as if that were still to come.
    #[inline(never)]
    fn settle(used: &mut Use, caller: Caller) -> CountedOut {
        let (entry, kind) = (&used.entry, used.kind);
        let last = *used.settled.get_or_insert_with(|| {
            let left = entry.leaving().is_some_and(|other| other != caller);
            let mut counts = entry.counts();
            let last = !left && counts.is_last(kind, false);
            if last {
                entry.set_leaving(Some(caller));
            } else if !left {
                counts.decrement(kind);
                entry.set_counts(counts);
            }
            last
        });
        let mut counts = entry.counts();
        let left_by_another = entry.leaving().is_some_and(|other| other != caller);
        if !last && !left_by_another {
            counts.increment(kind);
        }
        CountedOut { last: last && entry.leaving() == Some(caller), action: CountAction::Suppressed, counts }
    }

    /// The struct's own look-up after that of a member.
    #[inline(never)]
    fn settled(used: &mut Use, caller: Caller) -> CountedOut {
        used.settled = None;
        used.counted -= 1;
        // Somebody who took the entry over meanwhile took this call's count with it.
        let last = used.entry.leaving() == Some(caller);
        let action = if last { CountAction::Deferred } else { CountAction::Decremented };
        CountedOut { last, action, counts: used.entry.counts() }
    }

    /// An empty table, whose changes are none of another's with a different `number`.
    pub(super) fn numbered(number: usize) -> Self {
        Self { changes: (number as u64) << 56, ..Self::default() }
    }
}

/// What may be asked of one table, or of several that are one to whoever asks: by several at a time, if the table is shared.
/// No two entries of them overlap.
///
/// An entry's counts and marks change only while the table is locked that it is in, or while that is shared, one after
/// another. Those of an entry that has left it mean nothing to others.
pub trait SharedTables: Sized {
    /// Whether others may ask the same table at the same time.
    fn has_others(&self) -> bool;
    /// As [`Table::look_up`].
    fn look_up(&self, range: HostRange, extended: bool) -> (Overlap, Option<&Arc<Entry>>);
    /// How often they have changed.
    fn changes(&self) -> Changes;
    /// Nobody else changes the counts or the mark of an entry from now on.
    #[inline(always)]
    fn start_counting(&self, entry: &Entry) {
        if self.has_others() {
            entry.start_counting();
        }
    }

    /// Up to now.
    #[inline(always)]
    fn end_counting(&self, entry: &Entry) {
        if self.has_others() {
            entry.end_counting();
        }
    }

    /// Looks a map clause up and counts it: what `getTargetPointer` does before any transfer.
    ///
    /// Zero-length sections match extended ranges here. The overlap is returned for the log. A mapping that another
    /// caller is leaving is taken over: the one count that is left becomes this call's, and nothing is copied in.
    #[inline(always)]
    fn begin(&self, request: &BeginRequest, caller: Caller, uses: &mut Uses) -> (Overlap, Begin) {
        let range = request.range;
        let (overlap, entry) = self.look_up(range, true);
        let answer = match entry {
            Some(entry) if overlap == Overlap::Inside || request.implicit => {
                let used = uses.of(entry);
                self.start_counting(entry);
                let mut counts = entry.counts();
                let is_new = if request.update {
                    used.count(request.kind, false);
                    let left = entry.leaving().is_some_and(|other| other != caller);
                    // A mark of this caller's own is from a call that ended without releasing.
                    if !broken(Rule::MarkAndInherit) {
                        entry.set_leaving(None);
                    }
                    match left {
                        true => counts = RefCounts::first(request.kind, false),
                        false => counts.increment(request.kind),
                    }
                    entry.set_counts(counts);
                    false
                } else {
                    // A member is as new as this call found its struct.
                    used.made.unwrap_or(counts.total().0 == 1)
                };
                self.end_counting(entry);
                Begin::Exists { counts, is_new }
            }
            Some(entry) => Begin::Extension { host_begin: entry.host_begin(), size: entry.size() },
            None if request.unified && !request.close => match range.size() {
                0 => Begin::Nothing,
                _ => Begin::Host,
            },
            None if request.present => Begin::NotPresent,
            None if range.size() == 0 => Begin::Nothing,
            None if range.end().is_none() => Begin::Wraps,
            None => Begin::Create(self.changes()),
        };
        (overlap, answer)
    }

    /// As [`Tables::end`], but a `delete` leaves the entry in the table.
    #[inline(always)]
    fn count_end(&self, request: &EndRequest, caller: Caller, uses: Option<&mut Uses>) -> (Overlap, End) {
        let launched = uses.as_ref().is_some_and(|uses| uses.launched);
        let (overlap, found) = find_on_exit(self, request, caller, uses);
        let (entry, counted) = match found {
            OnExit::Own(used) => (None, self.end_of_own(request, caller, used, launched)),
            OnExit::Other(entry) => {
                self.start_counting(&entry);
                let counted = count_out(&entry, request, caller);
                self.end_counting(&entry);
                (Some(entry), counted)
            }
            OnExit::Nothing => return (overlap, if request.unified { End::Host } else { End::Nothing }),
        };
        (overlap, End::Found(entry, counted))
    }

    /// The same for what the call has counted.
    #[inline(always)]
    fn end_of_own(&self, request: &EndRequest, caller: Caller, used: &mut Use, launched: bool) -> CountedOut {
        self.start_counting(&used.entry);
        Table::give_back_what_was_taken(used, caller);
        let counted = if used.settled.is_some() && request.update {
            Table::settled(used, caller)
        } else if launched && !request.update {
            Table::settle(used, caller)
        } else {
            used.counted -= u32::from(request.update);
            count_out(&used.entry, request, caller)
        };
        self.end_counting(&used.entry);
        counted
    }
}

/// What changes one table, or several that are one to whoever asks. All of them are locked.
pub trait Tables: SharedTables {
    /// The entry that begins exactly at `host_begin`.
    fn exact(&self, host_begin: usize) -> Option<&Arc<Entry>>;
    /// Whether a mapping of `range` would overlap with none.
    fn is_free(&self, range: HostRange) -> bool;
    /// Where a mapping of `range`, a section of what begins at `base`, has to be added.
    fn table_for(&mut self, range: HostRange, base: usize) -> &mut Table;
    /// Where an entry is or was, if that is one of these.
    fn table_of(&mut self, entry: &Entry) -> Option<&mut Table>;
    /// All of them.
    fn each(&mut self) -> impl Iterator<Item = &mut Table>;

    /// Looks a section up on exit and counts it out: what `getTgtPtrBegin` does.
    ///
    /// The last user leaves the count at one, marks the entry as left, and calls [`release`](Self::release) once its
    /// work is done. A `delete` by the last user takes the entry out of the table at once. On an entry that another
    /// caller is leaving nobody else counts, nor is last. A call finds the entries that it has counted itself, though
    /// others may have taken them out of the table, and made new ones there.
    ///
    /// Zero-length ranges match the extended range, see [`look_up`](SharedTables::look_up), if they count or a call asks.
    fn end(&mut self, request: &EndRequest, caller: Caller, mut uses: Option<&mut Uses>) -> (Overlap, End) {
        let answer = self.count_end(request, caller, uses.as_deref_mut());
        if let End::Found(other, CountedOut { action: CountAction::ResetDeferred, .. }) = &answer.1
            && let Some(entry) = other.as_ref().or_else(|| uses.as_ref().map(|uses| uses.newest()))
            && !broken(Rule::DeleteDetaches)
            && self.remove(entry)
        {
            self.table_of(entry).expect("it was there").detach(caller, Arc::clone(entry));
        }
        answer
    }

    /// Adds the entry that [`Begin::Create`] asked for, now that the device has memory for it, and makes it the newest
    /// of the call's uses. Gives it back if its range has been taken meanwhile, since the table was as `seen`: look again.
    fn insert(
        &mut self,
        entry: Arc<Entry>,
        request: &BeginRequest,
        seen: Changes,
        uses: &mut Uses,
    ) -> Result<(), Arc<Entry>> {
        if !seen.are_none(self.changes()) && !self.is_free(request.range) {
            return Err(entry);
        }
        self.table_for(request.range, request.base).add(Arc::clone(&entry), 1);
        let used = uses.push_pinned(entry);
        used.made = Some(true);
        if request.update {
            used.count(request.kind, true);
        }
        // Else it is a mapper's first component, which is never counted out.
        Ok(())
    }

    /// Adds an entry that LLVM makes by itself: `emplace` of the C++ list. Nothing happens if the range is taken.
    fn emplace(
        &mut self,
        range: HostRange,
        base: usize,
        target_begin: usize,
        name: usize,
        kind: CountKind,
        infinite: bool,
    ) {
        let origin = if infinite { Origin::Global } else { Origin::Mapped };
        if self.is_free(range) {
            let counts = RefCounts::first(kind, infinite);
            self.table_for(range, base).add(Arc::new(Entry::new(range, base, target_begin, name, origin, counts)), 0);
        }
    }

    /// Associates a range with memory that the user allocated: what `associatePtr` does.
    fn associate(&mut self, range: HostRange, target_begin: usize) -> (Association, Option<Arc<Entry>>) {
        if let Some(entry) = self.exact(range.begin()) {
            let same = range.end() == Some(entry.host_end()) && entry.target_begin() == target_begin;
            return (if same { Association::Same } else { Association::Different }, None);
        }
        if range.end().is_none() {
            return (Association::Wraps, None);
        }
        if !self.is_free(range) {
            return (Association::Overlaps, None);
        }
        let counts = RefCounts::first(CountKind::Dynamic, true);
        let entry = Arc::new(Entry::new(range, range.begin(), target_begin, 0, Origin::Associated, counts));
        self.table_for(range, range.begin()).add(Arc::clone(&entry), 0);
        (Association::Made, Some(entry))
    }

    /// The last user is done with a mapping: out of the table with it, if it still carries the caller's mark.
    fn release(&mut self, range: HostRange, kind: CountKind, caller: Caller) -> (Overlap, Released) {
        match self.take_detached_at(range, caller) {
            Some(entry) => (Overlap::of(&entry, range), Released::Detached(entry)),
            None => self.release_in_table(range, kind, caller),
        }
    }

    /// As [`release`](Self::release), for a caller that has detached nothing.
    fn release_in_table(&mut self, range: HostRange, kind: CountKind, caller: Caller) -> (Overlap, Released) {
        self.release_in_order(range, kind, caller)
    }

    /// The same, wherever in the range the mapping begins.
    #[inline(never)]
    fn release_in_order(&mut self, range: HostRange, kind: CountKind, caller: Caller) -> (Overlap, Released) {
        let (overlap, entry) = self.look_up(range, true);
        let Some(entry) = entry.map(Arc::clone) else { return (overlap, Released::Missing) };
        let leaves = Table::leave(&entry, kind, caller);
        let removed = if leaves { self.table_of(&entry).and_then(|table| table.take(&entry)) } else { None };
        (overlap, removed.map_or(Released::Kept, Released::Removed))
    }

    /// Takes the first of what `caller` has detached and `range` matches.
    fn take_detached_at(&mut self, range: HostRange, caller: Caller) -> Option<Arc<Entry>> {
        let place = |entry: &Arc<Entry>| (entry.host_begin(), entry.host_end());
        let is = |(owner, entry): &&(Caller, Arc<Entry>)| *owner == caller && entry.matches(range);
        let detached = self.each().flat_map(|table| table.detached.iter());
        let first = detached.filter(is).map(|(_, entry)| place(entry)).min()?;
        let is = |(owner, entry): &(Caller, Arc<Entry>)| *owner == caller && place(entry) == first;
        self.each().find_map(|table| Some(table.detached.swap_remove(table.detached.iter().position(is)?).1))
    }

    /// Takes an entry out of its table, and answers it, if its last user has left it to calls that are done by now.
    #[cold]
    fn remove_left_alone(&mut self, entry: &Entry) -> Option<Arc<Entry>> {
        if entry.leave_alone() { self.table_of(entry)?.take(entry) } else { None }
    }

    /// The entries that a caller's `delete` took out of the tables and that it never released: a former call's.
    fn take_detached(&mut self, caller: Caller) -> Vec<Arc<Entry>> {
        let detached = self.each().flat_map(|table| table.detached.extract_if(.., |(owner, _)| *owner == caller));
        detached.map(|(_, entry)| entry).collect()
    }

    /// Counts `entry` out once. True if that was its last user, and the entry has left the table.
    fn take_back(&mut self, entry: &Arc<Entry>, kind: CountKind) -> bool {
        entry.set_leaving(None);
        let mut counts = entry.counts();
        counts.decrement(kind);
        entry.set_counts(counts);
        counts.is_zero() && self.remove(entry)
    }

    /// Takes `entry` out of its table. False if it is not there (any more).
    fn remove(&mut self, entry: &Arc<Entry>) -> bool {
        self.table_of(entry).is_some_and(|table| table.take(entry).is_some())
    }
}

/// Finds what a look-up on exit means. If the call has counted it, it becomes the newest of its uses.
#[inline(always)]
fn find_on_exit<'u>(
    tables: &impl SharedTables,
    request: &EndRequest,
    caller: Caller,
    uses: Option<&'u mut Uses>,
) -> (Overlap, OnExit<'u>) {
    let range = request.range;
    let extended = request.update || uses.is_some();
    let Some(uses) = uses.filter(|uses| !uses.is_empty()) else {
        let (overlap, found) = tables.look_up(range, extended);
        let other = found.filter(|_| request.accepts(overlap)).map(Arc::clone);
        return (overlap, other.map_or(OnExit::Nothing, OnExit::Other));
    };
    // Most often it is what the call counted, whole: in the table, or taken out by others.
    if uses.counted_at(range).is_some_and(|used| used.is_counted_out_by(caller)) {
        return (Overlap::Inside, OnExit::Own(uses.newest_mut()));
    }
    find_more_on_exit(tables, request, caller, uses)
}

/// As [`find_on_exit`], for what is not found at once.
#[inline(never)]
fn find_more_on_exit<'u>(
    tables: &impl SharedTables,
    request: &EndRequest,
    caller: Caller,
    uses: &'u mut Uses,
) -> (Overlap, OnExit<'u>) {
    let range = request.range;
    let (overlap, found) = tables.look_up(range, true);
    // Deleted by another caller, or left to the others and removed by them.
    let lost = |known: &Arc<Entry>| {
        let by_others = known.origin() == Origin::Mapped && known.leaving() != Some(caller);
        by_others && known.matches(range) && !known.is_in_table() && !broken(Rule::CountOutOwn)
    };
    let (overlap, found) = if found.is_some_and(|entry| uses.counted(entry).is_some()) {
        (overlap, OnExit::Own(uses.newest_mut()))
    } else if uses.counted_as(lost).is_some() {
        let used = uses.newest_mut();
        (Overlap::of(&used.entry, range), OnExit::Own(used))
    } else {
        (overlap, found.map_or(OnExit::Nothing, |entry| OnExit::Other(Arc::clone(entry))))
    };
    (overlap, if request.accepts(overlap) { found } else { OnExit::Nothing })
}

/// The plain way out, and a look-up that does not count.
#[inline(always)]
fn count_out(entry: &Entry, request: &EndRequest, caller: Caller) -> CountedOut {
    let kind = request.kind;
    let left_by_another = entry.leaving().is_some_and(|other| other != caller);
    let mut counts = entry.counts();
    let last = !left_by_another && counts.is_last(kind, request.force_delete);
    if left_by_another || !request.update {
        return CountedOut { last, action: CountAction::Suppressed, counts };
    }
    let (decremented, deferred) = (CountAction::Decremented, CountAction::Deferred);
    let (reset, reset_deferred) = (CountAction::Reset, CountAction::ResetDeferred);
    let action =
        [[decremented, deferred], [reset, reset_deferred]][usize::from(request.force_delete)][usize::from(last)];
    if request.force_delete {
        counts.reset(kind);
    }
    if !last {
        counts.decrement(kind);
    }
    entry.set_counts(counts);
    if last {
        entry.set_leaving(Some(caller));
    }
    CountedOut { last, action, counts }
}

impl SharedTables for Table {
    #[inline(always)]
    fn has_others(&self) -> bool {
        false
    }

    #[inline(always)]
    fn look_up(&self, range: HostRange, extended: bool) -> (Overlap, Option<&Arc<Entry>>) {
        self.look_up(range, extended)
    }

    #[inline(always)]
    fn changes(&self) -> Changes {
        Changes(self.changes)
    }
}

impl SharedTables for ShareGuard<'_, Table> {
    #[inline(always)]
    fn has_others(&self) -> bool {
        self.has_others()
    }

    #[inline(always)]
    fn look_up(&self, range: HostRange, extended: bool) -> (Overlap, Option<&Arc<Entry>>) {
        (**self).look_up(range, extended)
    }

    #[inline(always)]
    fn changes(&self) -> Changes {
        SharedTables::changes(&**self)
    }
}

impl Tables for Table {
    #[inline(always)]
    fn exact(&self, host_begin: usize) -> Option<&Arc<Entry>> {
        self.exact(host_begin)
    }

    fn is_free(&self, range: HostRange) -> bool {
        self.is_free(range)
    }

    fn table_for(&mut self, _range: HostRange, _base: usize) -> &mut Table {
        self
    }

    fn table_of(&mut self, _entry: &Entry) -> Option<&mut Table> {
        Some(self)
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Table> {
        std::iter::once(self)
    }

    #[inline(always)]
    fn release_in_table(&mut self, range: HostRange, kind: CountKind, caller: Caller) -> (Overlap, Released) {
        let begin = range.begin();
        match self.exact.find(begin).map(|at| (self.exact.at(&at), at)) {
            Some((entry, at)) if begin < entry.host_end() => {
                let overlap = Overlap::with_left(entry, range);
                if !Self::leave(entry, kind, caller) {
                    return (overlap, Released::Kept);
                }
                let entry = self.exact.remove(at);
                self.forget(begin);
                (overlap, Released::Removed(entry))
            }
            _ => self.release_in_order(range, kind, caller),
        }
    }
}

#[cfg(test)]
mod tests;
