//! The two reference counts of a mapping and the rules for changing them.

#![forbid(unsafe_code)]

use std::fmt;

/// Which of the two counts a map clause moves: for C++, whether it is the second one.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKind {
    /// The standard count of OpenMP.
    Dynamic,
    /// The count of the `ompx_hold` modifier, which `delete` does not reset (an extension made for OpenACC).
    Hold,
}

impl CountKind {
    /// The count that a clause with (`true`) or without `ompx_hold` moves.
    pub const fn from_hold(hold: bool) -> Self {
        if hold { Self::Hold } else { Self::Dynamic }
    }
}

/// A count's value; all ones means infinite: never changed, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub(super) u64);

impl Count {
    /// The value of associated pointers and `declare target` globals.
    pub const INFINITE: Self = Self(u64::MAX);

    /// Whether nobody is counted.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether this count never changes.
    pub const fn is_infinite(self) -> bool {
        self.0 == u64::MAX
    }
}

/// As LLVM prints it: a number, or `INF`.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_infinite() { f.write_str("INF") } else { self.0.fmt(f) }
    }
}

/// The dynamic and the hold count of one mapping. It lives as long as either is above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefCounts {
    pub(super) dynamic: Count,
    pub(super) hold: Count,
}

impl RefCounts {
    /// The counts of a new entry: one of `kind`, infinitely many if `infinite`, and none of the other.
    pub const fn first(kind: CountKind, infinite: bool) -> Self {
        let one = if infinite { Count::INFINITE } else { Count(1) };
        match kind {
            CountKind::Dynamic => Self { dynamic: one, hold: Count(0) },
            CountKind::Hold => Self { dynamic: Count(0), hold: one },
        }
    }

    /// The dynamic count.
    pub const fn dynamic(self) -> Count {
        self.dynamic
    }

    /// The hold count.
    pub const fn hold(self) -> Count {
        self.hold
    }

    const fn pair(self, kind: CountKind) -> (Count, Count) {
        match kind {
            CountKind::Dynamic => (self.dynamic, self.hold),
            CountKind::Hold => (self.hold, self.dynamic),
        }
    }

    /// Changes one of the counts, unless it is infinite.
    #[inline(always)]
    fn change(&mut self, kind: CountKind, change: impl FnOnce(u64) -> u64) {
        let (this, other) = self.pair(kind);
        if !this.is_infinite() {
            let this = Count(change(this.0));
            (self.dynamic, self.hold) = match kind {
                CountKind::Dynamic => (this, other),
                CountKind::Hold => (other, this),
            };
        }
    }

    /// The sum, infinite if either is.
    pub const fn total(self) -> Count {
        if self.dynamic.is_infinite() || self.hold.is_infinite() {
            return Count::INFINITE;
        }
        Count(self.dynamic.0 + self.hold.0)
    }

    /// Whether no user is left.
    pub const fn is_zero(self) -> bool {
        self.total().is_zero()
    }

    /// One more user. Infinite counts stay.
    ///
    /// # Panics
    ///
    /// When the count overflows.
    pub fn increment(&mut self, kind: CountKind) {
        self.change(kind, |count| {
            assert!(count + 1 != Count::INFINITE.0, "refcount overflow");
            count + 1
        });
    }

    /// One user less. Infinite counts stay, and so does zero.
    pub fn decrement(&mut self, kind: CountKind) {
        self.change(kind, |count| count.saturating_sub(1));
    }

    /// Sets a finite count to one, even from zero, so that one decrement can follow.
    pub fn reset(&mut self, kind: CountKind) {
        self.change(kind, |_| 1);
    }

    /// Whether one decrement of `kind`, after a reset if `after_reset`, leaves no user.
    pub const fn is_last(self, kind: CountKind, after_reset: bool) -> bool {
        let (this, other) = self.pair(kind);
        if !other.is_zero() {
            return false;
        }
        if after_reset { !this.is_infinite() } else { this.0 == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CountKind::{Dynamic, Hold};

    fn counts(dynamic: u64, hold: u64) -> RefCounts {
        RefCounts { dynamic: Count(dynamic), hold: Count(hold) }
    }

    #[test]
    fn a_new_entry_has_one_user_of_its_kind() {
        assert_eq!(RefCounts::first(Dynamic, false), counts(1, 0));
        assert_eq!(RefCounts::first(Hold, false), counts(0, 1));
        assert_eq!(RefCounts::first(Dynamic, true), counts(u64::MAX, 0));
    }

    #[test]
    fn infinite_counts_never_move() {
        let mut c = RefCounts::first(Dynamic, true);
        c.increment(Dynamic);
        c.decrement(Dynamic);
        c.reset(Dynamic);
        assert_eq!(c, counts(u64::MAX, 0));
        assert!(!c.is_last(Dynamic, false) && !c.is_last(Dynamic, true));
    }

    #[test]
    fn an_infinite_part_makes_the_total_infinite() {
        assert!(counts(u64::MAX, 3).total().is_infinite());
        assert!(counts(2, u64::MAX).total().is_infinite());
        assert_eq!(counts(2, 3).total(), Count(5));
    }

    #[test]
    fn zero_stays_zero_while_the_other_kind_holds() {
        let mut c = counts(0, 2);
        c.decrement(Dynamic);
        assert_eq!(c, counts(0, 2));
    }

    #[test]
    fn the_last_user_is_the_one_with_nobody_of_either_kind_beside() {
        assert!(counts(1, 0).is_last(Dynamic, false));
        assert!(!counts(1, 1).is_last(Dynamic, false));
        assert!(!counts(2, 0).is_last(Dynamic, false));
        assert!(counts(2, 0).is_last(Dynamic, true), "delete resets first");
        assert!(!counts(2, 1).is_last(Dynamic, true), "delete does not reset the other count");
        assert!(counts(0, 0).is_last(Dynamic, true), "a reset makes one out of zero");
        assert!(!counts(0, 0).is_last(Dynamic, false));
        assert!(counts(0, 1).is_last(Hold, false));
    }

    #[test]
    fn counts_print_as_llvm_prints_them() {
        assert_eq!(format!("{} {}", Count(17), Count::INFINITE), "17 INF");
    }
}
