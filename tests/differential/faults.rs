//! A failure leaves no trace: each plugin function is made to fail in each request that calls it, on our side; and each
//! plugin call of a longer sequence of requests in turn.

use crate::compare::LOW;
use crate::differences::{CLAUSE, Session};
use crate::harness::{Begin, Call, End, Outcome, Row, Side};
use crate::plugin::{self, Abilities, FAILED, Function, PluginCall, USER_MEMORY};
use omptarget_abi::OFFLOAD_FAIL;
use omptarget_tool::core::Core;

/// A request, as a code: that of `DeviceTy`, or `OFFLOAD_FAIL` for a null pointer.
type Request = fn(&Side, Call) -> i32;

/// Mapped before, with an event of call 1.
const COPIED: Begin = Begin { to: false, ..CLAUSE };
/// Mapped before, without an event.
const PLAIN: Begin = Begin { host: LOW + 16, base: LOW + 16, to: false, ..CLAUSE };
/// Not mapped before.
const NEW: Begin = Begin { host: LOW + 32, base: LOW + 32, ..CLAUSE };

fn begin(side: &Side, call: Call, clause: Begin) -> i32 {
    let answer = side.begin(0, &clause, call);
    side.forget();
    if answer.target == 0 { OFFLOAD_FAIL } else { 0 }
}

/// An uncounted look-up, and an attachment there.
fn attach(side: &Side, call: Call, clause: Begin) -> i32 {
    let answer = side.begin(0, &Begin { update: false, ..clause }, call);
    let code = side.attach(0, answer.target, LOW, call);
    side.forget();
    code
}

const ALWAYS: Begin = Begin { to: true, always: true, ..COPIED };
const ALWAYS_PLAIN: Begin = Begin { to: true, always: true, ..PLAIN };

/// What fails, where, and with which code.
const FAULTS: [(Function, &str, Request, i32); 25] = [
    (Function::Alloc, "data_alloc", |side, call| begin(side, call, NEW), OFFLOAD_FAIL),
    (Function::Submit, "data_submit", |side, call| begin(side, call, NEW), OFFLOAD_FAIL),
    (Function::CreateEvent, "create_event", |side, call| begin(side, call, NEW), OFFLOAD_FAIL),
    (Function::RecordEvent, "record_event", |side, call| begin(side, call, NEW), OFFLOAD_FAIL),
    (Function::WaitEvent, "wait_event", |side, call| begin(side, call, COPIED), OFFLOAD_FAIL),
    (
        Function::WaitEvent,
        "wait_event",
        |side, call| begin(side, call, Begin { present: true, hold: true, ..COPIED }),
        OFFLOAD_FAIL,
    ),
    (Function::WaitEvent, "wait_event", |side, call| begin(side, call, ALWAYS), OFFLOAD_FAIL),
    (Function::Submit, "data_submit", |side, call| begin(side, call, ALWAYS), OFFLOAD_FAIL),
    (Function::RecordEvent, "record_event", |side, call| begin(side, call, ALWAYS), OFFLOAD_FAIL),
    (Function::CreateEvent, "create_event", |side, call| begin(side, call, ALWAYS_PLAIN), OFFLOAD_FAIL),
    (Function::RecordEvent, "record_event", |side, call| begin(side, call, ALWAYS_PLAIN), OFFLOAD_FAIL),
    (Function::Submit, "data_submit", |side, call| attach(side, call, COPIED), FAILED),
    (Function::RecordEvent, "record_event", |side, call| attach(side, call, COPIED), OFFLOAD_FAIL),
    (Function::CreateEvent, "create_event", |side, call| attach(side, call, PLAIN), OFFLOAD_FAIL),
    (Function::RecordEvent, "record_event", |side, call| attach(side, call, PLAIN), OFFLOAD_FAIL),
    (Function::Submit, "data_submit", |side, call| side.submit(0, USER_MEMORY, LOW, 8, call), FAILED),
    (Function::Retrieve, "data_retrieve", |side, call| side.retrieve(0, LOW, USER_MEMORY, 8, call), FAILED),
    (
        Function::Exchange,
        "data_exchange",
        |side, call| side.exchange(0, USER_MEMORY, 1, USER_MEMORY + 8, 8, call),
        FAILED,
    ),
    (Function::Run, "run_target_region", |side, call| side.run(0, LOW, false, call), FAILED),
    (Function::Run, "run_target_team_region", |side, call| side.run(0, LOW, true, call), FAILED),
    (Function::LoadBinary, "load_binary", |side, _| if side.load_binary(0, LOW) == 0 { FAILED } else { 0 }, FAILED),
    (Function::CreateEvent, "create_event", user_event, FAILED),
    (Function::RecordEvent, "record_event", user_event, FAILED),
    (Function::WaitEvent, "wait_event", user_event, FAILED),
    (Function::SyncEvent, "sync_event", user_event, FAILED),
];

