//! The rules of look-up and counting, one test a rule. Names of LLVM's functions say where its rule stands.

#![forbid(unsafe_code)]

use super::*;
use crate::mapping::counts::Count;
use crate::mapping::entry::Transfer;
use CountKind::{Dynamic, Hold};
use std::ops::Range;

const ME: Caller = Caller(1);
const OTHER: Caller = Caller(2);

/// The questions as one caller asks them, in calls that do nothing else.
impl Table {
    /// A call is done with what it used.
    fn finish(&mut self, uses: &mut Uses) -> Vec<Arc<Entry>> {
        let mut removed = Vec::new();
        uses.drain(|entry, is_left| {
            if is_left {
                removed.extend(self.remove_left_alone(&entry));
            }
        });
        removed
    }

    fn begins(&mut self, request: &BeginRequest) -> (Overlap, Begin) {
        self.joins(request, ME)
    }

    fn joins(&mut self, request: &BeginRequest, caller: Caller) -> (Overlap, Begin) {
        let mut uses = Uses::default();
        let answer = self.begin(request, caller, &mut uses);
        self.finish(&mut uses);
        answer
    }

    fn ends(&mut self, request: &EndRequest) -> (Overlap, End) {
        self.end(request, ME, None)
    }

    fn inserts(&mut self, request: &BeginRequest, target: usize) -> Arc<Entry> {
        let mut uses = Uses::default();
        let entry = self.makes(request, target, &mut uses);
        self.finish(&mut uses);
        entry
    }

    fn makes(&mut self, request: &BeginRequest, target: usize, uses: &mut Uses) -> Arc<Entry> {
        let counts = RefCounts::first(request.kind, false);
        let entry = Entry::new(request.range, request.base, target, request.name, Origin::Mapped, counts);
        let entry = Arc::new(entry);
        self.insert(Arc::clone(&entry), request, self.changes(), uses).unwrap();
        entry
    }
}

/// A map clause for `size` bytes at `begin`.
fn clause(begin: usize, size: i64) -> BeginRequest {
    BeginRequest {
        range: HostRange::new(begin, size),
        base: begin,
        name: 0,
        kind: Dynamic,
        implicit: false,
        update: true,
        close: false,
        present: false,
        unified: false,
    }
}

/// A counted look-up on exit.
fn exit(begin: usize, size: i64) -> EndRequest {
    EndRequest {
        range: HostRange::new(begin, size),
        kind: Dynamic,
        update: true,
        must_contain: true,
        force_delete: false,
        unified: false,
    }
}

/// A table with entries of the given ranges, at device addresses 0x10000 above.
fn table(ranges: &[(usize, i64)]) -> Table {
    let mut table = Table::default();
    for (begin, size) in ranges {
        let request = clause(*begin, *size);
        assert!(matches!(table.begins(&request), (Overlap::None, Begin::Create(_))));
        table.inserts(&request, begin + 0x10000);
    }
    table
}

fn overlap(table: &Table, begin: usize, size: i64) -> Overlap {
    table.look_up(HostRange::new(begin, size), false).0
}

#[test]
fn a_look_up_says_how_the_range_lies() {
    let t = table(&[(100, 50), (200, 50)]);
    assert_eq!(overlap(&t, 100, 50), Overlap::Inside);
    assert_eq!(overlap(&t, 149, 1), Overlap::Inside);
    assert_eq!(overlap(&t, 140, 20), Overlap::ExtendsAfter);
    assert_eq!(overlap(&t, 90, 20), Overlap::ExtendsBefore);
    assert_eq!(overlap(&t, 90, 100), Overlap::ExtendsBoth);
    assert_eq!(overlap(&t, 140, 500), Overlap::ExtendsAfter, "the left neighbour decides");
    assert_eq!(overlap(&t, 150, 50), Overlap::None, "the gap");
    assert_eq!(overlap(&t, 50, 50), Overlap::None);
    assert_eq!(overlap(&t, 250, 1), Overlap::None);
}

#[test]
fn a_look_up_that_matches_nothing_gives_no_entry() {
    let t = table(&[(100, 50)]);
    for begin in [50, 150, 151] {
        assert!(t.look_up(HostRange::new(begin, 10), true).1.is_none());
    }
}

