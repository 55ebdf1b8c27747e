//! The rules of the mapping protocol, by name. A test may break one, to see that a model notices.
//!
//! In a build without a model checker [`broken`] is a constant, and nothing is left of it.

/// A rule that concurrent target tasks rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The lock of a new entry is taken before the table is let go, so that nobody uses the entry before its copy has
    /// been issued.
    EntryLockBeforeTableUnlock,
    /// Whoever finds a mapping has its queue wait for the copy into it.
    WaitBeforeUse,
    /// The event is recorded after the copy that it stands for.
    RecordAfterCopy,
    /// Data that other calls use are not copied in once more, though nobody counts them.
    UsedIsNotNew,
    /// A copy into a mapping comes after the one before, so that its record stands for both.
    ChainBeforeRecord,
    /// A copy into a mapping comes after the copy back before, which must not meet attached pointers that it does not
    /// know of.
    CopyAfterCopyBack,
    /// A copy back comes after the work of all other calls in flight on the mapping.
    CopyBackAfterUsers,
    /// The last user marks the mapping, and whoever joins then takes over its count.
    MarkAndInherit,
    /// What a call uses stays until the call has been synchronised.
    PinUntilSynchronized,
    /// A mapping whose regions are not all done can still be joined.
    JoinableWhileUsed,
    /// A `delete` takes the mapping out of the table at once.
    DeleteDetaches,
    /// "Done" belongs to one record of an event, by the call that made it.
    DonePerRecord,
    /// A pointer counts as attached only in the mapping that it was attached in, not in a later one at the same place.
    AttachedHere,
    /// A call is done once it has been synchronised, not before.
    NeededWaits,
    /// The end of a region counts out the mappings that its begin counted, and no later ones at the same place.
    CountOutOwn,
    /// A region whose mapping somebody else counts out too often is last in turn all the same.
    LastInTurn,
    /// A region comes after pointers that other calls attach to what it uses.
    AttachedBeforeLaunch,
    /// A copy from the host leaves pointers alone that have been attached on the device.
    AttachedStay,
    /// A copy back leaves the host's pointers alone whose copies on the device have been attached: other tasks read
    /// them, and LLVM puts them back before the copy is done.
    HostPointersStay,
    /// Who adds a mapping over the end of a cell says so before asking which parts of the table reach there.
    SayBeforeAsking,
    /// Who changes a table waits for those who share it without its lock.
    ChangeAfterSharers,
    /// Of those who share a table, one at a time counts an entry.
    CountAlone,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::EntryLockBeforeTableUnlock,
        Self::WaitBeforeUse,
        Self::RecordAfterCopy,
        Self::UsedIsNotNew,
        Self::ChainBeforeRecord,
        Self::CopyAfterCopyBack,
        Self::CopyBackAfterUsers,
        Self::MarkAndInherit,
        Self::PinUntilSynchronized,
        Self::JoinableWhileUsed,
        Self::DeleteDetaches,
        Self::DonePerRecord,
        Self::AttachedHere,
        Self::NeededWaits,
        Self::CountOutOwn,
        Self::LastInTurn,
        Self::AttachedBeforeLaunch,
        Self::AttachedStay,
        Self::HostPointersStay,
        Self::SayBeforeAsking,
        Self::ChangeAfterSharers,
        Self::CountAlone,
    ];
}

#[cfg(model)]
thread_local!(static BROKEN: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) });

/// Breaks a rule for all models that this thread runs from now on; none mends them.
#[cfg(model)]
pub fn break_rule(rule: Option<Rule>) {
    BROKEN.set(rule);
}

/// Whether a test has broken the rule.
#[cfg(model)]
pub fn broken(rule: Rule) -> bool {
    BROKEN.get() == Some(rule)
}

/// Whether a test has broken the rule: not in this build.
#[cfg(not(model))]
#[inline(always)]
pub const fn broken(_rule: Rule) -> bool {
    false
}
