//! Drivers that are not as they should be, calls that make no sense, and the plugin's end.

use crate::emulated::driver_folder;
use crate::harness::{Ended, Image, Plugin, add, address, child, child_with, device_address, end, is_child};
use crate::support::complaints_of;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A folder of its own with the driver under this name; its bytes are `bytes`, or the emulator's own.
fn folder(name: &str, bytes: Option<&[u8]>) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (from, to) = (driver_folder().join("libcuda.so.1"), folder.path().join(name));
    match bytes {
        Some(bytes) => fs::write(to, bytes).expect("a place to write"),
        None => drop(fs::copy(from, to).expect("a place to write")),
    }
    folder
}

/// Says how many devices there are; with some, uses one.
fn count_devices() -> ! {
    let plugin = Plugin::open();
    let count = plugin.number_of_devices();
    println!("\n{count} devices");
    if count > 0 {
        assert_eq!(plugin.init_device(0), 0);
        let memory = plugin.data_alloc(0, 8, 0, 0);
        assert_eq!(plugin.data_submit(0, memory, address(&mut 7u64), 8), 0);
    }
    end()
}

fn says(ended: &Ended, devices: i32) -> bool {
    ended.stdout.lines().any(|line| line == format!("{devices} devices"))
}

#[test]
fn the_drivers_library_may_have_either_name() {
    const NAME: &str = "drivers::the_drivers_library_may_have_either_name";
    if is_child() {
        count_devices();
    }
    let mut names = vec!["libcuda.so", "libcuda.so.1"];
    if machine_has_a_driver() {
        println!("libcuda.so.1 is not tried: this machine has a CUDA driver, whose libcuda.so may come first");
        names.pop();
    }
    for name in names {
        let folder = folder(name, None);
        let ended = child_with(folder.path(), NAME, &[]).clean();
        assert!(says(&ended, 1) && ended.errors().is_empty(), "{name}: {ended}");
    }
}

/// Whether the machine has a driver of its own, which stands in for one that is not there.
fn machine_has_a_driver() -> bool {
    // SAFETY: a real driver's initialiser does nothing that matters here.
    unsafe { libloading::Library::new("libcuda.so.1").is_ok() }
}

#[test]
fn without_a_driver_there_are_no_devices() {
    const NAME: &str = "drivers::without_a_driver_there_are_no_devices";
    if is_child() {
        count_devices();
    }
    if machine_has_a_driver() {
        println!("not tried: this machine has a CUDA driver");
        return;
    }
    let ended = child_with(Path::new("/nonexistent"), NAME, &[]).well();
    assert!(says(&ended, 0) && ended.errors().is_empty(), "{ended}");
}

#[test]
fn a_driver_without_a_gpu_is_no_error() {
    const NAME: &str = "drivers::a_driver_without_a_gpu_is_no_error";
    if is_child() {
        count_devices();
    }
    let ended = child(NAME, &[("EMU_DEVICES", "0")]).well();
    assert!(says(&ended, 0) && ended.errors().is_empty(), "{ended}");
}

/// The driver's functions as the plugin's debug log lists them: the plain name, and the name that was found.
fn functions(log: &str) -> BTreeSet<(&str, &str)> {
    let function = |line| {
        let line: &str = str::strip_prefix(line, "Target CUDA RTL --> Implementing ")?;
        let (plain, rest) = line.split_once(" with dlsym(")?;
        Some((plain, rest.split_once(')')?.0))
    };
    log.lines().filter_map(function).collect()
}

#[test]
fn a_driver_that_lacks_a_function_has_no_devices() {
    const NAME: &str = "drivers::a_driver_that_lacks_a_function_has_no_devices";
    if is_child() {
        count_devices();
    }
    let log = child(NAME, &[("LIBOMPTARGET_DEBUG", "1")]).clean().stderr;
    let functions: Vec<(&str, &str)> = functions(&log).into_iter().collect();
    assert!(functions.len() >= 43, "{functions:?}");
    let driver = fs::read(driver_folder().join("libcuda.so.1")).expect("a driver");
    let names = names(&driver);
    let found = complaints_of(&functions, |(plain, found)| {
        // Another name in the library's table of strings is found by nobody.
        let mut driver = driver.clone();
        for (name, at) in &names {
            if [plain.as_bytes(), found.as_bytes()].contains(name) {
                driver[*at] = b'x';
            }
        }
        let folder = folder("libcuda.so.1", Some(&driver));
        let ended = child_with(folder.path(), NAME, &[]);
        let line = format!("CUDA error: The CUDA driver has no {plain}: no CUDA device is used");
        let right = ended.status.success() && says(&ended, 0) && ended.errors() == [line];
        if right { Vec::new() } else { vec![ended.to_string()] }
    });
    assert!(found.is_empty(), "{found:#?}");
    println!("{} functions", functions.len());
}

