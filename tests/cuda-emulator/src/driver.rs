//! The one driver of the process: switches, contexts, and the tables of everything that has a handle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use crate::account::{self, Kind};
use crate::code::{self, Code, Result};
use crate::context::{self, Context};
use crate::env::{Env, KERNEL};
use crate::event::Event;
use crate::handle::{CuContext, CuEvent, CuFunction, CuModule, CuStream};
use crate::memory::Memory;
use crate::module::{Function, Module};
use crate::stream::Stream;
use crate::trace::Trace;
use crate::{api, say};

static DRIVER: OnceLock<std::result::Result<Driver, ()>> = OnceLock::new();

/// The driver; made, and its switches read, at the first call.
pub fn get() -> Result<&'static Driver> {
    let made = DRIVER.get_or_init(|| Driver::new().map_err(|why| say(&why)));
    made.as_ref().map_err(|()| code::CUDA_ERROR_UNKNOWN)
}

/// The driver, if a call has been made.
pub fn peek() -> Option<&'static Driver> {
    DRIVER.get()?.as_ref().ok()
}

/// Everything that the driver knows.
#[derive(Debug)]
pub struct Driver {
    /// The switches.
    pub env: Env,
    /// `cuInit` has succeeded.
    pub initialised: AtomicBool,
    /// The driver has been torn down, as `EMU_GONE` asks.
    pub gone: AtomicBool,
    /// Where calls are recorded.
    pub trace: Option<Trace>,
    /// The primary context of each device.
    pub contexts: Vec<&'static Context>,
    /// The default stream of each device.
    pub default_streams: Vec<Arc<Stream>>,
    calls: Vec<AtomicU64>,
    kernels: AtomicU64,
    tables: Mutex<Tables>,
}

/// What has a handle, or an address.
#[derive(Debug, Default)]
pub struct Tables {
    /// Streams that were created.
    pub streams: BTreeMap<CuStream, Arc<Stream>>,
    /// Events that were created.
    pub events: BTreeMap<CuEvent, Arc<Event>>,
    /// Modules that were loaded.
    pub modules: BTreeMap<CuModule, Module>,
    /// Functions that were asked for.
    pub functions: BTreeMap<CuFunction, Function>,
    /// Memory that was allocated.
    pub memory: Memory,
    /// Names of objects that went with their context.
    pub lost: Vec<String>,
    serials: [usize; 4],
}

/// The kinds of handles that are numbered in [`Tables`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Serial {
    Stream,
    Event,
    Module,
    Function,
}

impl Tables {
    /// The next number of a kind.
    pub fn next(&mut self, kind: Serial) -> usize {
        let serial = &mut self.serials[kind as usize];
        *serial += 1;
        *serial - 1
    }
}

impl Driver {
    fn new() -> std::result::Result<Driver, String> {
        let env = Env::read(std::env::vars_os())?;
        let trace = env.trace.as_deref().map(Trace::create).transpose()?;
        // The contexts last as long as the process: handles to them may come at any time.
        let context = |device| &*Box::leak(Box::new(Context::new(device)));
        let contexts: Vec<&'static Context> = (0..env.devices).map(context).collect();
        Ok(Driver {
            initialised: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            trace,
            default_streams: contexts.iter().map(|context| Arc::new(Stream::default_of(context))).collect(),
            contexts,
            calls: api::CALLS.iter().map(|_| AtomicU64::new(0)).collect(),
            kernels: AtomicU64::new(0),
            tables: Mutex::new(Tables::default()),
            env,
        })
    }

