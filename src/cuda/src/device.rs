//! One device: its context and limits, its streams and events, and copies.

use crate::driver::{Attribute, CUcontext, CUevent, CUstream, Driver, Failed, Result, codes};
use crate::env::Settings;
use crate::memory::{Memory, check};
use crate::module::Image;
use crate::pool::Pool;
use crate::report::{self, Address, dp, report};
use omptarget_abi::AsyncInfo;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Most teams of a region, whatever the device says.
const HARD_TEAM_LIMIT: i32 = 1 << 16;
/// Most threads of a team, whatever the device says.
const HARD_THREAD_LIMIT: i32 = 1024;
/// Teams of a region, and threads of a team, that nobody asked for.
const DEFAULT_TEAMS: i32 = 128;
const DEFAULT_THREADS: i32 = 128;

/// A call of the runtime failed; the lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// The result of a call of the runtime.
pub type Done<T = ()> = std::result::Result<T, Refused>;

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host.
    ToDevice,
    /// To the host.
    FromDevice,
}

/// What the driver and the settings allow on an initialised device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most teams of a region.
    pub blocks_per_grid: i32,
    /// Most threads of a team.
    pub threads_per_block: i32,
    /// Threads of a warp.
    pub warp_size: i32,
    /// Teams of a region that does not say.
    pub teams: i32,
    /// Threads of a team that does not say.
    pub threads: i32,
}

/// A device, once it has been initialised.
#[derive(Debug)]
struct Ready {
    /// The driver's number of the device.
    device: i32,
    /// A `CUcontext`: the device's primary one, retained.
    context: usize,
    limits: Limits,
}

/// A device of the plugin. Streams and events are kept by their addresses.
#[derive(Debug)]
pub struct Device {
    number: i32,
    ready: OnceLock<Ready>,
    streams: Pool<usize>,
    events: Pool<usize>,
    memory: Memory,
    pub(crate) images: Mutex<Vec<Image>>,
}

impl Device {
    /// Device `number`, not initialised.
    pub fn new(number: i32, settings: &Settings) -> Self {
        Self {
            number,
            ready: OnceLock::new(),
            streams: Pool::default(),
            events: Pool::default(),
            memory: Memory::new(settings.memory_threshold),
            images: Mutex::default(),
        }
    }

    /// Its number, the driver's as well.
    pub const fn number(&self) -> i32 {
        self.number
    }

    /// Its memory.
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    fn ready(&self) -> Done<&Ready> {
        self.ready.get().ok_or_else(|| {
            report!("Device {} is not initialised", self.number);
            Refused
        })
    }

    /// Its limits.
    pub fn limits(&self) -> Done<Limits> {
        Ok(self.ready()?.limits)
    }

    /// Its context.
    pub fn context(&self) -> Done<CUcontext> {
        Ok(self.ready()?.context as CUcontext)
    }

    /// Makes its context this thread's current one.
    pub fn enter(&self, driver: &Driver) -> Done {
        let context = self.context()?;
        ok(driver, driver.set_current(context.addr()), "cuCtxSetCurrent")
    }

    /// Initialises the device; what was done before a failure is undone.
    pub fn initialise(&self, driver: &Driver, settings: &Settings) -> Done {
        if self.ready.get().is_some() {
            return Ok(());
        }
        let (device, context) = self.retain(driver)?;
        let ready = self.set_up(driver, settings, device, context);
        match ready {
            Ok(limits) => {
                // Only one thread initialises a device; a second value would be the same one.
                let _ = self.ready.set(Ready { device, context: context.addr(), limits });
                Ok(())
            }
            Err(refused) => {
                for stream in self.streams.drain() {
                    // SAFETY: made below, and nothing has been issued on it.
                    let destroyed = unsafe { driver.stream_destroy(stream as CUstream) };
                    check(driver, destroyed, "cuStreamDestroy");
                }
                // SAFETY: retained above, once.
                let released = unsafe { driver.device_primary_ctx_release(device) };
                check(driver, released, "cuDevicePrimaryCtxRelease");
                Err(refused)
            }
        }
    }

