//! All mappings of a device: in one table, and in parts that have a lock each as soon as threads meet at that of the whole.
//!
//! Threads that map different data seldom meet at a part: what lies inside one cell, a kilobyte of host memory, is in the
//! part that its cell belongs to. What reaches over the end of a cell is in a part of its own, the last one, as is what is a
//! section of a variable that begins in another cell.
//!
//! Each part says from where and up to where its entries have ever reached. A question about a range inside a cell
//! needs the part of that cell alone, unless the last part has ever reached there:
//!
//! ```text
//!   inside a cell   ─▶ its part ─ nothing, and the last part reaches there ─▶ and the last part
//!   over many cells ─▶ the last part ─ nothing ─▶ the parts of those cells that have reached there, and the last one
//! ```
//!
//! Locks are taken in the order of the parts. Two that add mappings at the same time, one inside a cell and one over its
//! end, cannot miss each other: each says how far its part will reach before it asks how far the other's does.
//!
//! Who adds and removes no mapping shares a part with others, and takes no lock where nobody has done so for a while: see
//! [`crate::sync::ReadMostly`].
//!
//! The whole is in the first part. Who finds its lock taken locks all parts and divides the entries among them, once
//! and for all. So whoever has locked the first part asks again whether it still is the whole.

#![forbid(unsafe_code)]

use super::call::Caller;
use super::counts::CountKind;
use super::entry::Entry;
use super::lookup::{HostRange, Overlap, spread};
use super::table::{
    Association, Begin, BeginRequest, Changes, CountAction, CountedOut, End, EndRequest, Released, SharedTables, Table,
    Tables,
};
use super::uses::Uses;
use crate::rules::{Rule, broken};
use crate::sync::{Arc, AtomicUsize, Ordering, Rank, ReadMostly, ShareGuard, Sharers, WriteGuard, fence};
use std::ops::DerefMut;

/// Bytes of a cell, a power of two. Most of what is smaller than an array lies inside one.
const CELL: usize = 1024;
/// Parts for what lies inside a cell: a power of two.
const CELLS: usize = 16;
/// The part for the rest.
const LAST: usize = CELLS;
/// All of them.
const PARTS: usize = CELLS + 1;

/// The part of a cell.
#[inline(always)]
fn part_of_cell(cell: usize) -> usize {
    spread(cell, CELLS.ilog2())
}

/// The part of a mapping, or of what is asked for, which is a section of what begins at `base`.
#[inline(always)]
fn part(range: HostRange, base: usize) -> usize {
    let begin = range.begin();
    let rest = CELL - begin % CELL;
    if range.size() as u64 > rest as u64 || (begin ^ base) >= CELL {
        return LAST;
    }
    part_of_cell(begin / CELL)
}

fn part_of(entry: &Entry) -> usize {
    part(entry.range(), entry.host_base())
}

/// The same for one part and for several.
macro_rules! either {
    ($locked:expr, $tables:pat => $answer:expr) => {
        match $locked {
            Locked::One($tables) => $answer,
            Locked::Several($tables) => $answer,
        }
    };
}

/// Some of the parts, a bit each.
type Set = u32;

fn numbers(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let number = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (number < Set::BITS).then_some(number as usize)
    })
}

const ALL: Set = (1 << PARTS) - 1;

/// All mappings of a device.
#[derive(Debug)]
pub struct Mappings {
    facts: Facts,
    parts: Box<[Part; PARTS]>,
}

/// What is asked without a lock, and seldom changes.
///
/// Apart from the rest in memory too, which processors hand to each other in two lines at a time.
#[derive(Debug)]
#[repr(align(128))]
struct Facts {
    /// [`WHOLE`], [`HAS_LAST`], and, in the bits above, how many entries deletes have taken out that their callers have
    /// not released yet, or more.
    state: AtomicUsize,
    reaches: [Reach; PARTS],
}

/// All is in the first part.
const WHOLE: usize = 1;
/// The last part has been used.
const HAS_LAST: usize = 2;
const ONE_DETACHED: usize = 4;

