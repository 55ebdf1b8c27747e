//! Each driver call that the plugin makes, in turn made to fail: the function that made it fails and leaves nothing, the
//! rest works, one line names the call, and nothing is left at the end.
//!
//! A child runs [`STEPS`], one plugin function each. The first child notes the driver's calls; then each call fails in a
//! child of its own, with each of [`CODES`]. A step that fails is done once more, which must succeed unless the code is
//! one that the context keeps.

use crate::harness::{Counts, Ended, Image, Info, Plugin, add, address, child, device_address, end, is_child};
use crate::support::complaints_of;
use omptarget_abi::TargetTable;
use std::collections::{BTreeMap, BTreeSet};

/// Out of memory; one that no driver has yet; an illegal address, which a context keeps.
const CODES: [u32; 3] = [2, 3999, 700];

/// Whether CUDA says of a code that the context keeps it.
pub fn is_sticky(code: u32) -> bool {
    code == 700
}

/// Set in the child: the code that will come.
const CODE: &str = "CUDA_PLUGIN_TEST_CODE";

const SWITCHES: [(&str, &str); 5] = [
    ("EMU_DEVICES", "2"),
    ("EMU_POISON", "1"),
    ("EMU_MEMORY", "1000000"),
    ("LIBOMPTARGET_NUM_INITIAL_STREAMS", "2"),
    ("LIBOMPTARGET_STACK_SIZE", "2048"),
];

/// What the steps work on.
struct World {
    plugin: Plugin,
    tables: [*const TargetTable; 2],
    /// Two blocks on each device: small ones that the manager keeps, and large ones.
    small: [usize; 2],
    large: [usize; 2],
    host: usize,
    shared: usize,
    most: usize,
    events: [usize; 2],
    infos: [Info; 2],
    value: Box<i32>,
}

/// One function of the plugin; true if it succeeds. What it made is in the world only if it did.
type Step = fn(&mut World) -> bool;

fn alloc(plugin: &Plugin, place: &mut usize, device: i32, size: i64, kind: i32) -> bool {
    *place = plugin.data_alloc(device, size, 0, kind);
    *place != 0
}

const IMAGE: [(&str, usize); 3] = [("add", 0), ("counter", 4), ("tell", 0)];
/// Under unified shared memory.
const LINKED: [(&str, usize); 2] = [("add", 0), ("linked", 8)];

