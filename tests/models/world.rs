//! A device for a model checker: queues run on threads of their own, copies read and then write, and whatever a real
//! device would answer with wrong data or a crash is noted as a fault.
//!
//! Host and device memory are words by their addresses. Device addresses are never used twice, and memory that nothing
//! has been copied to holds [`POISON`].

use super::checker::{Condvar, JoinHandle, Mutex, spawn};
use super::note;
use omptarget::plugin_api::Plugin;
use omptarget_abi::{AsyncInfo, OFFLOAD_FAIL, OFFLOAD_SUCCESS};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a word.
pub const WORD: usize = 8;

const POISON: usize = 0xdead_beef;

/// What a target region does with its arguments, each the device address of a mapping.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// The word there is this one.
    Expect(usize),
    /// Adds to the word there, as one step.
    Add(usize),
    /// The word there points to a word on the device which is this one.
    Deref(usize),
    /// Adds to the word on the device that the word there points to, as one step.
    AddThrough(usize),
}

#[derive(Debug)]
enum Work {
    CopyIn { target: usize, host: usize, words: usize },
    CopyOut { host: usize, target: usize, words: usize },
    Wait { queue: usize, upto: usize },
    Run { kernel: Kernel, argument: usize },
}

#[derive(Debug, Default)]
struct Queue {
    issued: usize,
    done: usize,
    work: VecDeque<Work>,
    /// Given back by a synchronisation.
    closed: bool,
}

/// All that the plugin and the program's memory are.
#[derive(Debug, Default)]
pub struct State {
    /// The program's memory.
    pub host: BTreeMap<usize, usize>,
    device: BTreeMap<usize, usize>,
    blocks: BTreeMap<usize, usize>,
    queues: BTreeMap<usize, Queue>,
    /// What each event stands for: a queue, and how many of its works.
    events: BTreeMap<usize, Option<(usize, usize)>>,
    /// LLVM's `getVoidPtrLocation`: places for pointers on their way to the device.
    #[expect(clippy::vec_box, reason = "none may move while a copy from it is under way")]
    pub places: Vec<Box<usize>>,
    next: usize,
    threads: Vec<JoinHandle<()>>,
    /// Device addresses whose mapping a `delete` has taken away.
    pub deleted: BTreeSet<usize>,
    /// What went wrong.
    pub faults: Vec<String>,
}

/// One world for each execution of a model.
#[derive(Debug)]
pub struct World {
    state: Mutex<State>,
    changed: Condvar,
}

// A model checker runs all threads of a model on one thread of the system.
thread_local!(static WORLD: RefCell<Option<Arc<World>>> = const { RefCell::new(None) });

fn world() -> Arc<World> {
    WORLD.with_borrow(|world| world.clone()).expect("made by `World::create`")
}

impl State {
    /// An address that was never used.
    fn fresh(&mut self) -> usize {
        self.next += 0x1_0000;
        0x7000_0000 + self.next
    }

    /// A word of the device's memory, if it is allocated.
    fn word(&mut self, who: &str, address: usize) -> Option<&mut usize> {
        if !self.device.contains_key(&address) {
            self.faults.push(format!("{who} uses {address:#x}, which is no memory of the device"));
        }
        self.device.get_mut(&address)
    }

    fn run(&mut self, kernel: Kernel, argument: usize) {
        let (through, expected, added) = match kernel {
            Kernel::Expect(value) => (false, Some(value), 0),
            Kernel::Add(value) => (false, None, value),
            Kernel::Deref(value) => (true, Some(value), 0),
            Kernel::AddThrough(value) => (true, None, value),
        };
        let mut address = argument;
        if through {
            let Some(pointer) = self.word("a kernel", address) else { return };
            address = *pointer;
        }
        let Some(word) = self.word("a kernel", address) else { return };
        *word = word.wrapping_add(added);
        let found = *word;
        if expected.is_some_and(|expected| expected != found) {
            self.faults.push(format!("a kernel reads {found:#x}: {kernel:x?}"));
        }
    }

    /// The live queue at `address`.
    fn queue(&mut self, who: &str, address: usize) -> Option<&mut Queue> {
        if self.queues.get(&address).is_none_or(|queue| queue.closed) {
            self.faults.push(format!("{who} gets queue {address:#x}, which does not live"));
        }
        self.queues.get_mut(&address)
    }
}

impl World {
    /// A new world, for the models of this thread.
    pub fn create() -> Arc<Self> {
        let world = Arc::new(Self { state: Mutex::new(State::default()), changed: Condvar::new() });
        WORLD.set(Some(Arc::clone(&world)));
        world
    }