/// The life of an event that no mapping has, up to the first failure, and its end.
fn user_event(side: &Side, call: Call) -> i32 {
    let mut event = 0;
    let code = side.create_event(0, &mut event);
    if event == 0 {
        return code;
    }
    let uses = [
        side.record_event(0, event, call),
        side.wait_event(0, event, call),
        side.sync_event(0, event),
        side.destroy_event(0, event),
    ];
    uses.into_iter().find(|code| *code != 0).unwrap_or(0)
}

/// The table, the live memory and the live events.
fn state(session: &Session) -> (Vec<Row>, Vec<usize>, Vec<usize>) {
    let rows = session.side(Core::Rust).table();
    let (memory, events) = plugin::with(Core::Rust, |plugin| {
        (plugin.memory.keys().copied().collect(), plugin.events.iter().copied().collect())
    });
    // That a pointer may have been attached is noted before it is tried.
    (rows.into_iter().map(|row| Row { attached: false, ..row }).collect(), memory, events)
}

const ALL: Abilities =
    Abilities { queues: true, events: true, exchange: true, async_launch: true, destroy_event: true };
const WITHOUT_QUEUES: Abilities = Abilities { queues: false, ..ALL };
const WITHOUT_EVENTS: Abilities = Abilities { events: false, ..ALL };

#[test]
fn failures_leave_no_trace() {
    for abilities in [ALL, WITHOUT_QUEUES] {
        for (function, name, request, code) in FAULTS {
            let mut session = Session::with(abilities);
            session.on(Core::Rust, 1, None, |side, call| {
                begin(side, call, CLAUSE);
                begin(side, call, PLAIN);
            });
            let before = state(&session);

            let failed = session.on(Core::Rust, 0, Some((function, 0)), request);
            let what = format!("{name}, {abilities:?}: {}", failed.log);
            assert!(failed.failed, "{what}");
            assert_eq!(failed.value, code, "{what}");
            let named = failed.log.lines().filter(|line| line.contains("__tgt_rtl_"));
            assert_eq!(named.clone().count(), 1, "{what}");
            assert!(named.clone().all(|line| line.contains(&format!("__tgt_rtl_{name}"))), "{what}");
            assert_eq!(state(&session).0, before.0, "the table: {what}");

            session.on(Core::Rust, 0, None, |side, call| side.synchronize(call));
            assert_eq!(state(&session), before, "memory and events: {what}");

            let again = session.on(Core::Rust, 0, None, request);
            assert_eq!(again.value, 0, "once more: {what}");
            let faults = plugin::with(Core::Rust, |plugin| plugin.faults.clone());
            assert!(faults.is_empty(), "{faults:?}");
        }
    }
}

