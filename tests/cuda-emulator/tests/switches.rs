//! The switches do what their table says.

mod support;

use std::path::Path;

use omptarget_cuda_emulator::code::*;
use omptarget_cuda_emulator::handle::{DevicePtr, Out};
use support::{Gate, alloc, alone, cu, event, function, image, launch, load, ok, passes, read, start, stream, write};

#[test]
fn a_mistake_in_a_switch_is_said_and_nothing_works() {
    let stderr = passes("a_mistake_in_a_switch_is_said_and_nothing_works", &[("EMU_DEVISES", "2")], || {
        assert_eq!(cu!(cuInit(0)), CUDA_ERROR_UNKNOWN);
        assert_eq!(event(), Err(CUDA_ERROR_UNKNOWN));
    });
    assert_eq!(stderr, "emulator: EMU_DEVISES is not a switch of the emulator\n");
}

#[test]
fn there_may_be_no_device() {
    for switch in [("EMU_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "")] {
        passes("there_may_be_no_device", &[switch], || assert_eq!(cu!(cuInit(0)), CUDA_ERROR_NO_DEVICE));
    }
}

#[test]
fn memory_has_an_end() {
    passes("memory_has_an_end", &[("EMU_MEMORY", "1000")], || {
        start(0);
        let memory = alloc(600).expect("memory");
        assert_eq!(alloc(600), Err(CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(alloc(usize::MAX), Err(CUDA_ERROR_OUT_OF_MEMORY));
        ok(cu!(cuMemFree_v2(memory)));
        alloc(600).expect("memory");
        let mut total = 0;
        ok(cu!(cuDeviceTotalMem_v2(Out(&mut total), 0)));
        assert_eq!(total, 1000);
    });
}

#[test]
fn the_nth_call_fails_and_does_nothing() {
    let switches = [("EMU_FAIL", "cuMemAlloc_v2:2:2,cuEventCreate:1:7777,cuEventDestroy_v2:1:4"), ("EMU_ACCOUNT", "1")];
    let stderr = passes("the_nth_call_fails_and_does_nothing", &switches, || {
        start(0);
        alloc(4).expect("the first");
        assert_eq!(alloc(4), Err(CUDA_ERROR_OUT_OF_MEMORY));
        alloc(4).expect("the third");
        assert_eq!(event(), Err(7777));
        let e = event().expect("the second");
        assert_eq!(cu!(cuEventDestroy_v2(e)), CUDA_ERROR_DEINITIALIZED);
    });
    let left = "0 streams, 1 events, 2 allocations, 0 modules, 1 contexts, 0 frees too early";
    assert!(stderr.contains(left), "{stderr}");
}

#[test]
fn a_wait_that_fails_has_waited() {
    let switches = [("EMU_FAIL", "cuStreamSynchronize:1:2,cuEventSynchronize:1:2")];
    passes("a_wait_that_fails_has_waited", &switches, || {
        start(0);
        let module = load(&image()).expect("an image");
        let (s, e) = (stream(1).expect("a stream"), event().expect("an event"));
        let number = alloc(4).expect("memory");
        let later = |wait: &dyn Fn() -> u32| {
            let gate = Gate::closed();
            ok(launch(function(module, "gated_add").expect("a kernel"), s, &[gate.address(), number.0, 5]));
            ok(cu!(cuEventRecord(e, s)));
            let code = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    gate.open();
                });
                wait()
            });
            assert_eq!((code, cu!(cuEventQuery(e))), (CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS));
        };
        later(&|| cu!(cuStreamSynchronize(s)));
        later(&|| cu!(cuEventSynchronize(e)));
        ok(cu!(cuStreamSynchronize(s)));
    });
}