#[test]
fn a_zero_length_range_is_inside_where_its_address_is() {
    let t = table(&[(100, 50)]);
    assert_eq!(overlap(&t, 100, 0), Overlap::Inside);
    assert_eq!(overlap(&t, 149, 0), Overlap::Inside);
    assert_eq!(overlap(&t, 150, 0), Overlap::None, "one past the end");
    assert_eq!(overlap(&t, 99, 0), Overlap::None);
}

#[test]
fn a_range_that_wraps_is_inside_nothing() {
    let t = table(&[(100, 50)]);
    assert_eq!(overlap(&t, 120, i64::MAX), Overlap::ExtendsAfter);
    assert_eq!(overlap(&t, 120, -1), Overlap::ExtendsAfter);
    assert_eq!(overlap(&t, 90, -1), Overlap::ExtendsBoth);
    let high = usize::MAX - 10;
    assert!(matches!(Table::default().begins(&clause(high, 100)).1, Begin::Wraps));
    assert!(matches!(Table::default().begins(&clause(high, -5)).1, Begin::Wraps));
}

#[test]
fn zero_length_ranges_match_the_extended_range() {
    let mut t = table(&[(300, 8)]);
    t.inserts(&BeginRequest { base: 100, ..clause(200, 40) }, 0x20000);
    let target = |host, extended| t.look_up(HostRange::new(host, 0), extended).1.map(|entry| entry.target_of(host));
    assert_eq!(target(100, true), Some(0x20000 - 100), "the base pointer itself");
    assert_eq!(target(150, true), Some(0x20000 - 50));
    assert_eq!(target(99, true), None, "before the base");
    assert_eq!(target(240, true), None, "one past the end");
    assert_eq!(target(100, false), None, "only where it is asked for");
    assert!(t.look_up(HostRange::new(150, 1), true).1.is_none(), "a range with a length does not");
}

#[test]
fn a_match_inside_wins_over_an_extended_one() {
    let mut t = table(&[(120, 8)]);
    t.inserts(&BeginRequest { base: 100, ..clause(200, 40) }, 0x20000);
    let begin = |host| t.look_up(HostRange::new(host, 0), true).1.map(|entry| entry.host_begin());
    assert_eq!(begin(124), Some(120));
    assert_eq!(begin(110), Some(200), "past a neighbour that is no section of the same array");
}

#[test]
fn map_clauses_count_one_mapping() {
    let mut t = table(&[(100, 50)]);
    let (_, Begin::Exists { counts, is_new, .. }) = t.begins(&clause(110, 10)) else { panic!() };
    assert_eq!((counts.dynamic(), is_new), (Count(2), false));
}

#[test]
fn a_member_is_new_while_its_struct_has_one_user() {
    let mut t = table(&[(100, 50)]);
    let member = BeginRequest { update: false, ..clause(110, 10) };
    assert!(matches!(t.begins(&member).1, Begin::Exists { is_new: true, .. }));
    t.begins(&clause(100, 50));
    assert!(matches!(t.begins(&member).1, Begin::Exists { is_new: false, .. }));
}

#[test]
fn only_an_implicit_map_may_extend() {
    let mut t = table(&[(100, 50)]);
    assert!(matches!(t.begins(&clause(140, 20)).1, Begin::Extension { host_begin: 100, size: 50 }));
    assert!(matches!(t.begins(&BeginRequest { implicit: true, ..clause(140, 20) }).1, Begin::Exists { .. }));
}

#[test]
fn present_creates_nothing() {
    let mut t = table(&[]);
    assert!(matches!(t.begins(&BeginRequest { present: true, ..clause(100, 8) }).1, Begin::NotPresent));
    assert!(matches!(t.begins(&BeginRequest { present: true, ..clause(100, 0) }).1, Begin::NotPresent));
}

#[test]
fn unified_memory_uses_the_host_unless_mapped_or_close() {
    let mut t = table(&[(100, 50)]);
    let unified = |begin, size| BeginRequest { unified: true, ..clause(begin, size) };
    assert!(matches!(t.begins(&unified(100, 8)).1, Begin::Exists { .. }));
    assert!(matches!(t.begins(&unified(300, 8)).1, Begin::Host));
    assert!(matches!(t.begins(&unified(300, 0)).1, Begin::Nothing));
    assert!(matches!(t.begins(&BeginRequest { close: true, ..unified(300, 8) }).1, Begin::Create(_)));
    assert!(matches!(t.ends(&EndRequest { unified: true, ..exit(300, 8) }).1, End::Host));
    assert!(matches!(t.ends(&exit(300, 8)).1, End::Nothing));
}