/// A mapping whose memory or event cannot be given back is gone all the same.
#[test]
fn failed_frees_remove_the_mapping() {
    for (function, code) in [(Function::Delete, 0), (Function::DestroyEvent, OFFLOAD_FAIL)] {
        for pinned in [false, true] {
            let mut session = Session::new();
            let before = state(&session);
            session.on(Core::Rust, 0, None, |side, call| begin(side, call, CLAUSE));
            if !pinned {
                session.on(Core::Rust, 0, None, |side, call| side.synchronize(call));
            }
            let fault = Some((function, 0));
            let freed = session.on(Core::Rust, 0, fault, |side, _| side.leave(0, LOW, 16));
            assert_eq!((freed.value, freed.failed), if pinned { (0, false) } else { (code, true) });
            assert_eq!(state(&session).0 == before.0, !pinned, "while it is used it can be joined");
            session.on(Core::Rust, 0, fault.filter(|_| pinned), |side, call| side.synchronize(call));
            assert_eq!(state(&session), before);
        }
    }
}

/// A failed synchronisation gives back what the call used.
#[test]
fn a_failed_synchronisation_lets_go() {
    let mut session = Session::new();
    let before = state(&session);
    session.on(Core::Rust, 0, None, |side, call| begin(side, call, CLAUSE));
    session.on(Core::Rust, 0, None, |side, _| side.leave(0, LOW, 16));
    let done = session.on(Core::Rust, 0, Some((Function::Synchronize, 0)), |side, call| side.synchronize(call));
    assert_eq!(done.value, FAILED);
    assert_eq!(state(&session), before);
}

/// What came of the initialisation is remembered.
#[test]
fn a_failed_initialisation_stays_failed() {
    let mut session = Session::new();
    let first = session.on(Core::Rust, 0, Some((Function::Init, 0)), |side, _| side.init_once(0));
    assert_eq!((first.value, first.trace.len()), (OFFLOAD_FAIL, 2));
    assert!(first.log.contains("__tgt_rtl_init_device failed on device 0"), "{}", first.log);
    let second = session.on(Core::Rust, 0, None, |side, _| (side.init_once(0), side.is_ready(0)));
    assert_eq!((second.value, second.trace.len()), ((OFFLOAD_FAIL, false), 0));
}

/// What a sequence of requests has of its own.
#[derive(Default)]
struct Own {
    event: usize,
    block: usize,
}

