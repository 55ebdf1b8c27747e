//! A plugin in the test process, one for each side: device and host memory are tables of bytes, each call is noted, and
//! any function can be made to fail.
//!
//! LLVM's code and the core treat addresses as numbers, so those of this plugin need not exist. Both sides give out the
//! same addresses in the same order, and never one twice.

use omptarget_tool::core::Core;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;

/// The code of a function that was made to fail: neither of LLVM's, to see it passed on.
pub const FAILED: i32 = 7;

/// Where the runtime's own memory is; the program's is only pretended, above and below.
const PLACES: std::ops::Range<usize> = 0x1_0000_0000..0x8000_0000_0000;
/// Bytes of host memory.
pub const HOST_SIZE: usize = 96;

/// Device memory that the user has, on each device, for associations and exchanges.
pub const USER_MEMORY: usize = 0x5000_0000_0800;
/// Its bytes.
pub const USER_SIZE: usize = 4 * HOST_SIZE;

// Blocks are in the middle of pages of their own, so that addresses around them can be told.
const FIRST_MEMORY: usize = 0x7000_0000_0800;
const PAGE: usize = 0x1000;
const FIRST_EVENT: usize = 0xe000_0000;
const FIRST_QUEUE: usize = 0x9000_0000;

/// A function that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Function {
    Init,
    LoadBinary,
    Alloc,
    Delete,
    Submit,
    Retrieve,
    Exchange,
    Run,
    Synchronize,
    CreateEvent,
    RecordEvent,
    WaitEvent,
    SyncEvent,
    DestroyEvent,
}

/// The queue that a call of a function was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// The synchronous form, which takes none.
    Sync,
    /// None yet, and the function makes none.
    Null,
    /// That of the call into the runtime with this number.
    Of(usize),
}

/// A call of a plugin function on a device, with its arguments, or `result` where it gives an address out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PluginCall {
    Alloc { size: i64, host: usize, kind: i32, result: usize },
    Delete { target: usize },
    Submit { target: usize, host: usize, size: i64, queue: Queue },
    SubmitPointer { target: usize, pointer: usize, queue: Queue },
    Retrieve { host: usize, target: usize, size: i64, queue: Queue },
    Exchange { source: usize, to: i32, target: usize, size: i64, queue: Queue },
    Run { numbers: [u64; 7], queue: Queue },
    Synchronize { queue: Queue },
    CreateEvent { result: usize },
    RecordEvent { event: usize, queue: Queue },
    WaitEvent { event: usize, queue: Queue },
    SyncEvent { event: usize },
    DestroyEvent { event: usize },
    Other { name: &'static str, argument: i64 },
}

/// What the plugin can do.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// It has queues: asynchronous functions and `synchronize`.
    pub queues: bool,
    /// It has events.
    pub events: bool,
    /// It can copy between its devices.
    pub exchange: bool,
    /// It has asynchronous launches, if it has queues.
    pub async_launch: bool,
    /// It has `destroy_event`, if it has events.
    pub destroy_event: bool,
}

/// One side's plugin: what its devices hold, and what it was asked.
#[derive(Debug)]
pub struct Plugin {
    /// Device memory by address.
    pub memory: BTreeMap<usize, Vec<u8>>,
    /// First host address.
    pub host_base: usize,
    /// Host memory.
    pub host: Vec<u8>,
    /// Live events.
    pub events: BTreeSet<usize>,
    /// Live queues, and the call that each belongs to.
    pub queues: BTreeMap<usize, usize>,
    /// The call into the runtime that is going on.
    pub call: usize,
    /// The function that is to fail, after so many calls of it.
    pub failure: Option<(Function, u8)>,
    /// It has failed.
    pub failed: bool,
    /// The calls so far.
    pub trace: Vec<(i32, PluginCall)>,
    /// What no plugin could have done: a use of memory, an event or a queue that is not there.
    pub faults: Vec<String>,
    has_queues: bool,
    next_memory: usize,
    next_event: usize,
    next_queue: usize,
}

impl Plugin {
    /// A plugin with nothing allocated but the user's memory, whose host memory begins at `host_base`.
    pub fn new(host_base: usize, abilities: Abilities) -> Self {
        Self {
            memory: BTreeMap::from([(USER_MEMORY, (0..USER_SIZE).map(|at| at as u8).collect())]),
            host_base,
            host: (0..HOST_SIZE).map(|at| 0x80 | at as u8).collect(),
            events: BTreeSet::new(),
            queues: BTreeMap::new(),
            call: 0,
            failure: None,
            failed: false,
            trace: Vec::new(),
            faults: Vec::new(),
            has_queues: abilities.queues,
            next_memory: FIRST_MEMORY,
            next_event: FIRST_EVENT,
            next_queue: FIRST_QUEUE,
        }
    }

