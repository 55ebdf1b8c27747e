//! Eight threads on one device: memory of each kind, streams and events are nobody else's while they are in use, data
//! stay what they are, and nothing is left at the end.

use crate::harness::{Image, Plugin, add, address, child, device_address, end, is_child};
use std::collections::BTreeMap;
use std::sync::Mutex;

const THREADS: u64 = 8;
const TURNS: u64 = 400;

/// What is in use, and by which thread. Blocks are ranges: no two may overlap.
#[derive(Default)]
struct InUse(Mutex<BTreeMap<usize, (usize, u64)>>);

impl InUse {
    fn take(&self, start: usize, size: usize, thread: u64) {
        let mut map = self.0.lock().expect("nobody has failed");
        let before = map.range(..start + size).next_back();
        assert!(before.is_none_or(|(begin, (size, _))| begin + size <= start), "{start:#x} is in use: {before:x?}");
        map.insert(start, (size, thread));
    }

    fn give(&self, start: usize, thread: u64) {
        let taken = self.0.lock().expect("nobody has failed").remove(&start);
        assert!(taken.is_some_and(|(_, of)| of == thread), "{start:#x} is {taken:?}, not of {thread}");
    }
}

/// A thread's own sequence of numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

struct Block {
    address: usize,
    data: Vec<u64>,
}

/// Words of a block: few sizes, so that blocks are used again, and one beyond the manager's.
const WORDS: [usize; 5] = [1, 2, 8, 64, 2000];

fn work(plugin: &Plugin, kernel: usize, thread: u64, memory: &InUse, queues: &InUse, events: &InUse) {
    let mut random = Random(thread);
    let mut blocks: Vec<Block> = Vec::new();
    for turn in 0..TURNS {
        match random.below(4) {
            // A new block, filled by a copy; kind 1 is the host's own memory.
            0 | 1 if blocks.len() < 12 => {
                let words = WORDS[random.below(WORDS.len() as u64) as usize];
                let mut data = vec![thread << 32 | turn; words];
                let kind = random.below(4) as i32;
                let address = plugin.data_alloc(0, words as i64 * 8, 0, kind);
                assert_ne!(address, 0, "there is memory");
                memory.take(address, words * 8, thread);
                assert_eq!(plugin.data_submit(0, address, data.as_mut_ptr().addr(), words as i64 * 8), 0);
                blocks.push(Block { address, data });
            }
            // What is in a block is what was put there.
            0..=2 => {
                let Some(Block { address, data }) = blocks.pop() else { continue };
                let (mut found, size) = (vec![0u64; data.len()], data.len() as i64 * 8);
                assert_eq!(plugin.data_retrieve(0, found.as_mut_ptr().addr(), address, size), 0);
                assert_eq!(found, data, "thread {thread}");
                memory.give(address, thread);
                assert_eq!(plugin.data_delete(0, address), 0);
            }
            // A copy and a kernel on two queues, in order by an event.
            _ => {
                let Some(Block { address: target, data }) = blocks.last_mut() else { continue };
                let (mut event, mut first, mut second) = (0, 0, 0);
                assert_eq!(plugin.create_event(0, &mut event), 0);
                events.take(event, 1, thread);
                data[0] = turn;
                assert_eq!(plugin.data_submit_async(0, *target, address(&mut data[0]), 8, &mut first), 0);
                queues.take(first, 1, thread);
                assert_eq!(plugin.record_event(0, event, &mut first), 0);
                assert_eq!(plugin.wait_event(0, event, &mut second), 0);
                queues.take(second, 1, thread);
                let (arguments, offsets) = ([*target, 3], [0, 0]);
                let run = plugin.run_target_team_region_async(
                    0,
                    kernel,
                    arguments.as_ptr(),
                    offsets.as_ptr(),
                    2,
                    1,
                    0,
                    0,
                    &mut second,
                );
                assert_eq!(run, 0);
                // Whoever gets a queue next may get it while this thread is still on its way out of the call.
                queues.give(second, thread);
                assert_eq!(plugin.synchronize(0, &mut second), 0);
                queues.give(first, thread);
                assert_eq!(plugin.synchronize(0, &mut first), 0);
                data[0] += 3;
                assert_eq!(plugin.sync_event(0, event), 0);
                events.give(event, thread);
                assert_eq!(plugin.destroy_event(0, event), 0);
            }
        }
    }
    for block in blocks {
        memory.give(block.address, thread);
        assert_eq!(plugin.data_delete(0, block.address), 0);
    }
}