/// Where in a library names of the driver's functions stand by themselves.
fn names(library: &[u8]) -> Vec<(&[u8], usize)> {
    let texts = library.split(|byte| *byte == 0).map(|text| (text, text.as_ptr().addr() - library.as_ptr().addr()));
    texts.filter(|(text, _)| text.starts_with(b"cu")).collect()
}

/// What has no sense is refused with one line, before the driver hears of it.
#[test]
fn calls_without_sense_are_refused() {
    const NAME: &str = "drivers::calls_without_sense_are_refused";
    if is_child() {
        let plugin = Plugin::open();
        let mut info = 0;
        let refused = |what: &str, value: bool| assert!(value, "{what}");
        for device in [-1, 1, i32::MAX] {
            refused("init_device", plugin.init_device(device) != 0);
            refused("data_alloc", plugin.data_alloc(device, 8, 0, 0) == 0);
            refused("data_submit", plugin.data_submit(device, 8, 8, 8) != 0);
            refused("data_exchange", plugin.data_exchange(0, 8, device, 8, 8) != 0);
            refused("run_target_region", add(&plugin, device, 8, 8, 8) != 0);
            refused("synchronize", plugin.synchronize(device, &mut info) != 0);
            refused("create_event", plugin.create_event(device, &mut 0) != 0);
            refused("is_data_exchangable", plugin.is_data_exchangable(0, device) == 0);
        }
        refused("data_alloc before init_device", plugin.data_alloc(0, 8, 0, 0) == 0);
        assert_eq!(plugin.init_device(0), 0);
        refused("data_alloc", plugin.data_alloc(0, -1, 0, 0) == 0);
        refused("data_alloc", plugin.data_alloc(0, 8, 0, 9) == 0);
        refused("data_delete", plugin.data_delete(0, 0) != 0);
        let block = plugin.data_alloc(0, 8, 0, 0);
        assert_eq!(plugin.data_delete(0, block), 0);
        refused("data_delete twice", plugin.data_delete(0, block) != 0);
        refused("data_submit", plugin.data_submit(0, block, 8, -8) != 0);
        refused("record_event", plugin.record_event(0, 8, &mut info) != 0);
        refused("destroy_event", plugin.destroy_event(0, 8) != 0);
        refused("synchronize", plugin.synchronize(0, &mut 8) != 0);
        refused("run_target_region", add(&plugin, 0, 0, 8, 8) != 0);
        // No bytes are no error, and no copy.
        assert_eq!(plugin.data_submit(0, block, address(&mut 7u64), 0), 0);
        assert_eq!(plugin.data_retrieve(0, address(&mut 7u64), block, 0), 0);
        assert_eq!(plugin.data_exchange(0, block, 0, block, 0), 0);
        assert_eq!(plugin.data_submit_async(0, block, address(&mut 7u64), 0, &mut info), 0);
        assert_eq!(plugin.data_alloc(0, 0, 0, 0), 0);
        end();
    }
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    let ended = child(NAME, &[("EMU_TRACE", trace.path().to_str().expect("a plain path"))]).clean();
    // Seven calls with each wrong device, ten others.
    assert_eq!(ended.errors().len(), 3 * 7 + 10, "{ended}");
    let trace = fs::read_to_string(trace.path()).expect("a trace");
    assert!(!trace.contains("cuMemcpy") && !trace.contains("cuLaunchKernel"), "{trace}");
}

/// Uses two devices, and leaves something of everything.
fn leave_everything() -> ! {
    let plugin = Plugin::open();
    for device in [0, 1] {
        assert_eq!(plugin.init_device(device), 0);
        for entry in ["add", "tell"] {
            assert_ne!(device_address(plugin.load_binary(device, Image::new(&[(entry, 0)]).0), 0), 0);
        }
        for (kind, size) in [(0, 64), (0, 1 << 20), (1, 64), (2, 64), (3, 64)] {
            assert_ne!(plugin.data_alloc(device, size, 0, kind), 0);
        }
        let kept = plugin.data_alloc(device, 128, 0, 0);
        assert_eq!(plugin.data_delete(device, kept), 0);
        let (mut event, mut info) = (0, 0);
        assert_eq!(plugin.create_event(device, &mut event), 0);
        assert_eq!(plugin.record_event(device, event, &mut info), 0);
        assert_eq!(plugin.create_event(device, &mut event), 0);
        assert_eq!(plugin.init_async_info(device, &mut 0), 0);
    }
    let counts = plugin.counts();
    println!("\n{counts:?}");
    let all = [counts.streams, counts.events, counts.allocations, counts.modules, counts.contexts];
    assert!(all.into_iter().all(|count| count >= 2), "{counts:?}");
    end()
}

#[test]
fn the_end_gives_everything_back() {
    const NAME: &str = "drivers::the_end_gives_everything_back";
    if is_child() {
        leave_everything();
    }
    for order in ["0,1", "1,0"] {
        let ended = child(NAME, &[("EMU_DEVICES", "2"), ("CUDA_VISIBLE_DEVICES", order)]).clean();
        assert!(ended.errors().is_empty(), "{ended}");
    }
}