const STEPS: &[(&str, Step)] = &[
    ("init_device 0", |w| w.plugin.init_device(0) == 0),
    ("init_device 1", |w| w.plugin.init_device(1) == 0),
    ("load_binary 0", |w| {
        w.tables[0] = w.plugin.load_binary(0, Image::new(&IMAGE).0);
        !w.tables[0].is_null()
    }),
    ("load_binary 1", |w| {
        w.plugin.init_requires(8);
        w.tables[1] = w.plugin.load_binary(1, Image::new(&LINKED).0);
        w.plugin.init_requires(1);
        !w.tables[1].is_null()
    }),
    ("data_alloc small", |w| alloc(&w.plugin, &mut w.small[0], 0, 64, 0)),
    ("data_alloc small 1", |w| alloc(&w.plugin, &mut w.small[1], 1, 64, 3)),
    ("data_alloc large", |w| alloc(&w.plugin, &mut w.large[0], 0, 500_000, 3)),
    ("data_alloc large 1", |w| alloc(&w.plugin, &mut w.large[1], 1, 9000, 0)),
    ("data_alloc host", |w| alloc(&w.plugin, &mut w.host, 0, 64, 1)),
    ("data_alloc shared", |w| alloc(&w.plugin, &mut w.shared, 0, 64, 2)),
    ("data_submit", |w| {
        *w.value = 30;
        w.plugin.data_submit(0, w.small[0], address(&mut *w.value), 4) == 0
    }),
    ("data_submit_async", |w| {
        w.plugin.data_submit_async(0, w.large[0], address(&mut *w.value), 4, &mut w.infos[0]) == 0
    }),
    ("create_event", |w| w.plugin.create_event(0, &mut w.events[0]) == 0),
    ("record_event", |w| w.plugin.record_event(0, w.events[0], &mut w.infos[0]) == 0),
    ("wait_event", |w| w.plugin.wait_event(0, w.events[0], &mut w.infos[1]) == 0),
    ("run_target_team_region_async", |w| {
        let (arguments, offsets) = ([w.small[0], 5], [0, 0]);
        let (entry, info) = (device_address(w.tables[0], 0), &mut w.infos[1]);
        w.plugin.run_target_team_region_async(0, entry, arguments.as_ptr(), offsets.as_ptr(), 2, 2, 8, 100, info) == 0
    }),
    ("run_target_region_async", |w| {
        let (arguments, offsets) = ([w.large[0]], [0]);
        let (entry, info) = (device_address(w.tables[0], 2), &mut w.infos[1]);
        w.plugin.run_target_region_async(0, entry, arguments.as_ptr(), offsets.as_ptr(), 1, info) == 0
    }),
    ("data_retrieve_async", |w| {
        let value = address(&mut *w.value);
        w.plugin.data_retrieve_async(0, value, w.small[0], 4, &mut w.infos[1]) == 0
    }),
    ("sync_event", |w| w.plugin.sync_event(0, w.events[0]) == 0),
    ("synchronize", |w| w.plugin.synchronize(0, &mut w.infos[1]) == 0),
    // The stream goes back to the device that it is of.
    ("synchronize elsewhere", |w| w.plugin.synchronize(1, &mut w.infos[0]) == 0),
    ("destroy_event", |w| w.plugin.destroy_event(0, w.events[0]) == 0),
    ("create_event 1", |w| w.plugin.create_event(1, &mut w.events[1]) == 0),
    ("run_target_team_region", |w| add(&w.plugin, 0, device_address(w.tables[0], 0), w.small[0], 7) == 0),
    ("run_target_region", |w| {
        let (arguments, offsets) = ([w.small[0]], [0]);
        let entry = device_address(w.tables[0], 2);
        w.plugin.run_target_region(0, entry, arguments.as_ptr(), offsets.as_ptr(), 1) == 0
    }),
    ("data_exchange", |w| w.plugin.data_exchange(0, w.small[0], 0, w.large[0], 4) == 0),
    ("data_exchange 1", |w| w.plugin.data_exchange(0, w.small[0], 1, w.small[1], 4) == 0),
    ("data_exchange_async", |w| w.plugin.data_exchange_async(0, w.small[0], 1, w.large[1], 4, &mut w.infos[0]) == 0),
    ("synchronize exchange", |w| w.plugin.synchronize(0, &mut w.infos[0]) == 0),
    ("data_retrieve", |w| w.plugin.data_retrieve(1, address(&mut *w.value), w.small[1], 4) == 0),
    ("print_device_info", |w| {
        w.plugin.print_device_info(0);
        true
    }),
    ("init_device_info", |w| {
        let (mut info, mut error) = ([0; 2], 0);
        w.plugin.init_device_info(1, &mut info, &mut error) == 0
    }),
    ("init_async_info", |w| w.plugin.init_async_info(0, &mut 0) == 0),
    // The device's last stream: if any has been lost on the way, the pool grows.
    ("data_submit_async last", |w| {
        w.plugin.data_submit_async(0, w.small[0], address(&mut *w.value), 4, &mut w.infos[0]) == 0
    }),
    ("synchronize last", |w| w.plugin.synchronize(0, &mut w.infos[0]) == 0),
    ("data_delete small", |w| w.plugin.data_delete(0, w.small[0]) == 0),
    ("data_delete large", |w| w.plugin.data_delete(1, w.large[1]) == 0),
    ("data_delete host", |w| w.plugin.data_delete(0, w.host) == 0),
    ("data_delete shared", |w| w.plugin.data_delete(0, w.shared) == 0),
    // Fits only when the small block, which the manager kept, goes back.
    ("data_alloc most", |w| alloc(&w.plugin, &mut w.most, 0, 500_000, 0)),
    // The rest is left for the end.
];

/// Where LLVM's plugin goes on, and so does ours: with fewer streams, with a default, with what there is, or by another
/// way.
fn may_succeed(step: &str, call: &str) -> bool {
    match step.split(' ').next() {
        // A launch does not wait.
        _ if call == "kernel" => true,
        Some("init_device") => matches!(call, "cuStreamCreate" | "cuCtxSetCurrent" | "cuDeviceGetAttribute"),
        Some("print_device_info") => true,
        Some("data_exchange" | "data_exchange_async") => {
            matches!(call, "cuDeviceCanAccessPeer" | "cuCtxEnablePeerAccess" | "cuMemcpyPeerAsync" | "cuStreamCreate")
        }
        // Tried again when the manager has given back what it keeps.
        Some("data_alloc") => matches!(call, "cuCtxSetCurrent" | "cuMemAlloc_v2" | "cuMemFree_v2" | "cuGetErrorString"),
        _ => false,
    }
}

