//! The order in which locks are taken, as data.
//!
//! A thread may take a lock only if its rank is above that of every lock it holds. Debug builds keep the locks of each
//! thread and stop at the first one out of order, naming both places; release builds check nothing.
//!
//! | rank | lock | taken by |
//! | --- | --- | --- |
//! | 1 | [`Rank::ENTRY`] | a transfer of one entry: LLVM's `LockGuard`, and the core while it copies, records or waits |
//! | 2 | [`Rank::CALL`] | a plugin call on the queue of one call, a record on it by another call, its end |
//! | 3 and up | [`Rank::table`], by part | look-ups, counts, insertion, removal; all of them are LLVM's `DataMapMtx` |
//!
//! So the table's locks are the innermost ones: whoever holds an entry lock, or LLVM's `ShadowMtx`, may still look something
//! up, and nobody waits for an entry's lock while the table is locked. The one entry lock that is taken under the table lock
//! is that of an entry made there, which no other thread can have seen: it is taken without waiting.

/// Place of a lock in the order; nothing in a release build, where every mapping would pay for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    #[cfg(debug_assertions)]
    place: (u8, &'static str),
}

impl Rank {
    /// The lock of one mapping entry.
    pub const ENTRY: Self = Self::new(1, "entry");
    /// The lock of one call's queue.
    pub const CALL: Self = Self::new(2, "call");
    /// The lock of a device's mapping table, or of its first part.
    pub const TABLE: Self = Self::table(0);

    /// The lock of a part of a device's mapping table.
    pub const fn table(part: u8) -> Self {
        Self::new(3 + part, "mapping table")
    }

    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "see above"))]
    const fn new(number: u8, name: &'static str) -> Self {
        Self {
            #[cfg(debug_assertions)]
            place: (number, name),
        }
    }
}

#[cfg(debug_assertions)]
mod checked {
    use super::Rank;
    use std::cell::Cell;
    use std::panic::Location;

    type Held = Option<(Rank, &'static Location<'static>)>;

    crate::sync::thread_cells! { static HELD: [Cell<Held>; 24] = [const { Cell::new(None) }; 24]; }

    /// Notes that this thread takes a lock of `rank`; `waits` says whether it may have to wait for it.
    #[track_caller]
    pub fn take(rank: Rank, waits: bool) {
        let here = Location::caller();
        HELD.with(|held| {
            if let Some((other, there)) = held.iter().filter_map(Cell::get).find(|(other, _)| waits && *other >= rank) {
                panic!(
                    "lock order: {} lock at {here} while holding the {} lock from {there}",
                    rank.place.1, other.place.1
                );
            }
            let free = held.iter().find(|slot| slot.get().is_none()).expect("no code path holds so many locks");
            free.set(Some((rank, here)));
        });
    }

    /// Notes that this thread lets go of its newest lock of `rank`.
    pub fn drop(rank: Rank) {
        HELD.with(|held| {
            let newest = held.iter().rev().find(|slot| slot.get().is_some_and(|(other, _)| other == rank));
            newest.expect("a lock is let go by the thread that took it").set(None);
        });
    }
}

#[cfg(debug_assertions)]
pub(super) use checked::{drop, take};

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(super) fn take(_: Rank, _waits: bool) {}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(super) fn drop(_: Rank) {}
