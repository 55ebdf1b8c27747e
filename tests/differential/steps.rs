//! What a random sequence is made of, and how likely each step is.
//!
//! Host memory is small and sizes are few, so that mappings touch each other all the time.

use crate::plugin::{Abilities, Function};
use proptest::bool::weighted;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::fmt;

/// Calls into the runtime that are open at a time.
pub const CALLS: usize = 3;

/// A sequence, and the plugin and memory that it runs on.
#[derive(Clone, Debug)]
pub struct Case {
    pub abilities: Abilities,
    pub use_events: bool,
    /// Host memory ends just below the end of the address space.
    pub high: bool,
    pub steps: Vec<Step>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}, use_events: {}, high: {}", self.abilities, self.use_events, self.high)?;
        self.steps.iter().enumerate().try_for_each(|(number, step)| writeln!(f, "{number}: {step:?}"))
    }
}

/// A host address.
#[derive(Clone, Copy, Debug)]
pub enum At {
    /// So many bytes into host memory.
    Slot(u8),
    /// So many bytes from the begin of one of the mappings, if there is any.
    Entry { nth: u8, offset: i8 },
}

/// A number of bytes.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    Bytes(u8),
    /// As many as the mapping has; 8 if there is none.
    Whole,
    /// More than any device has.
    Huge,
    /// One of those that leave the address space.
    Wraps(u8),
}

/// A host range.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub at: At,
    pub size: Size,
}

/// The function that is to fail, after so many calls of it.
pub type Failure = Option<(Function, u8)>;

/// One request to `DeviceTy`; `call` is the number of the call into the runtime that it belongs to.
#[derive(Clone, Debug)]
pub enum Step {
    Begin(Begin),
    End(End),
    Dealloc { section: Section, hold: bool, failure: Failure },
    Address(Section),
    Associate { section: Section, target: u8 },
    Disassociate { at: At, failure: Failure },
    MapGlobal { section: Section, hold: bool, infinite: bool },
    Submit { entry: u8, size: u8, call: usize, failure: Failure },
    Retrieve { entry: u8, size: u8, call: usize, failure: Failure },
    Exchange { size: u8, call: usize, failure: Failure },
    Run { teams: bool, call: usize, failure: Failure },
    Alloc { size: u8, kind: i32, failure: Failure },
    Delete { nth: u8, failure: Failure },
    CreateEvent { failure: Failure },
    RecordEvent { nth: u8, call: usize, failure: Failure },
    WaitEvent { nth: u8, call: usize, failure: Failure },
    SyncEvent { nth: u8, failure: Failure },
    DestroyEvent { nth: u8, failure: Failure },
    Synchronize { call: usize, destroy: bool, failure: Failure },
    RequireUnified(bool),
    WriteHost { slot: u8, value: u8 },
    Init { failure: Failure },
    IsReady { device: i32 },
    LoadBinary { failure: Failure },
    PrintInfo,
}

/// A map clause on entry.
#[derive(Clone, Debug)]
pub struct Begin {
    pub section: Section,
    /// How far the base lies below the section.
    pub base: u8,
    pub named: bool,
    pub to: bool,
    pub always: bool,
    pub implicit: bool,
    pub update: bool,
    pub close: bool,
    pub present: bool,
    pub hold: bool,
    pub call: usize,
    pub failure: Failure,
    /// A pointer inside is attached then, which may fail too.
    pub attach: Option<Failure>,
}

/// A look-up on exit, or in between.
#[derive(Clone, Debug)]
pub struct End {
    pub section: Section,
    pub update: bool,
    pub hold: bool,
    pub must_contain: bool,
    pub force_delete: bool,
    /// The last user gives the mapping back at once.
    pub release: Option<Failure>,
}