fn found(table: &mut Table, request: &EndRequest) -> (bool, CountAction, RefCounts) {
    match table.ends(request).1 {
        End::Found(_, CountedOut { last, action, counts }) => (last, action, counts),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_user_leaves_the_count_at_one_until_it_is_done() {
    let mut t = table(&[(100, 50)]);
    t.begins(&clause(100, 50));
    assert_eq!(found(&mut t, &exit(100, 50)).1, CountAction::Decremented);
    let (last, action, counts) = found(&mut t, &exit(100, 50));
    assert_eq!((last, action, counts), (true, CountAction::Deferred, RefCounts::first(Dynamic, false)));
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, ME).1, Released::Removed(_)));
    assert!(t.is_empty());
}

#[test]
fn somebody_who_joins_takes_the_mapping_over() {
    let mut t = table(&[(100, 50)]);
    assert!(found(&mut t, &exit(100, 50)).0);
    let (_, Begin::Exists { counts, is_new, .. }) = t.joins(&clause(100, 50), OTHER) else { panic!() };
    assert_eq!((counts, is_new), (RefCounts::first(Dynamic, false), false), "the one count that was left");
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, ME).1, Released::Kept));
    assert!(!t.is_empty());
}

#[test]
fn a_late_release_finds_nothing() {
    let mut t = table(&[(100, 50)]);
    let range = exit(100, 50).range;
    found(&mut t, &exit(100, 50));
    assert!(matches!(t.release(range, Dynamic, ME).1, Released::Removed(_)));
    assert!(matches!(t.release(range, Dynamic, ME).1, Released::Missing));
}

#[test]
fn delete_resets_its_own_count_only() {
    let mut t = table(&[(100, 50)]);
    for _ in 0..3 {
        t.begins(&clause(100, 50));
    }
    t.begins(&BeginRequest { kind: Hold, ..clause(100, 50) });
    let delete = EndRequest { force_delete: true, ..exit(100, 50) };
    let (last, action, counts) = found(&mut t, &delete);
    assert_eq!((last, action), (false, CountAction::Reset), "the hold count is not zero");
    assert_eq!(counts, RefCounts::first(Hold, false));
    let hold = EndRequest { kind: Hold, ..exit(100, 50) };
    assert_eq!(found(&mut t, &hold).1, CountAction::Deferred);
}

#[test]
fn delete_by_the_last_user_is_deferred() {
    let mut t = table(&[(100, 50)]);
    t.begins(&clause(100, 50));
    let delete = EndRequest { force_delete: true, ..exit(100, 50) };
    assert_eq!(found(&mut t, &delete), (true, CountAction::ResetDeferred, RefCounts::first(Dynamic, false)));
}

#[test]
fn an_uncounted_look_up_changes_nothing() {
    let mut t = table(&[(100, 50)]);
    let peek = EndRequest { update: false, ..exit(100, 50) };
    for _ in 0..2 {
        assert_eq!(found(&mut t, &peek), (true, CountAction::Suppressed, RefCounts::first(Dynamic, false)));
    }
}

#[test]
fn exit_may_have_to_match_the_whole_range() {
    let mut t = table(&[(100, 50)]);
    assert!(matches!(t.ends(&EndRequest { update: false, ..exit(140, 20) }).1, End::Nothing));
    assert!(matches!(t.ends(&EndRequest { update: false, must_contain: false, ..exit(140, 20) }).1, End::Found(..)));
}

