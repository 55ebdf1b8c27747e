//! `cargo bench`: the parts of the core by themselves, without LLVM's C++ around them and on a plugin that does nothing.
//! `omptarget bench` measures the whole, beside LLVM's core.
//!
//! `cargo test` runs each once.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use divan::{Bencher, black_box};
use omptarget::device::{CopyIn, Device, Found};
use omptarget::mapping::{BeginRequest, Caller, CountKind, EndRequest, HostRange, Table, Tables, Uses};
use omptarget::plugin_api::Plugin;
use omptarget_abi::{AsyncInfo, OFFLOAD_SUCCESS};

/// Live mappings. A debug build is there to be tested.
const SIZES: &[usize] = if cfg!(debug_assertions) { &[100] } else { &[100, 10_000, 1_000_000] };

/// Entries that one call uses.
const USED: &[usize] = &[1, 8, 64];

/// Bytes of a mapping, and from the beginning of one to the next: between two there is room for a third.
const BYTES: usize = 64;
const STEP: usize = 2 * BYTES;

/// Nothing is there, and nobody looks.
const FIRST_HOST: usize = 1 << 40;
const DISTANCE: usize = 1 << 45;

fn main() {
    divan::main();
}

fn range(number: usize) -> HostRange {
    HostRange::new(FIRST_HOST + number * STEP, BYTES as i64)
}

/// The room behind a mapping.
fn gap(number: usize) -> HostRange {
    HostRange::new(FIRST_HOST + number * STEP + BYTES, BYTES as i64)
}

/// Numbers below a bound, in an order of no meaning (xorshift64*).
struct Random(u64);

impl Random {
    fn new() -> Self {
        Random(88_172_645_463_325_252)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(2_685_821_657_736_338_717) >> 32;
        (number as usize * bound) >> 32
    }
}

/// The numbers of all mappings, in scrambled order.
fn scrambled(count: usize) -> Vec<usize> {
    let mut random = Random::new();
    let mut order = (0..count).collect::<Vec<_>>();
    for index in 1..count {
        order.swap(index, random.below(index + 1));
    }
    order
}

/// Look-up, insertion and removal in the table.
mod table {
    use super::*;

    fn add(table: &mut Table, range: HostRange) {
        table.emplace(range, range.begin(), range.begin() + DISTANCE, 0, CountKind::Dynamic, false);
    }

    fn filled(count: usize) -> Table {
        let mut table = Table::default();
        scrambled(count).into_iter().for_each(|number| add(&mut table, range(number)));
        table
    }

    #[divan::bench(args = SIZES, sample_size = 500)]
    fn look_up(bencher: Bencher<'_, '_>, count: usize) {
        let (table, mut random) = (filled(count), Random::new());
        bencher.bench_local(|| {
            let (_, entry) = table.look_up(black_box(range(random.below(count))), false);
            entry.expect("mapped").target_begin()
        });
    }

    #[divan::bench(args = SIZES, sample_size = 500)]
    fn look_up_inside(bencher: Bencher<'_, '_>, count: usize) {
        let (table, mut random) = (filled(count), Random::new());
        bencher.bench_local(|| {
            let inside = HostRange::new(range(random.below(count)).begin() + BYTES / 2, 8);
            table.look_up(black_box(inside), false).1.expect("mapped").target_begin()
        });
    }

    #[divan::bench(args = SIZES, sample_size = 500)]
    fn look_up_nothing(bencher: Bencher<'_, '_>, count: usize) {
        let (table, mut random) = (filled(count), Random::new());
        bencher.bench_local(|| {
            let (_, entry) = table.look_up(black_box(gap(random.below(count))), false);
            assert!(entry.is_none());
        });
    }

    #[divan::bench(args = SIZES, sample_size = 500)]
    fn insert_and_remove(bencher: Bencher<'_, '_>, count: usize) {
        let (mut table, mut random) = (filled(count), Random::new());
        bencher.bench_local(|| {
            let range = black_box(gap(random.below(count)));
            add(&mut table, range);
            let entry = table.look_up(range, false).1.map(Clone::clone).expect("mapped");
            assert!(table.remove(&entry));
        });
    }

    #[divan::bench(args = SIZES, sample_count = 3, sample_size = 1)]
    fn fill(bencher: Bencher<'_, '_>, count: usize) {
        let order = scrambled(count);
        bencher.counter(divan::counter::ItemsCount::new(count)).with_inputs(Table::default).bench_local_values(
            |mut table| {
                order.iter().for_each(|&number| add(&mut table, range(number)));
                table
            },
        );
    }

    /// What a call notes of the entries that it uses.
    #[divan::bench(args = USED, sample_size = 100)]
    fn note_uses(bencher: Bencher<'_, '_>, used: usize) {
        let table = filled(used);
        let entries = (0..used).map(|number| table.look_up(range(number), false).1.map(Clone::clone).expect("mapped"));
        let entries = entries.collect::<Vec<_>>();
        bencher.bench_local(|| {
            let mut uses = Uses::default();
            for entry in entries.iter().chain(entries.iter().rev()) {
                black_box(uses.of(entry));
            }
            uses
        });
    }
}

/// Calls on a device: records, pins and events.
mod device {
    use super::*;

    /// One call of LLVM's: what its `AsyncInfoTy` has.
    struct Call(Box<AsyncInfo>);

    impl Call {
        fn new() -> Self {
            Call(Box::new(AsyncInfo { queue: null_mut() }))
        }

        fn info(&mut self) -> NonNull<AsyncInfo> {
            NonNull::from(&mut *self.0)
        }

