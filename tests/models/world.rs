//! A device for a model checker: queues run on threads of their own, copies read and then write, and whatever a real
//! device would answer with wrong data or a crash is noted as a fault.
//!
//! Host and device memory are words by their addresses. Device addresses are never used twice, and memory that nothing
//! has been copied to holds [`POISON`].

use super::checker::{self, AtomicUsize, Condvar, JoinHandle, Mutex, MutexGuard};
use super::note;
use omptarget::plugin_api::Plugin;
use omptarget_abi::{AsyncInfo, OFFLOAD_FAIL, OFFLOAD_SUCCESS};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Bytes of a word.
pub const WORD: usize = 8;

const POISON: usize = 0xdead_beef;
/// What is in memory that has been freed.
const FREED: usize = 0xfee_df00d;

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

/// A word of memory, which the model checker watches.
type Word = Arc<AtomicUsize>;

/// A queue, served by a thread of its own.
#[derive(Debug)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    issued: usize,
    done: usize,
    work: VecDeque<Work>,
    /// Given back by a synchronisation.
    closed: bool,
}

/// All that the plugin and the program's memory are.
///
/// The model checker does not see this: words and queues are what threads meet at.
#[derive(Debug, Default)]
pub struct State {
    /// The program's memory.
    host: BTreeMap<usize, Word>,
    /// The device's, freed memory too.
    device: BTreeMap<usize, Word>,
    blocks: BTreeMap<usize, usize>,
    queues: BTreeMap<usize, Arc<Queue>>,
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

/// One world for each execution of a model. Its lock is none of the model checker's, which would have more orders to try:
/// all threads of a model run on one thread of the system, and none is stopped while it has the state.
#[derive(Debug, Default)]
pub struct World(parking_lot::Mutex<State>);

thread_local!(static WORLD: RefCell<Option<Arc<World>>> = const { RefCell::new(None) });

fn world() -> Arc<World> {
    WORLD.with_borrow(|world| world.clone()).expect("made by `World::create`")
}

/// Starts a thread in this thread's world.
pub fn spawn(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let world = world();
    checker::spawn(move || {
        WORLD.set(Some(world));
        work();
    })
}

impl State {
    /// An address that was never used.
    fn fresh(&mut self) -> usize {
        self.next += 0x1_0000;
        0x7000_0000 + self.next
    }
}

impl World {
    /// A new world, for the models of this thread, with this in the program's memory.
    pub fn create(memory: &[(usize, usize)]) -> Arc<Self> {
        let world = Arc::new(Self::default());
        let words = memory.iter().map(|(address, value)| (*address, Arc::new(AtomicUsize::new(*value))));
        world.with(|state| state.host.extend(words));
        WORLD.set(Some(Arc::clone(&world)));
        world
    }