#[test]
fn associations_are_exact_and_overlap_nothing() {
    let mut t = table(&[(100, 50)]);
    let mut associate = |begin, size, target| t.associate(HostRange::new(begin, size), target).0;
    assert_eq!(associate(200, 50, 0x9000), Association::Made);
    assert_eq!(associate(200, 50, 0x9000), Association::Same);
    assert_eq!(associate(200, 50, 0x9001), Association::Different);
    assert_eq!(associate(200, 40, 0x9000), Association::Different);
    assert_eq!(associate(100, 10, 0x9000), Association::Different);
    for (begin, size) in [(90, 20), (140, 20), (110, 10), (90, 100), (190, 20), (240, 20)] {
        assert_eq!(associate(begin, size, 0x9000), Association::Overlaps, "{begin} {size}");
    }
    assert_eq!(associate(150, 50, 0x9000), Association::Made, "the gap");
    assert_eq!(associate(usize::MAX - 4, 10, 0x9000), Association::Wraps);
}

#[test]
fn associated_entries_count_forever() {
    let mut t = Table::default();
    t.associate(HostRange::new(100, 50), 0x9000);
    let delete = EndRequest { force_delete: true, ..exit(100, 50) };
    assert!(!found(&mut t, &delete).0);
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, ME).1, Released::Kept));
}

#[test]
fn emplace_leaves_what_is_there() {
    let mut t = table(&[(100, 50)]);
    t.emplace(HostRange::new(100, 8), 100, 0x9000, 0, Dynamic, true);
    t.emplace(HostRange::new(140, 20), 140, 0x9000, 0, Dynamic, true);
    assert_eq!(t.first().unwrap().target_begin(), 100 + 0x10000);
    assert!(t.after(100).is_none());
    t.emplace(HostRange::new(150, 8), 150, 0x9000, 0, Dynamic, true);
    assert_eq!(t.after(100).unwrap().origin(), Origin::Global);
}

#[test]
fn a_handle_outlives_the_place_in_the_table() {
    let mut t = table(&[(100, 50)]);
    let handle = Arc::clone(t.exact(100).unwrap());
    found(&mut t, &exit(100, 50));
    let (_, Released::Removed(removed)) = t.release(handle_range(&handle), Dynamic, ME) else { panic!() };
    assert!(t.is_empty() && Arc::into_inner(removed).is_none(), "the other handle is still there");
    assert!(!t.remove(&handle), "removed once");
    assert!(Arc::into_inner(handle).is_some());
}

#[test]
fn a_new_mapping_at_the_same_place_is_another_entry() {
    let mut t = table(&[(100, 50)]);
    let old = Arc::clone(t.exact(100).unwrap());
    t.remove(&old);
    t.inserts(&clause(100, 50), 0x7000);
    assert!(!t.remove(&old), "not the one that was asked for");
    assert!(t.exact(100).is_some());
}

fn handle_range(entry: &Entry) -> HostRange {
    HostRange::new(entry.host_begin(), 50)
}

#[test]
fn the_one_who_took_over_is_last_in_turn() {
    let mut t = table(&[(100, 50)]);
    found(&mut t, &exit(100, 50));
    t.joins(&clause(100, 50), OTHER);
    let (_, End::Found(_, CountedOut { last, .. })) = t.end(&exit(100, 50), OTHER, None) else { panic!() };
    assert!(last);
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, ME).1, Released::Kept), "not the former one's any more");
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, OTHER).1, Released::Removed(_)));
}

#[test]
fn a_mapping_that_calls_still_use_can_be_joined_until_they_are_done() {
    let mut t = Table::default();
    let (mut slow, mut joiner) = (Uses::default(), Uses::default());
    let entry = t.makes(&clause(100, 50), 0x7000, &mut slow);
    let range = exit(100, 50).range;
    found(&mut t, &exit(100, 50));
    assert!(matches!(t.release(range, Dynamic, ME).1, Released::Kept));
    let (_, End::Found(_, CountedOut { last, counts, .. })) = t.end(&exit(100, 50), OTHER, None) else { panic!() };
    assert_eq!((last, counts.dynamic()), (false, Count(1)), "nobody counts it out, nor is last");
    let (_, Begin::Exists { counts, is_new, .. }) = t.begin(&clause(100, 50), OTHER, &mut joiner) else { panic!() };
    assert_eq!((counts.dynamic(), is_new), (Count(1), false));
    assert!(t.finish(&mut slow).is_empty(), "somebody has joined");
    assert!(matches!(t.end(&exit(100, 50), OTHER, None).1, End::Found(_, CountedOut { last: true, .. })));
    assert!(matches!(t.release(range, Dynamic, OTHER).1, Released::Kept), "its own call is not done");
    assert!(Arc::ptr_eq(&t.finish(&mut joiner)[0], &entry), "the last one removes it");
    assert!(t.is_empty());
}