/// In which cells the entries of a part have ever been.
#[derive(Debug)]
struct Reach {
    /// The first address of the first one.
    low: AtomicUsize,
    /// The last address of the last one.
    high: AtomicUsize,
}

#[derive(Debug)]
#[repr(align(128))]
struct Part(ReadMostly<Table>);

impl Default for Mappings {
    fn default() -> Self {
        let nowhere = |_| Reach { low: AtomicUsize::new(usize::MAX), high: AtomicUsize::new(0) };
        let facts = Facts { state: AtomicUsize::new(WHOLE), reaches: std::array::from_fn(nowhere) };
        let sharers = Arc::new(Sharers::default());
        let part = |number| {
            // The whole's changes are none of the first part's.
            let table = Table::numbered(if number == 0 { PARTS } else { number });
            Part(ReadMostly::new(Rank::table(number as u8), Arc::clone(&sharers), table))
        };
        // Made there: all of them are much for the stack of a model checker.
        let parts: Box<[Part]> = (0..PARTS).map(part).collect();
        let parts: Box<[Part; PARTS]> = parts.try_into().expect("as many");
        Self { facts, parts }
    }
}

impl Reach {
    /// Whether the part may hold anything from `first` up to `last`, which are the ends of a range or inside one cell.
    #[inline(always)]
    fn touches(&self, first: usize, last: usize) -> bool {
        self.low.load(Ordering::Relaxed) <= last && first <= self.high.load(Ordering::Relaxed)
    }

    /// Notes that it is about to hold something from `first` up to `last`. Says whether that is news.
    #[inline(always)]
    fn widen(&self, first: usize, last: usize) -> bool {
        let is_news = !self.touches(first, first) || !self.touches(last, last);
        if is_news {
            let (first, last) = (first / CELL * CELL, last | (CELL - 1));
            self.low.fetch_min(first, Ordering::Relaxed);
            self.high.fetch_max(last, Ordering::Relaxed);
        }
        is_news
    }
}

/// The last address of a range, or the only one of an empty one.
#[inline(always)]
fn last(range: HostRange) -> usize {
    range.begin().max(range.end_or_max().saturating_sub(1))
}