    /// Whether this call of `function` is the one that is to fail.
    fn fails(&mut self, function: Function) -> bool {
        match &mut self.failure {
            Some((to_fail, left)) if *to_fail == function && *left == 0 => {
                self.failure = None;
                self.failed = true;
                true
            }
            Some((to_fail, left)) if *to_fail == function => {
                *left -= 1;
                false
            }
            _ => false,
        }
    }

    fn code(&mut self, function: Function) -> i32 {
        if self.fails(function) { FAILED } else { 0 }
    }

    fn note(&mut self, device: i32, call: PluginCall) {
        self.trace.push((device, call));
    }

    fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    /// The call that `queue` belongs to; a null one is made for the call that is going on, if the function `makes` one.
    fn queue(&mut self, queue: &mut *mut c_void, makes: bool) -> Queue {
        if queue.is_null() {
            if !makes || !self.has_queues {
                return Queue::Null;
            }
            self.queues.insert(self.next_queue, self.call);
            *queue = self.next_queue as *mut c_void;
            self.next_queue += 1;
        }
        match self.queues.get(&queue.addr()) {
            Some(call) if *call == self.call => Queue::Of(*call),
            other => {
                let text = format!("queue {:#x} of {other:?} used in call {}", queue.addr(), self.call);
                self.fault(text);
                Queue::Null
            }
        }
    }

    /// Whether call `call` has a queue that has not been synchronised.
    pub fn has_queue(&self, call: usize) -> bool {
        self.queues.values().any(|of| *of == call)
    }

    fn alloc(&mut self, size: i64) -> usize {
        match usize::try_from(size) {
            Ok(bytes) if bytes <= PAGE / 2 && !self.fails(Function::Alloc) => {
                let address = self.next_memory;
                self.next_memory += PAGE;
                self.memory.insert(address, vec![0; bytes]);
                address
            }
            Ok(bytes) if bytes <= PAGE / 2 => 0,
            // No device has as much.
            _ => {
                self.failed = true;
                0
            }
        }
    }

    fn delete(&mut self, target: usize) {
        if self.memory.remove(&target).is_none() {
            self.fault(format!("free of {target:#x}, which is not allocated"));
        }
    }

    fn event_exists(&mut self, event: usize) {
        if !self.events.contains(&event) {
            self.fault(format!("use of event {event:#x}, which is not there"));
        }
    }

    /// The device memory from `target` to the end of its block, at most `size` bytes, and none before its begin.
    fn device_bytes(&mut self, target: usize, size: i64) -> &mut [u8] {
        let page = target / PAGE * PAGE;
        let Some((begin, block)) = self.memory.range_mut(page..page + PAGE).next() else {
            self.faults.push(format!("use of {target:#x}, which is not allocated"));
            return &mut [];
        };
        let rest = target.checked_sub(*begin).and_then(|offset| block.get_mut(offset..)).unwrap_or_default();
        let size = usize::try_from(size).unwrap_or(0).min(rest.len());
        &mut rest[..size]
    }

    /// Copies what lies inside both the block at `target` and host memory.
    ///
    /// LLVM copies beyond a block when an implicit map reaches past what is mapped.
    fn copy(&mut self, target: usize, host: usize, size: i64, to_device: bool) {
        let Some(offset) = host.checked_sub(self.host_base).filter(|offset| *offset <= HOST_SIZE) else { return };
        let mut bytes = std::mem::take(&mut self.host);
        let device = self.device_bytes(target, size);
        let count = device.len().min(HOST_SIZE - offset);
        let (device, host) = (&mut device[..count], &mut bytes[offset..offset + count]);
        if to_device {
            device.copy_from_slice(host)
        } else {
            host.copy_from_slice(device)
        }
        self.host = bytes;
    }

    /// Makes this side's state what `other`'s is, but for memory and events that one of them has alone: after a step
    /// that only `other` was asked to do.
    pub fn follow(&mut self, other: &Self) {
        (self.next_memory, self.next_event) = (other.next_memory, other.next_event);
        self.host.clone_from(&other.host);
        for (address, bytes) in &mut self.memory {
            if let Some(others) = other.memory.get(address) {
                bytes.clone_from(others);
            }
        }
    }
}