#[test]
fn who_joins_what_was_left_to_others_keeps_it() {
    let mut t = Table::default();
    let (mut slow, mut joiner) = (Uses::default(), Uses::default());
    t.makes(&clause(100, 50), 0x7000, &mut slow);
    found(&mut t, &exit(100, 50));
    t.release(exit(100, 50).range, Dynamic, ME);
    t.begin(&clause(100, 50), OTHER, &mut joiner);
    assert!(t.finish(&mut slow).is_empty() && t.finish(&mut joiner).is_empty());
    assert_eq!(t.exact(100).map(|entry| entry.counts().dynamic()), Some(Count(1)), "the joiner's");
}

#[test]
fn a_mapping_taken_over_counts_by_the_kind_of_its_new_user() {
    let mut t = table(&[(100, 50)]);
    found(&mut t, &exit(100, 50));
    t.joins(&BeginRequest { kind: Hold, ..clause(100, 50) }, OTHER);
    assert_eq!(t.exact(100).unwrap().counts(), RefCounts::first(Hold, false));
}

#[test]
fn on_a_left_mapping_nobody_else_counts_nor_is_last() {
    let mut t = table(&[(100, 50)]);
    found(&mut t, &exit(100, 50));
    for update in [true, false] {
        let request = EndRequest { update, ..exit(100, 50) };
        let (_, End::Found(_, CountedOut { last, counts, .. })) = t.end(&request, OTHER, None) else { panic!() };
        assert_eq!((last, counts), (false, RefCounts::first(Dynamic, false)));
    }
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, OTHER).1, Released::Kept));
    assert!(found(&mut t, &exit(100, 50)).0, "the one who leaves stays last");
}

#[test]
fn a_stale_mark_is_taken_off_by_its_callers_next_map() {
    let mut t = table(&[(100, 50)]);
    found(&mut t, &exit(100, 50));
    let (_, Begin::Exists { counts, .. }) = t.begins(&clause(100, 50)) else { panic!() };
    assert_eq!(counts.dynamic(), Count(2), "as LLVM counts");
}

#[test]
fn delete_takes_the_mapping_out_at_once() {
    let mut t = table(&[(100, 50)]);
    let delete = EndRequest { force_delete: true, ..exit(100, 50) };
    assert!(found(&mut t, &delete).0);
    assert!(t.is_empty());
    let again = t.joins(&clause(100, 50), OTHER).1;
    assert!(matches!(again, Begin::Create(_)), "a later map copies afresh");
    t.inserts(&clause(100, 50), 0x7000);
    let (_, Released::Detached(old)) = t.release(delete.range, Dynamic, ME) else { panic!() };
    assert_eq!(old.target_begin(), 100 + 0x10000);
    assert_eq!(t.exact(100).unwrap().target_begin(), 0x7000, "the new one stays");
}

#[test]
fn a_delete_that_was_never_released_is_found_by_its_caller() {
    let mut t = table(&[(100, 50)]);
    found(&mut t, &EndRequest { force_delete: true, ..exit(100, 50) });
    assert!(t.take_detached(OTHER).is_empty());
    assert_eq!(t.take_detached(ME).len(), 1);
    assert!(t.take_detached(ME).is_empty());
}

#[test]
fn members_are_as_new_as_the_call_found_their_struct() {
    let mut t = Table::default();
    let (mut maker, mut joiner) = (Uses::default(), Uses::default());
    let member = BeginRequest { update: false, ..clause(110, 8) };
    t.makes(&clause(100, 50), 0x7000, &mut maker);
    t.begin(&clause(100, 50), OTHER, &mut joiner);
    let is_new = |caller, uses: &mut Uses| match t.begin(&member, caller, uses).1 {
        Begin::Exists { is_new, .. } => is_new,
        other => panic!("{other:?}"),
    };
    assert!(is_new(ME, &mut maker), "though somebody has joined");
    assert!(!is_new(OTHER, &mut joiner));
}

