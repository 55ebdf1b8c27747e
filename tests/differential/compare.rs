//! Asks both sides the same, step by step, and holds the answers against each other.
//!
//! Equal are answers, codes, the whole table, the calls of the plugin, device and host memory, and the printed lines.
//! Where the core differs on purpose, a step says what is expected of it instead: [`Difference`] lists all of that.
//! Stock is then asked what comes to the same, or not at all, so that both go on with the same table.

use crate::harness::{Answer, Begin as BeginRequest, Bench, Call, End as EndRequest, Outcome, Row, Side};
use crate::plugin::{self, FAILED, Function, HOST_SIZE, PluginCall, Queue, USER_MEMORY, USER_SIZE};
use crate::steps::{At, Begin, CALLS, Case, End, Failure, Section, Size, Step};
use omptarget_abi::OFFLOAD_FAIL;
use omptarget_tool::core::Core;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

type Checked<T = ()> = Result<T, TestCaseError>;

const UNIFIED_SHARED_MEMORY: i64 = 8;
/// Where host memory begins, unless it is high.
pub const LOW: usize = 0x10_0000;
/// A compiler's name string, which both sides print.
pub const NAME: &std::ffi::CStr = c";a[0:n];program.c;3;7;;";

/// Where the core differs from LLVM 14 on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Difference {
    /// An allocation failed: no entry is left. (Stock keeps one with a null address.)
    FailedAllocationLeavesNoEntry,
    /// A copy into a new mapping failed: no entry is left, and its memory goes. (Stock keeps it.)
    FailedCopyLeavesNoEntry,
    /// A copy into a mapping that was there failed: the count is as before. (Stock keeps the count.)
    FailedCopyLeavesNoCount,
    /// An event of a new mapping failed: no entry is left. (Stock keeps it, without an event.)
    FailedEventLeavesNoEntry,
    /// An event of a mapping that was there failed: the count is as before. (Stock keeps the count.)
    FailedEventLeavesNoCount,
    /// A new event that could not be recorded is given back. (Stock loses it.)
    FailedRecordDestroysEvent,
    /// A range that leaves the address space reaches past all that follows it. (Stock computes with the wrapped end.)
    WrapReachesToTheEnd,
    /// Nothing is made of a range that leaves the address space. (Stock makes an entry that ends before it begins.)
    WrapIsRefused,
    /// A map clause of length zero finds a mapping by its extended range. (Stock looks inside only.)
    ExtendedRangeOnEntry,
    /// So does a look-up, if it counts or is part of a call that has begun.
    ExtendedRangeInLookUp,
    /// So does the release that follows.
    ExtendedRangeInRelease,
    /// A global is not the user's to disassociate. (Stock takes it out.)
    DisassociationOfGlobalIsRefused,
    /// An association may not overlap a mapping. (Stock makes it.)
    OverlappingAssociationIsRefused,
    /// A look-up that matched nothing has no entry. (Stock returns a neighbour.)
    NoEntryWithoutMatch,
    /// The release of what is not mapped any more succeeds. (Stock fails.)
    LateReleaseSucceeds,
    /// A call waits for another call's copy before it copies into the same mapping.
    CopyWaitsForCopy,
    /// A call waits for another call's copy before it records its own attachment over it.
    AttachmentWaitsForCopy,
    /// A `present` clause waits for the copy of what it finds.
    PresentWaitsForCopy,
    /// A call does not wait for its own copy.
    OwnCopyIsNotWaitedFor,
    /// Nor for the copy of a call that has been synchronised.
    DoneCopyIsNotWaitedFor,
    /// An uncounted look-up is as new as the call's first counted one of the same mapping. (Stock looks at the count.)
    MembersFollowTheirStruct,
    /// An uncounted look-up of what other calls use is not new. (Stock looks at the count.)
    UsedIsNotNew,
    /// Only who was the last user releases, and only while nobody has joined. (Stock counts anybody out.)
    ReleaseNeedsTheMark,
    /// A look-up that matched nothing waits for no neighbour's copy.
    NeighbourIsNotWaitedFor,
    /// A look-up for nothing but an address gives no entry. (Stock gives one, which `omp_target_is_present` does not use.)
    AddressNeedsNoEntry,
    /// Memory and event of a mapping are freed when the last call that used it has been synchronised. (Stock: at once.)
    FreedAfterLastCall,
    /// A copy leaves out the pointers that have been attached. (Stock copies the host's over them.)
    AttachedPointersStay,
    /// A copy ends with the mapping, and one of no bytes is not made. (Stock copies as many as it was asked to.)
    OnlyWhatIsMappedIsCopied,
}

impl Difference {
    const ALL: [Self; 28] = [
        Self::FailedAllocationLeavesNoEntry,
        Self::FailedCopyLeavesNoEntry,
        Self::FailedCopyLeavesNoCount,
        Self::FailedEventLeavesNoEntry,
        Self::FailedEventLeavesNoCount,
        Self::FailedRecordDestroysEvent,
        Self::WrapReachesToTheEnd,
        Self::WrapIsRefused,
        Self::ExtendedRangeOnEntry,
        Self::ExtendedRangeInLookUp,
        Self::ExtendedRangeInRelease,
        Self::DisassociationOfGlobalIsRefused,
        Self::OverlappingAssociationIsRefused,
        Self::NoEntryWithoutMatch,
        Self::LateReleaseSucceeds,
        Self::CopyWaitsForCopy,
        Self::AttachmentWaitsForCopy,
        Self::PresentWaitsForCopy,
        Self::OwnCopyIsNotWaitedFor,
        Self::DoneCopyIsNotWaitedFor,
        Self::MembersFollowTheirStruct,
        Self::UsedIsNotNew,
        Self::ReleaseNeedsTheMark,
        Self::NeighbourIsNotWaitedFor,
        Self::AddressNeedsNoEntry,
        Self::FreedAfterLastCall,
        Self::AttachedPointersStay,
        Self::OnlyWhatIsMappedIsCopied,
    ];
}

/// What else is to be reached often.
const CASES: [&str; 39] = [
    "address found",
    "associate: made",
    "associate: something else is there",
    "associate: the same again",
    "attach",
    "attach: failed wait",
    "begin: always to",
    "begin: close",
    "begin: failed without a count",
    "begin: hold",
    "begin: implicit extension",
    "begin: present",
    "begin: present missing",
    "begin: suppressed",
    "begin: suppressed and new",
    "begin: unified shared memory",
    "begin: zero size inside",
    "begin: zero size, nothing found",
    "disassociate: done",
    "disassociate: held",
    "disassociate: not associated",
    "disassociate: nothing there",
    "end: counted out",
    "end: force-delete resets",
    "end: force-delete, last user",
    "end: hold",
    "end: implicit extension",
    "end: last user",
    "end: suppressed",
    "end: unified shared memory",
    "end: zero size inside",
    "end: zero size, nothing found",
    "frees at the end of a call",
    "globals mapped",
    "mappings counted in",
    "mappings removed",
    "new mappings",
    "release: failed free",
    "synchronize: fails",
];

