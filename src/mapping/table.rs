//! The mapping table of one device.

#![forbid(unsafe_code)]

use super::call::Caller;
use super::counts::{CountKind, RefCounts};
use super::entry::{Entry, Origin};
use super::lookup::{HostRange, Overlap};
use super::uses::{Use, Uses};
use crate::rules::{Rule, broken};
use crate::sync::Arc;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// A map clause on entry to a region, as `getTargetPointer` gets it.
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

/// What a map clause on entry asks for.
#[derive(Debug)]
pub enum Begin {
    /// A mapping was found, and counted if that was asked for.
    Exists {
        /// The mapping.
        entry: Arc<Entry>,
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
    /// The device needs memory, and the table then an entry: see [`Table::insert`].
    Create,
}

/// A look-up on exit from a region or inside it, as `getTgtPtrBegin` gets it.
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
    /// Zero-length ranges match the extended range, see [`Table::begin`].
    pub extended: bool,
    /// The program requires unified shared memory.
    pub unified: bool,
}

/// What a look-up on exit found.
#[derive(Debug)]
pub enum End {
    /// A mapping.
    Found {
        /// The mapping.
        entry: Arc<Entry>,
        /// Its counts now.
        counts: RefCounts,
        /// The caller is its last user. Its count stays until [`Table::release`].
        last: bool,
        /// What was done to the count.
        action: CountAction,
    },
    /// Unified shared memory: use the host address.
    Host,
    /// No mapping.
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

/// All mappings of a device, by first host address. No two overlap.
#[derive(Debug, Default)]
pub struct Table {
    entries: BTreeMap<usize, Arc<Entry>>,
    /// No entry begins further than this from its base: how far a zero-length look-up has to search.
    widest: usize,
    /// What a `delete` took out and its caller has not released yet.
    detached: Vec<(Caller, Arc<Entry>)>,
}

impl Table {
    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry with the lowest host address.
    pub fn first(&self) -> Option<&Arc<Entry>> {
        self.entries.first_key_value().map(|(_, entry)| entry)
    }

    /// The entry that follows the one at `host_begin`.
    pub fn after(&self, host_begin: usize) -> Option<&Arc<Entry>> {
        self.entries.range((Excluded(host_begin), Unbounded)).next().map(|(_, entry)| entry)
    }

    /// How `range` lies to the nearest entry, which is none if they do not touch.
    ///
    /// With `extended`, a zero-length range that is inside no entry still matches one whose *extended* range
    /// `[host_base, host_end)` holds its address: a pointer to an array of which only a later section is mapped.
    pub fn look_up(&self, range: HostRange, extended: bool) -> (Overlap, Option<&Arc<Entry>>) {
        let found = |overlap, entry| (overlap, Some(entry));
        if let Some((_, left)) = self.entries.range(..=range.begin()).next_back() {
            let overlap = Overlap::with_left(left, range);
            if overlap != Overlap::None {
                return found(overlap, left);
            }
        }
        if range.size() == 0 {
            return match self.extended(range.begin()) {
                Some(entry) if extended => found(Overlap::Inside, entry),
                _ => (Overlap::None, None),
            };
        }
        if let Some(right) = self.after(range.begin()) {
            let overlap = Overlap::with_right(right, range);
            if overlap != Overlap::None {
                return found(overlap, right);
            }
        }
        (Overlap::None, None)
    }

    /// The nearest later entry that is a section of something which begins at or before `host`.
    fn extended(&self, host: usize) -> Option<&Arc<Entry>> {
        let reach = host.saturating_add(self.widest);
        let later = self.entries.range((Excluded(host), Included(reach)));
        later.map(|(_, entry)| entry).find(|entry| entry.host_base() <= host)
    }

    /// Looks a map clause up and counts it: what `getTargetPointer` does before any transfer.
    ///
    /// Zero-length sections match extended ranges here. The overlap is returned for the log. A mapping that another
    /// caller is leaving is taken over: the one count that is left becomes this call's, and nothing is copied in.
    pub fn begin(&mut self, request: &BeginRequest, caller: Caller, uses: &mut Uses) -> (Overlap, Begin) {
        let range = request.range;
        let (overlap, entry) = self.look_up(range, true);
        let answer = match entry {
            Some(entry) if overlap == Overlap::Inside || request.implicit => {
                let entry = Arc::clone(entry);
                let (counts, is_new) = if request.update {
                    uses.count(&entry, request.kind, false);
                    let left = entry.leaving().is_some_and(|other| other != caller);
                    // A mark of this caller's own is from a call that ended without releasing.
                    if !broken(Rule::MarkAndInherit) {
                        entry.set_leaving(None);
                    }
                    let counts = entry.update_counts(|counts| match left {
                        true => *counts = RefCounts::first(request.kind, false),
                        false => counts.increment(request.kind),
                    });
                    (counts, false)
                } else {
                    let counts = entry.counts();
                    // A member is as new as this call found its struct.
                    let is_new = uses.of(&entry).made.unwrap_or(counts.total().0 == 1);
                    (counts, is_new)
                };
                Begin::Exists { entry, counts, is_new }
            }
            Some(entry) => Begin::Extension { host_begin: entry.host_begin(), size: entry.size() },
            None if request.unified && !request.close => match range.size() {
                0 => Begin::Nothing,
                _ => Begin::Host,
            },
            None if request.present => Begin::NotPresent,
            None if range.size() == 0 => Begin::Nothing,
            None if range.end().is_none() => Begin::Wraps,
            None => Begin::Create,
        };
        (overlap, answer)
    }