fn at() -> impl Strategy<Value = At> {
    let offset = prop_oneof![3 => Just(0), 2 => -8..=8i8];
    prop_oneof![
        2 => (0..64u8).prop_map(At::Slot),
        2 => (0..16u8).prop_map(|slot| At::Slot(slot * 4)),
        4 => (any::<u8>(), offset).prop_map(|(nth, offset)| At::Entry { nth, offset }),
    ]
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        6 => prop::sample::select(vec![4, 8, 12, 16]).prop_map(Size::Bytes),
        3 => Just(Size::Bytes(0)),
        2 => (1..16u8).prop_map(Size::Bytes),
        5 => Just(Size::Whole),
        1 => (0..4u8).prop_map(Size::Wraps),
    ]
}

fn section() -> impl Strategy<Value = Section> {
    let empty_before = |(nth, offset)| Section { at: At::Entry { nth, offset }, size: Size::Bytes(0) };
    prop_oneof![
        15 => (at(), size()).prop_map(|(at, size)| Section { at, size }),
        1 => (any::<u8>(), -8..0i8).prop_map(empty_before),
    ]
}

/// Mostly one that is mapped.
fn mapped() -> impl Strategy<Value = Section> {
    prop_oneof![section(), any::<u8>().prop_map(|nth| Section { at: At::Entry { nth, offset: 0 }, size: Size::Whole }),]
}

/// One of `functions` fails, now and then.
fn failure(functions: &'static [Function]) -> impl Strategy<Value = Failure> {
    let after = prop_oneof![4 => Just(0), 1 => Just(1)];
    option::weighted(0.3, (prop::sample::select(functions), after))
}

fn frees() -> impl Strategy<Value = Failure> {
    failure(&[Function::Delete, Function::DestroyEvent])
}

fn begin() -> impl Strategy<Value = Step> {
    use Function::{Alloc, CreateEvent, RecordEvent, Submit, WaitEvent};
    let flags = (weighted(0.6), weighted(0.35), weighted(0.25), weighted(0.8));
    let modifiers = (weighted(0.15), weighted(0.15), weighted(0.25), any::<bool>());
    let base = prop_oneof![1 => Just(0), 1 => 1..32u8];
    let section = prop_oneof![
        20 => section(),
        1 => at().prop_map(|at| Section { at, size: Size::Huge }),
    ];
    let failures = failure(&[Alloc, CreateEvent, RecordEvent, RecordEvent, Submit, Submit, WaitEvent]);
    let attach = option::weighted(0.4, failure(&[CreateEvent, RecordEvent, Submit, WaitEvent, WaitEvent, WaitEvent]));
    (section, base, flags, modifiers, 0..CALLS, failures, attach).prop_map(
        |(section, base, (to, always, implicit, update), (close, present, hold, named), call, failure, attach)| {
            Step::Begin(Begin {
                section,
                base,
                named,
                to,
                always,
                implicit,
                update,
                close,
                present,
                hold,
                call,
                failure,
                attach,
            })
        },
    )
}

fn end() -> impl Strategy<Value = Step> {
    let flags = (weighted(0.85), weighted(0.25), weighted(0.7), weighted(0.3));
    let release = option::weighted(0.8, frees());
    (mapped(), flags, weighted(0.1), release).prop_map(|(section, flags, present, release)| {
        let (update, hold, must_contain, force_delete) = flags;
        let end = End { section, update, hold, must_contain, force_delete, release };
        // As `omp_target_is_present` asks.
        let nothing = Section { size: Size::Bytes(0), ..section };
        Step::End(if present { End { section: nothing, update: false, must_contain: false, ..end } } else { end })
    })
}

fn table() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => begin().boxed(),
        34 => end().boxed(),
        6 => (mapped(), weighted(0.25), frees()).prop_map(|(section, hold, failure)| Step::Dealloc { section, hold, failure }),
        4 => section().prop_map(Step::Address),
        3 => (section(), 0..64u8).prop_map(|(section, target)| Step::Associate { section, target }),
        5 => (mapped().prop_map(|section| section.at), frees()).prop_map(|(at, failure)| Step::Disassociate { at, failure }),
        1 => (section(), any::<bool>(), any::<bool>()).prop_map(|(section, hold, infinite)| Step::MapGlobal { section, hold, infinite }),
    ]
}

