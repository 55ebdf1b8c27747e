//! Each intended difference once, with what stock does: so that every entry of `compare::Difference` is one.

use crate::compare::{LOW, NAME};
use crate::harness::{Answer, Begin, Bench, Call, End, Outcome, Side};
use crate::plugin::{self, Abilities, Function, PluginCall, Queue, USER_MEMORY};
use crate::steps::Failure;
use omptarget_abi::OFFLOAD_FAIL;
use omptarget_tool::core::Core;

/// What the sides answered: ours, stock's.
type Both<R> = [Outcome<R>; 2];

/// Both sides with nothing mapped, and two calls open.
pub struct Session {
    bench: Bench,
    calls: [[Call; 2]; 2],
}

/// `map(to: ...)` of 16 bytes at the begin of host memory.
pub const CLAUSE: Begin = Begin {
    host: LOW,
    base: LOW,
    size: 16,
    name: 0,
    to: true,
    always: false,
    implicit: false,
    update: true,
    close: false,
    present: false,
    hold: false,
};

/// The end of its region.
const EXIT: End = End { host: LOW, size: 16, update: true, hold: false, must_contain: true, force_delete: false };

impl Session {
    pub fn new() -> Self {
        Self::with(Abilities { queues: true, events: true, exchange: true, async_launch: true, destroy_event: true })
    }

    pub fn with(abilities: Abilities) -> Self {
        let bench = Bench::open();
        bench.start(abilities, true, LOW);
        let calls = [0, 1].map(|_| [Core::Rust, Core::Stock].map(|core| bench.side(core).new_call(0)));
        Self { bench, calls }
    }

    /// Lets one side act in call `call`.
    pub fn on<R>(
        &mut self,
        core: Core,
        call: usize,
        failure: Failure,
        act: impl FnOnce(&Side, Call) -> R,
    ) -> Outcome<R> {
        let handle = self.calls[call][core as usize];
        self.bench.on(core, call, failure, |side| act(side, handle))
    }

    /// Lets both do the same.
    fn both<R>(&mut self, call: usize, failure: Failure, act: impl Fn(&Side, Call) -> R) -> Both<R> {
        [Core::Rust, Core::Stock].map(|core| self.on(core, call, failure, &act))
    }

    fn begin(&mut self, call: usize, clause: Begin, failure: Failure) -> Both<Answer> {
        self.both(call, failure, |side, call| side.begin(0, &clause, call))
    }

    /// The counts of what is mapped.
    fn counts(&self) -> [Vec<String>; 2] {
        [Core::Rust, Core::Stock].map(|core| {
            let rows = self.bench.side(core).table();
            rows.iter().map(|row| format!("{}+{}", row.dynamic, row.hold)).collect()
        })
    }

    pub fn side(&self, core: Core) -> &Side {
        self.bench.side(core)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for core in [Core::Rust, Core::Stock] {
            for call in self.calls {
                self.bench.side(core).delete_call(call[core as usize]);
            }
            self.bench.side(core).stop();
        }
    }
}

/// The waits among what a side asked of its plugin.
fn waits<R>(outcome: &Outcome<R>) -> usize {
    outcome.trace.iter().filter(|(_, event)| matches!(event, PluginCall::WaitEvent { .. })).count()
}

fn has_event(outcome: &Outcome<impl Sized>, is_one: impl Fn(&PluginCall) -> bool) -> bool {
    outcome.trace.iter().any(|(_, event)| is_one(event))
}

/// A request that fails: on our side nothing is left of it, and `stock` are stock's counts afterwards.
fn leaves_nothing(before: impl Fn(&mut Session), clause: Begin, function: Function, ours: &[&str], stock: &[&str]) {
    let mut session = Session::new();
    before(&mut session);
    let [our, _] = session.begin(0, clause, Some((function, 0)));
    assert_eq!(our.value, Answer::default());
    assert_eq!(session.counts(), [ours, stock], "{function:?}");
}

#[test]
fn failed_allocation_leaves_no_entry() {
    leaves_nothing(|_| {}, CLAUSE, Function::Alloc, &[], &["1+0"]);
}

#[test]
fn failed_copy_leaves_no_entry() {
    leaves_nothing(|_| {}, CLAUSE, Function::Submit, &[], &["1+0"]);
}

#[test]
fn failed_event_leaves_no_entry() {
    leaves_nothing(|_| {}, CLAUSE, Function::CreateEvent, &[], &["1+0"]);
    leaves_nothing(|_| {}, CLAUSE, Function::RecordEvent, &[], &["1+0"]);
}

