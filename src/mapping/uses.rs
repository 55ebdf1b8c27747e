//! What one call did with the entries that it uses, so that the members of a struct follow their struct.
//!
//! LLVM looks a struct up with counting and its members without. What a member's look-up means must not depend on other
//! calls that count the same struct in between: a member is new if the struct was, and last if the struct will be.

#![forbid(unsafe_code)]

use super::call::Caller;
use super::counts::CountKind;
use super::entry::{Entry, Origin};
use super::lookup::{HostRange, Overlap, spread};
use super::table::{CountAction, CountedOut, EndRequest};
use crate::rules::{Rule, broken};
use crate::sync::Arc;
use hashbrown::HashMap;
use std::mem::ManuallyDrop;

/// One entry in one call's use.
#[derive(Debug)]
pub struct Use {
    /// The entry, kept alive with its memory and its event.
    pub entry: Arc<Entry>,
    /// What the call's first counted look-up found: whether it made the entry.
    pub made: Option<bool>,
    /// Counted look-ups that have not been counted out, and of which kind the last one was.
    pub(super) counted: u32,
    pub(super) kind: CountKind,
    /// A member's look-up on exit has counted the struct out already: whether as the last user.
    pub(super) settled: Option<bool>,
}

impl Use {
    /// Notes a counted look-up, which may have made the entry.
    #[inline(always)]
    pub(super) fn count(&mut self, kind: CountKind, made: bool) {
        self.made.get_or_insert(made);
        self.counted += 1;
        self.kind = kind;
    }

    /// As [`super::Tables::end`], for what needs no table: a look-up before the call's region is launched.
    #[inline(always)]
    pub fn known(&self, request: &EndRequest, launched: bool) -> Option<CountedOut> {
        let entry = &self.entry;
        if request.update || launched || broken(Rule::CountOutOwn) || entry.origin() != Origin::Mapped {
            return None;
        }
        let counts = entry.counts();
        let last = counts.is_last(request.kind, request.force_delete);
        let known = CountedOut { last, action: CountAction::Suppressed, counts };
        Some(known).filter(|_| entry.leaving().is_none())
    }

    /// Whether the call counts its own entry out, whatever is in the table now. An association may have been taken back.
    #[inline(always)]
    pub fn is_counted_out_by(&self, caller: Caller) -> bool {
        let mapped = self.entry.origin() == Origin::Mapped;
        mapped && self.entry.leaving() != Some(caller) && !broken(Rule::CountOutOwn)
    }
}

/// All entries in one call's use.
///
/// LLVM goes through a call's clauses in their order, and back through them at the end: what is asked for is most often
/// beside what was asked for last.
#[derive(Debug, Default)]
pub struct Uses {
    /// What would be dropped if the list could not grow would be copied there from the stack, and reading what has just
    /// been written in parts stalls a processor.
    list: Vec<ManuallyDrop<Use>>,
    /// Where the last search ended.
    near: usize,
    /// A bit for each first host address in the list, which several may share: what has none is not there.
    begins: u64,
    /// If there are many: where the newest use of an entry is, by the entry's first host address.
    by_begin: Option<Box<HashMap<usize, usize>>>,
    /// The call has launched its region: look-ups from now on are those of its end.
    pub launched: bool,
}

/// As many uses are searched one by one.
const FEW: usize = 32;

/// The bit of an address in [`Uses::begins`].
#[inline(always)]
const fn bit(begin: usize) -> u64 {
    1 << spread(begin, u64::BITS.ilog2())
}

impl Uses {
    /// A use, of an entry that begins at `begin`, which is as asked.
    #[inline(always)]
    fn find(&mut self, begin: usize, is: impl Fn(&Use) -> bool) -> Option<&mut Use> {
        let fits = |used: &Use| used.entry.host_begin() == begin && is(used);
        let fits_at = |index: usize| self.list.get(index).is_some_and(|used| fits(used));
        let position = || self.list.iter().position(|used| fits(used));
        let near = self.near;
        self.near = if fits_at(near + 1) {
            near + 1
        } else if fits_at(near) {
            near
        } else if fits_at(near.wrapping_sub(1)) {
            near - 1
        } else if self.list.len() <= FEW {
            position()?
        } else {
            let newest = *self.by_begin.as_ref()?.get(&begin)?;
            if fits_at(newest) { newest } else { position()? }
        };
        Some(&mut self.list[self.near])
    }