#[test]
fn threads_get_blocks_streams_and_events_of_their_own() {
    const NAME: &str = "threads::threads_get_blocks_streams_and_events_of_their_own";
    if is_child() {
        let plugin = Plugin::open();
        assert_eq!(plugin.init_device(0), 0);
        let kernel = device_address(plugin.load_binary(0, Image::new(&[("add", 0)]).0), 0);
        let (memory, queues, events) = (InUse::default(), InUse::default(), InUse::default());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (plugin, memory, queues, events) = (&plugin, &memory, &queues, &events);
                scope.spawn(move || work(plugin, kernel, thread, memory, queues, events));
            }
        });
        let counts = plugin.counts();
        assert!(counts.allocations > 0, "the manager keeps some");
        // At most two queues and one event a thread; a pool doubles.
        assert!(counts.streams <= 2 * 2 * THREADS && counts.events <= 2 * THREADS, "{counts:?}");
        end();
    }
    for (seed, delay) in [("1", "0"), ("2", "50"), ("3", "300")] {
        let switches = [
            ("EMU_SEED", seed),
            ("EMU_DELAY_US", delay),
            ("EMU_POISON", "1"),
            ("EMU_CHECK", "1"),
            ("LIBOMPTARGET_NUM_INITIAL_STREAMS", "1"),
        ];
        let ended = child(NAME, &switches).clean();
        assert!(ended.errors().is_empty(), "{ended}");
    }
}

/// Pinned memory is freed as such, and its address is not remembered: the driver gives it out again as device memory.
#[test]
fn pinned_memory_is_forgotten_when_it_is_freed() {
    const NAME: &str = "threads::pinned_memory_is_forgotten_when_it_is_freed";
    if is_child() {
        let plugin = Plugin::open();
        assert_eq!(plugin.init_device(0), 0);
        let mut again = 0;
        for turn in 0..50 {
            let (first, second) = if turn % 2 == 0 { (1, 0) } else { (0, 1) };
            let before = plugin.data_alloc(0, 100_000, 0, first);
            assert_eq!(plugin.data_delete(0, before), 0);
            let after = plugin.data_alloc(0, 100_000, 0, second);
            again += usize::from(before == after);
            assert_eq!(plugin.data_delete(0, after), 0);
        }
        assert_eq!(again, 50, "the driver gives out what it got last");
        // Eight threads, host and device memory at the same addresses in turn.
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let plugin = &plugin;
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let block = plugin.data_alloc(0, 100_000, 0, ((thread + turn) % 3) as i32);
                        assert_eq!(plugin.data_delete(0, block), 0);
                    }
                });
            }
        });
        assert_eq!(plugin.counts().allocations, 0);
        end();
    }
    let ended = child(NAME, &[]).clean();
    assert!(ended.errors().is_empty(), "{ended}");
}

/// Kernels of both images have their names in the information lines, as long as these are asked for.
#[test]
fn kernels_of_every_image_are_named() {
    const NAME: &str = "threads::kernels_of_every_image_are_named";
    if is_child() {
        let plugin = Plugin::open();
        assert_eq!(plugin.init_device(0), 0);
        let [first, second] =
            [("add", 0), ("tell", 0)].map(|entry| device_address(plugin.load_binary(0, Image::new(&[entry]).0), 0));
        let target = plugin.data_alloc(0, 8, 0, 0);
        for entry in [first, second, first] {
            assert_eq!(add(&plugin, 0, entry, target, 1), 0);
        }
        plugin.set_info_flag(8);
        assert_eq!(add(&plugin, 0, first, target, 1), 0);
        end();
    }
    let ended = child(NAME, &[("LIBOMPTARGET_INFO", "16")]).clean();
    let launched = |name: &str, mode: &str| {
        let line = format!("CUDA device 0 info: Launching kernel {name} with 1 blocks and ");
        ended.stderr.lines().filter(|text| text.starts_with(&line) && text.ends_with(mode)).count()
    };
    assert_eq!((launched("add", "in SPMD mode"), launched("tell", "in Generic mode")), (2, 1), "{ended}");
}
