//! Streams and events mean what CUDA says.

mod support;

use omptarget_cuda_emulator::code::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_READY};
use omptarget_cuda_emulator::handle::{CuFunction, CuModule, CuStream, DevicePtr, HostPtr};
use support::{Gate, alloc, cu, event, function, image, launch, load, ok, passes, read, start, stream, write};

struct Bench {
    module: CuModule,
    gated: CuFunction,
    add: CuFunction,
    number: DevicePtr,
}

fn bench() -> Bench {
    start(0);
    let module = load(&image()).expect("the image is good");
    let number = alloc(4).expect("memory");
    write(number, 0);
    let find = |name| function(module, name).expect("a kernel");
    Bench { module, gated: find("gated_add"), add: find("add"), number }
}

#[test]
fn a_stream_runs_in_order_and_the_launch_reads_its_arguments() {
    passes("a_stream_runs_in_order_and_the_launch_reads_its_arguments", &[], || {
        let bench = bench();
        let (s, gate) = (stream(1).expect("a stream"), Gate::closed());
        let mut host = -1i32;
        let to = HostPtr(std::ptr::from_mut(&mut host).cast());
        ok(launch(bench.gated, s, &[gate.address(), bench.number.0, 5]));
        ok(cu!(cuMemcpyDtoHAsync_v2(to, bench.number, 4, s)));
        ok(launch(bench.add, s, &[bench.number.0, 100]));
        assert_eq!(cu!(cuStreamQuery(s)), CUDA_ERROR_NOT_READY);
        gate.open();
        ok(cu!(cuStreamSynchronize(s)));
        ok(cu!(cuStreamQuery(s)));
        assert_eq!((host, read(bench.number)), (5, 105));
        // The same function is the same handle.
        assert_eq!(function(bench.module, "add"), Ok(bench.add));
    });
}

#[test]
fn an_event_without_a_record_is_done() {
    passes("an_event_without_a_record_is_done", &[], || {
        start(0);
        let (s, e) = (stream(1).expect("a stream"), event().expect("an event"));
        ok(cu!(cuEventQuery(e)));
        ok(cu!(cuEventSynchronize(e)));
        ok(cu!(cuStreamWaitEvent(s, e, 0)));
        ok(cu!(cuStreamSynchronize(s)));
        assert_eq!(cu!(cuStreamWaitEvent(s, e, 2)), CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn a_wait_is_for_the_record_that_was_newest_when_it_was_made() {
    passes("a_wait_is_for_the_record_that_was_newest_when_it_was_made", &[], || {
        let bench = bench();
        let [first, second, third] = [(); 3].map(|()| stream(1).expect("a stream"));
        let (early, late) = (Gate::closed(), Gate::closed());
        let e = event().expect("an event");
        ok(launch(bench.gated, first, &[early.address(), bench.number.0, 1]));
        ok(cu!(cuEventRecord(e, first)));
        ok(cu!(cuStreamWaitEvent(third, e, 0)));
        // Recorded again, on work that stays: the wait above does not care, one made from now on does.
        ok(launch(bench.gated, second, &[late.address(), bench.number.0, 10]));
        ok(cu!(cuEventRecord(e, second)));
        early.open();
        ok(cu!(cuStreamSynchronize(third)));
        assert_eq!(cu!(cuEventQuery(e)), CUDA_ERROR_NOT_READY);
        assert_eq!(read(bench.number), 1);
        ok(cu!(cuStreamWaitEvent(third, e, 0)));
        assert_eq!(cu!(cuStreamQuery(third)), CUDA_ERROR_NOT_READY);
        // Gone while it is waited for: the wait goes on.
        ok(cu!(cuEventDestroy_v2(e)));
        assert_eq!(cu!(cuStreamQuery(third)), CUDA_ERROR_NOT_READY);
        late.open();
        ok(cu!(cuStreamSynchronize(third)));
        assert_eq!(read(bench.number), 11);
    });
}

#[test]
fn a_destroyed_stream_still_does_its_work_and_its_handle_is_dead() {
    passes("a_destroyed_stream_still_does_its_work_and_its_handle_is_dead", &[], || {
        let bench = bench();
        let (s, e, gate) = (stream(1).expect("a stream"), event().expect("an event"), Gate::closed());
        ok(launch(bench.gated, s, &[gate.address(), bench.number.0, 3]));
        ok(cu!(cuEventRecord(e, s)));
        ok(cu!(cuStreamDestroy_v2(s)));
        for code in [cu!(cuStreamDestroy_v2(s)), cu!(cuStreamSynchronize(s)), cu!(cuStreamWaitEvent(s, e, 0))] {
            assert_eq!(code, CUDA_ERROR_INVALID_HANDLE);
        }
        assert_eq!(launch(bench.add, s, &[bench.number.0, 1]), CUDA_ERROR_INVALID_HANDLE);
        gate.open();
        ok(cu!(cuEventSynchronize(e)));
        assert_eq!(read(bench.number), 3);
        // A new stream is another one.
        assert_ne!(stream(1).expect("a stream"), s);
    });
}

#[test]
fn the_default_stream_keeps_order_with_blocking_streams_only() {
    passes("the_default_stream_keeps_order_with_blocking_streams_only", &[], || {
        let bench = bench();
        let (blocking, free) = (stream(0).expect("a stream"), stream(1).expect("a stream"));
        let gate = Gate::closed();
        ok(launch(bench.gated, free, &[gate.address(), bench.number.0, 1]));
        // The copy does not wait for the non-blocking stream.
        assert_eq!(read(bench.number), 0);
        let held = Gate::closed();
        ok(launch(bench.gated, blocking, &[held.address(), bench.number.0, 10]));
        ok(launch(bench.add, CuStream::NULL, &[bench.number.0, 100]));
        ok(launch(bench.add, blocking, &[bench.number.0, 1000]));
        assert_eq!(cu!(cuStreamQuery(CuStream::NULL)), CUDA_ERROR_NOT_READY);
        held.open();
        ok(cu!(cuStreamSynchronize(blocking)));
        assert_eq!(read(bench.number), 1110);
        gate.open();
        ok(cu!(cuStreamSynchronize(free)));
        assert_eq!(read(bench.number), 1111);
    });
}

#[test]
fn many_streams_one_after_the_other_need_few_threads() {
    passes("many_streams_one_after_the_other_need_few_threads", &[], || {
        let bench = bench();
        for _ in 0..2000 {
            let s = stream(1).expect("a stream");
            ok(launch(bench.add, s, &[bench.number.0, 1]));
            ok(cu!(cuStreamSynchronize(s)));
            ok(cu!(cuStreamDestroy_v2(s)));
        }
        assert_eq!(read(bench.number), 2000);
        let threads = std::fs::read_dir("/proc/self/task").expect("threads").count();
        assert!(threads < 100, "{threads} threads");
    });
}

#[test]
fn delays_change_no_result() {
    let switches = [("EMU_DELAY_US", "2000"), ("EMU_SEED", "7")];
    passes("delays_change_no_result", &switches, || {
        let bench = bench();
        let [a, b] = [(); 2].map(|()| stream(1).expect("a stream"));
        let e = event().expect("an event");
        for round in 0..20 {
            let (from, to) = if round % 2 == 0 { (a, b) } else { (b, a) };
            ok(launch(bench.add, from, &[bench.number.0, 1]));
            ok(cu!(cuEventRecord(e, from)));
            ok(cu!(cuStreamWaitEvent(to, e, 0)));
        }
        ok(cu!(cuStreamSynchronize(a)));
        ok(cu!(cuStreamSynchronize(b)));
        assert_eq!(read(bench.number), 20);
    });
}