        fn enter(&mut self, device: &Device, range: HostRange) {
            let request = BeginRequest {
                range,
                base: range.begin(),
                name: 0,
                kind: CountKind::Dynamic,
                implicit: false,
                update: true,
                close: false,
                present: false,
                unified: false,
            };
            let copy = CopyIn { to: true, always: false };
            // SAFETY: the plugin reads no host memory, and the call is this thread's.
            let pointer = unsafe { device.target_pointer(&request, copy, self.info(), |pointer| pointer) };
            assert!(!pointer.target.is_null());
        }

        fn synchronize(&mut self) {
            // SAFETY: the call is this thread's, and no reference to its record is in use.
            let done = unsafe { Device::synchronize(self.info()) };
            assert!(done.is_ok());
        }
    }

    fn exit(device: &Device, range: HostRange) {
        let request = EndRequest {
            range,
            kind: CountKind::Dynamic,
            update: true,
            must_contain: false,
            force_delete: false,
            unified: false,
        };
        let is_last = device.target_begin(&request, |pointer| {
            assert!(!pointer.target.is_null());
            pointer.found == Found::Last
        });
        if is_last {
            assert_eq!(device.release(range, CountKind::Dynamic), OFFLOAD_SUCCESS);
        }
    }

    fn enter(device: &Device, range: HostRange) {
        let mut call = Call::new();
        call.enter(device, range);
        call.synchronize();
    }

    fn filled(count: usize) -> Device {
        let device = Device::new(plugin(), true);
        scrambled(count).into_iter().for_each(|number| enter(&device, range(number)));
        device
    }

    #[divan::bench(args = SIZES, sample_size = 500)]
    fn enter_and_exit_new(bencher: Bencher<'_, '_>, count: usize) {
        let (device, mut random) = (filled(count), Random::new());
        bencher.bench_local(|| {
            let range = gap(random.below(count));
            enter(&device, range);
            exit(&device, range);
        });
    }

    #[divan::bench(args = SIZES, sample_size = 500)]
    fn enter_and_exit_mapped(bencher: Bencher<'_, '_>, count: usize) {
        let (device, mut random) = (filled(count), Random::new());
        bencher.bench_local(|| {
            let range = range(random.below(count));
            enter(&device, range);
            exit(&device, range);
        });
    }

    #[divan::bench(args = SIZES, sample_size = 500)]
    fn target_address(bencher: Bencher<'_, '_>, count: usize) {
        let (device, mut random) = (filled(count), Random::new());
        bencher.bench_local(|| {
            let range = black_box(range(random.below(count)));
            device.mappings().look_up(range, false, Caller(1), |entry| entry.target_of(range.begin()))
        });
    }

    /// A region's look-ups of so many mapped arguments, with another call in flight on all of them.
    #[divan::bench(args = USED, sample_size = 100)]
    fn region_in_flight(bencher: Bencher<'_, '_>, used: usize) {
        let device = filled(used);
        let mut other = Call::new();
        (0..used).for_each(|number| other.enter(&device, range(number)));
        bencher.bench_local(|| {
            let mut call = Call::new();
            (0..used).for_each(|number| call.enter(&device, range(number)));
            (0..used).rev().for_each(|number| exit(&device, range(number)));
            call.synchronize();
        });
        other.synchronize();
    }

    /// A plugin that does nothing, with one queue and one event.
    fn plugin() -> Plugin {
        let functions: [(&str, *const c_void); 8] = [
            ("__tgt_rtl_data_alloc", data_alloc as *const c_void),
            ("__tgt_rtl_data_delete", data_delete as *const c_void),
            ("__tgt_rtl_data_submit_async", data_submit_async as *const c_void),
            ("__tgt_rtl_synchronize", synchronize as *const c_void),
            ("__tgt_rtl_create_event", create_event as *const c_void),
            ("__tgt_rtl_record_event", use_event as *const c_void),
            ("__tgt_rtl_wait_event", use_event as *const c_void),
            ("__tgt_rtl_destroy_event", destroy_event as *const c_void),
        ];
        // SAFETY: the functions below have the types of LLVM 14's `rtl.h`.
        unsafe { Plugin::from_addresses(functions.into_iter()) }
    }

    static QUEUE: u8 = 0;

    fn enqueue(info: *mut AsyncInfo) -> i32 {
        // SAFETY: the core hands over its record's own, which is live.
        unsafe { (*info).queue = (&raw const QUEUE).cast_mut().cast() };
        OFFLOAD_SUCCESS
    }

    extern "C" fn data_alloc(_: i32, _: i64, host: *mut c_void, _: i32) -> *mut c_void {
        host.wrapping_byte_add(DISTANCE)
    }

    extern "C" fn data_delete(_: i32, _: *mut c_void) -> i32 {
        OFFLOAD_SUCCESS
    }

    extern "C" fn data_submit_async(_: i32, _: *mut c_void, _: *mut c_void, _: i64, info: *mut AsyncInfo) -> i32 {
        enqueue(info)
    }

    extern "C" fn synchronize(_: i32, info: *mut AsyncInfo) -> i32 {
        // SAFETY: the core hands over its record's own, which is live.
        unsafe { (*info).queue = null_mut() };
        OFFLOAD_SUCCESS
    }

    extern "C" fn create_event(_: i32, event: *mut *mut c_void) -> i32 {
        // SAFETY: the core has room for an event there.
        unsafe { *event = (&raw const QUEUE).cast_mut().cast() };
        OFFLOAD_SUCCESS
    }

    extern "C" fn use_event(_: i32, _: *mut c_void, info: *mut AsyncInfo) -> i32 {
        enqueue(info)
    }

    extern "C" fn destroy_event(_: i32, _: *mut c_void) -> i32 {
        OFFLOAD_SUCCESS
    }
}