fn between(low: u64, value: u64, high: u64) -> bool {
    (low.min(high)..=low.max(high)).contains(&value)
}

/// The child: does the steps, and says of the one with the fault whether it succeeded.
fn steps() -> ! {
    let sticky = std::env::var(CODE).is_ok_and(|code| code.parse().is_ok_and(is_sticky));
    let plugin = Plugin::open();
    if plugin.number_of_devices() == 0 {
        assert_eq!(plugin.counts().faults, 1, "there are devices");
        assert_ne!(plugin.init_device(0), 0, "there are no devices");
        println!("\nstep open failed");
        end();
    }
    let mut world = World {
        plugin,
        tables: [std::ptr::null(); 2],
        small: [0; 2],
        large: [0; 2],
        host: 0,
        shared: 0,
        most: 0,
        events: [0; 2],
        infos: [0; 2],
        value: Box::new(0),
    };
    let mut broken = false;
    for (name, step) in STEPS {
        let before = world.plugin.counts();
        let done = step(&mut world);
        let after = world.plugin.counts();
        if after.faults == before.faults {
            assert!(done || broken, "{name} fails");
            continue;
        }
        println!("\nstep {name} {}", if done { "succeeded" } else { "failed" });
        if done {
            broken = sticky;
            continue;
        }
        let again = step(&mut world);
        assert!(again || sticky, "{name} fails once more");
        broken = sticky;
        leaves_nothing(name, before, after, world.plugin.counts());
    }
    assert!(broken || *world.value == 20, "{}", world.value);
    let Counts { streams, events, .. } = world.plugin.counts();
    println!("\nat the end {streams} {events}");
    end()
}

/// A step that failed changed nothing but that a pool may have grown, and then succeeded.
fn leaves_nothing(name: &str, before: Counts, failed: Counts, done: Counts) {
    let pools =
        between(before.streams, failed.streams, done.streams) && between(before.events, failed.events, done.events);
    let rest = Counts { streams: failed.streams, events: failed.events, faults: failed.faults, ..before };
    // The manager gives back what it keeps before it gives up.
    let allocations =
        name == "data_alloc most" && between(before.allocations - 1, failed.allocations, before.allocations);
    let rest = Counts { allocations: if allocations { failed.allocations } else { rest.allocations }, ..rest };
    assert!(pools && failed == rest, "{name}: before {before:?}, failed {failed:?}, done {done:?}");
}

/// The driver's calls in a trace, by name and number.
pub fn calls(trace: &str) -> Vec<(String, u64)> {
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let call = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let name = line["call"].as_str().expect("a call").to_owned();
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        (name, *count)
    };
    trace.lines().map(call).collect()
}

/// The call's name in the plugin's lines.
pub fn plain(call: &str) -> &str {
    match call {
        // A kernel's error is heard when its stream is waited for.
        "kernel" => "cuStreamSynchronize",
        _ => call.strip_suffix("_v2").unwrap_or(call),
    }
}

/// How many streams and events a child has made in all.
fn pools(ended: &Ended) -> Option<(u64, u64)> {
    let (streams, events) = ended.stdout.lines().find_map(|line| line.strip_prefix("at the end "))?.split_once(' ')?;
    Some((streams.parse().ok()?, events.parse().ok()?))
}