    /// The device's primary context, retained; host threads that wait for it sleep, if nobody has chosen otherwise.
    fn retain(&self, driver: &Driver) -> Done<(i32, CUcontext)> {
        dp!("Getting device {}", self.number);
        let (mut device, mut flags, mut active) = (0, 0, 0);
        // SAFETY: `device` may be written to.
        ok(driver, unsafe { driver.device_get(&raw mut device, self.number) }, "cuDeviceGet")?;
        // SAFETY: `flags` and `active` may be written to.
        let state = unsafe { driver.device_primary_ctx_get_state(device, &raw mut flags, &raw mut active) };
        ok(driver, state, "cuDevicePrimaryCtxGetState")?;
        if active != 0 {
            dp!("The primary context is active, no change to its flags");
            if flags & codes::CTX_SCHED_MASK != codes::CTX_SCHED_BLOCKING_SYNC {
                dp!("Warning the current flags are not CU_CTX_SCHED_BLOCKING_SYNC");
            }
        } else {
            dp!("The primary context is inactive, set its flags to CU_CTX_SCHED_BLOCKING_SYNC");
            // SAFETY: takes no pointers.
            let set = unsafe { driver.device_primary_ctx_set_flags(device, codes::CTX_SCHED_BLOCKING_SYNC) };
            ok(driver, set, "cuDevicePrimaryCtxSetFlags")?;
        }
        let mut context = null_mut();
        // SAFETY: `context` may be written to.
        let retained = unsafe { driver.device_primary_ctx_retain(&raw mut context, device) };
        ok(driver, retained, "cuDevicePrimaryCtxRetain")?;
        Ok((device, context))
    }

