//! What one call did with the entries that it uses, so that the members of a struct follow their struct.
//!
//! LLVM looks a struct up with counting and its members without. What a member's look-up means must not depend on other
//! calls that count the same struct in between: a member is new if the struct was, and last if the struct will be.

#![forbid(unsafe_code)]

use super::counts::CountKind;
use super::entry::Entry;
use crate::sync::Arc;

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

/// All entries in one call's use.
#[derive(Debug, Default)]
pub struct Uses {
    list: Vec<Use>,
    /// The call has launched its region: look-ups from now on are those of its end.
    pub launched: bool,
}

impl Uses {
    /// The use of `entry`, noted now if it is the first one.
    pub fn of(&mut self, entry: &Arc<Entry>) -> &mut Use {
        let index = self.list.iter().position(|known| Arc::ptr_eq(&known.entry, entry)).unwrap_or_else(|| {
            let entry = Arc::clone(entry);
            entry.pin();
            self.list.push(Use { entry, made: None, counted: 0, kind: CountKind::Dynamic, settled: None });
            self.list.len() - 1
        });
        &mut self.list[index]
    }

    /// Notes a counted look-up that found or made `entry`.
    pub(super) fn count(&mut self, entry: &Arc<Entry>, kind: CountKind, made: bool) {
        let used = self.of(entry);
        used.made.get_or_insert(made);
        used.counted += 1;
        used.kind = kind;
    }

    /// The first use that has been counted and not yet counted out, of an entry that is as asked.
    pub(super) fn counted(&mut self, is: impl Fn(&Arc<Entry>) -> bool) -> Option<&mut Use> {
        self.list.iter_mut().find(|used| used.counted > 0 && is(&used.entry))
    }

    /// Notes that a counted look-up of `entry` has been taken back.
    pub fn take_back(&mut self, entry: &Arc<Entry>) {
        if let Some(used) = self.counted(|known| Arc::ptr_eq(known, entry)) {
            used.counted -= 1;
        }
    }

    /// The entries.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.list.iter().map(|used| &used.entry)
    }

    /// All entries, each with the pin that this call has on it.
    pub fn into_entries(self) -> impl Iterator<Item = Arc<Entry>> {
        self.list.into_iter().map(|used| used.entry)
    }
}
