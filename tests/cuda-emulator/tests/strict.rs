//! What CUDA documents as an error is one.

mod support;

use std::ffi::c_void;

use omptarget_cuda_emulator::api::Needs;
use omptarget_cuda_emulator::code::*;
use omptarget_cuda_emulator::handle::{CuContext, CuEvent, DevicePtr, HostPtr, Out};
use support::{alloc, cu, event, function, global, image, launch, load, ok, passes, read, start, stream, write};

const TWO: &[(&str, &str)] = &[("EMU_DEVICES", "2")];

fn host(value: &mut [i32]) -> HostPtr {
    HostPtr(value.as_mut_ptr().cast())
}

#[test]
fn nothing_works_before_the_start() {
    passes("nothing_works_before_the_start", &[], || {
        let mut count = 0;
        assert_eq!(cu!(cuDeviceGetCount(Out(&mut count))), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(event(), Err(CUDA_ERROR_NOT_INITIALIZED));
        assert_eq!(cu!(cuInit(1)), CUDA_ERROR_INVALID_VALUE);
        let mut version = 0;
        ok(cu!(cuDriverGetVersion(Out(&mut version))));
        assert_eq!(version, 12000);
        ok(cu!(cuInit(0)));
        ok(cu!(cuDeviceGetCount(Out(&mut count))));
        assert_eq!(count, 1);
        let mut device = 0;
        assert_eq!(cu!(cuDeviceGet(Out(&mut device), 1)), CUDA_ERROR_INVALID_DEVICE);
    });
}

/// Calls that need a current context, without one, by what the list says of them.
fn without_a_context(handle_calls: u32) {
    start(0);
    let (s, e) = (stream(1).expect("a stream"), event().expect("an event"));
    let module = load(&image()).expect("the image is good");
    let nothing = function(module, "nothing").expect("a kernel");
    let memory = alloc(8).expect("memory");
    ok(cu!(cuCtxSetCurrent(CuContext::NULL)));
    let (mut current, mut device, mut limit) = (CuContext::NULL, 0, 0);
    ok(cu!(cuCtxGetCurrent(Out(&mut current))));
    assert_eq!(current, CuContext::NULL);

    let mut bytes = [0, 0];
    let context_calls = [
        ("cuCtxGetDevice", cu!(cuCtxGetDevice(Out(&mut device)))),
        ("cuCtxGetLimit", cu!(cuCtxGetLimit(Out(&mut limit), 0))),
        ("cuCtxSetLimit", cu!(cuCtxSetLimit(0, 1))),
        ("cuCtxEnablePeerAccess", cu!(cuCtxEnablePeerAccess(CuContext::new(0), 0))),
        ("cuMemAlloc_v2", alloc(4).expect_err("no context")),
        ("cuMemFree_v2", cu!(cuMemFree_v2(memory))),
        ("cuMemcpyHtoD_v2", cu!(cuMemcpyHtoD_v2(memory, host(&mut bytes), 4))),
        ("cuMemcpyDtoHAsync_v2", cu!(cuMemcpyDtoHAsync_v2(host(&mut bytes), memory, 4, s))),
        ("cuStreamCreate", stream(1).expect_err("no context")),
        ("cuEventCreate", event().expect_err("no context")),
        ("cuModuleLoadDataEx", load(&[0; 64]).expect_err("no context")),
        ("cuLaunchKernel", launch(nothing, s, &[])),
    ];
    for (name, code) in context_calls {
        assert_eq!(code, CUDA_ERROR_INVALID_CONTEXT, "{name}");
        assert!(support::calls().contains(&(name, Needs::Context)), "{name}");
    }
    let by_handle = [
        ("cuStreamSynchronize", cu!(cuStreamSynchronize(s))),
        ("cuEventRecord", cu!(cuEventRecord(e, s))),
        ("cuStreamWaitEvent", cu!(cuStreamWaitEvent(s, e, 0))),
        ("cuEventSynchronize", cu!(cuEventSynchronize(e))),
        ("cuModuleGetFunction", function(module, "add").err().unwrap_or(0)),
        ("cuEventDestroy", cu!(cuEventDestroy(e))),
        ("cuStreamDestroy_v2", cu!(cuStreamDestroy_v2(s))),
        ("cuModuleUnload", cu!(cuModuleUnload(module))),
    ];
    for (name, code) in by_handle {
        assert_eq!(code, handle_calls, "{name}");
        assert!(support::calls().contains(&(name, Needs::Handle)), "{name}");
    }
}

#[test]
fn a_call_that_needs_a_current_context_says_so() {
    passes("a_call_that_needs_a_current_context_says_so", &[], || without_a_context(CUDA_SUCCESS));
}

#[test]
fn with_the_switch_a_handle_does_not_do() {
    let switches = [("EMU_CONTEXT", "strict")];
    passes("with_the_switch_a_handle_does_not_do", &switches, || without_a_context(CUDA_ERROR_INVALID_CONTEXT));
}

#[test]
fn objects_belong_to_their_context() {
    passes("objects_belong_to_their_context", TWO, || {
        start(0);
        let (s0, e0) = (stream(1).expect("a stream"), event().expect("an event"));
        let module = load(&image()).expect("the image is good");
        let nothing = function(module, "nothing").expect("a kernel");
        let one = start(1);
        let (s1, e1) = (stream(1).expect("a stream"), event().expect("an event"));
        assert_eq!(cu!(cuEventRecord(e0, s1)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cu!(cuEventRecord(e1, s0)), CUDA_ERROR_INVALID_HANDLE);
        ok(cu!(cuEventRecord(e0, s0)));
        // Waiting across contexts is what events are for.
        ok(cu!(cuStreamWaitEvent(s1, e0, 0)));
        assert_eq!(launch(nothing, s1, &[]), CUDA_ERROR_INVALID_HANDLE);
        // Not the stream's context.
        assert_eq!(launch(nothing, s0, &[]), CUDA_ERROR_INVALID_HANDLE);
        ok(cu!(cuCtxSetCurrent(CuContext::new(0))));
        ok(launch(nothing, s0, &[]));
        ok(cu!(cuCtxPushCurrent_v2(one)));
        let (mut device, mut popped) = (-1, CuContext::NULL);
        ok(cu!(cuCtxGetDevice(Out(&mut device))));
        assert_eq!(device, 1);
        ok(cu!(cuCtxPopCurrent_v2(Out(&mut popped))));
        ok(cu!(cuCtxGetDevice(Out(&mut device))));
        assert_eq!((device, popped), (0, one));
    });
}

#[test]
fn a_primary_context_is_counted() {
    passes("a_primary_context_is_counted", TWO, || {
        let context = start(0);
        start(0);
        let (e, memory) = (event().expect("an event"), alloc(4).expect("memory"));
        assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(1)), CUDA_ERROR_INVALID_CONTEXT);
        ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
        ok(cu!(cuEventQuery(e)));
        ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
        assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(alloc(4), Err(CUDA_ERROR_CONTEXT_IS_DESTROYED));
        assert_eq!(cu!(cuCtxSetCurrent(context)), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cu!(cuEventQuery(e)), CUDA_ERROR_INVALID_HANDLE);
        let (mut flags, mut active) = (0, 1);
        ok(cu!(cuDevicePrimaryCtxSetFlags_v2(0, 4)));
        ok(cu!(cuDevicePrimaryCtxGetState(0, Out(&mut flags), Out(&mut active))));
        assert_eq!((flags, active), (4, 0));
        start(0);
        assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn peers_are_enabled_once() {
    passes("peers_are_enabled_once", TWO, || {
        let one = start(1);
        let zero = start(0);
        let mut can = -1;
        ok(cu!(cuDeviceCanAccessPeer(Out(&mut can), 0, 1)));
        assert_eq!(can, 1);
        assert_eq!(cu!(cuCtxEnablePeerAccess(one, 1)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuCtxEnablePeerAccess(zero, 0)), CUDA_ERROR_INVALID_CONTEXT);
        ok(cu!(cuCtxEnablePeerAccess(one, 0)));
        assert_eq!(cu!(cuCtxEnablePeerAccess(one, 0)), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        let from = alloc(4).expect("memory");
        write(from, 9);
        ok(cu!(cuCtxSetCurrent(one)));
        let (to, s) = (alloc(4).expect("memory"), stream(1).expect("a stream"));
        ok(cu!(cuMemcpyPeerAsync(to, one, from, zero, 4, s)));
        ok(cu!(cuStreamSynchronize(s)));
        assert_eq!(read(to), 9);
    });
}

#[test]
fn copies_stay_inside_their_block() {
    passes("copies_stay_inside_their_block", &[], || {
        start(0);
        let memory = alloc(8).expect("memory");
        let s = stream(1).expect("a stream");
        let mut bytes = [1, 2];
        ok(cu!(cuMemcpyHtoD_v2(memory, host(&mut bytes), 8)));
        let past = DevicePtr(memory.0 + 4);
        for code in [
            cu!(cuMemcpyHtoD_v2(past, host(&mut bytes), 8)),
            cu!(cuMemcpyDtoH_v2(host(&mut bytes), past, 8)),
            cu!(cuMemcpyHtoDAsync_v2(past, host(&mut bytes), 5, s)),
            cu!(cuMemcpyDtoHAsync_v2(host(&mut bytes), DevicePtr(memory.0 - 1), 4, s)),
            cu!(cuMemcpyDtoDAsync_v2(memory, past, 8, s)),
            cu!(cuMemcpyHtoD_v2(DevicePtr(0), host(&mut bytes), 4)),
            cu!(cuMemcpyHtoD_v2(memory, HostPtr(std::ptr::null_mut()), 4)),
            cu!(cuMemcpyDtoH_v2(host(&mut bytes), memory, usize::MAX)),
            alloc(0).expect_err("nothing"),
            cu!(cuMemFree_v2(past)),
            cu!(cuMemFreeHost(HostPtr(memory.0 as *mut c_void))),
        ] {
            assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
        }
        let mut pinned = HostPtr(std::ptr::null_mut());
        ok(cu!(cuMemAllocHost_v2(Out(&mut pinned), 4)));
        assert_eq!(cu!(cuMemFree_v2(DevicePtr(pinned.0 as usize))), CUDA_ERROR_INVALID_VALUE);
        ok(cu!(cuMemFreeHost(pinned)));
        ok(cu!(cuMemFree_v2(memory)));
        assert_eq!(cu!(cuMemFree_v2(memory)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuEventDestroy_v2(CuEvent::NULL)), CUDA_ERROR_INVALID_HANDLE);
    });
}

#[test]
fn a_module_gives_its_symbols_and_no_others() {
    passes("a_module_gives_its_symbols_and_no_others", &[], || {
        start(0);
        let module = load(&image()).expect("the image is good");
        let (answer, size) = global(module, "answer").expect("a variable");
        assert_eq!((read(answer), size), (42, 4));
        write(answer, 43);
        assert_eq!(read(answer), 43);
        assert_eq!(global(module, "numbers").map(|(_, size)| size), Ok(16));
        assert_eq!(global(module, "local_constant").map(|(_, size)| size), Ok(8));
        // An x86 kernel has no mode of its own: one byte, generic.
        let (mode, size) = global(module, "add_exec_mode").expect("a mode");
        let mut byte = 0u8;
        ok(cu!(cuMemcpyDtoH_v2(HostPtr(std::ptr::from_mut(&mut byte).cast()), mode, size)));
        assert_eq!((byte, size), (1, 1));
        for name in ["omptarget_device_environment", "other_exec_mode", "add", "printf", ""] {
            assert_eq!(global(module, name), Err(CUDA_ERROR_NOT_FOUND), "{name}");
        }
        for name in ["answer", "printf", "subtract"] {
            assert_eq!(function(module, name), Err(CUDA_ERROR_NOT_FOUND), "{name}");
        }
        // Two loads are two modules with variables of their own.
        let second = load(&image()).expect("the image is good");
        assert_eq!(read(global(second, "answer").expect("a variable").0), 42);
        // Its constructor has run.
        let (result, s) = (alloc(4).expect("memory"), stream(1).expect("a stream"));
        ok(launch(function(second, "store_constructed").expect("a kernel"), s, &[result.0]));
        ok(cu!(cuStreamSynchronize(s)));
        assert_eq!(read(result), 8);
        let add = function(module, "add").expect("a kernel");
        ok(cu!(cuModuleUnload(module)));
        assert_eq!(cu!(cuModuleUnload(module)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(launch(add, s, &[result.0, 1]), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(
            cu!(cuMemcpyDtoH_v2(HostPtr(std::ptr::from_mut(&mut byte).cast()), answer, 1)),
            CUDA_ERROR_INVALID_VALUE
        );
    });
}

#[test]
fn a_broken_context_stays_broken() {
    let switches = [("EMU_FAIL", "kernel:2:719"), ("EMU_DEVICES", "2")];
    passes("a_broken_context_stays_broken", &switches, || {
        start(0);
        let module = load(&image()).expect("the image is good");
        let add = function(module, "add").expect("a kernel");
        let (number, s, e) = (alloc(4).expect("memory"), stream(1).expect("a stream"), event().expect("an event"));
        write(number, 0);
        ok(launch(add, s, &[number.0, 1]));
        ok(cu!(cuStreamSynchronize(s)));
        // The launch is fine; it is the run that fails, and what comes after it is not done.
        ok(launch(add, s, &[number.0, 1]));
        let (mut word, mut bytes) = (CuContext::NULL, [5, 5]);
        assert_eq!(cu!(cuStreamSynchronize(s)), CUDA_ERROR_LAUNCH_FAILED);
        for code in [
            launch(add, s, &[number.0, 1]),
            alloc(4).expect_err("broken"),
            event().expect_err("broken"),
            cu!(cuEventRecord(e, s)),
            cu!(cuEventQuery(e)),
            cu!(cuStreamQuery(s)),
            cu!(cuMemcpyDtoH_v2(host(&mut bytes), number, 4)),
            cu!(cuMemcpyHtoDAsync_v2(number, host(&mut bytes), 4, s)),
        ] {
            assert_eq!(code, CUDA_ERROR_LAUNCH_FAILED);
        }
        assert_eq!(bytes, [5, 5]);
        ok(cu!(cuCtxGetCurrent(Out(&mut word))));
        // The other device is not affected.
        start(1);
        let other = alloc(4).expect("memory");
        write(other, 3);
        assert_eq!(read(other), 3);
    });
}