    fn set_up(&self, driver: &Driver, settings: &Settings, device: i32, context: CUcontext) -> Done<Limits> {
        ok(driver, driver.set_current(context.addr()), "cuCtxSetCurrent")?;
        // As many as there are will do: more are made when they are needed.
        let _ = self.streams.fill(settings.initial_streams, || self.make_stream(driver, context));

        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: `value` may be written to.
            let asked = unsafe { driver.device_get_attribute(&raw mut value, attribute, device) };
            check(driver, asked, "cuDeviceGetAttribute");
            asked.map(|()| value)
        };
        let mut blocks_per_grid = match attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) {
            Err(_) => {
                dp!("Error getting max grid dimension, use default value {DEFAULT_TEAMS}");
                DEFAULT_TEAMS
            }
            Ok(most) if most <= HARD_TEAM_LIMIT => {
                dp!("Using {most} CUDA blocks per grid");
                most
            }
            Ok(most) => {
                dp!("Max CUDA blocks per grid {most} exceeds the hard team limit {HARD_TEAM_LIMIT}, capping at the \
                     hard limit");
                HARD_TEAM_LIMIT
            }
        };
        let threads_per_block = match attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) {
            Err(_) => {
                dp!("Error getting max block dimension, use default value {DEFAULT_THREADS}");
                DEFAULT_THREADS
            }
            Ok(most) => {
                dp!("Using {most} CUDA threads per block");
                Self::cap_threads(most, settings)
            }
        };
        let warp_size = match attribute(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE) {
            Err(_) => {
                dp!("Error getting warp size, assume default value 32");
                32
            }
            Ok(size) => {
                dp!("Using warp size {size}");
                size
            }
        };
        if let Some(limit) = settings.team_limit.filter(|limit| blocks_per_grid > *limit) {
            dp!("Capping max CUDA blocks per grid to OMP_TEAM_LIMIT={limit}");
            blocks_per_grid = limit;
        }
        let stack = self.limit(driver, codes::LIMIT_STACK_SIZE, settings.stack_size)?;
        let heap = self.limit(driver, codes::LIMIT_MALLOC_HEAP_SIZE, settings.heap_size)?;
        if report::info_is_on(report::INFO_KERNEL) {
            report::info_line(
                self.number,
                format_args!(
                    "Device supports up to {blocks_per_grid} CUDA blocks and {threads_per_block} threads with a warp \
                     size of {warp_size}"
                ),
            );
            // LLVM prints both as int.
            let (heap, stack) = (heap as i32, stack as i32);
            report::info_line(
                self.number,
                format_args!("Device heap size is {heap} Bytes, device stack size is {stack} Bytes per thread"),
            );
        }
        let mut teams = match settings.num_teams.filter(|teams| *teams > 0) {
            Some(teams) => {
                dp!("Default number of teams set according to environment {teams}");
                teams
            }
            None => {
                dp!("Default number of teams set according to library's default {DEFAULT_TEAMS}");
                DEFAULT_TEAMS
            }
        };
        if teams > blocks_per_grid {
            dp!("Default number of teams exceeds device limit, capping at {blocks_per_grid}");
            teams = blocks_per_grid;
        }
        dp!("Default number of threads set according to library's default {DEFAULT_THREADS}");
        let mut threads = DEFAULT_THREADS;
        if threads > threads_per_block {
            dp!("Default number of threads exceeds device limit, capping at {threads_per_block}");
            threads = threads_per_block;
        }
        Ok(Limits { blocks_per_grid, threads_per_block, warp_size, teams, threads })
    }

    fn cap_threads(mut threads: i32, settings: &Settings) -> i32 {
        if let Some(limit) = settings.teams_thread_limit.filter(|limit| threads > *limit) {
            dp!(
                "Max CUDA threads per block {threads} exceeds the thread limit {limit} set by OMP_TEAMS_THREAD_LIMIT, \
                 capping at the limit"
            );
            threads = limit;
        }
        if threads > HARD_THREAD_LIMIT {
            dp!("Max CUDA threads per block {threads} exceeds the hard thread limit {HARD_THREAD_LIMIT}, capping at \
                 the hard limit");
            threads = HARD_THREAD_LIMIT;
        }
        threads
    }

    /// Sets a limit of the context if there is a setting, and answers what it is then.
    fn limit(&self, driver: &Driver, limit: u32, setting: Option<usize>) -> Done<usize> {
        if let Some(value) = setting {
            // SAFETY: takes no pointers.
            ok(driver, unsafe { driver.ctx_set_limit(limit, value) }, "cuCtxSetLimit")?;
            return Ok(value);
        }
        let mut value = 0;
        // SAFETY: `value` may be written to.
        ok(driver, unsafe { driver.ctx_get_limit(&raw mut value, limit) }, "cuCtxGetLimit")?;
        Ok(value)
    }

    fn make_stream(&self, driver: &Driver, context: CUcontext) -> Result<usize> {
        let current = driver.set_current(context.addr());
        check(driver, current, "cuCtxSetCurrent");
        current?;
        let mut stream = null_mut();
        // SAFETY: `stream` may be written to, and a context is current.
        let created = unsafe { driver.stream_create(&raw mut stream, codes::STREAM_NON_BLOCKING) };
        check(driver, created, "cuStreamCreate");
        created.map(|()| stream.addr())
    }

    /// The stream of a call; takes one if it has none.
    pub fn stream(&self, driver: &Driver, info: &mut AsyncInfo) -> Done<CUstream> {
        if info.queue.is_null() {
            let context = self.context()?;
            let stream = self.streams.take(|| self.make_stream(driver, context)).map_err(|_| Refused)?;
            info.queue = stream as *mut c_void;
        }
        Ok(info.queue.cast())
    }

    /// Whether `stream` is of this device.
    pub fn owns_stream(&self, stream: *mut c_void) -> bool {
        self.streams.owns(stream.addr())
    }

    /// Waits for a call's stream and takes it back, whatever came of it.
    ///
    /// # Safety
    ///
    /// The stream is of this device, see [`owns_stream`](Self::owns_stream).
    pub unsafe fn synchronize(&self, driver: &Driver, info: &mut AsyncInfo) -> Done {
        let stream = info.queue;
        // SAFETY: a live stream of this device, by this function's contract.
        let done = unsafe { driver.stream_synchronize(stream.cast()) };
        self.streams.put(stream.addr());
        info.queue = null_mut();
        done.map_err(|Failed(code)| {
            dp!(
                "Error when synchronizing stream. stream = {}, async info ptr = {}",
                Address(stream.addr()),
                Address((&raw const *info).addr())
            );
            report_call(driver, "cuStreamSynchronize", code);
            Refused
        })
    }

    /// Makes an event, in the device's own context.
    pub fn create_event(&self, driver: &Driver) -> Done<*mut c_void> {
        let context = self.context()?;
        let make = || {
            let current = driver.set_current(context.addr());
            check(driver, current, "cuCtxSetCurrent");
            current?;
            let mut event = null_mut();
            // SAFETY: `event` may be written to, and a context is current.
            let created = unsafe { driver.event_create(&raw mut event, codes::EVENT_DEFAULT) };
            check(driver, created, "cuEventCreate");
            created.map(|()| event.addr())
        };
        self.events.take(make).map(|event| event as *mut c_void).map_err(|_| Refused)
    }

    fn own_event(&self, event: *mut c_void) -> Done<CUevent> {
        if self.events.owns(event.addr()) {
            return Ok(event.cast());
        }
        report!("Event {} is not of device {}", Address(event.addr()), self.number);
        Err(Refused)
    }

    /// Records all that is on a call's stream now.
    pub fn record_event(&self, driver: &Driver, event: *mut c_void, info: &mut AsyncInfo) -> Done {
        let event = self.own_event(event)?;
        let stream = self.stream(driver, info)?;
        // SAFETY: both are live and of this device's context.
        let recorded = unsafe { driver.event_record(event, stream) };
        recorded.map_err(|Failed(code)| {
            dp!("Error when recording event. stream = {}, event = {}", Address(stream.addr()), Address(event.addr()));
            report_call(driver, "cuEventRecord", code);
            Refused
        })
    }

    /// Makes later work on a call's stream wait for an event.
    pub fn wait_event(&self, driver: &Driver, event: *mut c_void, info: &mut AsyncInfo) -> Done {
        let event = self.own_event(event)?;
        // Often the first call of a thread, and CUDA documents that it needs a current context.
        self.enter(driver)?;
        let stream = self.stream(driver, info)?;
        // SAFETY: both are live and of this device's context; no flags are defined for older drivers.
        let waited = unsafe { driver.stream_wait_event(stream, event, 0) };
        waited.map_err(|Failed(code)| {
            dp!("Error when waiting event. stream = {}, event = {}", Address(stream.addr()), Address(event.addr()));
            report_call(driver, "cuStreamWaitEvent", code);
            Refused
        })
    }

    /// Blocks until an event's work is done.
    pub fn sync_event(&self, driver: &Driver, event: *mut c_void) -> Done {
        let event = self.own_event(event)?;
        // SAFETY: a live event.
        unsafe { driver.event_synchronize(event) }.map_err(|Failed(code)| {
            dp!("Error when syncing event = {}", Address(event.addr()));
            report_call(driver, "cuEventSynchronize", code);
            Refused
        })
    }

    /// Puts an event back.
    pub fn destroy_event(&self, event: *mut c_void) -> Done {
        if self.events.put(event.addr()) {
            return Ok(());
        }
        report!("Event {} is not in use on device {}", Address(event.addr()), self.number);
        Err(Refused)
    }

    /// Copies between the host and the device on a call's stream. No bytes are no copy.
    ///
    /// # Safety
    ///
    /// Both ranges are `size` bytes; the host's stays valid until the stream has been synchronised, and may be written
    /// until then if the copy comes from the device.
    pub unsafe fn copy(
        &self,
        driver: &Driver,
        direction: Direction,
        host: *mut c_void,
        target: *mut c_void,
        size: usize,
        info: &mut AsyncInfo,
    ) -> Done {
        if size == 0 {
            return Ok(());
        }
        self.enter(driver)?;
        let stream = self.stream(driver, info)?;
        let address = target.addr() as u64;
        let (copied, function, way) = match direction {
            Direction::ToDevice => {
                // SAFETY: the ranges are valid by this function's contract, the stream is of this device.
                let copied = unsafe { driver.memcpy_htod_async(address, host, size, stream) };
                (copied, "cuMemcpyHtoDAsync", "host to device")
            }
            Direction::FromDevice => {
                // SAFETY: as above.
                let copied = unsafe { driver.memcpy_dtoh_async(host, address, size, stream) };
                (copied, "cuMemcpyDtoHAsync", "device to host")
            }
        };
        copied.map_err(|Failed(code)| {
            dp!(
                "Error when copying data from {way}. Pointers: host = {}, device = {}, size = {size}",
                Address(host.addr()),
                Address(target.addr())
            );
            report_call(driver, function, code);
            Refused
        })
    }

    /// Gives everything back to the driver. The first call that fails is reported; if it says that the driver is gone,
    /// nothing is, and nothing more is tried.
    pub fn release(&self, driver: &Driver) {
        let Some(ready) = self.ready.get() else { return };
        let mut told = false;
        let mut freed = |result: Result, function: &str| {
            match result {
                Err(Failed(code)) if is_gone(code) => return result,
                Err(_) if !told => told = !check(driver, result, function),
                _ => {}
            }
            Ok(())
        };
        // There is nobody to tell that the driver is gone.
        let _ = self.release_objects(driver, ready, &mut freed).and_then(|()| {
            // SAFETY: retained once by `retain`.
            freed(unsafe { driver.device_primary_ctx_release(ready.device) }, "cuDevicePrimaryCtxRelease")
        });
    }

    /// Gives back what belongs to the device's context.
    fn release_objects(
        &self,
        driver: &Driver,
        ready: &Ready,
        freed: &mut impl FnMut(Result, &str) -> Result,
    ) -> Result {
        let entered = driver.set_current(ready.context);
        freed(entered, "cuCtxSetCurrent")?;
        if entered.is_err() {
            // All of it goes with the context.
            return Ok(());
        }
        self.memory.release(driver, &mut *freed)?;
        for image in std::mem::take(&mut *self.images.lock()) {
            // SAFETY: loaded once, and the program is over.
            freed(unsafe { driver.module_unload(image.module()) }, "cuModuleUnload")?;
        }
        for stream in self.streams.drain() {
            // SAFETY: made by this pool, and destroyed once.
            freed(unsafe { driver.stream_destroy(stream as CUstream) }, "cuStreamDestroy")?;
        }
        for event in self.events.drain() {
            // SAFETY: as for the streams.
            freed(unsafe { driver.event_destroy(event as CUevent) }, "cuEventDestroy")?;
        }
        // LLVM's last question; the answer is known.
        let mut device = ready.device;
        // SAFETY: `device` may be written to.
        freed(unsafe { driver.ctx_get_device(&raw mut device) }, "cuCtxGetDevice")
    }
}

/// Reports a call that LLVM only mentions in debug logs, so that an error always names it.
pub fn report_call(driver: &Driver, function: &str, code: u32) {
    if !report::debug_is_on() {
        report!("Error returned from {function}");
    }
    report::driver_error(driver, code);
}

/// Reports a failed call as LLVM's `checkResult` does.
pub fn ok(driver: &Driver, result: Result, function: &str) -> Done {
    if check(driver, result, function) { Ok(()) } else { Err(Refused) }
}

fn is_gone(code: u32) -> bool {
    matches!(code, codes::DEINITIALIZED | codes::INVALID_CONTEXT | codes::CONTEXT_IS_DESTROYED)
}