/// A known limit: nothing tells the items of one `exit data` from those of two. But a region keeps what it has counted.
#[test]
fn a_region_is_last_though_its_count_has_been_taken() {
    let mut t = table(&[(100, 50)]);
    let mut uses = Uses::default();
    t.begin(&clause(100, 50), OTHER, &mut uses);
    let twice = [0; 2].map(|_| found(&mut t, &exit(100, 50)).0);
    assert_eq!(twice, [false, true], "both were counted out");
    uses.launched = true;
    assert!(matches!(t.end(&exit(100, 50), OTHER, Some(&mut uses)).1, End::Found(_, CountedOut { last: true, .. })));
    t.finish(&mut uses);
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, ME).1, Released::Kept));
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, OTHER).1, Released::Removed(_)));
}

#[test]
fn who_makes_a_mapping_without_counting_does_not_leave_it() {
    let mut t = Table::default();
    let mut uses = Uses::default();
    let component = BeginRequest { update: false, ..clause(100, 50) };
    let entry = t.makes(&component, 0x7000, &mut uses);
    assert!(matches!(t.begin(&component, ME, &mut uses).1, Begin::Exists { is_new: true, .. }));
    uses.launched = true;
    let end = EndRequest { update: false, ..exit(100, 50) };
    assert!(matches!(t.end(&end, ME, Some(&mut uses)).1, End::Found(_, CountedOut { last: true, .. })));
    t.finish(&mut uses);
    assert!(entry.leaving().is_none(), "anybody may delete it");
}

#[test]
fn the_first_member_at_the_end_of_a_region_settles_for_its_struct() {
    let mut t = Table::default();
    let (mut first, mut second) = (Uses::default(), Uses::default());
    t.makes(&clause(100, 50), 0x7000, &mut first);
    t.begin(&clause(100, 50), OTHER, &mut second);
    (first.launched, second.launched) = (true, true);
    let member = EndRequest { update: false, ..exit(110, 8) };
    let parent = exit(100, 50);
    let mut ends = |request: &EndRequest, caller, uses: &mut Uses| match t.end(request, caller, Some(uses)).1 {
        End::Found(_, CountedOut { last, counts, action }) => (last, counts.dynamic(), action),
        other => panic!("{other:?}"),
    };
    assert_eq!(ends(&member, ME, &mut first), (false, Count(2), CountAction::Suppressed), "shown as LLVM shows it");
    assert_eq!(ends(&member, OTHER, &mut second), (true, Count(1), CountAction::Suppressed), "the first has left");
    assert_eq!(ends(&member, ME, &mut first), (false, Count(1), CountAction::Suppressed), "and stays not last");
    assert_eq!(ends(&parent, ME, &mut first), (false, Count(1), CountAction::Decremented), "so does its struct");
    assert_eq!(ends(&parent, OTHER, &mut second), (true, Count(1), CountAction::Deferred));
}

#[test]
fn a_settled_struct_that_is_taken_over_is_not_last_any_more() {
    let mut t = Table::default();
    let mut uses = Uses::default();
    t.makes(&clause(100, 50), 0x7000, &mut uses);
    uses.launched = true;
    let ends = |t: &mut Table, request: &EndRequest, uses: &mut Uses| match t.end(request, ME, Some(uses)).1 {
        End::Found(_, CountedOut { last, counts, .. }) => (last, counts.dynamic()),
        other => panic!("{other:?}"),
    };
    let member = EndRequest { update: false, ..exit(110, 8) };
    assert_eq!(ends(&mut t, &member, &mut uses), (true, Count(1)));
    t.joins(&clause(100, 50), OTHER);
    assert_eq!(ends(&mut t, &member, &mut uses), (false, Count(1)));
    assert_eq!(ends(&mut t, &exit(100, 50), &mut uses), (false, Count(1)), "its count is the other's now");
}

