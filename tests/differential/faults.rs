//! A failure leaves no trace: each plugin function is made to fail in each request that calls it, on our side.

use crate::compare::LOW;
use crate::differences::{CLAUSE, Session};
use crate::harness::{Begin, Call, Row, Side};
use crate::plugin::{self, Abilities, FAILED, Function, USER_MEMORY};
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

#[test]
fn failures_leave_no_trace() {
    let all = Abilities { queues: true, events: true, exchange: true, async_launch: true, destroy_event: true };
    for abilities in [all, Abilities { queues: false, ..all }] {
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