#[test]
fn a_sticky_code_sticks_when_it_was_asked_for() {
    passes("a_sticky_code_sticks_when_it_was_asked_for", &[("EMU_FAIL", "cuStreamSynchronize:1:700")], || {
        start(0);
        let s = stream(1).expect("a stream");
        assert_eq!(cu!(cuStreamSynchronize(s)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(cu!(cuStreamSynchronize(s)), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_eq!(alloc(4), Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    });
}

#[test]
fn poison_fills_new_and_freed_memory() {
    passes("poison_fills_new_and_freed_memory", &[("EMU_POISON", "1")], || {
        start(0);
        let memory = alloc(4).expect("memory");
        assert_eq!(read(memory).to_ne_bytes(), [0xa5; 4]);
        ok(cu!(cuMemFree_v2(memory)));
        // SAFETY: the emulator keeps freed blocks.
        let freed = unsafe { (memory.0 as *const [u8; 4]).read_volatile() };
        assert_eq!(freed, [0x5a; 4]);
        assert_eq!(alloc(4), Ok(memory));
        assert_eq!(read(memory).to_ne_bytes(), [0xa5; 4]);
    });
}

#[test]
fn a_free_under_a_kernel_is_reported() {
    let switches = [("EMU_CHECK", "1"), ("EMU_ACCOUNT", "strict")];
    let output = alone("a_free_under_a_kernel_is_reported", &switches, || {
        let context = start(0);
        let module = load(&image()).expect("the image is good");
        let gated = function(module, "gated_add").expect("a kernel");
        let (memory, s, gate) = (alloc(8).expect("memory"), stream(1).expect("a stream"), Gate::closed());
        // In the middle of the block is in the block.
        ok(launch(gated, s, &[gate.address(), memory.0 + 4, 1]));
        ok(cu!(cuMemFree_v2(memory)));
        gate.open();
        ok(cu!(cuStreamSynchronize(s)));
        // Not any more.
        let memory = alloc(8).expect("memory");
        ok(launch(gated, s, &[gate.address(), memory.0, 1]));
        ok(cu!(cuStreamSynchronize(s)));
        ok(cu!(cuMemFree_v2(memory)));
        ok(cu!(cuStreamDestroy_v2(s)));
        ok(cu!(cuModuleUnload(module)));
        ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
        let _ = context;
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    let expected = "emulator: mem0 is freed, and is an argument of a kernel that is not done: gated_add\n\
                    emulator: left at exit: 0 streams, 0 events, 0 allocations, 0 modules, 0 contexts, 1 frees too early\n";
    assert_eq!(stderr, expected);
    assert_eq!(output.status.code(), Some(97));
}

#[test]
fn the_account_names_what_is_left_and_sets_the_exit_code() {
    let body = || {
        start(0);
        stream(1).expect("a stream");
        let s = stream(1).expect("a stream");
        ok(cu!(cuStreamDestroy_v2(s)));
        event().expect("an event");
        alloc(4).expect("memory");
        load(&image()).expect("the image is good");
    };
    let name = "the_account_names_what_is_left_and_sets_the_exit_code";
    for (value, code) in [("1", 0), ("strict", 97)] {
        let output = alone(name, &[("EMU_ACCOUNT", value)], body);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let expected = "emulator: left at exit: 1 streams, 1 events, 1 allocations, 1 modules, 1 contexts, 0 frees too early\n\
                        emulator: left: stream0 event0 mem0 module0 context0\n";
        assert_eq!((stderr.as_ref(), output.status.code()), (expected, Some(code)));
    }
}

#[test]
fn what_goes_with_its_context_is_still_left() {
    let output = alone("what_goes_with_its_context_is_still_left", &[("EMU_ACCOUNT", "strict")], || {
        start(0);
        alloc(4).expect("memory");
        ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("1 allocations, 0 modules, 0 contexts") && stderr.ends_with("left: mem0\n"), "{stderr}");
    assert_eq!(output.status.code(), Some(97));
}

#[test]
fn a_clean_program_ends_well() {
    let stderr = passes("a_clean_program_ends_well", &[("EMU_ACCOUNT", "strict")], || {
        start(0);
        ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
    });
    assert_eq!(
        stderr,
        "emulator: left at exit: 0 streams, 0 events, 0 allocations, 0 modules, 0 contexts, 0 frees too early\n"
    );
}

#[test]
fn the_account_comes_on_abort_too() {
    use std::os::unix::process::ExitStatusExt;
    let output = alone("the_account_comes_on_abort_too", &[("EMU_ACCOUNT", "1")], || {
        start(0);
        event().expect("an event");
        std::process::abort();
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        stderr,
        "emulator: left at abort: 0 streams, 1 events, 0 allocations, 0 modules, 1 contexts, 0 frees too early\n"
    );
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
}

extern "C" fn at_the_end() {
    // The handler was registered before the driver was, so it runs after the driver's.
    assert_eq!(event(), Err(CUDA_ERROR_DEINITIALIZED));
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), CUDA_ERROR_DEINITIALIZED);
}

#[test]
fn the_driver_may_be_gone_at_the_end() {
    passes("the_driver_may_be_gone_at_the_end", &[("EMU_GONE", "1")], || {
        // SAFETY: a function without arguments, in a program that stays loaded.
        assert_eq!(unsafe { libc::atexit(at_the_end) }, 0);
        start(0);
        event().expect("an event");
    });
}

/// One process's trace.
fn trace(file: &Path) -> String {
    let name = "a_trace_names_things_and_is_the_same_each_time";
    passes(name, &[("EMU_TRACE", file.to_str().expect("a plain path"))], || {
        start(0);
        let module = load(&image()).expect("the image is good");
        let add = function(module, "add").expect("a kernel");
        let (memory, s, e) = (alloc(8).expect("memory"), stream(1).expect("a stream"), event().expect("an event"));
        write(DevicePtr(memory.0 + 4), 1);
        ok(launch(add, s, &[memory.0 + 4, 1]));
        ok(cu!(cuEventRecord(e, s)));
        ok(cu!(cuStreamSynchronize(s)));
        assert_eq!(cu!(cuMemFree_v2(DevicePtr(memory.0 + 4))), CUDA_ERROR_INVALID_VALUE);
    });
    std::fs::read_to_string(file).unwrap_or_default()
}

#[test]
fn a_trace_names_things_and_is_the_same_each_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = trace(&dir.path().join("one"));
    assert_eq!(text, trace(&dir.path().join("two")));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    let expected = [
        r#"{"n":4,"thread":0,"call":"cuModuleLoadDataEx","args":{"module":"module0","image":"host","count":0},"result":0}"#,
        r#"{"n":6,"thread":0,"call":"cuMemAlloc_v2","args":{"pointer":"mem0","size":8},"result":0}"#,
        r#"{"n":9,"thread":0,"call":"cuMemcpyHtoD_v2","args":{"to":"mem0+4","from":"host","len":4},"result":0}"#,
        r#"{"n":11,"thread":0,"call":"cuEventRecord","args":{"event":"event0","stream":"stream0"},"result":0}"#,
        r#"{"n":13,"thread":0,"call":"cuMemFree_v2","args":{"pointer":"mem0+4"},"result":1}"#,
    ];
    for line in expected {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert_eq!(lines.len(), 13);
    assert_eq!(lines[9]["args"]["function"], "add");
}