thread_local! {
    static PLUGINS: RefCell<[Option<Plugin>; 2]> = const { RefCell::new([None, None]) };
}

/// Puts a plugin in place for `core`, in this thread.
pub fn install(core: Core, plugin: Plugin) {
    PLUGINS.with_borrow_mut(|plugins| plugins[core as usize] = Some(plugin));
}

/// Looks into the plugin of `core`.
pub fn with<R>(core: Core, look: impl FnOnce(&mut Plugin) -> R) -> R {
    on(core as usize, look)
}

/// Lets stock's plugin follow ours.
pub fn stock_follows() {
    PLUGINS.with_borrow_mut(|plugins| {
        let [Some(rust), Some(stock)] = plugins else { panic!("both are installed") };
        stock.follow(rust);
    });
}

/// Looks into both, ours first.
pub fn with_both<R>(look: impl FnOnce(&Plugin, &Plugin) -> R) -> R {
    PLUGINS.with_borrow(|plugins| {
        let [Some(rust), Some(stock)] = plugins else { panic!("both are installed") };
        look(rust, stock)
    })
}

fn on<R>(side: usize, act: impl FnOnce(&mut Plugin) -> R) -> R {
    PLUGINS.with_borrow_mut(|plugins| act(plugins[side].as_mut().expect("a plugin is installed in this thread")))
}

/// `RTLInfoTy`'s functions as the harness takes them: the order of `PLUGIN_FUNCTIONS` in `cpp/harness.cpp`.
#[repr(C)]
pub struct Functions([*const c_void; 23]);

/// The functions of a side's plugin with these abilities.
pub fn functions(core: Core, abilities: Abilities) -> Functions {
    match core {
        Core::Stock => side_functions::<{ Core::Stock as usize }>(abilities),
        Core::Rust => side_functions::<{ Core::Rust as usize }>(abilities),
    }
}

fn side_functions<const S: usize>(abilities: Abilities) -> Functions {
    let if_able = |able: bool, function: *const c_void| if able { function } else { std::ptr::null() };
    let queues = |function| if_able(abilities.queues, function);
    let events = |function| if_able(abilities.events, function);
    let exchange = |function| if_able(abilities.exchange, function);
    Functions([
        init_requires::<S> as *const c_void,
        init_device::<S> as *const c_void,
        load_binary::<S> as *const c_void,
        data_alloc::<S> as *const c_void,
        data_delete::<S> as *const c_void,
        data_submit::<S> as *const c_void,
        queues(data_submit_async::<S> as *const c_void),
        data_retrieve::<S> as *const c_void,
        queues(data_retrieve_async::<S> as *const c_void),
        exchange(is_data_exchangable::<S> as *const c_void),
        exchange(data_exchange::<S> as *const c_void),
        if_able(abilities.queues && abilities.exchange, data_exchange_async::<S> as *const c_void),
        run_region::<S> as *const c_void,
        if_able(abilities.queues && abilities.async_launch, run_region_async::<S> as *const c_void),
        run_team_region::<S> as *const c_void,
        if_able(abilities.queues && abilities.async_launch, run_team_region_async::<S> as *const c_void),
        queues(synchronize::<S> as *const c_void),
        print_device_info::<S> as *const c_void,
        events(create_event::<S> as *const c_void),
        events(record_event::<S> as *const c_void),
        events(wait_event::<S> as *const c_void),
        events(sync_event::<S> as *const c_void),
        if_able(abilities.events && abilities.destroy_event, destroy_event::<S> as *const c_void),
    ])
}

/// The one member of `__tgt_async_info`. Only the plugin's own functions get it, always valid.
type AsyncInfo<'a> = &'a mut *mut c_void;

extern "C" fn init_requires<const S: usize>(flags: i64) -> i64 {
    on(S, |plugin| plugin.note(-1, PluginCall::Other { name: "init_requires", argument: flags }));
    flags
}

extern "C" fn init_device<const S: usize>(device: i32) -> i32 {
    on(S, |plugin| {
        plugin.note(device, PluginCall::Other { name: "init_device", argument: 0 });
        plugin.code(Function::Init)
    })
}

extern "C" fn load_binary<const S: usize>(device: i32, image: usize) -> usize {
    on(S, |plugin| {
        plugin.note(device, PluginCall::Other { name: "load_binary", argument: image as i64 });
        if plugin.fails(Function::LoadBinary) { 0 } else { image + 1 }
    })
}