/// What was reached how often.
#[derive(Debug)]
pub struct Counts {
    pub steps: u64,
    differences: BTreeMap<Difference, u64>,
    cases: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Nothing yet.
    pub fn new() -> Self {
        let zero = |case: &&'static str| (*case, 0);
        let differences = Difference::ALL.map(|difference| (difference, 0)).into();
        Self { steps: 0, differences, cases: CASES.iter().map(zero).collect() }
    }

    /// The lowest count of a difference or a case.
    pub fn lowest(&self) -> u64 {
        self.differences.values().chain(self.cases.values()).copied().min().unwrap_or(0)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>8} steps", self.steps)?;
        for (difference, count) in &self.differences {
            writeln!(f, "{count:>8} difference: {difference:?}")?;
        }
        self.cases.iter().try_for_each(|(case, count)| writeln!(f, "{count:>8} {case}"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Mapped,
    Global,
    Associated,
}

/// What a test has to know of a mapping beyond its row: to tell where a difference applies.
#[derive(Clone, Debug)]
struct Mapping {
    begin: usize,
    end: usize,
    base: usize,
    target: usize,
    origin: Origin,
    event: Option<usize>,
    /// The call, and which of its lives, that recorded the event.
    recorded_by: Option<(usize, u32)>,
    /// Its last user has been counted out, and nobody has joined.
    left: bool,
    /// The pointers that have been attached in it, by offset.
    attached: BTreeMap<usize, usize>,
    /// The lives of calls that have used it.
    users: BTreeSet<(usize, u32)>,
}

/// A call into the runtime.
struct OpenCall {
    handles: [Call; 2],
    /// Counts its synchronisations.
    life: u32,
    /// It has been used since the last one.
    open: bool,
    /// The mappings that it uses, by their place in `mappings`.
    pins: Vec<usize>,
    /// Those that it has counted, and whether it made them.
    made: BTreeMap<usize, bool>,
}

/// A request's range as stock is to be asked for it.
#[derive(Clone, Copy)]
struct Translated {
    host: usize,
    size: i64,
    /// How far it was moved to lie inside a mapping.
    shift: usize,
    wraps: bool,
}

/// Both sides in the middle of a case.
pub struct Pair<'b, 'c> {
    bench: &'b mut Bench,
    counts: &'c mut Counts,
    host_base: usize,
    unified: bool,
    calls: Vec<OpenCall>,
    /// All mappings there ever were.
    mappings: Vec<Mapping>,
    /// Those in the table, by first address.
    live: BTreeMap<usize, usize>,
    rows: Vec<Row>,
    /// The lives of calls that have been synchronised with success.
    done: BTreeSet<(usize, u32)>,
    /// What was allocated, and which events were made, without a mapping.
    allocated: Vec<usize>,
    events: Vec<usize>,
}

/// A trace without the calls that have rules of their own: waits, and what gives memory and events back.
fn parts(trace: &[(i32, PluginCall)]) -> (Vec<usize>, Vec<PluginCall>, Vec<(i32, PluginCall)>) {
    let mut waits = Vec::new();
    let mut frees = Vec::new();
    let mut others = Vec::new();
    for (device, call) in trace {
        match call {
            PluginCall::WaitEvent { event, .. } => waits.push(*event),
            PluginCall::Delete { .. } | PluginCall::DestroyEvent { .. } => frees.push(call.clone()),
            _ => others.push((*device, call.clone())),
        }
    }
    (waits, frees, others)
}

/// What stock would have printed: ours without the lines that name a plugin function.
fn printed(log: &str) -> Vec<&str> {
    log.lines().filter(|line| !names_function(line)).collect()
}

fn names_function(line: &str) -> bool {
    line.contains("__tgt_rtl_")
}

impl<'b, 'c> Pair<'b, 'c> {
    /// Runs a case from start to end.
    pub fn run(bench: &'b mut Bench, counts: &'c mut Counts, case: &Case) -> Checked {
        let host_base = if case.high { usize::MAX - HOST_SIZE - 7 } else { LOW };
        bench.start(case.abilities, case.use_events, host_base);
        let calls = (0..CALLS).map(|_| OpenCall {
            handles: [Core::Rust, Core::Stock].map(|core| bench.side(core).new_call(0)),
            life: 0,
            open: false,
            pins: Vec::new(),
            made: BTreeMap::new(),
        });
        let calls = calls.collect();
        let mut pair = Pair {
            bench,
            counts,
            host_base,
            unified: false,
            calls,
            mappings: Vec::new(),
            live: BTreeMap::new(),
            rows: Vec::new(),
            done: BTreeSet::new(),
            allocated: Vec::new(),
            events: Vec::new(),
        };
        let steps = case.steps.iter().enumerate().try_for_each(|(number, step)| {
            pair.counts.steps += 1;
            pair.step(step).map_err(|error| TestCaseError::fail(format!("step {number}: {error}")))
        });
        let end = steps.and_then(|()| pair.nothing_is_left());
        // Whatever came of it: the core counts a thread's open calls.
        end.and(pair.stop())
    }

    fn nothing_is_left(&mut self) -> Checked {
        for call in 0..CALLS {
            self.synchronize(call, true, None)?;
        }
        plugin::with_both(|ours, stock| {
            prop_assert!(ours.memory.keys().eq(stock.memory.keys()), "memory that is left");
            prop_assert_eq!(&ours.events, &stock.events, "events that are left");
            prop_assert!(ours.queues.is_empty() && stock.queues.is_empty(), "queues are left");
            Ok(())
        })
    }

    fn stop(&mut self) -> Checked {
        for core in [Core::Rust, Core::Stock] {
            for call in &self.calls {
                self.bench.side(core).delete_call(call.handles[core as usize]);
            }
            let end = self.bench.on(core, 0, None, Side::stop);
            prop_assert_eq!(end.trace, [], "the end of the program calls no plugin");
        }
        Ok(())
    }

    fn differs(&mut self, difference: Difference) {
        *self.counts.differences.get_mut(&difference).expect("listed in ALL") += 1;
    }

    fn count(&mut self, case: &'static str) {
        *self.counts.cases.get_mut(case).expect("listed in CASES") += 1;
    }

    fn count_if(&mut self, reached: bool, case: &'static str) {
        if reached {
            self.count(case);
        }
    }

    /// Asks one side for something within a call.
    fn ask<R>(
        &mut self,
        core: Core,
        call: usize,
        failure: Failure,
        act: impl FnOnce(&Side, Call) -> R,
    ) -> Checked<Outcome<R>> {
        let handle = self.calls[call].handles[core as usize];
        let outcome = self.bench.on(core, call, failure, |side| act(side, handle));
        let named = outcome.log.lines().filter(|line| names_function(line)).count();
        let expected = usize::from(core == Core::Rust && outcome.failed);
        prop_assert_eq!(named, expected, "lines that name the function that failed: {}", outcome.log);
        Ok(outcome)
    }

    /// Asks both the same, and both must do the same.
    fn same<R: PartialEq + fmt::Debug>(
        &mut self,
        call: usize,
        failure: Failure,
        act: impl Fn(&Side, Call) -> R,
    ) -> Checked<Outcome<R>> {
        let ours = self.ask(Core::Rust, call, failure, &act)?;
        let stock = self.ask(Core::Stock, call, failure, &act)?;
        prop_assert_eq!(&ours.value, &stock.value);
        prop_assert_eq!(&ours.trace, &stock.trace);
        prop_assert_eq!(printed(&ours.log), printed(&stock.log));
        Ok(ours)
    }

    fn range(&self, section: Section) -> (usize, i64) {
        let nth = |nth: u8| self.rows.get(usize::from(nth) % self.rows.len().max(1));
        let (host, whole) = match section.at {
            At::Slot(slot) => (self.host_base + usize::from(slot), 8),
            At::Entry { nth: entry, offset } => match nth(entry) {
                Some(row) => (row.begin.wrapping_add_signed(offset.into()), (row.end - row.begin) as i64),
                None => (self.host_base, 8),
            },
        };
        let size = match section.size {
            Size::Bytes(bytes) => bytes.into(),
            Size::Whole => whole,
            Size::Huge => i64::MAX,
            Size::Wraps(0) => -16,
            Size::Wraps(1) => -8,
            Size::Wraps(2) if self.host_base != LOW => 256,
            Size::Wraps(_) => -1,
        };
        (host, size)
    }

    /// The mapping that a range touches first, or whose extended range holds the address of an empty range.
    fn find(&self, host: usize, size: i64) -> Option<usize> {
        let mut live = self.live.values().map(|id| (*id, &self.mappings[*id]));
        let found = match end_of(host, size) {
            Some(_) if size == 0 => live
                .clone()
                .find(|(_, entry)| entry.begin <= host && host < entry.end)
                .or_else(|| live.find(|(_, entry)| entry.base <= host && host < entry.begin)),
            Some(end) => live.find(|(_, entry)| entry.begin < end && host < entry.end),
            None => live.find(|(_, entry)| host < entry.end),
        };
        found.map(|(id, _)| id)
    }

    /// What to ask stock for: the longest range that does not wrap for one that does, and the begin of the mapping for
    /// an empty range in front of it, where those are to be found.
    fn translate(&self, host: usize, size: i64, extended: bool) -> Translated {
        if end_of(host, size).is_none() {
            let size = i64::try_from(usize::MAX - host).unwrap_or(i64::MAX);
            return Translated { host, size, shift: 0, wraps: true };
        }
        let found = self.find(host, size).filter(|_| extended && size == 0);
        let shift = found.map_or(0, |id| self.mappings[id].begin.saturating_sub(host));
        Translated { host: host + shift, size, shift, wraps: false }
    }

    /// What both sides must agree on after every step. `made` is what the step may have mapped.
    fn agree(&mut self, made: Option<(usize, Origin)>) -> Checked<Vec<usize>> {
        let [ours, stock] = [Core::Rust, Core::Stock].map(|core| self.bench.side(core).table());
        prop_assert_eq!(&ours, &stock, "the tables");
        for core in [Core::Rust, Core::Stock] {
            prop_assert_eq!(self.bench.side(core).is_empty(0), ours.is_empty());
            let faults = plugin::with(core, |plugin| std::mem::take(&mut plugin.faults));
            prop_assert!(faults.is_empty(), "{core}: {faults:?}");
        }
        plugin::with_both(|ours, stock| {
            prop_assert_eq!(&ours.host, &stock.host, "host memory");
            for (address, bytes) in &ours.memory {
                let other = stock.memory.get(address);
                prop_assert!(other.is_none_or(|other| other == bytes), "device memory at {address:#x}");
            }
            Ok(())
        })?;
        let mut gone = Vec::new();
        self.live.retain(|_, id| {
            let entry = &self.mappings[*id];
            let stays = ours.iter().any(|row| row.begin == entry.begin && row.target == entry.target);
            if !stays {
                gone.push(*id);
            }
            stays
        });
        for row in &ours {
            if self.live.contains_key(&row.begin) {
                continue;
            }
            let Some((base, origin)) = made else {
                return Err(TestCaseError::fail(format!("made of nothing: {row:?}")));
            };
            self.live.insert(row.begin, self.mappings.len());
            self.mappings.push(Mapping {
                begin: row.begin,
                end: row.end,
                base,
                target: row.target,
                origin,
                event: None,
                recorded_by: None,
                attached: BTreeMap::new(),
                users: BTreeSet::new(),
                left: false,
            });
        }
        self.rows = ours;
        Ok(gone)
    }

    /// Our table is what it was before the step, which stock was not asked to do.
    fn no_trace(&mut self) -> Checked {
        prop_assert_eq!(&self.bench.side(Core::Rust).table(), &self.rows, "the table before and after");
        plugin::stock_follows();
        self.agree(None).map(drop)
    }

    fn pinned(&self, id: usize) -> bool {
        self.calls.iter().any(|call| call.pins.contains(&id))
    }

    /// Whether other calls use a mapping that have not been synchronised with success.
    fn used_beside(&self, call: usize, id: usize) -> bool {
        let own = (call, self.calls[call].life);
        self.mappings[id].users.iter().any(|user| *user != own && !self.done.contains(user))
    }

    fn pin(&mut self, call: usize, id: usize) {
        self.mappings[id].users.insert((call, self.calls[call].life));
        let pins = &mut self.calls[call].pins;
        if !pins.contains(&id) {
            pins.push(id);
        }
    }

    /// What is given back with a mapping.
    fn frees(&self, id: usize) -> Vec<PluginCall> {
        let Mapping { target, origin, event, .. } = self.mappings[id];
        let memory = (origin == Origin::Mapped).then_some(PluginCall::Delete { target });
        memory.into_iter().chain(event.map(|event| PluginCall::DestroyEvent { event })).collect()
    }

    /// The event that a call has to wait for before it uses or overwrites a mapping's data.
    fn awaited(&self, call: usize, id: usize) -> Option<usize> {
        let entry = &self.mappings[id];
        let own = (call, self.calls[call].life);
        entry.event.filter(|_| entry.recorded_by.is_some_and(|by| by != own && !self.done.contains(&by)))
    }

    /// Takes note of a copy that was recorded.
    fn recorded(&mut self, call: usize, id: usize, trace: &[(i32, PluginCall)]) {
        let life = self.calls[call].life;
        for (_, event) in trace {
            if let PluginCall::RecordEvent { event, .. } = event {
                self.mappings[id].event = Some(*event);
                self.mappings[id].recorded_by = Some((call, life));
            }
        }
    }

    fn step(&mut self, step: &Step) -> Checked {
        match *step {
            Step::Begin(ref begin) => self.begin(begin),
            Step::End(ref end) => self.end(end),
            Step::Dealloc { section, hold, failure } => {
                let (host, size) = self.range(section);
                self.dealloc(host, size, hold, failure)
            }
            Step::Address(section) => self.address(section),
            Step::Associate { section, target } => self.associate(section, target),
            Step::Disassociate { at, failure } => self.disassociate(at, failure),
            Step::MapGlobal { section, hold, infinite } => self.map_global(section, hold, infinite),
            Step::Synchronize { call, destroy, failure } => self.synchronize(call, destroy, failure),
            Step::RequireUnified(unified) => {
                self.unified = unified;
                let flags = if unified { UNIFIED_SHARED_MEMORY } else { 1 };
                for core in [Core::Rust, Core::Stock] {
                    self.bench.side(core).set_requires(flags);
                }
                Ok(())
            }
            Step::WriteHost { slot, value } => {
                for core in [Core::Rust, Core::Stock] {
                    plugin::with(core, |plugin| plugin.host[usize::from(slot)] = value);
                }
                Ok(())
            }
            _ => self.plain(step),
        }
    }

    /// The steps that work without the table, and in which the sides do not differ.
    fn plain(&mut self, step: &Step) -> Checked {
        let mapped = |pair: &Self, nth: u8| match pair.rows.get(usize::from(nth) % (pair.rows.len() + 1)) {
            Some(row) => (row.begin, row.target),
            None => (pair.host_base, USER_MEMORY),
        };
        let event = |pair: &Self, nth: u8| {
            let nth = usize::from(nth) % pair.events.len().max(1);
            pair.events.get(nth).map(|event| (nth, *event))
        };
        match *step {
            Step::Submit { entry, size, call, failure } => {
                let (host, target) = mapped(self, entry);
                self.calls[call].open = true;
                self.same(call, failure, |side, call| side.submit(0, target, host, size.into(), call))?;
            }
            Step::Retrieve { entry, size, call, failure } => {
                let (host, target) = mapped(self, entry);
                self.calls[call].open = true;
                self.same(call, failure, |side, call| side.retrieve(0, host, target, size.into(), call))?;
            }
            Step::Exchange { size, call, failure } => {
                self.same(call, None, |side, _| side.is_exchangable(0, 0))?;
                if self.same(call, None, |side, _| side.is_exchangable(0, 1))?.value {
                    let target = USER_MEMORY + USER_SIZE / 2;
                    self.calls[call].open = true;
                    self.same(call, failure, |side, call| side.exchange(0, USER_MEMORY, 1, target, size.into(), call))?;
                }
            }
            Step::Run { teams, call, failure } => {
                // A thread is in one call at a time, which waits for those of others before it launches.
                for open in 0..CALLS {
                    self.synchronize(open, false, None)?;
                }
                self.calls[call].open = true;
                self.same(call, failure, |side, call| side.run(0, USER_MEMORY, teams, call))?;
                // What the launched call's look-ups settle is tested beside the table.
                return self.synchronize(call, false, None);
            }
            Step::Alloc { size, kind, failure } => {
                let host = self.host_base;
                let memory = self.same(0, failure, |side, _| side.alloc(0, size.into(), host, kind))?.value;
                self.allocated.extend((memory != 0).then_some(memory));
            }
            Step::Delete { nth, failure } => {
                if !self.allocated.is_empty() {
                    let memory = self.allocated.swap_remove(usize::from(nth) % self.allocated.len());
                    self.same(0, failure, |side, _| side.delete(0, memory))?;
                }
            }
            Step::CreateEvent { failure } => {
                let create = |side: &Side, _| {
                    let mut event = 0;
                    (side.create_event(0, &mut event), event)
                };
                let (_, event) = self.same(0, failure, create)?.value;
                self.events.extend((event != 0).then_some(event));
            }
            Step::RecordEvent { nth, call, failure } => {
                if let Some((_, event)) = event(self, nth) {
                    self.calls[call].open = true;
                    self.same(call, failure, |side, call| side.record_event(0, event, call))?;
                }
            }
            Step::WaitEvent { nth, call, failure } => {
                if let Some((_, event)) = event(self, nth) {
                    self.calls[call].open = true;
                    self.same(call, failure, |side, call| side.wait_event(0, event, call))?;
                }
            }
            Step::SyncEvent { nth, failure } => {
                if let Some((_, event)) = event(self, nth) {
                    self.same(0, failure, |side, _| side.sync_event(0, event))?;
                }
            }
            Step::DestroyEvent { nth, failure } => {
                if let Some((nth, event)) = event(self, nth) {
                    self.events.swap_remove(nth);
                    self.same(0, failure, |side, _| side.destroy_event(0, event))?;
                }
            }
            Step::Init { failure } => drop(self.same(0, failure, |side, _| side.init_once(0))?),
            Step::IsReady { device } => drop(self.same(0, None, |side, _| side.is_ready(device))?),
            Step::LoadBinary { failure } => {
                drop(self.same(0, failure, |side, _| side.load_binary(0, NAME.as_ptr().addr()))?)
            }
            Step::PrintInfo => drop(self.same(0, None, |side, _| side.print_device_info(0))?),
            _ => unreachable!("`step` knows the others"),
        }
        self.agree(None).map(drop)
    }

    fn begin(&mut self, step: &Begin) -> Checked {
        let (host, size) = self.range(step.section);
        let request = BeginRequest {
            host,
            base: host.wrapping_sub(step.base.into()),
            size,
            name: if step.named { NAME.as_ptr().addr() } else { 0 },
            to: step.to,
            always: step.always,
            implicit: step.implicit,
            update: step.update,
            close: step.close,
            present: step.present,
            hold: step.hold,
        };
        let call = step.call;
        let asked = self.translate(host, size, true);
        let found = self.find(host, size);
        let ours = self.ask(Core::Rust, call, step.failure, |side, call| side.begin(0, &request, call))?;
        self.calls[call].open = true;
        let (waits, frees, others) = parts(&ours.trace);
        if ours.failed {
            return self.failed_begin(step, &request, &ours);
        }
        prop_assert_eq!(&frees, &[]);
        let host_is_used = self.unified && !step.close;
        if asked.wraps && found.is_none() && !host_is_used && !step.present {
            prop_assert_eq!(ours.value, Answer::default());
            prop_assert_eq!(ours.trace, []);
            self.differs(Difference::WrapIsRefused);
            return self.no_trace();
        }
        // What the call knows of the struct that a member lies in, or what is in use, where stock would say otherwise by the
        // count.
        let known = found.filter(|_| !step.update).and_then(|id| self.calls[call].made.get(&id).copied());
        let used = found.is_some_and(|id| self.used_beside(call, id));
        let made = known.or((!step.update && used).then_some(false));
        let made = made.filter(|made| found.is_some_and(|id| self.has_one_user(id)) != *made);
        let (to, always) = match made {
            Some(true) => (step.to, true),
            Some(false) => (step.to && step.always, step.always),
            None => (step.to, step.always),
        };
        let moved = BeginRequest { host: asked.host, size: asked.size, to, always, ..request };
        let mut stock = self.ask(Core::Stock, call, None, |side, call| side.begin(0, &moved, call))?;
        if let Some(made) = made.filter(|_| stock.value.target != 0 && !stock.value.is_host) {
            stock.value.is_new = made;
            self.differs(match known {
                Some(_) => Difference::MembersFollowTheirStruct,
                None => Difference::UsedIsNotNew,
            });
        }
        let matched = self.same_answer(&ours, &stock, asked, false)?;
        let (stocks_waits, stocks_frees, mut stocks_others) = parts(&stock.trace);
        prop_assert_eq!(stocks_frees, []);
        let copied = stocks_others.iter().position(|(_, event)| matches!(event, PluginCall::Submit { .. }));
        if let (Some(id), Some(copied)) = (found, copied) {
            self.expect_parts(id, host, size, &mut stocks_others, copied);
        }
        prop_assert_eq!(&others, &stocks_others);

        let known = self.live.len();
        self.agree(Some((request.base, Origin::Mapped)))?;
        let is_new = self.live.len() > known;
        let id = ours.value.has_entry.then(|| self.live[&ours.value.entry]);
        let awaited = id.filter(|_| !is_new).and_then(|id| self.awaited(call, id));
        prop_assert_eq!(&waits, &Vec::from_iter(awaited), "waits");
        prop_assert!(
            awaited.is_none() || matches!(ours.trace[0].1, PluginCall::WaitEvent { .. }),
            "the wait comes first"
        );
        match (&waits[..], &stocks_waits[..]) {
            (ours, stock) if ours == stock => {}
            ([_], []) if copied.is_some() => self.differs(Difference::CopyWaitsForCopy),
            ([_], []) if step.present => self.differs(Difference::PresentWaitsForCopy),
            ([], [event]) if id.is_some_and(|id| self.mappings[id].event == Some(*event)) => {
                let own = Some((call, self.calls[call].life));
                let is_own = id.is_some_and(|id| self.mappings[id].recorded_by == own);
                self.differs(if is_own {
                    Difference::OwnCopyIsNotWaitedFor
                } else {
                    Difference::DoneCopyIsNotWaitedFor
                });
            }
            ([], [_]) if !matched => self.differs(Difference::NeighbourIsNotWaitedFor),
            (ours, stock) => return Err(TestCaseError::fail(format!("waits: ours {ours:?}, stock's {stock:?}"))),
        }
        if asked.shift > 0 {
            self.differs(Difference::ExtendedRangeOnEntry);
        }
        if let Some(id) = id {
            self.pin(call, id);
            self.recorded(call, id, &others);
            if step.update || is_new {
                self.counted(call, id, is_new);
            } else {
                self.calls[call].made.entry(id).or_insert(ours.value.is_new);
            }
        }
        self.count_begin(step, size, &ours.value, is_new, asked);
        if let Some(failure) = step.attach.filter(|_| matched) {
            let id = id.expect("what matched has an entry");
            self.attach(call, id, ours.value.target, host, failure)?;
        }
        for core in [Core::Rust, Core::Stock] {
            self.bench.side(core).forget();
        }
        Ok(())
    }

    /// Puts what the core does instead into stock's calls of the plugin, of which one copies a host range into a mapping.
    fn expect_parts(&mut self, id: usize, host: usize, size: i64, calls: &mut Vec<(i32, PluginCall)>, copied: usize) {
        let Mapping { begin, end, target, ref attached, .. } = self.mappings[id];
        let (device, PluginCall::Submit { queue, .. }) = calls[copied] else { panic!("it is a copy") };
        let is_attached = |byte: usize| attached.keys().any(|offset| (*offset..offset + 8).contains(&(byte - begin)));
        let mapped = host.max(begin)..end_of(host, size).unwrap_or(usize::MAX).min(end);
        let moved = Vec::from_iter(mapped.clone().filter(|byte| !is_attached(*byte)));
        let parts = moved.chunk_by(|byte, next| byte + 1 == *next).map(|part| {
            let (host, size) = (part[0], part.len() as i64);
            (device, PluginCall::Submit { target: target + (host - begin), host, size, queue })
        });
        let mut parts = Vec::from_iter(parts);
        if parts.is_empty() {
            let host = mapped.start.min(end);
            parts.push((device, PluginCall::Submit { target: target + (host - begin), host, size: 0, queue }));
        }
        calls.splice(copied..=copied, parts);
        let difference = match moved.len() {
            left if left < mapped.len() => Difference::AttachedPointersStay,
            left if left as i64 != size => Difference::OnlyWhatIsMappedIsCopied,
            _ => return,
        };
        self.differs(difference);
        plugin::stock_follows();
    }

    /// Takes note of a counted look-up.
    fn counted(&mut self, call: usize, id: usize, made: bool) {
        self.calls[call].made.entry(id).or_insert(made);
        self.mappings[id].left = false;
    }

    fn has_one_user(&self, id: usize) -> bool {
        let row = self.rows.iter().find(|row| row.begin == self.mappings[id].begin);
        row.is_some_and(|row| matches!((&*row.dynamic, &*row.hold), ("1", "0") | ("0", "1")))
    }

    fn count_begin(&mut self, step: &Begin, size: i64, answer: &Answer, is_new: bool, asked: Translated) {
        let found = answer.has_entry && !is_new;
        let inside = self.live.get(&answer.entry).is_some_and(|id| {
            let entry = &self.mappings[*id];
            entry.begin <= asked.host && end_of(asked.host, asked.size).is_some_and(|end| end <= entry.end)
        });
        self.count_if(is_new, "new mappings");
        self.count_if(found && step.update, "mappings counted in");
        self.count_if(answer.has_entry && step.hold, "begin: hold");
        self.count_if(found && !step.update, "begin: suppressed");
        self.count_if(found && !step.update && answer.is_new, "begin: suppressed and new");
        self.count_if(found && step.implicit && !inside, "begin: implicit extension");
        self.count_if(found && size == 0 && asked.shift == 0, "begin: zero size inside");
        self.count_if(!answer.has_entry && size == 0, "begin: zero size, nothing found");
        self.count_if(found && step.present, "begin: present");
        self.count_if(!answer.has_entry && step.present, "begin: present missing");
        self.count_if(found && step.always && step.to, "begin: always to");
        self.count_if(answer.is_host, "begin: unified shared memory");
        self.count_if(is_new && self.unified && step.close, "begin: close");
    }

    /// Ours is stock's answer, with no entry where nothing matched or nothing but an address was asked for. Returns whether
    /// something did.
    fn same_answer(
        &mut self,
        ours: &Outcome<Answer>,
        stock: &Outcome<Answer>,
        asked: Translated,
        for_address: bool,
    ) -> Checked<bool> {
        let matched = stock.value.target != 0 && !stock.value.is_host;
        let expected = if matched {
            let entry = if for_address { 0 } else { stock.value.entry };
            Answer { target: stock.value.target - asked.shift, entry, has_entry: !for_address, ..stock.value }
        } else {
            Answer { has_entry: false, entry: 0, ..stock.value }
        };
        prop_assert_eq!(ours.value, expected);
        if stock.value.has_entry && !matched {
            self.differs(Difference::NoEntryWithoutMatch);
        }
        if matched && for_address {
            self.differs(Difference::AddressNeedsNoEntry);
        }
        if asked.wraps && self.find(asked.host, asked.size).is_some() {
            self.differs(Difference::WrapReachesToTheEnd);
        }
        if !asked.wraps && asked.shift == 0 {
            prop_assert_eq!(printed(&ours.log), printed(&stock.log));
        }
        Ok(matched)
    }

    /// A plugin function failed in our side's `getTargetPointer`: nothing is left of the request. Stock is not asked.
    fn failed_begin(&mut self, step: &Begin, request: &BeginRequest, ours: &Outcome<Answer>) -> Checked {
        use Difference::*;
        let call = step.call;
        let found = self.find(request.host, request.size);
        let (waits, frees, others) = parts(&ours.trace);
        prop_assert_eq!(ours.value, Answer::default());
        let allocated = others.iter().find_map(|(_, event)| match event {
            PluginCall::Alloc { result, .. } => Some(*result),
            _ => None,
        });
        let function = if allocated == Some(0) { Function::Alloc } else { step.failure.expect("one has failed").0 };
        let awaited = found.and_then(|id| self.awaited(call, id));
        prop_assert_eq!(waits, Vec::from_iter(awaited));
        let made = others.iter().find_map(|(_, event)| match event {
            PluginCall::CreateEvent { result } if *result != 0 => Some(PluginCall::DestroyEvent { event: *result }),
            _ => None,
        });
        if made.is_some() {
            self.differs(FailedRecordDestroysEvent);
        }
        prop_assert_eq!(frees, Vec::from_iter(made), "an event that could not be recorded");
        match (allocated, found) {
            (Some(0), _) => {}
            // Out of the table, but the call may have used it: the memory goes with the call.
            (Some(target), _) => {
                let id = self.mappings.len();
                self.mappings.push(Mapping {
                    begin: request.host,
                    end: end_of(request.host, request.size).expect("it was allocated"),
                    base: request.base,
                    target,
                    origin: Origin::Mapped,
                    event: None,
                    recorded_by: None,
                    attached: BTreeMap::new(),
                    users: BTreeSet::new(),
                    left: false,
                });
                self.pin(call, id);
            }
            (None, found) => {
                let id = found.expect("a mapping was used");
                let is_new = self.has_one_user(id) && !self.used_beside(call, id);
                self.pin(call, id);
                if step.update {
                    self.counted(call, id, false);
                } else {
                    self.calls[call].made.entry(id).or_insert(is_new);
                }
            }
        }
        match (function, allocated) {
            (Function::Alloc, _) => self.differs(FailedAllocationLeavesNoEntry),
            (Function::Submit, Some(_)) => self.differs(FailedCopyLeavesNoEntry),
            (_, Some(_)) => self.differs(FailedEventLeavesNoEntry),
            (Function::Submit, None) if step.update => self.differs(FailedCopyLeavesNoCount),
            (_, None) if step.update => self.differs(FailedEventLeavesNoCount),
            _ => self.count("begin: failed without a count"),
        }
        self.no_trace()
    }

    /// Attaches a pointer in a mapping that was just looked up.
    fn attach(&mut self, call: usize, id: usize, target: usize, host: usize, failure: Failure) -> Checked {
        let ours = self.ask(Core::Rust, call, failure, |side, call| side.attach(0, target, host, call))?;
        let function = failure.filter(|_| ours.failed).map(|(function, _)| function);
        let wait_failed = function == Some(Function::WaitEvent);
        let (waits, frees, others) = parts(&ours.trace);
        let awaited = self.awaited(call, id);
        prop_assert_eq!(&waits, &Vec::from_iter(awaited), "waits");
        if wait_failed {
            prop_assert_eq!((ours.value, frees, others), (FAILED, vec![], vec![]));
            self.count("attach: failed wait");
            // Stock, which does not wait, fails in the next function.
            let failure = Some((Function::Submit, 0));
            let stock = self.ask(Core::Stock, call, failure, |side, call| side.attach(0, target, host, call))?;
            prop_assert_eq!(stock.value, FAILED);
            return self.agree(None).map(drop);
        }
        // Stock does not wait here.
        let failure = failure.filter(|_| ours.failed);
        let stock = self.ask(Core::Stock, call, failure, |side, call| side.attach(0, target, host, call))?;
        let (stocks_waits, stocks_frees, stocks_others) = parts(&stock.trace);
        prop_assert_eq!((stocks_waits, stocks_frees), (vec![], vec![]));
        if awaited.is_some() {
            self.differs(Difference::AttachmentWaitsForCopy);
        }
        prop_assert_eq!(ours.value, stock.value);
        prop_assert_eq!(printed(&ours.log), printed(&stock.log));
        prop_assert_eq!(&others, &stocks_others);
        if function != Some(Function::Submit) && self.mappings[id].target <= target {
            let offset = target - self.mappings[id].target;
            self.mappings[id].attached.insert(offset, host);
        }
        let made = others.iter().find_map(|(_, event)| match event {
            PluginCall::CreateEvent { result } if *result != 0 => Some(*result),
            _ => None,
        });
        let lost = made.filter(|_| function == Some(Function::RecordEvent));
        prop_assert_eq!(frees, Vec::from_iter(lost.map(|event| PluginCall::DestroyEvent { event })));
        if let Some(event) = lost {
            plugin::with(Core::Stock, |plugin| plugin.events.remove(&event));
            self.differs(Difference::FailedRecordDestroysEvent);
        }
        if !ours.failed {
            self.recorded(call, id, &others);
        }
        self.count("attach");
        self.agree(None).map(drop)
    }

    fn end(&mut self, step: &End) -> Checked {
        let (host, size) = self.range(step.section);
        let End { update, hold, must_contain, force_delete, .. } = *step;
        let request = EndRequest { host, size, update, hold, must_contain, force_delete };
        let asked = self.translate(host, size, update || self.calls.iter().any(|call| call.open));
        let moved = EndRequest { host: asked.host, size: asked.size, ..request };
        let ours = self.ask(Core::Rust, 0, None, |side, _| side.end(0, &request))?;
        let stock = self.ask(Core::Stock, 0, None, |side, _| side.end(0, &moved))?;
        let for_address = size == 0 && !update && !must_contain && !self.calls.iter().any(|call| call.open);
        let matched = self.same_answer(&ours, &stock, asked, for_address)?;
        prop_assert_eq!((ours.trace, stock.trace), (vec![], vec![]));
        let last = ours.value.is_last;
        // Out of our table at once, and out of stock's with the release.
        let deleted = matched && update && last && force_delete;
        let before = self.rows.clone();
        if !deleted {
            self.agree(None)?;
        }
        if asked.shift > 0 {
            self.differs(Difference::ExtendedRangeInLookUp);
        }
        if matched && update && last {
            let id = self.find(host, size).expect("it matched");
            self.mappings[id].left = true;
        }
        self.count_if(matched && update && !last, "end: counted out");
        self.count_if(matched && update && last, "end: last user");
        self.count_if(matched && update && hold, "end: hold");
        self.count_if(matched && !update, "end: suppressed");
        self.count_if(matched && update && force_delete && last, "end: force-delete, last user");
        self.count_if(matched && update && force_delete && !last && before != self.rows, "end: force-delete resets");
        self.count_if(matched && size == 0 && asked.shift == 0, "end: zero size inside");
        self.count_if(!matched && size == 0, "end: zero size, nothing found");
        self.count_if(
            matched && self.find(host, size).is_some_and(|id| end_of(host, size) > Some(self.mappings[id].end)),
            "end: implicit extension",
        );
        self.count_if(ours.value.is_host, "end: unified shared memory");
        match step.release.or(deleted.then_some(None)) {
            Some(failure) if matched && update && last => self.dealloc(host, size, hold, failure),
            _ => Ok(()),
        }
    }

    /// Releases a mapping that no other call uses: else ours stays, which is tested beside the table.
    fn dealloc(&mut self, host: usize, size: i64, hold: bool, failure: Failure) -> Checked {
        let rows = self.bench.side(Core::Rust).table();
        let there = |id: &usize| rows.iter().any(|row| row.target == self.mappings[*id].target);
        if let Some(id) = self.find(host, size).filter(there) {
            for call in 0..CALLS {
                if self.calls[call].pins.contains(&id) {
                    self.synchronize(call, false, None)?;
                }
            }
        }
        let asked = self.translate(host, size, true);
        let ours = self.ask(Core::Rust, 0, failure, |side, _| side.dealloc(0, host, size, hold))?;
        let id = self.find(host, size);
        if id.is_some_and(|id| !self.mappings[id].left) {
            prop_assert_eq!((ours.value, ours.trace), (0, vec![]));
            self.differs(Difference::ReleaseNeedsTheMark);
            return self.no_trace();
        }
        if let Some(id) = id {
            self.mappings[id].left = false;
        }
        // What a call still uses is freed later, so that nothing fails here.
        let failure = failure.filter(|_| ours.failed);
        let stock = self.ask(Core::Stock, 0, failure, |side, _| side.dealloc(0, asked.host, asked.size, hold))?;
        if asked.shift > 0 {
            self.differs(Difference::ExtendedRangeInRelease);
        }
        if stock.value != 0 && !stock.failed {
            prop_assert_eq!(self.find(host, size), None);
            prop_assert_eq!((ours.value, stock.value), (0, OFFLOAD_FAIL));
            prop_assert_eq!((ours.trace, stock.trace), (vec![], vec![]));
            self.differs(Difference::LateReleaseSucceeds);
            return self.agree(None).map(drop);
        }
        prop_assert_eq!(ours.value, stock.value);
        if !asked.wraps && asked.shift == 0 {
            prop_assert_eq!(printed(&ours.log), printed(&stock.log));
        }
        let gone = self.agree(None)?;
        self.count_if(!gone.is_empty() && ours.failed, "release: failed free");
        self.removed(&gone, &ours.trace, &stock.trace)
    }

    /// What left the table is freed: by stock at once, by us unless a call still uses it.
    fn removed(&mut self, gone: &[usize], ours: &[(i32, PluginCall)], stock: &[(i32, PluginCall)]) -> Checked {
        let all = |frees: Vec<PluginCall>| Vec::from_iter(frees.into_iter().map(|event| (0, event)));
        let frees = gone.iter().flat_map(|id| self.frees(*id));
        prop_assert_eq!(stock, &all(frees.collect()));
        let frees = gone.iter().filter(|id| !self.pinned(**id)).flat_map(|id| self.frees(*id));
        prop_assert_eq!(ours, &all(frees.collect()));
        self.count_if(!gone.is_empty(), "mappings removed");
        if ours != stock {
            self.differs(Difference::FreedAfterLastCall);
        }
        Ok(())
    }

    fn address(&mut self, section: Section) -> Checked {
        let (host, size) = self.range(section);
        let asked = self.translate(host, size, false);
        let ours = self.ask(Core::Rust, 0, None, |side, _| side.address(0, host, size))?;
        let stock = self.ask(Core::Stock, 0, None, |side, _| side.address(0, asked.host, asked.size))?;
        prop_assert_eq!(ours.value, stock.value);
        prop_assert_eq!((ours.trace, stock.trace), (vec![], vec![]));
        if !asked.wraps {
            prop_assert_eq!(printed(&ours.log), printed(&stock.log));
        } else if ours.value != 0 {
            self.differs(Difference::WrapReachesToTheEnd);
        }
        self.count_if(ours.value != 0, "address found");
        self.agree(None).map(drop)
    }

    fn associate(&mut self, section: Section, target: u8) -> Checked {
        let (host, size) = self.range(section);
        if size == 0 {
            // `omp_target_associate_ptr` refuses that itself.
            return Ok(());
        }
        let exact = self.live.get(&host).map(|id| self.mappings[*id].target);
        let target = exact.filter(|_| target.is_multiple_of(2)).unwrap_or(USER_MEMORY + usize::from(target));
        let ours = self.ask(Core::Rust, 0, None, |side, _| side.associate(0, host, target, size))?;
        prop_assert_eq!(&ours.trace, &[]);
        if exact.is_none() && (end_of(host, size).is_none() || self.find(host, size).is_some()) {
            prop_assert_eq!(ours.value, OFFLOAD_FAIL);
            self.differs(match end_of(host, size) {
                None => Difference::WrapIsRefused,
                Some(_) => Difference::OverlappingAssociationIsRefused,
            });
            return self.no_trace();
        }
        let stock = self.ask(Core::Stock, 0, None, |side, _| side.associate(0, host, target, size))?;
        prop_assert_eq!(ours.value, stock.value);
        prop_assert_eq!(stock.trace, []);
        prop_assert_eq!(printed(&ours.log), printed(&stock.log));
        self.count_if(exact.is_none(), "associate: made");
        self.count_if(exact.is_some() && ours.value == 0, "associate: the same again");
        self.count_if(exact.is_some() && ours.value != 0, "associate: something else is there");
        self.agree(Some((host, Origin::Associated))).map(drop)
    }

    fn disassociate(&mut self, at: At, failure: Failure) -> Checked {
        let (host, _) = self.range(Section { at, size: Size::Whole });
        let ours = self.ask(Core::Rust, 0, failure, |side, _| side.disassociate(0, host))?;
        let row = self.rows.iter().find(|row| row.begin == host);
        let id = self.live.get(&host).copied();
        let is_global = id.is_some_and(|id| self.mappings[id].origin == Origin::Global);
        if is_global && row.is_some_and(|row| row.dynamic == "INF" && row.hold == "0") {
            prop_assert_eq!(ours.value, OFFLOAD_FAIL);
            prop_assert_eq!(ours.trace, []);
            self.differs(Difference::DisassociationOfGlobalIsRefused);
            return self.no_trace();
        }
        let held = row.is_some_and(|row| row.hold != "0");
        let failure = failure.filter(|_| ours.failed);
        let stock = self.ask(Core::Stock, 0, failure, |side, _| side.disassociate(0, host))?;
        prop_assert_eq!(ours.value, stock.value);
        if ours.failed {
            prop_assert!(ours.log.contains("Failed to destroy event"), "stock does not tell");
        } else {
            prop_assert_eq!(printed(&ours.log), printed(&stock.log));
        }
        self.count_if(ours.value == 0, "disassociate: done");
        self.count_if(held, "disassociate: held");
        self.count_if(!held && id.is_some() && ours.value != 0, "disassociate: not associated");
        self.count_if(id.is_none(), "disassociate: nothing there");
        let gone = self.agree(None)?;
        self.removed(&gone, &ours.trace, &stock.trace)
    }

    fn map_global(&mut self, section: Section, hold: bool, infinite: bool) -> Checked {
        let (host, size) = self.range(section);
        let globals = self.live.values().filter(|id| self.mappings[**id].origin == Origin::Global).count();
        // Globals stay for ever, and shall not fill the table.
        if !(1..=16).contains(&size) || infinite && globals > 1 {
            return Ok(());
        }
        let (target, origin) = if infinite {
            (USER_MEMORY, Origin::Global)
        } else {
            (self.same(0, None, |side, _| side.alloc(0, size, host, 0))?.value, Origin::Mapped)
        };
        let there = self.same(0, None, |side, _| side.map_global(0, host, size, target, hold, infinite))?.value;
        if there != 0 && !infinite {
            self.same(0, None, |side, _| side.delete(0, target))?;
        }
        self.count_if(there == 0, "globals mapped");
        self.agree(Some((host, origin))).map(drop)
    }

    /// Synchronises a call, or destroys it, which does the same.
    fn synchronize(&mut self, call: usize, destroy: bool, failure: Failure) -> Checked {
        let pins = std::mem::take(&mut self.calls[call].pins);
        let life = (call, self.calls[call].life);
        self.calls[call].life += 1;
        self.calls[call].open = false;
        self.calls[call].made.clear();
        let unused = |id: &usize| !self.live.values().any(|live| live == id) && !self.pinned(*id);
        let frees = Vec::from_iter(pins.iter().filter(|id| unused(id)).flat_map(|id| self.frees(*id)));
        self.count_if(!frees.is_empty(), "frees at the end of a call");
        for (core, frees) in [(Core::Rust, frees), (Core::Stock, vec![])] {
            let has_queue = plugin::with(core, |plugin| plugin.has_queue(call));
            if core == Core::Rust && !(has_queue && failure == Some((Function::Synchronize, 0))) {
                self.done.insert(life);
            }
            let done = self.ask(core, call, failure, |side, call| {
                if !destroy {
                    return side.synchronize(call);
                }
                side.delete_call(call);
                0
            })?;
            if destroy {
                self.calls[call].handles[core as usize] = self.bench.side(core).new_call(0);
            }
            let synchronized = has_queue.then_some(PluginCall::Synchronize { queue: Queue::Of(call) });
            let expected = synchronized.into_iter().chain(frees).map(|event| (0, event));
            prop_assert_eq!(&done.trace, &Vec::from_iter(expected), "{}", core);
            let fails = has_queue && !destroy && failure == Some((Function::Synchronize, 0));
            prop_assert_eq!(done.value, if fails { FAILED } else { 0 }, "{}", core);
            prop_assert!(!plugin::with(core, |plugin| plugin.has_queue(call)), "a queue is left");
            let told = printed(&done.log).iter().all(|line| done.failed && line.contains("Failed to destroy event"));
            prop_assert!(told, "{}", done.log);
            self.count_if(fails && core == Core::Rust, "synchronize: fails");
        }
        self.agree(None).map(drop)
    }
}

/// One past the last address, if the range does not leave the address space.
fn end_of(host: usize, size: i64) -> Option<usize> {
    host.checked_add(usize::try_from(size).ok()?)
}