#[test]
fn failed_copy_or_event_leaves_no_count() {
    let mapped = |session: &mut Session| drop(session.begin(1, CLAUSE, None));
    let always = Begin { always: true, ..CLAUSE };
    for function in [Function::Submit, Function::RecordEvent] {
        leaves_nothing(mapped, always, function, &["1+0"], &["2+0"]);
    }
    leaves_nothing(mapped, CLAUSE, Function::WaitEvent, &["1+0"], &["2+0"]);
}

#[test]
fn failed_record_destroys_the_event() {
    let mut session = Session::new();
    let both = session.begin(0, CLAUSE, Some((Function::RecordEvent, 0)));
    let destroyed = both.map(|side| has_event(&side, |event| matches!(event, PluginCall::DestroyEvent { .. })));
    assert_eq!(destroyed, [true, false]);
}

#[test]
fn a_range_that_wraps_is_inside_nothing() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    let wraps = End { host: LOW + 12, size: -8, ..EXIT };
    let [ours, stock] = session.both(0, None, |side, _| side.end(0, &wraps));
    assert_eq!(ours.value, Answer::default());
    assert!(stock.value.target != 0 && stock.value.is_last, "12 - 8 is inside");
}

#[test]
fn nothing_is_made_of_a_range_that_wraps() {
    let mut session = Session::new();
    // Stock stops at the plugin, which has no memory of this size, and keeps an entry.
    let [ours, stock] = session.begin(0, Begin { size: -8, ..CLAUSE }, None);
    assert_eq!(ours.trace, []);
    assert!(has_event(&stock, |event| matches!(event, PluginCall::Alloc { size: -8, .. })));
    assert_eq!(session.counts(), [vec![], vec!["1+0".to_owned()]]);

    let last = usize::MAX - 3;
    let codes = session.both(0, None, |side, _| side.associate(0, last, USER_MEMORY, 8)).map(|side| side.value);
    assert_eq!(codes, [OFFLOAD_FAIL, 0]);
}

#[test]
fn empty_ranges_find_the_extended_range() {
    let mut session = Session::new();
    session.begin(0, Begin { host: LOW + 8, ..CLAUSE }, None);
    let target = session.side(Core::Rust).address(0, LOW + 8, 1);

    let [ours, stock] = session.begin(0, Begin { size: 0, ..CLAUSE }, None);
    assert_eq!((ours.value.target, stock.value.target), (target - 8, 0));
    assert_eq!(session.counts(), [["2+0"], ["1+0"]]);

    let [ours, stock] = session.both(0, None, |side, _| side.end(0, &End { size: 0, ..EXIT }));
    assert_eq!((ours.value.target, stock.value.target), (target - 8, 0));
    assert_eq!(session.counts(), [["1+0"], ["1+0"]]);

    session.both(0, None, |side, _| side.end(0, &End { size: 0, ..EXIT }));
    session.both(0, None, |side, call| side.synchronize(call));
    let [ours, stock] = session.both(0, None, |side, _| side.dealloc(0, LOW, 0, false));
    assert_eq!((ours.value, stock.value), (0, OFFLOAD_FAIL));
    assert_eq!(session.counts(), [vec![], vec!["1+0".to_owned()]]);
}

#[test]
fn an_uncounted_empty_range_is_extended_inside_a_call_only() {
    let mut session = Session::new();
    session.begin(0, Begin { host: LOW + 8, ..CLAUSE }, None);
    let peek = End { size: 0, update: false, ..EXIT };
    let found = |session: &Session| session.side(Core::Rust).end(0, &peek).target != 0;
    assert!(found(&session));
    session.both(0, None, |side, call| side.synchronize(call));
    assert!(!found(&session), "as omp_target_is_present asks");
}

#[test]
fn a_global_is_not_disassociated() {
    let mut session = Session::new();
    session.both(0, None, |side, _| side.map_global(0, LOW, 8, USER_MEMORY, false, true));
    let codes = session.both(0, None, |side, _| side.disassociate(0, LOW)).map(|side| side.value);
    assert_eq!(codes, [OFFLOAD_FAIL, 0]);
}

#[test]
fn an_overlapping_association_is_refused() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    let codes = session.both(0, None, |side, _| side.associate(0, LOW + 8, USER_MEMORY, 16)).map(|side| side.value);
    assert_eq!(codes, [OFFLOAD_FAIL, 0]);
}