extern "C" fn data_alloc<const S: usize>(device: i32, size: i64, host: usize, kind: i32) -> usize {
    on(S, |plugin| {
        let result = plugin.alloc(size);
        plugin.note(device, PluginCall::Alloc { size, host, kind, result });
        result
    })
}

extern "C" fn data_delete<const S: usize>(device: i32, target: usize) -> i32 {
    on(S, |plugin| {
        plugin.note(device, PluginCall::Delete { target });
        plugin.delete(target);
        plugin.code(Function::Delete)
    })
}

fn submit(plugin: &mut Plugin, device: i32, target: usize, host: usize, size: i64, queue: Queue) -> i32 {
    if PLACES.contains(&host) {
        // SAFETY: the runtime's own copy of a pointer, which it keeps until the call has been synchronised.
        let pointer = unsafe { *(host as *const usize) };
        plugin.note(device, PluginCall::SubmitPointer { target, pointer, queue });
        let code = plugin.code(Function::Submit);
        if code == 0 {
            let device = plugin.device_bytes(target, size);
            device.copy_from_slice(&pointer.to_ne_bytes()[..device.len()]);
        }
        return code;
    }
    plugin.note(device, PluginCall::Submit { target, host, size, queue });
    let code = plugin.code(Function::Submit);
    if code == 0 {
        plugin.copy(target, host, size, true);
    }
    code
}

extern "C" fn data_submit<const S: usize>(device: i32, target: usize, host: usize, size: i64) -> i32 {
    on(S, |plugin| submit(plugin, device, target, host, size, Queue::Sync))
}

extern "C" fn data_submit_async<const S: usize>(
    device: i32,
    target: usize,
    host: usize,
    size: i64,
    info: AsyncInfo<'_>,
) -> i32 {
    on(S, |plugin| {
        let queue = plugin.queue(info, true);
        submit(plugin, device, target, host, size, queue)
    })
}

fn retrieve(plugin: &mut Plugin, device: i32, host: usize, target: usize, size: i64, queue: Queue) -> i32 {
    plugin.note(device, PluginCall::Retrieve { host, target, size, queue });
    let code = plugin.code(Function::Retrieve);
    if code == 0 {
        plugin.copy(target, host, size, false);
    }
    code
}

extern "C" fn data_retrieve<const S: usize>(device: i32, host: usize, target: usize, size: i64) -> i32 {
    on(S, |plugin| retrieve(plugin, device, host, target, size, Queue::Sync))
}

extern "C" fn data_retrieve_async<const S: usize>(
    device: i32,
    host: usize,
    target: usize,
    size: i64,
    info: AsyncInfo<'_>,
) -> i32 {
    on(S, |plugin| {
        let queue = plugin.queue(info, true);
        retrieve(plugin, device, host, target, size, queue)
    })
}

extern "C" fn is_data_exchangable<const S: usize>(from: i32, to: i32) -> i32 {
    on(S, |plugin| plugin.note(from, PluginCall::Other { name: "is_data_exchangable", argument: to.into() }));
    i32::from(from != to)
}

fn exchange(plugin: &mut Plugin, from: i32, source: usize, to: i32, target: usize, size: i64, queue: Queue) -> i32 {
    plugin.note(from, PluginCall::Exchange { source, to, target, size, queue });
    let code = plugin.code(Function::Exchange);
    if code == 0 {
        let bytes = plugin.device_bytes(source, size).to_vec();
        let target = plugin.device_bytes(target, size);
        let count = bytes.len().min(target.len());
        target[..count].copy_from_slice(&bytes[..count]);
    }
    code
}

extern "C" fn data_exchange<const S: usize>(from: i32, source: usize, to: i32, target: usize, size: i64) -> i32 {
    on(S, |plugin| exchange(plugin, from, source, to, target, size, Queue::Sync))
}

extern "C" fn data_exchange_async<const S: usize>(
    from: i32,
    source: usize,
    to: i32,
    target: usize,
    size: i64,
    info: AsyncInfo<'_>,
) -> i32 {
    on(S, |plugin| {
        let queue = plugin.queue(info, true);
        exchange(plugin, from, source, to, target, size, queue)
    })
}

