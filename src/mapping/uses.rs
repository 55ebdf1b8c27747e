//! What one call did with the entries that it uses, so that the members of a struct follow their struct.
//!
//! LLVM looks a struct up with counting and its members without. What a member's look-up means must not depend on other
//! calls that count the same struct in between: a member is new if the struct was, and last if the struct will be.

#![forbid(unsafe_code)]

use super::counts::CountKind;
use super::entry::Entry;
use super::lookup::HostRange;
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

    /// The use of `entry` once the region has been launched, if the call has counted it and not yet counted it out.
    pub(super) fn at_end(&mut self, entry: &Arc<Entry>) -> Option<&mut Use> {
        let launched = self.launched;
        self.list.iter_mut().find(|used| launched && used.counted > 0 && Arc::ptr_eq(&used.entry, entry))
    }

    /// The use whose entry holds `range` and whose count a member's look-up has given up already. The table may have
    /// another entry there by now, in which this call has no part.
    pub(super) fn settled_at(&mut self, range: HostRange) -> Option<&mut Use> {
        self.list.iter_mut().find(|used| used.settled.is_some() && used.entry.matches(range))
    }

    /// All entries, let go of.
    pub fn into_entries(self) -> impl Iterator<Item = Arc<Entry>> {
        self.list.into_iter().map(|used| used.entry)
    }
}