impl Mappings {
    fn table(&self, part: usize) -> WriteGuard<'_, Table> {
        self.parts[part].0.lock()
    }

    /// Whether the last part may hold anything in the cell of `begin`.
    #[inline(always)]
    fn last_reaches(&self, begin: usize) -> bool {
        self.state() & HAS_LAST != 0 && self.facts.reaches[LAST].touches(begin, begin)
    }

    #[inline(always)]
    fn state(&self) -> usize {
        // Who sees that the whole has been divided, or that there is a last part, sees how far the parts reach.
        self.facts.state.load(Ordering::Acquire)
    }

    /// Whether all is in the first part: for good if that is locked.
    #[inline(always)]
    fn is_whole(&self) -> bool {
        self.state() & WHOLE != 0
    }

    /// The first part, if it is the whole. It is not any more if somebody else has locked it.
    #[inline(always)]
    fn lock_whole(&self) -> Option<WriteGuard<'_, Table>> {
        let table = self.parts[0].0.try_lock().filter(|_| self.is_whole());
        if table.is_none() {
            self.divide();
        }
        table
    }

    fn lock_if_whole(&self) -> Option<WriteGuard<'_, Table>> {
        if self.is_whole() { self.lock_whole() } else { None }
    }

    /// Divides the entries among the parts, unless that has been done.
    #[cold]
    pub fn divide(&self) {
        if !self.is_whole() {
            return;
        }
        let mut tables = self.lock_parts(ALL);
        if !tables.whole {
            return;
        }
        tables.whole = false;
        let whole = std::mem::replace(tables.locked(0), Table::numbered(0));
        let (entries, detached) = whole.into_entries();
        let widened = |entry: &Entry| {
            self.widen_part(entry.range(), entry.host_base());
            part_of(entry)
        };
        for entry in entries {
            let number = widened(&entry);
            tables.locked(number).take_over(entry);
        }
        for (caller, entry) in detached {
            let number = widened(&entry);
            tables.locked(number).detach(caller, entry);
        }
        self.facts.state.fetch_and(!WHOLE, Ordering::Release);
    }

    /// The table that alone holds what has to do with `range`, if there is such a one: for most. It is none while anything
    /// is detached.
    ///
    /// Who gets it asks it. Else there is [`release`](Self::release), whose answer would have to go through memory if both ways
    /// met again.
    #[inline(always)]
    pub fn only(&self, range: HostRange) -> Option<WriteGuard<'_, Table>> {
        // Read once: without WHOLE it is for good, and what this caller has detached itself is in it.
        let state = self.state();
        if state == WHOLE {
            return self.lock_whole();
        }
        if state & !HAS_LAST != 0 {
            return None;
        }
        self.lock_alone(part(range, range.begin()), range)
    }

    /// A part, unless another one reaches there: asked while it is locked, as nothing is added to it then.
    #[inline(always)]
    fn lock_alone(&self, number: usize, range: HostRange) -> Option<WriteGuard<'_, Table>> {
        Some(self.table(number)).filter(|_| !self.others_reach(number, range))
    }

    /// The same for who changes no more than counts and marks, and so shares it, but is not to be asked to delete. Else there
    /// are [`begin`](Self::begin) and [`end`](Self::end).
    #[inline(always)]
    pub fn share_only(&self, range: HostRange, caller: Caller) -> Option<ShareGuard<'_, Table>> {
        self.share(range, caller, |_, number| !self.others_reach(number, range))
    }

    /// The table that has to do with `range`, if it `is_enough`.
    #[inline(always)]
    fn share(
        &self,
        range: HostRange,
        caller: Caller,
        is_enough: impl FnOnce(&Table, usize) -> bool,
    ) -> Option<ShareGuard<'_, Table>> {
        let state = self.state();
        if state == WHOLE {
            return self.share_whole(caller);
        }
        if state & !HAS_LAST != 0 {
            return None;
        }
        let number = part(range, range.begin());
        Some(self.parts[number].0.share(caller.0)).filter(|table| is_enough(table, number))
    }

    #[inline(always)]
    fn share_whole(&self, caller: Caller) -> Option<ShareGuard<'_, Table>> {
        let table = self.parts[0].0.try_share(caller.0).filter(|_| self.is_whole());
        if table.is_none() {
            self.divide();
        }
        table
    }

    /// Whether another part than `number`, which is locked or shared, may hold anything that has to do with `range`.
    #[inline(always)]
    fn others_reach(&self, number: usize, range: HostRange) -> bool {
        if number == LAST { self.near(range) != 0 } else { self.last_reaches(range.begin()) }
    }

    /// Whether a look-up finds in that part what it has to find.
    #[inline(always)]
    fn is_enough(&self, table: &Table, number: usize, range: HostRange) -> bool {
        !self.others_reach(number, range) || table.begins_with(range)
    }

    /// Looks `range` up for `caller`, and what `ask` says of the entry that is found, which stays in its table meanwhile.
    #[inline(always)]
    pub fn look_up<A>(
        &self,
        range: HostRange,
        extended: bool,
        caller: Caller,
        ask: impl FnOnce(&Arc<Entry>) -> A,
    ) -> (Overlap, Option<A>) {
        if let Some(table) = self.share(range, caller, |table, number| self.is_enough(table, number, range)) {
            let (overlap, found) = table.look_up(range, extended);
            return (overlap, found.map(ask));
        }
        self.look_up_in_several(range, extended, ask)
    }

    #[inline(never)]
    fn look_up_in_several<A>(
        &self,
        range: HostRange,
        extended: bool,
        ask: impl FnOnce(&Arc<Entry>) -> A,
    ) -> (Overlap, Option<A>) {
        let locked = self.lock(range);
        let (overlap, found) = either!(&locked, tables => tables.look_up(range, extended));
        (overlap, found.map(ask))
    }

    /// As [`SharedTables::begin`], whatever has to be locked.
    pub fn begin(&self, request: &BeginRequest, caller: Caller, uses: &mut Uses) -> (Overlap, Begin) {
        either!(self.lock(request.range), tables => tables.begin(request, caller, uses))
    }

    /// As [`Tables::insert`], and then has `lock` lock the entry, before others can find it.
    #[inline(always)]
    pub fn insert<G>(
        &self,
        entry: Arc<Entry>,
        request: &BeginRequest,
        seen: Changes,
        uses: &mut Uses,
        lock: impl FnOnce() -> G,
    ) -> Result<G, Arc<Entry>> {
        if let Some(mut table) = self.lock_one_to_add(request.range, request.base) {
            return table.insert(entry, request, seen, uses).map(|()| lock());
        }
        self.insert_in_several(entry, request, seen, uses, lock)
    }

    #[inline(never)]
    fn insert_in_several<G>(
        &self,
        entry: Arc<Entry>,
        request: &BeginRequest,
        seen: Changes,
        uses: &mut Uses,
        lock: impl FnOnce() -> G,
    ) -> Result<G, Arc<Entry>> {
        let mut tables = self.lock_several_to_add(request.range, request.base);
        tables.insert(entry, request, seen, uses).map(|()| lock())
    }

    /// As [`Tables::end`], whatever has to be locked.
    pub fn end(&self, request: &EndRequest, caller: Caller, uses: Option<&mut Uses>) -> (Overlap, End) {
        let answer = self.end_anywhere(request, caller, uses);
        if matches!(answer.1, End::Found(_, CountedOut { action: CountAction::ResetDeferred, .. })) {
            self.facts.state.fetch_add(ONE_DETACHED, Ordering::Relaxed);
        }
        answer
    }

    fn end_anywhere(&self, request: &EndRequest, caller: Caller, uses: Option<&mut Uses>) -> (Overlap, End) {
        let uses = match uses {
            Some(uses) if !uses.is_empty() => uses,
            none => return either!(self.lock(request.range), mut tables => tables.end(request, caller, none)),
        };
        // What the call has counted is not looked for.
        if let Some(used) = uses.counted_at(request.range) {
            let mut table = self.lock_table_of(&used.entry);
            if used.is_counted_out_by(caller) {
                return table.end(request, caller, Some(uses));
            }
        }
        either!(self.lock_all_of(request.range), mut tables => tables.end(request, caller, Some(uses)))
    }

    /// As [`Tables::release`], whatever has to be locked.
    pub fn release(&self, range: HostRange, kind: CountKind, caller: Caller) -> (Overlap, Released) {
        if !self.has_detached() {
            return either!(self.lock(range), mut tables => tables.release_in_table(range, kind, caller));
        }
        let (overlap, released) = either!(self.lock_all_of(range), mut tables => tables.release(range, kind, caller));
        if matches!(released, Released::Detached(_)) {
            self.facts.state.fetch_sub(ONE_DETACHED, Ordering::Relaxed);
        }
        (overlap, released)
    }

    /// Whether any caller may have detached what it has not released yet.
    #[inline(always)]
    pub fn has_detached(&self) -> bool {
        self.state() >= ONE_DETACHED
    }

    /// As [`Tables::take_detached`].
    pub fn take_detached(&self, caller: Caller) -> Vec<Arc<Entry>> {
        let detached = self.lock_parts(ALL).take_detached(caller);
        self.facts.state.fetch_sub(detached.len() * ONE_DETACHED, Ordering::Relaxed);
        detached
    }

    /// As [`Tables::associate`].
    pub fn associate(&self, range: HostRange, target_begin: usize) -> (Association, Option<Arc<Entry>>) {
        // What cannot be added widens no part.
        let locked =
            if range.end().is_some() { self.lock_to_add(range, range.begin()) } else { self.lock_all_of(range) };
        either!(locked, mut tables => tables.associate(range, target_begin))
    }

    /// The entry that begins exactly at `host_begin`; out of the table with it if it is as asked.
    pub fn remove_at(&self, host_begin: usize, is: impl FnOnce(&Entry) -> bool) -> Option<Arc<Entry>> {
        either!(self.lock_all_of(HostRange::new(host_begin, 0)), mut tables => {
            let entry = tables.exact(host_begin).map(Arc::clone)?;
            if is(&entry) {
                tables.remove(&entry);
            }
            Some(entry)
        })
    }

    /// For a look-up of `range`, which may be anywhere.
    fn lock(&self, range: HostRange) -> Locked<WriteGuard<'_, Table>> {
        if let Some(table) = self.lock_if_whole() {
            return Locked::One(table);
        }
        let number = part(range, range.begin());
        let own = self.table(number);
        if self.is_enough(&own, number, range) {
            return Locked::One(own);
        }
        drop(own);
        Locked::Several(self.lock_several(number, range, || self.near(range)))
    }

    /// For a look-up of `range` by somebody who uses entries that may be in no table any more.
    fn lock_all_of(&self, range: HostRange) -> Locked<WriteGuard<'_, Table>> {
        if let Some(table) = self.lock_if_whole() {
            return Locked::One(table);
        }
        let number = part(range, range.begin());
        match self.lock_alone(number, range) {
            Some(own) => Locked::One(own),
            None => Locked::Several(self.lock_several(number, range, || self.near(range))),
        }
    }

    /// A part and the last one; for the last one those that `near` answers once that is locked.
    fn lock_several(&self, number: usize, range: HostRange, near: impl Fn() -> Set) -> Several<WriteGuard<'_, Table>> {
        if number != LAST {
            return self.lock_parts(1 << number | 1 << LAST);
        }
        let mut set = self.near(range);
        loop {
            let tables = self.lock_parts(set | 1 << LAST);
            let now = near();
            if now == set {
                return tables;
            }
            set = now;
        }
    }

    /// To add a mapping of `range`, a section of what begins at `base`.
    fn lock_to_add(&self, range: HostRange, base: usize) -> Locked<WriteGuard<'_, Table>> {
        match self.lock_one_to_add(range, base) {
            Some(table) => Locked::One(table),
            None => Locked::Several(self.lock_several_to_add(range, base)),
        }
    }

    /// The same if one part is not enough.
    fn lock_several_to_add(&self, range: HostRange, base: usize) -> Several<WriteGuard<'_, Table>> {
        let number = part(range, base);
        let tables = self.lock_several(number, range, || self.near_once_said(range, base));
        if number != LAST {
            self.widen_part(range, base);
        }
        tables
    }

    /// The same if one part is enough: the whole, or that of a cell where the last part does not reach.
    #[inline(always)]
    fn lock_one_to_add(&self, range: HostRange, base: usize) -> Option<WriteGuard<'_, Table>> {
        if self.is_whole() {
            return self.lock_whole();
        }
        let number = part(range, base);
        if number == LAST {
            return self.lock_only_last_to_add(range, base);
        }
        let own = self.table(number);
        if self.facts.reaches[number].widen(range.begin(), range.begin()) {
            fence(Ordering::SeqCst);
        }
        Some(own).filter(|_| !self.last_reaches(range.begin()))
    }

    #[inline(never)]
    fn lock_only_last_to_add(&self, range: HostRange, base: usize) -> Option<WriteGuard<'_, Table>> {
        Some(self.table(LAST)).filter(|_| self.near_once_said(range, base) == 0)
    }

    /// Says that a mapping of `range` is about to be added to the last part, which is locked, and then asks for the parts
    /// near it: who comes to another one now waits for the last one, and who has come before has said how far it reaches.
    fn near_once_said(&self, range: HostRange, base: usize) -> Set {
        if !broken(Rule::SayBeforeAsking) {
            self.widen_part(range, base);
        }
        let near = self.near(range);
        if broken(Rule::SayBeforeAsking) {
            self.widen_part(range, base);
        }
        near
    }

    /// Notes that a mapping of `range`, a section of what begins at `base`, is about to be added to its part.
    fn widen_part(&self, range: HostRange, base: usize) {
        let number = part(range, base);
        if !self.facts.reaches[number].widen(range.begin().min(base), last(range)) {
            return;
        }
        if number == LAST {
            self.facts.state.fetch_or(HAS_LAST, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    /// The parts of the cells that `range` touches, but for those that have never reached there.
    fn near(&self, range: HostRange) -> Set {
        let (first, last) = (range.begin(), last(range));
        let (first_cell, last_cell) = (first / CELL, last / CELL);
        let is_near = |number: &usize| self.facts.reaches[*number].touches(first, last);
        let set = |set, number: usize| set | 1 << number;
        if last_cell - first_cell < CELLS {
            (first_cell..=last_cell).map(part_of_cell).filter(is_near).fold(0, set)
        } else {
            (0..CELLS).filter(is_near).fold(0, set)
        }
    }

    fn lock_parts(&self, set: Set) -> Several<WriteGuard<'_, Table>> {
        let mut parts = [const { None }; PARTS];
        numbers(set).for_each(|number| parts[number] = Some(self.table(number)));
        Several { parts, whole: self.is_whole() }
    }

    /// The part that an entry is in, or has been.
    pub fn lock_table_of(&self, entry: &Entry) -> WriteGuard<'_, Table> {
        self.lock_if_whole().unwrap_or_else(|| self.table(part_of(entry)))
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        (0..PARTS).all(|number| self.table(number).is_empty())
    }

    /// All locks, in their order.
    #[cfg(not(model))]
    pub fn locks(&self) -> impl DoubleEndedIterator<Item = &ReadMostly<Table>> {
        self.parts.iter().map(|part| &part.0)
    }

    /// All parts, whose locks somebody holds through `parts`, in their order.
    #[cfg(not(model))]
    pub fn all_locked<G>(&self, mut parts: impl Iterator<Item = G>) -> Several<G> {
        Several { parts: std::array::from_fn(|_| parts.next()), whole: self.is_whole() }
    }

    /// Notes that a mapping of `range`, a section of what begins at `base`, is about to be added, by somebody who has
    /// locked all parts.
    #[cfg(not(model))]
    pub fn widen(&self, range: HostRange, base: usize) {
        if !self.is_whole() {
            self.widen_part(range, base);
        }
    }
}