    /// The tables; a short-time lock, under which nothing waits.
    pub fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock()
    }

    /// Counts a call, and says what it shall answer instead of being done.
    pub fn fault(&self, call: &str) -> Option<Code> {
        let index = api::CALLS.iter().position(|(name, _)| *name == call)?;
        let nth = self.calls[index].fetch_add(1, Ordering::Relaxed) + 1;
        self.fault_of(call, nth)
    }

    /// Counts a kernel's launch, and says how its run shall end instead.
    pub fn kernel_fault(&self) -> Option<Code> {
        let nth = self.kernels.fetch_add(1, Ordering::Relaxed) + 1;
        self.fault_of(KERNEL, nth)
    }

    fn fault_of(&self, call: &str, nth: u64) -> Option<Code> {
        let fault = self.env.faults.iter().find(|fault| fault.call == call && fault.nth == nth)?;
        account::note_fault();
        Some(fault.code)
    }

    /// The context of a device by its number.
    pub fn device(&self, ordinal: i32) -> Result<&'static Context> {
        let index = usize::try_from(ordinal).ok();
        index.and_then(|index| self.contexts.get(index)).copied().ok_or(code::CUDA_ERROR_INVALID_DEVICE)
    }

    /// The context with this handle, if it exists now.
    pub fn context(&self, handle: CuContext) -> Result<&'static Context> {
        let found = self.contexts.iter().find(|context| context.handle == handle && context.exists());
        found.copied().ok_or(code::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// A stream by its handle; the default stream is the current context's.
    pub fn stream(&self, handle: CuStream) -> Result<Arc<Stream>> {
        // CU_STREAM_LEGACY, and the null stream, which means the same here.
        if handle.0 <= 1 {
            return Ok(self.default_streams[context::current()?.device].clone());
        }
        let stream = self.tables().streams.get(&handle).cloned().ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
        stream.context.usable()?;
        Ok(stream)
    }

    /// An event by its handle.
    pub fn event(&self, handle: CuEvent) -> Result<Arc<Event>> {
        let event = self.tables().events.get(&handle).cloned().ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
        event.context.usable()?;
        Ok(event)
    }

    /// Fails unless all of `len` bytes at `address` are one block's, or a module's.
    pub fn check_range(&self, address: usize, len: usize) -> Result<()> {
        let tables = self.tables();
        let found = tables.memory.find(address, len).is_some()
            || tables.modules.values().any(|module| module.contains(address, len));
        if found { Ok(()) } else { Err(code::CUDA_ERROR_INVALID_VALUE) }
    }

    /// Waits until the streams of a context have done all that they were given.
    pub fn drain(&self, context: &'static Context) {
        let streams: Vec<_> = self.tables().streams.values().filter(|s| s.context.is(context)).cloned().collect();
        streams.iter().chain([&self.default_streams[context.device]]).for_each(|stream| stream.synchronize());
    }

    /// Takes away what a context still owns when it ends. The account goes on counting it.
    pub fn destroy_context(&self, context: &'static Context) {
        self.drain(context);
        let mut guard = self.tables();
        let tables = &mut *guard;
        let mut lost = Vec::new();
        tables.streams.values().filter(|stream| stream.context.is(context)).for_each(|stream| stream.close());
        tables.streams.retain(|handle, stream| keep(stream.context.is(context), &mut lost, || handle.name()));
        tables.events.retain(|handle, event| keep(event.context.is(context), &mut lost, || handle.name()));
        tables.modules.retain(|handle, module| keep(module.context.is(context), &mut lost, || handle.name()));
        tables.functions.retain(|_, function| !function.context.is(context));
        lost.extend(tables.memory.drop_all_of(context, self.env.poison));
        tables.lost.extend(lost);
    }
}

/// Whether something stays; what goes is noted.
fn keep(goes: bool, lost: &mut Vec<String>, name: impl Fn() -> String) -> bool {
    if goes {
        lost.push(name());
    }
    !goes
}

/// Names of everything that the account has to name, with what went with its context first.
pub fn left_over() -> Vec<String> {
    let Some(driver) = peek() else { return Vec::new() };
    let tables = driver.tables();
    let mut names = tables.lost.clone();
    names.extend(tables.streams.keys().map(|handle| handle.name()));
    names.extend(tables.events.keys().map(|handle| handle.name()));
    names.extend(tables.memory.names());
    names.extend(tables.modules.keys().map(|handle| handle.name()));
    names.extend(driver.contexts.iter().filter(|context| context.exists()).map(|context| context.handle.name()));
    names
}

/// A function's own name, as long as its module is loaded.
pub fn function_name(handle: CuFunction) -> Option<String> {
    peek()?.tables().functions.get(&handle).map(|function| function.name.to_string())
}

/// The name of the block or of the module's variable that an address is in.
pub fn pointer_name(address: usize) -> String {
    if address == 0 {
        return "null".to_owned();
    }
    let Some(driver) = peek() else { return "?".to_owned() };
    let tables = driver.tables();
    let in_module = || tables.modules.values().find_map(|module| module.name_of(address));
    tables.memory.name_of(address).or_else(in_module).unwrap_or_else(|| "?".to_owned())
}

/// Adds one to what the account has to see released.
pub fn made(kind: Kind) {
    account::LIVE[kind as usize].fetch_add(1, Ordering::Relaxed);
}

/// Takes it off again.
pub fn released(kind: Kind) {
    account::LIVE[kind as usize].fetch_sub(1, Ordering::Relaxed);
}