/// How often a child's lines name a call.
fn named(ended: &Ended, call: &str) -> usize {
    let start = format!("CUDA error: Error returned from {}", plain(call));
    let names = |line: &&str| line.strip_prefix(&start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    ended.errors().into_iter().filter(names).count()
}

/// What is wrong about a child in which `call` failed with `code`.
fn complaints(call: &str, code: u32, unfailed: &Ended, ended: &Ended) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |text: String| complaints.push(text);
    if !ended.status.success() {
        complain(format!("ends with {}", ended.status));
    }
    let step = ended.stdout.lines().find_map(|line| line.strip_prefix("step ")).and_then(|line| line.rsplit_once(' '));
    if let Some((step, "succeeded")) = step
        && !may_succeed(step, call)
    {
        complain(format!("{step} succeeds"));
    }
    // Some attempts fail in any case: memory has an end.
    let at_the_limit = step.is_some_and(|(step, _)| step == "data_alloc most");
    let needed = if at_the_limit { 1 } else { named(unfailed, call) + 1 };
    if call != "cuGetErrorString" && named(ended, call) < needed {
        complain("no line names the call".to_owned());
    }
    if call == "cuGetErrorString" && !ended.errors().contains(&"CUDA error: code 2") {
        complain("no line has the code that has no text".to_owned());
    }
    if !is_sticky(code) && !at_the_limit && ended.errors().len() > unfailed.errors().len() + 3 {
        complain("more is said than the call and the code".to_owned());
    }
    let at_the_end = pools(ended).zip(pools(unfailed));
    if !is_sticky(code) && at_the_end.is_some_and(|(now, then)| now.0 > then.0 || now.1 > then.1) {
        complain(format!("a pool has grown: {at_the_end:?}"));
    }
    let Some(left) = ended.left() else {
        complain("there is no account".to_owned());
        return complaints;
    };
    let [streams, events, allocations, modules, contexts, early] = left;
    let objects = streams + events + modules;
    // At the end, what could not be given back stays; without a context that is all.
    let most = u64::from(step.is_none());
    let fine = early == 0
        && match (step, is_sticky(code)) {
            (None, _) if call == "cuCtxSetCurrent" => contexts == 0,
            // A broken context gives no memory back but by its end.
            (_, true) => objects + contexts <= most,
            (_, false) => objects + contexts + allocations <= most,
        };
    if !fine {
        complain(format!("leaves {left:?}, {allocations} allocations among them"));
    }
    if !complaints.is_empty() {
        complaints.push(format!("{step:?}\n{}", ended.stderr));
    }
    complaints
}

/// Fails with the first few of the faults that were not dealt with.
pub fn report<F: std::fmt::Debug>(faults: &[F], found: &BTreeMap<usize, String>) {
    let first = |(index, text): (&usize, &String)| format!("{:?}:\n  {text}\n", faults[*index]);
    let shown: String = found.iter().take(12).map(first).collect();
    assert!(found.is_empty(), "{} of {} faults, the first of which are:\n{shown}", found.len(), faults.len());
}

#[test]
fn every_driver_call_may_fail() {
    const NAME: &str = "sweep::every_driver_call_may_fail";
    if is_child() {
        steps();
    }
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    let with = |more: &[(&str, &str)]| child(NAME, &[&SWITCHES, more].concat());
    let unfailed = with(&[("EMU_TRACE", trace.path().to_str().expect("a plain path"))]).clean();
    let calls = calls(&std::fs::read_to_string(trace.path()).expect("a trace"));
    assert_eq!(pools(&unfailed), Some((4, 2)), "all streams are in use at some time");

    // The steps reach all that the plugin looks up in the driver.
    let known = with(&[("LIBOMPTARGET_DEBUG", "1")]).well();
    let known = known.stderr.lines().filter_map(|line| line.split_once("with dlsym(")?.1.split(')').next());
    let called: BTreeSet<&str> = calls.iter().map(|(call, _)| call.as_str()).collect();
    let unreached: Vec<&str> = known.filter(|name| !called.contains(name)).collect();
    assert!(unreached.is_empty() && called.len() > 40, "{unreached:?}");

    let mut faults: Vec<(&str, u64, u32)> =
        calls.iter().flat_map(|(call, n)| CODES.map(|code| (call.as_str(), *n, code))).collect();
    let launches = calls.iter().filter(|(call, _)| call == "cuLaunchKernel").count() as u64;
    faults.extend((1..=launches).map(|n| ("kernel", n, 700)));
    let found = complaints_of(&faults, |(call, n, code)| {
        let (code_text, fault) = (code.to_string(), format!("{call}:{n}:{code}"));
        let ended = with(&[("EMU_FAIL", &fault), (CODE, &code_text)]);
        complaints(call, *code, &unfailed, &ended)
    });
    report(&faults, &found);
    println!("{} faults in {} driver calls of {} functions", faults.len(), calls.len(), called.len());
    assert!(faults.len() >= 500 && launches >= 4, "{}", faults.len());
}
