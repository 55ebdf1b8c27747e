//! How an asked host range lies to a mapped one.

#![forbid(unsafe_code)]

use super::entry::Entry;

/// A host range as LLVM passes it: an address and a signed number of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    begin: usize,
    size: i64,
}

impl HostRange {
    /// `size` bytes from `begin`.
    pub const fn new(begin: usize, size: i64) -> Self {
        Self { begin, size }
    }

    /// First address.
    pub const fn begin(self) -> usize {
        self.begin
    }

    /// Bytes; negative when the caller computed nonsense.
    pub const fn size(self) -> i64 {
        self.size
    }

    /// One past the last address; none if the size is negative or the sum wraps around the address space. Such a range
    /// is inside nothing and reaches past everything that follows its begin.
    pub fn end(self) -> Option<usize> {
        self.begin.checked_add(usize::try_from(self.size).ok()?)
    }

    pub(super) fn end_or_max(self) -> usize {
        self.end().unwrap_or(usize::MAX)
    }
}

/// How an asked range lies to the entry that a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// It touches no entry.
    None,
    /// It lies inside. A zero-length range lies inside if its address does.
    Inside,
    /// It begins before the entry and reaches into it.
    ExtendsBefore,
    /// It begins inside the entry and reaches past its end.
    ExtendsAfter,
    /// It begins before the entry and reaches past its end.
    ExtendsBoth,
}

impl Overlap {
    /// Whether the range begins before the entry that it reaches.
    pub const fn extends_before(self) -> bool {
        matches!(self, Self::ExtendsBefore | Self::ExtendsBoth)
    }

    /// Whether the range reaches past the end of the entry.
    pub const fn extends_after(self) -> bool {
        matches!(self, Self::ExtendsAfter | Self::ExtendsBoth)
    }

    /// How `range` lies to an entry that it matches.
    pub(super) fn of(entry: &Entry, range: HostRange) -> Self {
        if range.size() == 0 {
            Self::Inside
        } else if entry.host_begin() <= range.begin() {
            Self::with_left(entry, range)
        } else {
            Self::with_right(entry, range)
        }
    }

    /// `entry` begins at or before the range.
    pub(super) fn with_left(entry: &Entry, range: HostRange) -> Self {
        match range.end() {
            _ if range.begin() >= entry.host_end() => Self::None,
            Some(end) if end <= entry.host_end() => Self::Inside,
            _ => Self::ExtendsAfter,
        }
    }

    /// `entry` begins after the range.
    pub(super) fn with_right(entry: &Entry, range: HostRange) -> Self {
        match range.end() {
            Some(end) if end <= entry.host_begin() => Self::None,
            Some(end) if end <= entry.host_end() => Self::ExtendsBefore,
            _ => Self::ExtendsBoth,
        }
    }
}

/// A number of so many bits, which hang on all bits of `number`, as the upper ones of a product do.
#[inline(always)]
pub(super) const fn spread(number: usize, bits: u32) -> usize {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - bits)
}