    /// Looks a section up on exit and counts it out: what `getTgtPtrBegin` does.
    ///
    /// The last user leaves the count at one, marks the entry as left, and calls [`release`](Self::release) once its
    /// work is done. A `delete` by the last user takes the entry out of the table at once. On an entry that another
    /// caller is leaving nobody else counts, nor is last. A call finds the entries that it has counted itself, though
    /// others may have taken them out of the table, and made new ones there.
    pub fn end(&mut self, request: &EndRequest, caller: Caller, uses: Option<&mut Uses>) -> (Overlap, End) {
        let (mut overlap, mut found) = self.look_up(request.range, request.extended);
        let launched = uses.as_ref().is_some_and(|uses| uses.launched);
        let used = uses.and_then(|uses| {
            if let Some(entry) = found
                && uses.counted(|known| Arc::ptr_eq(known, entry)).is_some()
            {
                return uses.counted(|known| Arc::ptr_eq(known, entry));
            }
            // Deleted by another caller, or left to the others and removed by them.
            let lost = |known: &Arc<Entry>| {
                let by_others = known.origin() == Origin::Mapped && known.leaving() != Some(caller);
                by_others && known.matches(request.range) && !self.holds(known)
            };
            uses.counted(lost).filter(|_| !broken(Rule::CountOutOwn))
        });
        if let Some(used) = &used {
            overlap = Overlap::of(&used.entry, request.range);
            found = Some(&used.entry);
        }
        let answer = match found {
            Some(entry) if overlap == Overlap::Inside || !request.must_contain => {
                let entry = Arc::clone(entry);
                let mut left = entry.leaving().is_some_and(|other| other != caller);
                let counted_in = used.as_ref().is_some_and(|used| used.settled.is_none()) && self.holds(&entry);
                if left && counted_in && !broken(Rule::LastInTurn) {
                    // Somebody has counted out more than it had counted in, by listing an item twice: the count that is
                    // left is this call's.
                    entry.set_leaving(None);
                    left = false;
                }
                let (last, action, counts) = match used {
                    Some(used) if used.settled.is_some() && request.update => Self::settled(&entry, used, caller),
                    Some(used) if launched && !request.update => Self::settle(&entry, used, caller),
                    used => {
                        if let Some(used) = used {
                            used.counted -= u32::from(request.update);
                        }
                        match left {
                            true => (false, CountAction::Suppressed, entry.counts()),
                            false => self.count_out(&entry, request, caller),
                        }
                    }
                };
                End::Found { entry, counts, last, action }
            }
            _ if request.unified => End::Host,
            _ => End::Nothing,
        };
        (overlap, answer)
    }

    /// The plain way out, and a look-up that does not count.
    fn count_out(
        &mut self,
        entry: &Arc<Entry>,
        request: &EndRequest,
        caller: Caller,
    ) -> (bool, CountAction, RefCounts) {
        let kind = request.kind;
        let last = entry.counts().is_last(kind, request.force_delete);
        let action = match (request.update, request.force_delete, last) {
            (false, _, _) => return (last, CountAction::Suppressed, entry.counts()),
            (true, false, false) => CountAction::Decremented,
            (true, false, true) => CountAction::Deferred,
            (true, true, false) => CountAction::Reset,
            (true, true, true) => CountAction::ResetDeferred,
        };
        let counts = entry.update_counts(|counts| {
            if request.force_delete {
                counts.reset(kind);
            }
            if !last {
                counts.decrement(kind);
            }
        });
        if last {
            entry.set_leaving(Some(caller));
        }
        if last && request.force_delete && !broken(Rule::DeleteDetaches) && self.remove(entry) {
            self.detached.push((caller, Arc::clone(entry)));
        }
        (last, action, counts)
    }

    /// A member's look-up at the end of a region: the first one counts the struct out, so that all members and the
    /// struct answer alike. The counts are shown as if that were still to come.
    fn settle(entry: &Arc<Entry>, used: &mut Use, caller: Caller) -> (bool, CountAction, RefCounts) {
        let last = *used.settled.get_or_insert_with(|| {
            let left = entry.leaving().is_some_and(|other| other != caller);
            let last = !left && entry.counts().is_last(used.kind, false);
            if last {
                entry.set_leaving(Some(caller));
            } else if !left {
                entry.update_counts(|counts| counts.decrement(used.kind));
            }
            last
        });
        let mut counts = entry.counts();
        let left_by_another = entry.leaving().is_some_and(|other| other != caller);
        if !last && !left_by_another {
            counts.increment(used.kind);
        }
        (last && entry.leaving() == Some(caller), CountAction::Suppressed, counts)
    }