#[test]
fn no_entry_comes_from_a_look_up_that_matched_nothing() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    let other = End { host: LOW + 64, ..EXIT };
    let entries = session.both(0, None, |side, _| side.end(0, &other)).map(|side| side.value.has_entry);
    assert_eq!(entries, [false, true]);
    let other = Begin { host: LOW + 64, size: 0, ..CLAUSE };
    let entries = session.begin(0, other, None).map(|side| side.value.has_entry);
    assert_eq!(entries, [false, true]);
}

#[test]
fn the_entry_of_a_host_pointer_does_nothing() {
    // Stock would use an entry that is not there.
    let mut session = Session::new();
    session.side(Core::Rust).set_requires(8);
    let host = session.on(Core::Rust, 0, None, |side, call| side.begin(0, &CLAUSE, call));
    assert!(host.value.is_host && host.value.target == LOW && !host.value.has_entry);
    let attached = session.on(Core::Rust, 0, None, |side, call| side.attach(0, USER_MEMORY, LOW, call));
    assert_eq!(attached.value, 0);
    assert!(matches!(attached.trace[..], [(0, PluginCall::SubmitPointer { .. })]), "nothing is recorded");
}

#[test]
fn a_late_release_succeeds() {
    let mut session = Session::new();
    let codes = session.both(0, None, |side, _| side.dealloc(0, LOW, 16, false)).map(|side| side.value);
    assert_eq!(codes, [0, OFFLOAD_FAIL]);
}

#[test]
fn a_copy_waits_for_the_one_before() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    let both = session.begin(1, Begin { always: true, ..CLAUSE }, None);
    assert_eq!(both.map(|side| waits(&side)), [1, 0]);
}

#[test]
fn an_attachment_waits_for_the_copy_before() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    let both = session.begin(1, Begin { to: false, ..CLAUSE }, None);
    let target = both[0].value.target;
    let both = session.both(1, None, |side, call| side.attach(0, target, LOW, call));
    assert_eq!(both.map(|side| waits(&side)), [1, 0]);
}

/// Where the copies among what a side asked of its plugin begin, from `target` on, and their sizes.
fn copies<R>(outcome: &Outcome<R>, target: usize) -> Vec<(usize, i64)> {
    let copy = |(_, event): &_| match event {
        PluginCall::Submit { target: at, size, .. } => Some((at - target, *size)),
        _ => None,
    };
    outcome.trace.iter().filter_map(copy).collect()
}

#[test]
fn attached_pointers_are_left_out_of_copies() {
    let mut session = Session::new();
    let target = session.begin(0, CLAUSE, None)[0].value.target;
    session.both(0, None, |side, call| side.attach(0, target + 4, LOW, call));
    let again = |host, size| Begin { host, size, always: true, ..CLAUSE };
    let both = session.begin(1, again(LOW, 16), None).map(|side| copies(&side, target));
    assert_eq!(both, [vec![(0, 4), (12, 4)], vec![(0, 16)]]);
    let both = session.begin(1, again(LOW + 8, 8), None).map(|side| copies(&side, target));
    assert_eq!(both, [vec![(12, 4)], vec![(8, 8)]], "it reaches into the range");
    let both = session.begin(1, again(LOW + 4, 8), None).map(|side| copies(&side, target));
    assert_eq!(both, [vec![(4, 0)], vec![(4, 8)]], "nothing else is in it");
}

#[test]
fn only_what_is_mapped_is_copied() {
    let mut session = Session::new();
    let target = session.begin(0, CLAUSE, None)[0].value.target;
    for (host, size, moved) in [(LOW + 8, 24, vec![(8, 8)]), (LOW + 8, 0, vec![(8, 0)])] {
        let clause = Begin { host, size, always: true, implicit: true, ..CLAUSE };
        let both = session.begin(0, clause, None).map(|side| copies(&side, target));
        assert_eq!(both, [moved, vec![(8, size)]]);
    }
}

#[test]
fn present_waits_for_the_copy() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    let both = session.begin(1, Begin { present: true, ..CLAUSE }, None);
    assert_eq!(both.map(|side| waits(&side)), [1, 0]);
}

#[test]
fn a_call_does_not_wait_for_its_own_copy() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    assert_eq!(session.begin(0, CLAUSE, None).map(|side| waits(&side)), [0, 1]);
    session.both(0, None, |side, call| side.synchronize(call));
    assert_eq!(session.begin(0, CLAUSE, None).map(|side| waits(&side)), [0, 1], "another call, but the copy is done");
}