/// The arguments of a launch, arrays by their first element; without teams the last three are 0.
fn run(plugin: &mut Plugin, device: i32, numbers: [u64; 7], queue: Queue) -> i32 {
    plugin.note(device, PluginCall::Run { numbers, queue });
    plugin.code(Function::Run)
}

extern "C" fn run_region<const S: usize>(
    device: i32,
    entry: usize,
    arguments: &usize,
    offsets: &isize,
    count: i32,
) -> i32 {
    let numbers = [entry as u64, *arguments as u64, *offsets as u64, count as u64, 0, 0, 0];
    on(S, |plugin| run(plugin, device, numbers, Queue::Sync))
}

extern "C" fn run_region_async<const S: usize>(
    device: i32,
    entry: usize,
    arguments: &usize,
    offsets: &isize,
    count: i32,
    info: AsyncInfo<'_>,
) -> i32 {
    let numbers = [entry as u64, *arguments as u64, *offsets as u64, count as u64, 0, 0, 0];
    on(S, |plugin| {
        let queue = plugin.queue(info, true);
        run(plugin, device, numbers, queue)
    })
}

extern "C" fn run_team_region<const S: usize>(
    device: i32,
    entry: usize,
    arguments: &usize,
    offsets: &isize,
    count: i32,
    teams: i32,
    threads: i32,
    trips: u64,
) -> i32 {
    let numbers = [entry as u64, *arguments as u64, *offsets as u64, count as u64, teams as u64, threads as u64, trips];
    on(S, |plugin| run(plugin, device, numbers, Queue::Sync))
}

extern "C" fn run_team_region_async<const S: usize>(
    device: i32,
    entry: usize,
    arguments: &usize,
    offsets: &isize,
    count: i32,
    teams: i32,
    threads: i32,
    trips: u64,
    info: AsyncInfo<'_>,
) -> i32 {
    let numbers = [entry as u64, *arguments as u64, *offsets as u64, count as u64, teams as u64, threads as u64, trips];
    on(S, |plugin| {
        let queue = plugin.queue(info, true);
        run(plugin, device, numbers, queue)
    })
}

extern "C" fn synchronize<const S: usize>(device: i32, info: AsyncInfo<'_>) -> i32 {
    on(S, |plugin| {
        let queue = plugin.queue(info, false);
        plugin.queues.remove(&info.addr());
        // As LLVM's plugin does, whatever came of it.
        *info = std::ptr::null_mut();
        plugin.note(device, PluginCall::Synchronize { queue });
        plugin.code(Function::Synchronize)
    })
}

extern "C" fn print_device_info<const S: usize>(device: i32) {
    on(S, |plugin| plugin.note(device, PluginCall::Other { name: "print_device_info", argument: 0 }));
}

extern "C" fn create_event<const S: usize>(device: i32, event: &mut usize) -> i32 {
    on(S, |plugin| {
        let code = plugin.code(Function::CreateEvent);
        let mut result = 0;
        if code == 0 {
            result = plugin.next_event;
            plugin.next_event += 1;
            plugin.events.insert(result);
            *event = result;
        }
        plugin.note(device, PluginCall::CreateEvent { result });
        code
    })
}

extern "C" fn record_event<const S: usize>(device: i32, event: usize, info: AsyncInfo<'_>) -> i32 {
    on(S, |plugin| {
        let queue = plugin.queue(info, true);
        plugin.event_exists(event);
        plugin.note(device, PluginCall::RecordEvent { event, queue });
        plugin.code(Function::RecordEvent)
    })
}

extern "C" fn wait_event<const S: usize>(device: i32, event: usize, info: AsyncInfo<'_>) -> i32 {
    on(S, |plugin| {
        let queue = plugin.queue(info, true);
        plugin.event_exists(event);
        plugin.note(device, PluginCall::WaitEvent { event, queue });
        plugin.code(Function::WaitEvent)
    })
}

extern "C" fn sync_event<const S: usize>(device: i32, event: usize) -> i32 {
    on(S, |plugin| {
        plugin.event_exists(event);
        plugin.note(device, PluginCall::SyncEvent { event });
        plugin.code(Function::SyncEvent)
    })
}

extern "C" fn destroy_event<const S: usize>(device: i32, event: usize) -> i32 {
    on(S, |plugin| {
        if !plugin.events.remove(&event) {
            plugin.fault(format!("event {event:#x} destroyed, which is not there"));
        }
        plugin.note(device, PluginCall::DestroyEvent { event });
        plugin.code(Function::DestroyEvent)
    })
}