    /// Looks at the state, or changes it, as one step.
    pub fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.state.lock().expect("no thread panics with it"))
    }

    /// Ends the world: all faults, and what has been left on the device.
    pub fn end(&self) -> Vec<String> {
        for thread in self.with(|state| std::mem::take(&mut state.threads)) {
            thread.join().expect("a queue does not panic");
        }
        self.with(|state| {
            let mut faults = std::mem::take(&mut state.faults);
            let queues = state.queues.values().filter(|queue| !queue.closed).count();
            for (count, what) in [(state.blocks.len(), "blocks"), (state.events.len(), "events"), (queues, "queues")] {
                if count > 0 {
                    faults.push(format!("{count} {what} are left"));
                }
            }
            faults
        })
    }

    /// Issues work on the queue in `info`, which is made if there is none.
    fn issue(self: &Arc<Self>, info: *mut AsyncInfo, work: Work) {
        // SAFETY: the core passes the `__tgt_async_info` of the call's record.
        let address = unsafe { &mut (*info).queue };
        if address.is_null() {
            let made = self.with(|state| {
                let made = state.fresh();
                state.queues.insert(made, Queue::default());
                made
            });
            *address = made as *mut c_void;
            let world = Arc::clone(self);
            let thread = spawn(move || world.serve(made));
            self.with(|state| state.threads.push(thread));
        }
        self.with(|state| {
            if let Some(queue) = state.queue("a call", address.addr()) {
                queue.issued += 1;
                queue.work.push_back(work);
            }
        });
        self.changed.notify_all();
    }

    /// Does a queue's work, until it is closed.
    fn serve(&self, address: usize) {
        loop {
            let work = {
                let mut state = self.state.lock().expect("no thread panics with it");
                loop {
                    let queue = state.queues.get_mut(&address).expect("queues are never taken out");
                    match queue.work.pop_front() {
                        Some(work) => break work,
                        None if queue.closed => return,
                        None => state = self.changed.wait(state).expect("no thread panics with it"),
                    }
                }
            };
            self.work(address, work);
            self.with(|state| state.queues.get_mut(&address).expect("queues are never taken out").done += 1);
            self.changed.notify_all();
        }
    }

    fn work(&self, address: usize, work: Work) {
        note!("queue {address:x} does {work:x?}");
        match work {
            Work::CopyIn { target, host, words } => {
                let read: Vec<usize> = self.with(|state| {
                    let word = |address| match state.host.get(&address) {
                        Some(word) => *word,
                        // SAFETY: not a variable of the model, but a place of the caller's that outlives its call.
                        None => unsafe { *(address as *const usize) },
                    };
                    (0..words).map(|i| word(host + i * WORD)).collect()
                });
                self.with(|state| {
                    for (i, value) in read.into_iter().enumerate() {
                        if let Some(word) = state.word("a copy in", target + i * WORD) {
                            *word = value;
                        }
                    }
                });
            }
            Work::CopyOut { host, target, words } => {
                let read: Vec<Option<usize>> = self.with(|state| {
                    (0..words).map(|i| state.word("a copy back", target + i * WORD).map(|word| *word)).collect()
                });
                self.with(|state| {
                    for (i, value) in read.into_iter().enumerate() {
                        if let Some(value) = value {
                            state.host.insert(host + i * WORD, value);
                        }
                    }
                });
            }
            Work::Wait { queue, upto } => self.wait(queue, upto),
            Work::Run { kernel, argument } => self.with(|state| state.run(kernel, argument)),
        }
    }

    /// Blocks until a queue has done so many works.
    fn wait(&self, queue: usize, upto: usize) {
        let mut state = self.state.lock().expect("no thread panics with it");
        while state.queues[&queue].done < upto {
            state = self.changed.wait(state).expect("no thread panics with it");
        }
    }
}

/// A plugin for the world of this thread.
pub fn plugin() -> Plugin {
    let functions: [(&str, *const c_void); 11] = [
        ("__tgt_rtl_data_alloc", data_alloc as *const c_void),
        ("__tgt_rtl_data_delete", data_delete as *const c_void),
        ("__tgt_rtl_data_submit_async", data_submit_async as *const c_void),
        ("__tgt_rtl_data_retrieve_async", data_retrieve_async as *const c_void),
        ("__tgt_rtl_run_target_team_region_async", run_target_team_region_async as *const c_void),
        ("__tgt_rtl_synchronize", synchronize as *const c_void),
        ("__tgt_rtl_create_event", create_event as *const c_void),
        ("__tgt_rtl_record_event", record_event as *const c_void),
        ("__tgt_rtl_wait_event", wait_event as *const c_void),
        ("__tgt_rtl_sync_event", sync_event as *const c_void),
        ("__tgt_rtl_destroy_event", destroy_event as *const c_void),
    ];
    // SAFETY: the functions below have the types of LLVM 14's `rtl.h`.
    let plugin = unsafe { Plugin::from_addresses(functions.into_iter()) };
    for number in plugin.numbers() {
        number.store(0, Ordering::Relaxed);
    }
    plugin
}