#[test]
fn members_follow_their_struct() {
    let mut session = Session::new();
    let member = Begin { update: false, ..CLAUSE };
    let is_new = |both: Both<Answer>| both.map(|side| side.value.is_new);
    session.begin(0, CLAUSE, None);
    session.begin(1, CLAUSE, None);
    assert_eq!(is_new(session.begin(0, member, None)), [true, false], "who made it copies its members");
    assert_eq!(is_new(session.begin(1, member, None)), [false, false]);
}

#[test]
fn what_is_used_is_not_new() {
    let mut session = Session::new();
    let component = Begin { update: false, ..CLAUSE };
    session.begin(0, component, None);
    let is_new = |both: Both<Answer>| both.map(|side| side.value.is_new);
    assert_eq!(is_new(session.begin(1, component, None)), [false, true]);
    for call in [0, 1] {
        session.both(call, None, |side, call| side.synchronize(call));
    }
    assert_eq!(is_new(session.begin(1, component, None)), [true, true], "nobody uses it any more");
}

#[test]
fn only_the_last_user_releases() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    let codes = session.both(0, None, |side, _| side.dealloc(0, LOW, 16, false)).map(|side| side.value);
    assert_eq!((codes, session.counts()), ([0, 0], [vec!["1+0".to_owned()], vec![]]));
}

#[test]
fn no_neighbours_copy_is_waited_for() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    let both = session.begin(1, Begin { host: LOW + 64, size: 0, ..CLAUSE }, None);
    assert_eq!(both.map(|side| waits(&side)), [0, 1]);
}

#[test]
fn memory_is_freed_after_the_last_call() {
    let mut session = Session::new();
    session.begin(0, CLAUSE, None);
    session.begin(1, CLAUSE, None);
    let freed = |both: Both<i32>| both.map(|side| has_event(&side, |event| matches!(event, PluginCall::Delete { .. })));
    for last in [false, true] {
        assert_eq!(session.both(0, None, |side, _| side.end(0, &EXIT)).map(|side| side.value.is_last), [last; 2]);
    }
    assert_eq!(freed(session.both(0, None, |side, _| side.dealloc(0, LOW, 16, false))), [false, true]);
    // The harness still has the handle of the last look-up.
    session.both(0, None, |side, _| side.forget());
    assert_eq!(freed(session.both(0, None, |side, call| side.synchronize(call))), [false, false]);
    assert_eq!(freed(session.both(1, None, |side, call| side.synchronize(call))), [true, false]);
}

#[test]
fn memory_is_freed_after_the_last_handle() {
    let mut session = Session::new();
    let named = Begin { name: NAME.as_ptr().addr(), ..CLAUSE };
    session.on(Core::Rust, 0, None, |side, call| side.begin(0, &named, call));
    session.on(Core::Rust, 0, None, |side, _| side.leave(0, LOW, 16));
    session.on(Core::Rust, 0, None, |side, call| side.synchronize(call));
    assert_eq!(session.counts()[0], Vec::<String>::new());
    let forgotten = session.on(Core::Rust, 0, None, |side, _| side.forget());
    assert!(matches!(forgotten.trace[..], [(0, PluginCall::Delete { .. }), (0, PluginCall::DestroyEvent { .. })]));
    assert!(plugin::with(Core::Rust, |plugin| plugin.events.is_empty()));
}

#[test]
fn each_function_is_asked_for_by_its_own_name() {
    // Stock calls those that are not there.
    let abilities = Abilities { queues: true, events: true, exchange: true, async_launch: false, destroy_event: false };
    let mut session = Session::with(abilities);
    let run = session.on(Core::Rust, 0, None, |side, call| side.run(0, LOW, false, call));
    assert_eq!(run.value, 0);
    assert!(matches!(run.trace[..], [(0, PluginCall::Run { queue: Queue::Sync, .. })]));
    session.on(Core::Rust, 0, None, |side, call| side.begin(0, &CLAUSE, call));
    session.on(Core::Rust, 0, None, |side, call| {
        side.forget();
        side.synchronize(call)
    });
    let freed = session.on(Core::Rust, 0, None, |side, _| side.leave(0, LOW, 16));
    assert_eq!(freed.value, 0);
    assert!(matches!(freed.trace[..], [(0, PluginCall::Delete { .. })]));
}