/// The parts that a question needs, locked by `G`.
#[derive(Debug)]
enum Locked<G> {
    /// One is enough.
    One(G),
    /// More than one.
    Several(Several<G>),
}

/// Several parts, each locked by `G` in its place.
#[derive(Debug)]
pub struct Several<G> {
    parts: [Option<G>; PARTS],
    /// All is in the first one.
    whole: bool,
}

impl<G: DerefMut<Target = Table>> Several<G> {
    fn locked(&mut self, number: usize) -> &mut Table {
        self.parts[number].as_mut().expect("locked for this")
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.parts.iter().flatten().map(|part| part.deref())
    }

    /// The entry with the lowest host address.
    pub fn first(&self) -> Option<&Arc<Entry>> {
        self.tables().filter_map(Table::first).min_by_key(|entry| entry.host_begin())
    }

    /// The entry that follows the one at `host_begin`.
    pub fn after(&self, host_begin: usize) -> Option<&Arc<Entry>> {
        self.tables().filter_map(|part| part.after(host_begin)).min_by_key(|entry| entry.host_begin())
    }
}

impl<G: DerefMut<Target = Table>> SharedTables for Several<G> {
    fn has_others(&self) -> bool {
        false
    }

    fn look_up(&self, range: HostRange, extended: bool) -> (Overlap, Option<&Arc<Entry>>) {
        let nearest = |extended| {
            let found = self.tables().map(|part| part.look_up(range, extended));
            let found = found.filter_map(|(overlap, entry)| Some((overlap, entry?)));
            found.min_by_key(|(_, entry)| entry.host_begin())
        };
        // What touches the range comes first, wherever it is.
        let found = nearest(false).or_else(|| if extended { nearest(true) } else { None });
        found.map_or((Overlap::None, None), |(overlap, entry)| (overlap, Some(entry)))
    }