#[test]
fn a_settled_struct_is_not_counted_out_of_a_later_mapping() {
    let mut t = Table::default();
    let (mut first, mut second) = (Uses::default(), Uses::default());
    t.makes(&clause(100, 50), 0x7000, &mut first);
    first.launched = true;
    let member = EndRequest { update: false, ..exit(110, 8) };
    assert!(matches!(t.end(&member, ME, Some(&mut first)).1, End::Found(_, CountedOut { last: true, .. })));
    // Somebody takes the mapping over and gives it back, and somebody else maps the same range anew.
    t.begin(&clause(100, 50), OTHER, &mut second);
    second.launched = true;
    assert!(matches!(t.end(&exit(100, 50), OTHER, Some(&mut second)).1, End::Found(_, CountedOut { last: true, .. })));
    t.finish(&mut second);
    drop(second);
    assert!(matches!(t.release(exit(100, 50).range, Dynamic, OTHER).1, Released::Kept), "the first call still uses it");
    let entry = Arc::clone(t.exact(100).unwrap());
    t.remove(&entry);
    let later = t.inserts(&clause(100, 50), 0x8000);
    for request in [member, exit(100, 50)] {
        let (_, End::Found(None, CountedOut { last, .. })) = t.end(&request, ME, Some(&mut first)) else { panic!() };
        assert!(!last && !Arc::ptr_eq(first.newest(), &later));
    }
    assert_eq!(later.counts().dynamic(), Count(1), "somebody else's");
    assert!(later.leaving().is_none());
}

fn parts_without_attached(transfer: &Transfer, range: Range<usize>) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let done = transfer.each_without_attached(range, |part| {
        parts.push((part.start, part.end));
        Ok::<_, ()>(())
    });
    assert_eq!(done, Ok(()));
    parts
}

#[test]
fn a_copy_moves_what_is_mapped_but_for_attached_pointers() {
    let t = table(&[(100, 50)]);
    let entry = t.exact(100).unwrap();
    let mut transfer = entry.transfer().lock();
    transfer.attach(8, 0x9000);
    transfer.attach(16, 0x9000);
    let parts = |begin, size| parts_without_attached(&transfer, entry.offsets(HostRange::new(begin, size)));
    assert_eq!(parts(100, 50), [(0, 8), (24, 50)]);
    assert_eq!(parts(112, 14), [(24, 26)], "a pointer reaches in");
    assert_eq!(parts(108, 12), [], "one reaches out");
    assert_eq!(parts(140, 0), [], "nothing of nothing");
    assert_eq!(parts(90, 12), [(0, 2)], "nothing is mapped before");
    assert_eq!(parts(130, -1), [(30, 50)], "nor after");
    assert!(parts(40, 10).is_empty() && parts(150, 10).is_empty());
}

#[test]
fn many_attached_pointers_are_known_like_few() {
    for count in [1, 2, 3, 16, 17, 100] {
        let t = table(&[(1000, 1600)]);
        let mut transfer = t.exact(1000).unwrap().transfer().lock();
        assert!(!transfer.has_attached());
        // In no order, the same number of each: 37 and the counts have no divisor in common.
        let offsets = (0..count).map(|n| n * 37 % count * 16);
        for offset in offsets.clone().chain(offsets.clone()) {
            transfer.attach(offset, offset + 1);
            transfer.attach(offset, offset + 2);
        }
        assert!(offsets.clone().all(|offset| transfer.attached(offset) == Some(offset + 2)));
        assert!(offsets.clone().all(|offset| transfer.attached(offset + 8).is_none()) && transfer.has_attached());
        let parts = parts_without_attached(&transfer, 0..count * 16);
        assert_eq!(parts, Vec::from_iter((0..count).map(|n| (n * 16 + 8, n * 16 + 16))));
    }
}

/// A known limit: nothing tells a member's look-up at the end of a data region from that of an update, so that it is
/// not settled with its struct.
#[test]
fn members_at_the_end_of_a_data_region_are_decided_one_by_one() {
    let mut t = Table::default();
    let (mut first, mut second) = (Uses::default(), Uses::default());
    t.makes(&clause(100, 50), 0x7000, &mut first);
    t.begin(&clause(100, 50), OTHER, &mut second);
    let member = EndRequest { update: false, ..exit(110, 8) };
    let ends = |t: &mut Table, request: &EndRequest, caller| match t.end(request, caller, None).1 {
        End::Found(_, CountedOut { last, .. }) => last,
        other => panic!("{other:?}"),
    };
    assert!(!ends(&mut t, &member, ME), "two users: not copied back");
    assert!(!ends(&mut t, &exit(100, 50), OTHER));
    assert!(ends(&mut t, &exit(100, 50), ME), "yet its struct is last");
}