#[test]
fn a_driver_that_is_gone_at_the_end_is_left_alone() {
    const NAME: &str = "drivers::a_driver_that_is_gone_at_the_end_is_left_alone";
    if is_child() {
        leave_everything();
    }
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = trace.path().to_str().expect("a plain path");
    let ended = child(NAME, &[("EMU_DEVICES", "2"), ("EMU_GONE", "1"), ("EMU_TRACE", path)]).well();
    assert!(ended.errors().is_empty(), "{ended}");
    // One call for each device, to be told so.
    let trace = fs::read_to_string(trace.path()).expect("a trace");
    let gone = trace.lines().filter(|line| line.ends_with("\"result\":4}")).count();
    assert_eq!(gone, 2, "{trace}");
}

/// A context that somebody else has ended keeps the other device's from nothing.
#[test]
fn a_context_that_is_gone_at_the_end_is_its_devices_own_affair() {
    const NAME: &str = "drivers::a_context_that_is_gone_at_the_end_is_its_devices_own_affair";
    if is_child() {
        leave_everything();
    }
    let switches = [("EMU_DEVICES", "2"), ("EMU_TRACE", "")];
    let trace = tempfile::NamedTempFile::new().expect("a temporary file");
    child(NAME, &[switches[0], ("EMU_TRACE", trace.path().to_str().expect("a plain path"))]).clean();
    // The first device's last-but-one context call of the end answers that the context is destroyed.
    let calls = crate::sweep::calls(&fs::read_to_string(trace.path()).expect("a trace"));
    let entered = calls.iter().filter(|(call, _)| call == "cuCtxSetCurrent").count();
    let fault = format!("cuCtxSetCurrent:{}:709", entered - 1);
    let ended = child(NAME, &[switches[0], ("EMU_FAIL", &fault)]).well();
    let left = ended.left().expect("an account");
    assert!(ended.errors().is_empty() && left[4] == 1, "{ended}");
}

/// A queue that is handed to another device goes back to the pool of its own.
#[test]
fn a_queue_goes_back_to_its_own_device() {
    const NAME: &str = "drivers::a_queue_goes_back_to_its_own_device";
    if is_child() {
        let plugin = Plugin::open();
        let take = |device| {
            let mut info = 0;
            let block = plugin.data_alloc(device, 8, 0, 0);
            assert_eq!(plugin.data_submit_async(device, block, address(&mut 7u64), 8, &mut info), 0);
            info
        };
        for device in [0, 1] {
            assert_eq!(plugin.init_device(device), 0);
        }
        let (first, other) = (take(0), take(1));
        assert_ne!(first, other);
        let mut info = first;
        assert_eq!((plugin.synchronize(1, &mut info), info), (0, 0));
        assert_eq!(take(0), first, "it is the first device's again");
        assert_ne!(take(1), first, "and not the second's");
        assert_eq!(plugin.synchronize(0, &mut first.clone()), 0);
        assert_ne!(plugin.synchronize(0, &mut 0x1234), 0, "no device has it");
        end();
    }
    let ended = child(NAME, &[("EMU_DEVICES", "2"), ("LIBOMPTARGET_NUM_INITIAL_STREAMS", "1")]).clean();
    assert_eq!(ended.errors().len(), 1, "{ended}");
}

/// A setting that is no number, or none that can be, is named in one line and the default is used.
#[test]
fn settings_that_cannot_be_leave_the_default() {
    const NAME: &str = "drivers::settings_that_cannot_be_leave_the_default";
    if is_child() {
        let plugin = Plugin::open();
        assert_eq!(plugin.init_device(0), 0);
        println!("\n{} streams", plugin.counts().streams);
        end();
    }
    let streams = |setting: (&str, &str)| {
        let ended = child(NAME, &[setting]).clean();
        let line = ended.stdout.lines().find_map(|line| line.strip_suffix(" streams")).expect("the child says");
        let warned: Vec<String> = ended.errors().into_iter().map(str::to_owned).collect();
        (line.to_owned(), warned)
    };
    let initial = "LIBOMPTARGET_NUM_INITIAL_STREAMS";
    for (value, expected) in [("7", "7"), ("0", "0"), (" 7 ", "7")] {
        assert_eq!(streams((initial, value)), (expected.to_owned(), vec![]), "{value}");
    }
    for value in ["", "seven", "7abc", "0x7", "7.0", "-1", "4097", "99999999999999999999"] {
        let warning = format!("CUDA warning: '{initial}' must be a whole number from 0 to 4096, '{value}' ignored");
        assert_eq!(streams((initial, value)), ("32".to_owned(), vec![warning]), "{value}");
    }
    for name in ["LIBOMPTARGET_INFO", "LIBOMPTARGET_DEBUG"] {
        for value in ["", "16abc", "99999999999999999999"] {
            let (_, warned) = streams((name, value));
            assert!(matches!(&warned[..], [line] if line.contains(name) && line.ends_with("ignored")), "{warned:?}");
        }
    }
}