fn data() -> impl Strategy<Value = Step> {
    use Function::{Alloc, Delete, Exchange, Retrieve, Run, Submit};
    let place = || (any::<u8>(), 0..16u8, 0..CALLS);
    prop_oneof![
        3 => (place(), failure(&[Submit])).prop_map(|((entry, size, call), failure)| Step::Submit { entry, size, call, failure }),
        3 => (place(), failure(&[Retrieve])).prop_map(|((entry, size, call), failure)| Step::Retrieve { entry, size, call, failure }),
        1 => (1..64u8, 0..CALLS, failure(&[Exchange])).prop_map(|(size, call, failure)| Step::Exchange { size, call, failure }),
        2 => (any::<bool>(), 0..CALLS, failure(&[Run])).prop_map(|(teams, call, failure)| Step::Run { teams, call, failure }),
        1 => (any::<u8>(), 0..4i32, failure(&[Alloc])).prop_map(|(size, kind, failure)| Step::Alloc { size, kind, failure }),
        1 => (any::<u8>(), failure(&[Delete])).prop_map(|(nth, failure)| Step::Delete { nth, failure }),
        3 => (0..96u8, any::<u8>()).prop_map(|(slot, value)| Step::WriteHost { slot, value }),
    ]
}

fn events() -> impl Strategy<Value = Step> {
    use Function::{CreateEvent, DestroyEvent, RecordEvent, SyncEvent, WaitEvent};
    prop_oneof![
        failure(&[CreateEvent]).prop_map(|failure| Step::CreateEvent { failure }),
        (any::<u8>(), 0..CALLS, failure(&[RecordEvent])).prop_map(|(nth, call, failure)| Step::RecordEvent {
            nth,
            call,
            failure
        }),
        (any::<u8>(), 0..CALLS, failure(&[WaitEvent])).prop_map(|(nth, call, failure)| Step::WaitEvent {
            nth,
            call,
            failure
        }),
        (any::<u8>(), failure(&[SyncEvent])).prop_map(|(nth, failure)| Step::SyncEvent { nth, failure }),
        (any::<u8>(), failure(&[DestroyEvent])).prop_map(|(nth, failure)| Step::DestroyEvent { nth, failure }),
    ]
}

fn device() -> impl Strategy<Value = Step> {
    use Function::{Delete, DestroyEvent, Init, LoadBinary, Synchronize};
    prop_oneof![
        20 => (0..CALLS, any::<bool>(), failure(&[Synchronize, Delete, DestroyEvent]))
            .prop_map(|(call, destroy, failure)| Step::Synchronize { call, destroy, failure }),
        3 => weighted(0.2).prop_map(Step::RequireUnified),
        1 => failure(&[Init]).prop_map(|failure| Step::Init { failure }),
        1 => (-1..4i32).prop_map(|device| Step::IsReady { device }),
        1 => failure(&[LoadBinary]).prop_map(|failure| Step::LoadBinary { failure }),
        1 => Just(Step::PrintInfo),
    ]
}

/// Sequences of `steps` steps.
pub fn case(steps: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let step = prop_oneof![75 => table().boxed(), 12 => data().boxed(), 3 => events().boxed(), 10 => device().boxed()];
    let abilities = (weighted(0.8), weighted(0.9), weighted(0.8)).prop_map(|(queues, events, exchange)| Abilities {
        queues,
        events,
        exchange,
        async_launch: true,
        destroy_event: true,
    });
    (abilities, weighted(0.9), weighted(0.3), vec(step, steps)).prop_map(|(abilities, use_events, high, steps)| Case {
        abilities,
        use_events,
        high,
        steps,
    })
}
