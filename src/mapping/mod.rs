//! The heart: which host range has a copy on the device, how often it is counted, and what a look-up asks for.
//!
//! Pure Rust: no FFI, no plugin calls, no log lines, no `unsafe`. A [`Table`] is plain data behind a lock; its
//! two main questions are [`SharedTables::begin`] (a map clause on entry) and [`SharedTables::count_end`] (on exit; with a
//! `delete`, [`Tables::end`]), and both answer with what must happen next. `device` does that. [`Mappings`] are a device's tables with their locks.
//!
//! ```text
//!   host range ──look_up──▶ overlap with the nearest entry ──begin/end──▶ counted, created, refused, ...
//! ```
//!
//! An [`Entry`] is shared by counted handles. The table holds one of them for as long as the range is mapped; a call
//! that uses the entry holds another, so that the device memory outlives the entry's place in the table.

#![forbid(unsafe_code)]

mod call;
mod counts;
mod entry;
mod exact;
mod lookup;
mod ordered;
mod parts;
mod table;
mod uses;

pub use call::{Busy, Call, CallId, Caller, Calls, Queue};
pub use counts::{CountKind, RefCounts};
pub use entry::{Entry, Event, Origin, Transfer};
pub use lookup::{HostRange, Overlap};
pub use parts::{Mappings, Several};
pub use table::{
    Association, Begin, BeginRequest, Changes, CountAction, CountedOut, End, EndRequest, Released, SharedTables, Table,
    Tables,
};
pub use uses::{Use, Uses};