extern "C" fn data_alloc(_: i32, size: i64, _: *mut c_void, _: i32) -> *mut c_void {
    world().with(|state| {
        let words = usize::try_from(size).expect("models map what exists") / WORD;
        let block = state.fresh();
        state.blocks.insert(block, words);
        state.device.extend((0..words).map(|i| (block + i * WORD, POISON)));
        block as *mut c_void
    })
}

extern "C" fn data_delete(_: i32, target: *mut c_void) -> i32 {
    world().with(|state| {
        let Some(words) = state.blocks.remove(&target.addr()) else {
            state.faults.push(format!("data_delete gets {target:p}, which is no block"));
            return OFFLOAD_FAIL;
        };
        for i in 0..words {
            state.device.remove(&(target.addr() + i * WORD));
        }
        OFFLOAD_SUCCESS
    })
}

extern "C" fn data_submit_async(
    _: i32,
    target: *mut c_void,
    host: *mut c_void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    let words = size as usize / WORD;
    world().issue(info, Work::CopyIn { target: target.addr(), host: host.addr(), words });
    OFFLOAD_SUCCESS
}

extern "C" fn data_retrieve_async(
    _: i32,
    host: *mut c_void,
    target: *mut c_void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    let words = size as usize / WORD;
    world().issue(info, Work::CopyOut { host: host.addr(), target: target.addr(), words });
    OFFLOAD_SUCCESS
}

extern "C" fn run_target_team_region_async(
    _: i32,
    entry: *mut c_void,
    arguments: *mut *mut c_void,
    _: *mut isize,
    _: i32,
    _: i32,
    _: i32,
    _: u64,
    info: *mut AsyncInfo,
) -> i32 {
    // SAFETY: `calls::target` passes a kernel of its own.
    let kernel = unsafe { *entry.cast::<Kernel>() };
    // SAFETY: and one argument.
    let argument = unsafe { *arguments }.addr();
    world().issue(info, Work::Run { kernel, argument });
    OFFLOAD_SUCCESS
}

extern "C" fn synchronize(_: i32, info: *mut AsyncInfo) -> i32 {
    // SAFETY: the core passes the `__tgt_async_info` of the call's record.
    let queue = std::mem::replace(unsafe { &mut (*info).queue }, null_mut()).addr();
    let world = world();
    let issued = world.with(|state| state.queue("synchronize", queue).map_or(0, |queue| queue.issued));
    world.wait(queue, issued);
    world.with(|state| {
        if let Some(queue) = state.queue("synchronize", queue) {
            queue.closed = true;
        }
    });
    world.changed.notify_all();
    OFFLOAD_SUCCESS
}

extern "C" fn create_event(_: i32, event: *mut *mut c_void) -> i32 {
    let made = world().with(|state| {
        let made = state.fresh();
        state.events.insert(made, None);
        made
    });
    // SAFETY: the core passes a place for it.
    unsafe { event.write(made as *mut c_void) };
    OFFLOAD_SUCCESS
}

extern "C" fn record_event(_: i32, event: *mut c_void, info: *mut AsyncInfo) -> i32 {
    // SAFETY: the core passes the `__tgt_async_info` of a call's record, or one with its queue.
    let address = unsafe { (*info).queue }.addr();
    world().with(|state| {
        let issued = state.queue("record_event", address).map_or(0, |queue| queue.issued);
        match state.events.get_mut(&event.addr()) {
            Some(stands_for) => *stands_for = Some((address, issued)),
            None => state.faults.push(format!("record_event gets event {event:p}, which does not live")),
        }
    });
    OFFLOAD_SUCCESS
}

/// What a live event stands for.
fn event(who: &str, event: *mut c_void) -> Option<(usize, usize)> {
    world().with(|state| match state.events.get(&event.addr()) {
        Some(stands_for) => *stands_for,
        None => {
            state.faults.push(format!("{who} gets event {event:p}, which does not live"));
            None
        }
    })
}

extern "C" fn wait_event(_: i32, waited: *mut c_void, info: *mut AsyncInfo) -> i32 {
    if let Some((queue, upto)) = event("wait_event", waited) {
        world().issue(info, Work::Wait { queue, upto });
    }
    OFFLOAD_SUCCESS
}

extern "C" fn sync_event(_: i32, waited: *mut c_void) -> i32 {
    if let Some((queue, upto)) = event("sync_event", waited) {
        world().wait(queue, upto);
    }
    OFFLOAD_SUCCESS
}

extern "C" fn destroy_event(_: i32, event: *mut c_void) -> i32 {
    world().with(|state| {
        if state.events.remove(&event.addr()).is_none() {
            state.faults.push(format!("destroy_event gets event {event:p}, which does not live"));
        }
    });
    OFFLOAD_SUCCESS
}