    fn changes(&self) -> Changes {
        Changes::OF_SEVERAL
    }
}

impl<G: DerefMut<Target = Table>> Tables for Several<G> {
    fn exact(&self, host_begin: usize) -> Option<&Arc<Entry>> {
        self.tables().find_map(|part| part.exact(host_begin))
    }

    fn is_free(&self, range: HostRange) -> bool {
        self.tables().all(|part| part.is_free(range))
    }

    fn table_for(&mut self, range: HostRange, base: usize) -> &mut Table {
        self.locked(if self.whole { 0 } else { part(range, base) })
    }

    fn table_of(&mut self, entry: &Entry) -> Option<&mut Table> {
        self.parts[if self.whole { 0 } else { part_of(entry) }].as_deref_mut()
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Table> {
        self.parts.iter_mut().flatten().map(|part| part.deref_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Origin, RefCounts};
    use proptest::prelude::*;

    /// A question to a table, about ranges in a few cells, many of which reach over the end of one.
    #[derive(Clone, Copy, Debug)]
    struct Step {
        what: u8,
        begin: usize,
        size: i64,
        before: usize,
        caller: u64,
        flags: [bool; 4],
    }

    impl Step {
        fn range(&self) -> HostRange {
            HostRange::new(self.begin, self.size)
        }

        fn caller(&self) -> Caller {
            Caller(self.caller + 1)
        }

        fn entry(&self) -> BeginRequest {
            let [implicit, update, present, hold] = self.flags;
            BeginRequest {
                range: self.range(),
                base: self.begin - self.before,
                name: 0,
                kind: CountKind::from_hold(hold && update),
                implicit,
                update,
                close: false,
                present: present && implicit,
                unified: false,
            }
        }

        fn exit(&self) -> EndRequest {
            let [_, update, force_delete, must_contain] = self.flags;
            EndRequest {
                range: self.range(),
                kind: CountKind::Dynamic,
                update,
                must_contain,
                force_delete: force_delete && update,
                unified: false,
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let size = prop::sample::select(vec![0, 8, 8, 64, 500, 512, 1024, 4096, 6000, 20_000, i64::MAX]);
        let before = prop::sample::select(vec![0, 0, 0, 8, 300, 5000]);
        let step = (0..8u8, 0..80usize, size, before, 0..3u64, any::<[bool; 4]>());
        let step = step.prop_map(|(what, at, size, before, caller, flags)| Step {
            what,
            begin: 0x10_0000 + at * 512,
            size,
            before,
            caller,
            flags,
        });
        prop::collection::vec(step, 0..120)
    }

    fn begin(mappings: &Mappings, request: &BeginRequest, caller: Caller, uses: &mut Uses) -> (Overlap, Begin) {
        match mappings.share_only(request.range, caller) {
            Some(table) => table.begin(request, caller, uses),
            None => mappings.begin(request, caller, uses),
        }
    }

    fn end(mappings: &Mappings, request: &EndRequest, caller: Caller, uses: &mut Uses) -> (Overlap, End) {
        match mappings.share_only(request.range, caller) {
            Some(table) if !request.force_delete => table.count_end(request, caller, Some(uses)),
            table => {
                drop(table);
                mappings.end(request, caller, Some(uses))
            }
        }
    }

    fn release(mappings: &Mappings, range: HostRange, caller: Caller) -> (Overlap, Released) {
        match mappings.only(range) {
            Some(mut table) => table.release_in_table(range, CountKind::Dynamic, caller),
            None => mappings.release(range, CountKind::Dynamic, caller),
        }
    }

    fn shown((overlap, begin): (Overlap, Begin)) -> (String, Option<Changes>) {
        match begin {
            Begin::Create(seen) => (format!("{overlap:?}, create"), Some(seen)),
            answer => (format!("{overlap:?}, {answer:?}"), None),
        }
    }

    fn new_entry(step: &Step) -> Arc<Entry> {
        let request = step.entry();
        let counts = RefCounts::first(request.kind, false);
        Arc::new(Entry::new(request.range, request.base, 0x1000, 0, Origin::Mapped, counts))
    }

    fn detached(entries: Vec<Arc<Entry>>) -> Vec<usize> {
        let mut begins = entries.iter().map(|entry| entry.host_begin()).collect::<Vec<_>>();
        begins.sort_unstable();
        begins
    }

    fn finish(uses: &mut Uses, mut remove: impl FnMut(&Arc<Entry>) -> Option<Arc<Entry>>) -> Vec<usize> {
        let mut removed = Vec::new();
        uses.drain(|entry, is_left| {
            if is_left {
                removed.extend(remove(&entry).map(|entry| entry.host_begin()));
            }
        });
        removed
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Whatever is asked, many parts answer as one table does.
        #[test]
        fn parts_are_as_one(steps in steps(), divide_in in 0..60u8) {
            let (mappings, mut table) = (Mappings::default(), Table::default());
            let mut divide_in = divide_in;
            let mut uses: [[Uses; 2]; 3] = Default::default();
            for step in &steps {
                divide_in = divide_in.saturating_sub(1);
                if divide_in == 0 {
                    mappings.divide();
                }
                let range = step.range();
                let [ours, plain] = &mut uses[step.caller as usize];
                match step.what {
                    0..3 => {
                        let (answer, seen) = shown(begin(&mappings, &step.entry(), step.caller(), ours));
                        let (expected, plain_seen) = shown(table.begin(&step.entry(), step.caller(), plain));
                        prop_assert_eq!(answer, expected, "{:?}", step);
                        if let (Some(seen), Some(plain_seen)) = (seen, plain_seen) {
                            prop_assert!(mappings.insert(new_entry(step), &step.entry(), seen, ours, || ()).is_ok());
                            prop_assert!(table.insert(new_entry(step), &step.entry(), plain_seen, plain).is_ok());
                        }
                    }
                    3..5 => {
                        let answer = format!("{:?}", end(&mappings, &step.exit(), step.caller(), ours));
                        let expected = format!("{:?}", table.end(&step.exit(), step.caller(), Some(plain)));
                        prop_assert_eq!(answer, expected, "{:?}", step);
                    }
                    5 => {
                        let answer = format!("{:?}", release(&mappings, range, step.caller()));
                        let expected = format!("{:?}", table.release(range, CountKind::Dynamic, step.caller()));
                        prop_assert_eq!(answer, expected, "{:?}", step);
                    }
                    6 => {
                        let removed = finish(ours, |entry| mappings.lock_table_of(entry).remove_left_alone(entry));
                        prop_assert_eq!(removed, finish(plain, |entry| table.remove_left_alone(entry)));
                        let taken = mappings.take_detached(step.caller());
                        prop_assert_eq!(detached(taken), detached(table.take_detached(step.caller())));
                    }
                    // LLVM refuses an association of nothing.
                    _ if step.size == 0 => {
                        let [extended, ..] = step.flags;
                        let shown = |entry: &Arc<Entry>| format!("{entry:?}");
                        let answer = mappings.look_up(range, extended, step.caller(), shown);
                        let (overlap, expected) = table.look_up(range, extended);
                        prop_assert_eq!(answer, (overlap, expected.map(shown)), "{:?}", step);
                    }
                    _ => {
                        let answer = format!("{:?}", mappings.associate(range, 0x2000));
                        prop_assert_eq!(answer, format!("{:?}", table.associate(range, 0x2000)), "{:?}", step);
                    }
                }
                let (parts, mut plain) = (mappings.lock_parts(ALL), table.first());
                let mut ours = parts.first();
                while let Some(entry) = ours {
                    prop_assert_eq!(format!("{entry:?}"), format!("{:?}", plain.expect("as many")));
                    (ours, plain) = (parts.after(entry.host_begin()), table.after(entry.host_begin()));
                }
                prop_assert!(plain.is_none());
                drop(parts);
                prop_assert_eq!(mappings.is_empty(), table.is_empty());
            }
        }
    }
}