    /// The struct's own look-up after that of a member.
    fn settled(entry: &Arc<Entry>, used: &mut Use, caller: Caller) -> (bool, CountAction, RefCounts) {
        used.settled = None;
        used.counted -= 1;
        // Somebody who took the entry over meanwhile took this call's count with it.
        let last = entry.leaving() == Some(caller);
        (last, if last { CountAction::Deferred } else { CountAction::Decremented }, entry.counts())
    }

    /// Adds the entry that [`Begin::Create`] asked for, now that the device has memory for it at `target_begin`.
    pub fn insert(&mut self, request: &BeginRequest, target_begin: usize, uses: &mut Uses) -> Arc<Entry> {
        let counts = RefCounts::first(request.kind, false);
        let entry = self.add(request.range, request.base, target_begin, request.name, Origin::Mapped, counts);
        if request.update {
            uses.count(&entry, request.kind, true);
        } else {
            // A mapper's first component, which is never counted out.
            uses.of(&entry).made.get_or_insert(true);
        }
        entry
    }

    /// Adds an entry that LLVM makes by itself: `emplace` of the C++ list. Nothing happens if the range is taken.
    pub fn emplace(
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
            self.add(range, base, target_begin, name, origin, RefCounts::first(kind, infinite));
        }
    }

    /// Associates a range with memory that the user allocated: what `associatePtr` does.
    pub fn associate(&mut self, range: HostRange, target_begin: usize) -> (Association, Option<Arc<Entry>>) {
        if let Some(entry) = self.entries.get(&range.begin()) {
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
        let entry = self.add(range, range.begin(), target_begin, 0, Origin::Associated, counts);
        (Association::Made, Some(entry))
    }

    /// The entry that begins exactly at `host_begin`.
    pub fn exact(&self, host_begin: usize) -> Option<&Arc<Entry>> {
        self.entries.get(&host_begin)
    }

    fn is_free(&self, range: HostRange) -> bool {
        let before = self.entries.range(..=range.begin()).next_back().map(|(_, entry)| entry);
        let mut neighbours = before.into_iter().chain(self.after(range.begin()));
        range.end().is_some() && !neighbours.any(|entry| entry.host_begin() == range.begin() || entry.overlaps(range))
    }

    fn add(
        &mut self,
        range: HostRange,
        base: usize,
        target: usize,
        name: usize,
        origin: Origin,
        counts: RefCounts,
    ) -> Arc<Entry> {
        let end = range.end().expect("the caller has refused ranges that wrap");
        let entry = Arc::new(Entry::new((range.begin(), end), base, target, name, origin, counts));
        self.widest = self.widest.max(range.begin().saturating_sub(base));
        let former = self.entries.insert(range.begin(), Arc::clone(&entry));
        assert!(former.is_none(), "two mappings of one host address");
        entry
    }

    /// The last user is done with a mapping: out of the table with it, if it still carries the caller's mark.
    pub fn release(&mut self, range: HostRange, kind: CountKind, caller: Caller) -> (Overlap, Released) {
        let detached = self.detached.iter().position(|(owner, entry)| *owner == caller && entry.matches(range));
        if let Some(index) = detached {
            let (_, entry) = self.detached.swap_remove(index);
            return (Overlap::of(&entry, range), Released::Removed(entry));
        }
        let (overlap, entry) = self.look_up(range, true);
        let released = match entry.map(Arc::clone) {
            None => Released::Missing,
            Some(entry)
                if entry.leaving() == Some(caller) && !broken(Rule::JoinableWhileUsed) && entry.leave_to_users() =>
            {
                Released::Kept
            }
            Some(entry) if entry.leaving() == Some(caller) && self.take_back(&entry, kind) => Released::Removed(entry),
            Some(_) => Released::Kept,
        };
        (overlap, released)
    }

    /// Removes an entry that its last user has left to the calls that use it, if it is still so and none is left.
    pub fn remove_left(&mut self, entry: &Arc<Entry>) -> bool {
        entry.leaving() == Some(Caller::NOBODY) && !entry.is_pinned() && self.remove(entry)
    }

    /// The entries that a caller's `delete` took out of the table and that it never released: a former call's.
    pub fn take_detached(&mut self, caller: Caller) -> Vec<Arc<Entry>> {
        self.detached.extract_if(.., |(owner, _)| *owner == caller).map(|(_, entry)| entry).collect()
    }

    /// Counts `entry` out once. True if that was its last user, and the entry has left the table.
    pub fn take_back(&mut self, entry: &Arc<Entry>, kind: CountKind) -> bool {
        entry.set_leaving(None);
        entry.update_counts(|counts| counts.decrement(kind)).is_zero() && self.remove(entry)
    }

    /// Whether `entry` is in the table.
    pub fn holds(&self, entry: &Arc<Entry>) -> bool {
        self.entries.get(&entry.host_begin()).is_some_and(|found| Arc::ptr_eq(found, entry))
    }

    /// Takes `entry` out of the table. False if it is not there (any more).
    pub fn remove(&mut self, entry: &Arc<Entry>) -> bool {
        self.holds(entry) && self.entries.remove(&entry.host_begin()).is_some()
    }
}

#[cfg(test)]
mod tests;