    /// Notes the use of an entry that the call does not use yet. It is pinned until [`drain`](Self::drain).
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: Arc<Entry>) -> &mut Use {
        entry.pin();
        self.push_pinned(entry)
    }

    /// The same, for an entry that has been pinned for it.
    #[inline(always)]
    pub(super) fn push_pinned(&mut self, entry: Arc<Entry>) -> &mut Use {
        self.near = self.list.len();
        self.begins |= bit(entry.host_begin());
        let used = Use { entry, made: None, counted: 0, kind: CountKind::Dynamic, settled: None };
        self.list.push(ManuallyDrop::new(used));
        if self.near >= FEW {
            self.note_newest();
        }
        &mut self.list[self.near]
    }

    #[cold]
    fn note_newest(&mut self) {
        let begin = |used: &Use| used.entry.host_begin();
        match &mut self.by_begin {
            Some(by_begin) => _ = by_begin.insert(begin(&self.list[self.near]), self.near),
            None => self.by_begin = Some(Box::new(self.list.iter().map(|used| begin(used)).zip(0..).collect())),
        }
    }

    /// The use of `entry`, noted now if it is the first one.
    #[inline(always)]
    pub fn of(&mut self, entry: &Arc<Entry>) -> &mut Use {
        if self.contain(entry) { self.newest_mut() } else { self.push(Arc::clone(entry)) }
    }

    /// Whether the call uses `entry`.
    #[inline(always)]
    pub fn contain(&mut self, entry: &Entry) -> bool {
        self.begins & bit(entry.host_begin()) != 0 && self.search(entry)
    }

    #[inline(never)]
    fn search(&mut self, entry: &Entry) -> bool {
        self.find(entry.host_begin(), |used| std::ptr::eq(&*used.entry, entry)).is_some()
    }

    /// The entry that was asked for last.
    pub(crate) fn newest(&self) -> &Arc<Entry> {
        &self.list[self.near].entry
    }

    pub(crate) fn newest_mut(&mut self) -> &mut Use {
        &mut self.list[self.near]
    }

    /// The use of `entry` if it has been counted and not yet counted out.
    pub(super) fn counted(&mut self, entry: &Arc<Entry>) -> Option<&mut Use> {
        self.find(entry.host_begin(), |used| used.counted > 0 && Arc::ptr_eq(&used.entry, entry))
    }

    /// A use that has been counted and not yet counted out, of an entry that begins with `range` and holds all of it.
    #[inline(always)]
    pub fn counted_at(&mut self, range: HostRange) -> Option<&mut Use> {
        let inside = |used: &Use| used.counted > 0 && Overlap::with_left(&used.entry, range) == Overlap::Inside;
        self.find(range.begin(), inside)
    }

    /// The first use that has been counted and not yet counted out, of an entry that is as asked.
    pub(super) fn counted_as(&mut self, is: impl Fn(&Arc<Entry>) -> bool) -> Option<&mut Use> {
        self.near = self.list.iter().position(|used| used.counted > 0 && is(&used.entry))?;
        Some(&mut self.list[self.near])
    }

    /// Notes that a counted look-up of `entry` has been taken back.
    pub fn take_back(&mut self, entry: &Arc<Entry>) {
        if let Some(used) = self.counted(entry) {
            used.counted -= 1;
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The entries.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.list.iter().map(|used| &used.entry)
    }

    /// Gives up all entries and their pins, when the call is done: each, and whether the table may have to
    /// [remove](super::Tables::remove_left_alone) it.
    #[inline]
    pub fn drain(&mut self, mut give_up: impl FnMut(Arc<Entry>, bool)) {
        self.near = 0;
        self.begins = 0;
        self.by_begin = None;
        for used in self.list.drain(..) {
            let entry = ManuallyDrop::into_inner(used).entry;
            let is_left = entry.unpin();
            give_up(entry, is_left);
        }
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        self.drain(|_, _| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_uses_are_found_like_few() {
        for count in [3, FEW, FEW + 1, 100] {
            let (mut uses, entries): (_, Vec<_>) =
                (Uses::default(), (0..count).map(|n| Arc::new(Entry::of_eight_bytes(n * 16))).collect());
            for entry in &entries {
                uses.of(entry).count(CountKind::Dynamic, true);
            }
            for (n, entry) in entries.iter().enumerate().rev().step_by(3) {
                assert!(uses.contain(entry) && Arc::ptr_eq(uses.newest(), entry));
                let found = uses.counted_at(HostRange::new(n * 16, 4)).expect("counted");
                assert!(Arc::ptr_eq(&found.entry, entry));
                assert!(uses.counted_at(HostRange::new(n * 16, 9)).is_none());
            }
            assert_eq!(uses.list.len(), count);
            assert!(!uses.contain(&Arc::new(Entry::of_eight_bytes(16))), "another entry at the same place");
            uses.of(&Arc::new(Entry::of_eight_bytes(16)));
            assert!(uses.contain(&entries[1]));
            let mut left = 0;
            uses.drain(|_, _| left += 1);
            assert_eq!(left, count + 1);
            assert!(uses.is_empty() && !uses.contain(&entries[1]));
        }
    }
}