    /// Looks at the state, or changes it. `look` meets no lock, atomic or thread of the model checker's.
    pub fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.0.lock())
    }

    /// Notes what went wrong.
    pub fn fault(&self, what: String) {
        self.with(|state| state.faults.push(what));
    }

    /// A word of the program's memory.
    pub fn host(&self, address: usize) -> Word {
        self.with(|state| Arc::clone(&state.host[&address]))
    }

    /// A word of the device's memory.
    fn device(&self, who: &str, address: usize) -> Option<Word> {
        let word = self.with(|state| state.device.get(&address).cloned());
        if word.is_none() {
            self.fault(format!("{who} uses {address:#x}, which is no memory of the device"));
        }
        word
    }

    /// The value there.
    fn load(&self, who: &str, address: usize) -> Option<usize> {
        let value = self.device(who, address)?.load(SeqCst);
        if value == FREED {
            self.fault(format!("{who} uses {address:#x}, which has been freed"));
        }
        Some(value).filter(|value| *value != FREED)
    }

    /// Ends the world: all faults, and what has been left on the device.
    pub fn end(&self) -> Vec<String> {
        for thread in self.with(|state| std::mem::take(&mut state.threads)) {
            thread.join().expect("a queue does not panic");
        }
        let queues: Vec<_> = self.with(|state| state.queues.values().cloned().collect());
        let open = queues.iter().filter(|queue| !queue.lock().closed).count();
        self.with(|state| {
            let mut faults = std::mem::take(&mut state.faults);
            for (count, what) in [(state.blocks.len(), "blocks"), (state.events.len(), "events"), (open, "queues")] {
                if count > 0 {
                    faults.push(format!("{count} {what} are left"));
                }
            }
            faults
        })
    }

    /// The queue at `address`, which must live.
    fn queue(&self, who: &str, address: usize) -> Option<Arc<Queue>> {
        let queue = self.with(|state| state.queues.get(&address).cloned());
        let queue = queue.filter(|queue| !queue.lock().closed);
        if queue.is_none() {
            self.fault(format!("{who} gets queue {address:#x}, which does not live"));
        }
        queue
    }

    /// Issues work on the queue in `info`, which is made if there is none.
    fn issue(self: &Arc<Self>, info: *mut AsyncInfo, work: Work) {
        // SAFETY: the core passes the `__tgt_async_info` of the call's record.
        let address = unsafe { &mut (*info).queue };
        if address.is_null() {
            let queue = Arc::new(Queue { state: Mutex::new(QueueState::default()), changed: Condvar::new() });
            let made = self.with(|state| {
                let made = state.fresh();
                state.queues.insert(made, Arc::clone(&queue));
                made
            });
            *address = made as *mut c_void;
            let world = Arc::clone(self);
            let thread = spawn(move || queue.serve(made, &world));
            self.with(|state| state.threads.push(thread));
        }
        let Some(queue) = self.queue("a call", address.addr()) else { return };
        let mut state = queue.lock();
        state.issued += 1;
        state.work.push_back(work);
        drop(state);
        queue.changed.notify_all();
    }

    fn work(&self, work: Work) {
        match work {
            Work::CopyIn { target, host, words } => {
                let word = |address| match self.with(|state| state.host.get(&address).cloned()) {
                    Some(word) => word.load(SeqCst),
                    // SAFETY: not a variable of the model, but a place of the caller's that outlives its call.
                    None => unsafe { *(address as *const usize) },
                };
                let read: Vec<usize> = (0..words).map(|i| word(host + i * WORD)).collect();
                for (i, value) in read.into_iter().enumerate() {
                    let address = target + i * WORD;
                    let Some(word) = self.device("a copy in", address) else { return };
                    if word.swap(value, SeqCst) == FREED {
                        self.fault(format!("a copy in uses {address:#x}, which has been freed"));
                    }
                }
            }
            Work::CopyOut { host, target, words } => {
                let read: Vec<_> = (0..words).map(|i| self.load("a copy back", target + i * WORD)).collect();
                for (i, value) in read.into_iter().enumerate() {
                    if let Some(value) = value {
                        self.host(host + i * WORD).store(value, SeqCst);
                    }
                }
            }
            Work::Wait { queue, upto } => self.wait(queue, upto),
            Work::Run { kernel, argument } => self.run(kernel, argument),
        }
    }

    fn run(&self, kernel: Kernel, argument: usize) {
        let (through, expected, added) = match kernel {
            Kernel::Expect(value) => (false, Some(value), 0),
            Kernel::Add(value) => (false, None, value),
            Kernel::Deref(value) => (true, Some(value), 0),
            Kernel::AddThrough(value) => (true, None, value),
        };
        let address = if through { self.load("a kernel", argument) } else { Some(argument) };
        let Some(address) = address else { return };
        let Some(word) = self.device("a kernel", address) else { return };
        let found = if added > 0 { word.fetch_add(added, SeqCst) } else { word.load(SeqCst) };
        if found == FREED {
            self.fault(format!("a kernel uses {address:#x}, which has been freed"));
        } else if expected.is_some_and(|expected| expected != found) {
            self.fault(format!("a kernel reads {found:#x}: {kernel:x?}"));
        }
    }

    /// Blocks until a queue has done so many works.
    fn wait(&self, queue: usize, upto: usize) {
        // An event that was recorded on no queue has been noted as a fault.
        let Some(queue) = self.with(|state| state.queues.get(&queue).cloned()) else { return };
        let mut state = queue.lock();
        while state.done < upto {
            state = queue.changed.wait(state).expect("no thread panics with it");
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Does the queue's work, until it is closed.
    fn serve(&self, address: usize, world: &World) {
        loop {
            let mut state = self.lock();
            let work = loop {
                match state.work.pop_front() {
                    Some(work) => break work,
                    None if state.closed => return,
                    None => state = self.changed.wait(state).expect("no thread panics with it"),
                }
            };
            drop(state);
            note!("queue {address:x} does {work:x?}");
            world.work(work);
            self.lock().done += 1;
            self.changed.notify_all();
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
        number.store(0, Relaxed);
    }
    plugin
}

extern "C" fn data_alloc(_: i32, size: i64, _: *mut c_void, _: i32) -> *mut c_void {
    let words = usize::try_from(size).expect("models map what exists") / WORD;
    let memory: Vec<Word> = (0..words).map(|_| Arc::new(AtomicUsize::new(POISON))).collect();
    world().with(|state| {
        let block = state.fresh();
        state.blocks.insert(block, words);
        state.device.extend(memory.into_iter().enumerate().map(|(i, word)| (block + i * WORD, word)));
        block as *mut c_void
    })
}

extern "C" fn data_delete(_: i32, target: *mut c_void) -> i32 {
    let world = world();
    let Some(words) = world.with(|state| state.blocks.remove(&target.addr())) else {
        world.fault(format!("data_delete gets {target:p}, which is no block"));
        return OFFLOAD_FAIL;
    };
    for i in 0..words {
        let word = world.with(|state| Arc::clone(&state.device[&(target.addr() + i * WORD)]));
        word.store(FREED, SeqCst);
    }
    OFFLOAD_SUCCESS
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
    let address = std::mem::replace(unsafe { &mut (*info).queue }, null_mut()).addr();
    let Some(queue) = world().queue("synchronize", address) else { return OFFLOAD_FAIL };
    let mut state = queue.lock();
    while state.done < state.issued {
        state = queue.changed.wait(state).expect("no thread panics with it");
    }
    state.closed = true;
    drop(state);
    queue.changed.notify_all();
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
    let world = world();
    let issued = world.queue("record_event", address).map_or(0, |queue| queue.lock().issued);
    world.with(|state| match state.events.get_mut(&event.addr()) {
        Some(stands_for) => *stands_for = Some((address, issued)),
        None => state.faults.push(format!("record_event gets event {event:p}, which does not live")),
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