/// A request of a sequence: its name, the call that makes it, what it does, and whether it takes something away, which
/// is then gone even if that failed.
type Step = (&'static str, usize, fn(&Side, Call, &mut Own) -> i32, bool);

/// The end of a map clause; if it is the last, the mapping's too.
fn leave(side: &Side, clause: Begin, force_delete: bool) -> i32 {
    let Begin { host, size, .. } = clause;
    let exit = End { host, size, update: true, hold: false, must_contain: true, force_delete };
    if side.end(0, &exit).is_last { side.dealloc(0, host, size, false) } else { 0 }
}

fn target(side: &Side, clause: Begin) -> usize {
    side.address(0, clause.host, clause.size)
}

/// Two calls map, move and use the same data, and leave it.
const STEPS: &[Step] = &[
    ("init_once", 0, |side, _, _| side.init_once(0), false),
    ("load_binary", 0, |side, _, _| i32::from(side.load_binary(0, LOW) == 0), false),
    (
        "alloc",
        0,
        |side, _, own| {
            own.block = side.alloc(0, 8, 0, 0);
            i32::from(own.block == 0)
        },
        false,
    ),
    ("map to", 0, |side, call, _| begin(side, call, CLAUSE), false),
    ("map alloc", 0, |side, call, _| begin(side, call, PLAIN), false),
    ("map again", 1, |side, call, _| begin(side, call, CLAUSE), false),
    ("map present", 1, |side, call, _| begin(side, call, Begin { present: true, to: false, ..CLAUSE }), false),
    ("map always", 1, |side, call, _| begin(side, call, ALWAYS), false),
    ("map always, alloc", 1, |side, call, _| begin(side, call, ALWAYS_PLAIN), false),
    ("attach", 1, |side, call, _| attach(side, call, CLAUSE), false),
    ("run", 0, |side, call, _| side.run(0, LOW, false, call), false),
    ("run teams", 1, |side, call, _| side.run(0, LOW, true, call), false),
    ("submit", 0, |side, call, _| side.submit(0, target(side, CLAUSE), LOW, 8, call), false),
    ("retrieve", 1, |side, call, _| side.retrieve(0, LOW + 16, target(side, PLAIN), 8, call), false),
    ("retrieve attached", 0, |side, call, _| side.retrieve(0, LOW, target(side, CLAUSE), 16, call), false),
    ("exchange", 0, |side, call, _| side.exchange(0, USER_MEMORY, 1, USER_MEMORY + 8, 8, call), false),
    ("create event", 0, |side, _, own| side.create_event(0, &mut own.event), false),
    ("record event", 0, |side, call, own| side.record_event(0, own.event, call), false),
    ("wait event", 1, |side, call, own| side.wait_event(0, own.event, call), false),
    ("sync event", 0, |side, _, own| side.sync_event(0, own.event), false),
    ("destroy event", 0, |side, _, own| side.destroy_event(0, own.event), true),
    ("leave", 1, |side, _, _| leave(side, CLAUSE, false), true),
    ("leave present", 1, |side, _, _| leave(side, CLAUSE, false), true),
    ("synchronize", 1, |side, call, _| side.synchronize(call), true),
    ("map after", 0, |side, call, _| begin(side, call, NEW), false),
    ("retrieve after", 0, |side, call, _| side.retrieve(0, LOW + 32, target(side, NEW), 16, call), false),
    ("leave after", 0, |side, _, _| leave(side, NEW, false), true),
    ("delete", 0, |side, _, _| leave(side, CLAUSE, true), true),
    ("synchronize 0", 0, |side, call, _| side.synchronize(call), true),
    ("map once more", 0, |side, call, _| begin(side, call, CLAUSE), false),
    ("synchronize once more", 0, |side, call, _| side.synchronize(call), true),
    ("leave at rest", 0, |side, _, _| leave(side, CLAUSE, false), true),
    ("delete at rest", 0, |side, _, _| leave(side, PLAIN, true), true),
    ("free", 0, |side, _, own| side.delete(0, own.block), true),
];

/// The function of a plugin call that can be made to fail, and its name.
fn function(call: &PluginCall) -> Option<(Function, &'static str)> {
    Some(match call {
        PluginCall::Alloc { .. } => (Function::Alloc, "data_alloc"),
        PluginCall::Delete { .. } => (Function::Delete, "data_delete"),
        PluginCall::Submit { .. } | PluginCall::SubmitPointer { .. } => (Function::Submit, "data_submit"),
        PluginCall::Retrieve { .. } => (Function::Retrieve, "data_retrieve"),
        PluginCall::Exchange { .. } => (Function::Exchange, "data_exchange"),
        PluginCall::Run { .. } => (Function::Run, "run_target_"),
        PluginCall::Synchronize { .. } => (Function::Synchronize, "synchronize"),
        PluginCall::CreateEvent { .. } => (Function::CreateEvent, "create_event"),
        PluginCall::RecordEvent { .. } => (Function::RecordEvent, "record_event"),
        PluginCall::WaitEvent { .. } => (Function::WaitEvent, "wait_event"),
        PluginCall::SyncEvent { .. } => (Function::SyncEvent, "sync_event"),
        PluginCall::DestroyEvent { .. } => (Function::DestroyEvent, "destroy_event"),
        PluginCall::Other { name: "init_device", .. } => (Function::Init, "init_device"),
        PluginCall::Other { name: "load_binary", .. } => (Function::LoadBinary, "load_binary"),
        PluginCall::Other { .. } => return None,
    })
}

/// A sequence under way.
struct Sequence {
    session: Session,
    own: Own,
}

impl Sequence {
    fn new(abilities: Abilities) -> Self {
        Self { session: Session::with(abilities), own: Own::default() }
    }

    fn step(&mut self, step: &Step, failure: Option<(Function, u8)>) -> Outcome<i32> {
        let own = &mut self.own;
        self.session.on(Core::Rust, step.1, failure, |side, call| step.2(side, call, own))
    }

    /// Does steps that must succeed.
    fn steps(&mut self, steps: &[Step], when: &str) {
        for step in steps {
            let outcome = self.step(step, None);
            assert_eq!(outcome.value, 0, "{} {when}: {}", step.0, outcome.log);
        }
    }

    /// The table, and the memory and events that are left when both calls have been synchronised.
    fn state(&mut self) -> (Vec<Row>, Vec<usize>, Vec<usize>) {
        let (rows, ..) = state(&self.session);
        for call in [0, 1] {
            self.session.on(Core::Rust, call, None, |side, call| side.synchronize(call));
        }
        let (after, memory, events) = state(&self.session);
        assert_eq!(rows.len(), after.len());
        (rows, memory, events)
    }

    fn is_sound(&self) {
        let faults = plugin::with(Core::Rust, |plugin| plugin.faults.clone());
        assert!(faults.is_empty(), "{faults:?}");
    }
}

/// The state after the first `count` steps.
fn state_after(abilities: Abilities, count: usize) -> (Vec<Row>, Vec<usize>, Vec<usize>) {
    let mut sequence = Sequence::new(abilities);
    sequence.steps(&STEPS[..count], "unfailed");
    sequence.state()
}

/// Makes call number `nth` of a function fail in a step, and looks at what that changed; then does the rest.
fn fail(abilities: Abilities, index: usize, (failing, name): (Function, &str), nth: u8) {
    let step = &STEPS[index];
    let takes_away = step.3;
    let when = format!("while {name} {nth} fails in {}, {abilities:?}", step.0);
    let begun = || {
        let mut sequence = Sequence::new(abilities);
        sequence.steps(&STEPS[..index], &when);
        let outcome = sequence.step(step, Some((failing, nth)));
        assert!(outcome.failed, "{when}");
        // LLVM does not look at what freeing answers, and the end of a call is no place to tell of another's event.
        let untold = match failing {
            Function::Delete => step.0 != "free",
            Function::DestroyEvent => step.0.starts_with("synchronize"),
            _ => false,
        };
        assert_eq!(outcome.value == 0, untold, "{when}: {}", outcome.log);
        let named: Vec<&str> = outcome.log.lines().filter(|line| line.contains("__tgt_rtl_")).collect();
        assert!(matches!(named[..], [line] if line.contains(&format!("__tgt_rtl_{name}"))), "{when}: {}", outcome.log);
        sequence
    };
    let expected = state_after(abilities, index + usize::from(takes_away));
    let mut sequence = begun();
    assert_eq!(sequence.state(), expected, "{when}");
    sequence.is_sound();
    drop(sequence);

    let mut sequence = begun();
    // A lock that is still held would stop this.
    let again = if takes_away { index + 1 } else { index };
    if step.0 != "init_once" {
        sequence.steps(&STEPS[again..], &when);
        assert_eq!(sequence.state(), (vec![], vec![USER_MEMORY], vec![]), "at the end, {when}");
    }
    sequence.is_sound();
}

/// Each plugin call of the sequence fails in turn: the request fails, and table, memory, events and locks are as if it
/// had not been made, or as if it had been made if it takes something away; then all the rest works.
#[test]
fn every_plugin_call_may_fail() {
    let mut faults = 0;
    for abilities in [ALL, WITHOUT_QUEUES, WITHOUT_EVENTS] {
        assert_eq!(state_after(abilities, STEPS.len()), (vec![], vec![USER_MEMORY], vec![]));
        for (index, step) in STEPS.iter().enumerate() {
            let mut sequence = Sequence::new(abilities);
            sequence.steps(&STEPS[..index], "unfailed");
            let trace = sequence.step(step, None).trace;
            drop(sequence);
            let calls: Vec<(Function, &str)> = trace.iter().filter_map(|(_, call)| function(call)).collect();
            for (at, call) in calls.iter().enumerate() {
                let before = calls[..at].iter().filter(|other| other.0 == call.0).count();
                fail(abilities, index, *call, u8::try_from(before).expect("few calls"));
                faults += 1;
            }
        }
    }
    println!("{faults} faults in {} requests", 3 * STEPS.len());
    assert!(faults >= 100, "{faults}");
}
