//! The exported driver functions. Each goes through `call`, which injects faults, checks that the call is allowed
//! where it is made, catches a panic, and writes the trace.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::code::{self, Code, Result};
use crate::context::{self, Context};
use crate::driver::{self, Driver};
use crate::handle::{CuContext, CuEvent, CuFunction, CuModule, CuStream, DevicePtr, HostPtr, Out, Show, Text, TextOut};
use crate::launch::{self, Shape};
use crate::memory::{self, Kind};
use crate::stream::{Command, Stream};
use crate::{account, event, module, say, stream};

/// What a call needs of the state it is made in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Nothing: it works before `cuInit`.
    Nothing,
    /// `cuInit`, else the answer is 3.
    Init,
    /// A current context, else the answer is 201. What it makes or touches belongs to that context.
    Context,
    /// CUDA's documentation lists 201 among the answers, yet the handle that the call is given says which context
    /// is meant, and drivers do without a current one. With `EMU_CONTEXT=strict` it needs one all the same. LLVM's
    /// plugin sets none before `cuStreamWaitEvent`, `cuEventRecord` and the synchronising calls.
    Handle,
}

/// Defines the exported functions, and the list of them with what each needs.
macro_rules! api {
    ($($(#[$doc:meta])* $needs:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:expr;)*) => {
        /// Every driver function, and what it needs.
        pub const CALLS: &[(&str, Needs)] = &[$((stringify!($name), Needs::$needs)),*];

        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// The arguments must be what the CUDA driver API asks for.
            #[allow(clippy::too_many_arguments)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> Code {
                let body: fn(&'static Driver, $($type),*) -> Result<()> = $body;
                call(stringify!($name), Needs::$needs, &[$((stringify!($arg), &$arg)),*], |driver| body(driver, $($arg),*))
            }
        )*
    };
}

/// An argument and its name.
type Arg<'a> = (&'static str, &'a dyn Show);

/// One call from beginning to end.
fn call(name: &str, needs: Needs, args: &[Arg], body: impl FnOnce(&'static Driver) -> Result<()>) -> Code {
    let guarded = || -> Result<()> {
        let driver = driver::get()?;
        let before = driver.trace.as_ref().map(|_| args.iter().map(|(_, arg)| arg.before()).collect::<Vec<_>>());
        let result = match fault(driver, name) {
            Some((fault, context)) => {
                // CUDA answers when the wait is over, also with a failure: what was queued runs no longer.
                if WAITS.contains(&name) {
                    let _ = body(driver);
                }
                if let Some(context) = context {
                    context.fail(fault);
                }
                Err(fault)
            }
            None => allowed(driver, needs).and_then(|()| body(driver)),
        };
        if let (Some(trace), Some(before)) = (&driver.trace, before) {
            let shown = |((name, arg), before): (&Arg, Option<Value>)| {
                Some((*name, before.or_else(|| if result.is_ok() { arg.after() } else { None })?))
            };
            let shown: Vec<_> = args.iter().zip(before).filter_map(shown).collect();
            trace.line(name, &shown, code_of(result));
        }
        result
    };
    let result = catch_unwind(AssertUnwindSafe(guarded)).unwrap_or_else(|_| {
        say(&format!("bug: panic in {name}"));
        Err(code::CUDA_ERROR_UNKNOWN)
    });
    code_of(result)
}

fn code_of(result: Result<()>) -> Code {
    result.err().unwrap_or(code::CUDA_SUCCESS)
}

/// The calls that wait for queued work.
const WAITS: [&str; 2] = ["cuStreamSynchronize", "cuEventSynchronize"];

/// The code that `EMU_FAIL` asks this call for, and the context that keeps it, if one does.
fn fault(driver: &'static Driver, name: &str) -> Option<(Code, Option<&'static Context>)> {
    if driver.gone.load(Ordering::SeqCst) {
        return None;
    }
    let fault = driver.fault(name)?;
    let context = driver.context(context::top()).ok().filter(|_| code::is_sticky(fault));
    Some((fault, context))
}

/// Whether a call is to be done, apart from its arguments.
fn allowed(driver: &Driver, needs: Needs) -> Result<()> {
    if driver.gone.load(Ordering::SeqCst) && needs != Needs::Nothing {
        return Err(code::CUDA_ERROR_DEINITIALIZED);
    }
    if needs == Needs::Nothing {
        return Ok(());
    }
    if !driver.initialised.load(Ordering::SeqCst) {
        return Err(code::CUDA_ERROR_NOT_INITIALIZED);
    }
    if needs == Needs::Context || (needs == Needs::Handle && driver.env.strict_context) {
        context::current()?;
    }
    Ok(())
}

api! {
    // The driver, and what its codes mean.

    /// Starts the driver. `flags` must be 0.
    Nothing fn cuInit(flags: u32) |driver, flags| init(driver, flags);
    /// The driver's version: CUDA 12.0.
    Nothing fn cuDriverGetVersion(version: Out<i32>) |_, version| {
        version.check()?.set(12000);
        Ok(())
    };
    /// What a code means.
    Nothing fn cuGetErrorString(error: u32, text: Out<*const c_char>) |_, error, text| describe(code::text(error), text);
    /// What a code is called.
    Nothing fn cuGetErrorName(error: u32, text: Out<*const c_char>) |_, error, text| describe(code::name(error), text);

    // Devices.

    /// How many devices there are.
    Init fn cuDeviceGetCount(count: Out<i32>) |driver, count| {
        count.check()?.set(driver.contexts.len() as i32);
        Ok(())
    };
    /// A device by its number; the handle is that number.
    Init fn cuDeviceGet(device: Out<i32>, ordinal: i32) |driver, device, ordinal| {
        let device = device.check()?;
        driver.device(ordinal)?;
        device.set(ordinal);
        Ok(())
    };
    /// A device's name, cut to `len` bytes.
    Init fn cuDeviceGetName(name: TextOut, len: i32, device: i32) |driver, name, len, device| {
        driver.device(device)?;
        name.set("Emulated CUDA device", len)
    };
    /// How much memory a device has.
    Init fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) |driver, bytes, device| total(driver, bytes, device);
    /// The same; LLVM's plugin calls it by its old name, with a place for 64 bits.
    Init fn cuDeviceTotalMem(bytes: Out<usize>, device: i32) |driver, bytes, device| total(driver, bytes, device);
    /// One of a device's numbers.
    Init fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) |driver, value, attribute, device| {
        let value = value.check()?;
        let context = driver.device(device)?;
        value.set(attribute_of(context, attribute).ok_or(code::CUDA_ERROR_INVALID_VALUE)?);
        Ok(())
    };
    /// Whether one device can reach another's memory.
    Init fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) |driver, can, device, peer| {
        let can = can.check()?;
        can.set(i32::from(!driver.device(device)?.is(driver.device(peer)?)));
        Ok(())
    };

    // Contexts.

    /// Makes sure that a device's context exists until it is released.
    Init fn cuDevicePrimaryCtxRetain(context: Out<CuContext>, device: i32) |driver, context, device| {
        let context = context.check()?;
        context.set(driver.device(device)?.retain());
        Ok(())
    };
    /// Takes back one `cuDevicePrimaryCtxRetain`; the last one ends the context.
    Init fn cuDevicePrimaryCtxRelease_v2(device: i32) |driver, device| driver.device(device)?.release(driver);
    /// A device's context flags, and whether the context exists.
    Init fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) |driver, device, flags, active| {
        let state = driver.device(device)?.state();
        flags.check()?.set(state.0);
        active.check()?.set(state.1);
        Ok(())
    };
    /// Sets a device's context flags.
    Init fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) |driver, device, flags| {
        driver.device(device)?.set_flags(flags)
    };
    /// Makes a context current on this thread, in the place of the one that was.
    Init fn cuCtxSetCurrent(context: CuContext) |driver, context| {
        if context != CuContext::NULL {
            driver.context(context)?;
        }
        context::set_top(context)
    };
    /// The current context, or null.
    Init fn cuCtxGetCurrent(context: Out<CuContext>) |_, context| {
        context.check()?.set(context::top());
        Ok(())
    };
    /// Makes a context current and remembers the one before.
    Init fn cuCtxPushCurrent_v2(context: CuContext) |driver, context| {
        driver.context(context)?;
        context::push(context)
    };
    /// Goes back to the context before.
    Init fn cuCtxPopCurrent_v2(context: Out<CuContext>) |_, context| {
        context.set(context::pop()?);
        Ok(())
    };
    /// The current context's device.
    Context fn cuCtxGetDevice(device: Out<i32>) |_, device| {
        device.check()?.set(context::current()?.device as i32);
        Ok(())
    };
    /// One of the current context's limits.
    Context fn cuCtxGetLimit(value: Out<usize>, limit: u32) |_, value, limit| {
        let value = value.check()?;
        value.set(context::current()?.limit(limit)?);
        Ok(())
    };
    /// Sets one of the current context's limits.
    Context fn cuCtxSetLimit(limit: u32, value: usize) |_, limit, value| context::current()?.set_limit(limit, value);
    /// Lets the current context reach a peer's memory; once.
    Context fn cuCtxEnablePeerAccess(peer: CuContext, flags: u32) |driver, peer, flags| {
        context::current()?.enable_peer(driver.context(peer)?, flags)
    };

    // Memory.

    /// Allocates device memory.
    Context fn cuMemAlloc_v2(pointer: Out<DevicePtr>, size: usize) |driver, pointer, size| {
        allocate(driver, pointer, size)
    };
    /// Allocates memory that host and device share.
    Context fn cuMemAllocManaged(pointer: Out<DevicePtr>, size: usize, flags: u32) |driver, pointer, size, flags| {
        // CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST
        if !matches!(flags, 1 | 2) {
            return Err(code::CUDA_ERROR_INVALID_VALUE);
        }
        allocate(driver, pointer, size)
    };
    /// Allocates pinned host memory.
    Context fn cuMemAllocHost_v2(pointer: Out<HostPtr>, size: usize) |driver, pointer, size| {
        allocate_host(driver, pointer, size)
    };
    /// The same by its old name, which LLVM's plugin uses.
    Context fn cuMemAllocHost(pointer: Out<HostPtr>, size: usize) |driver, pointer, size| {
        allocate_host(driver, pointer, size)
    };
    /// Frees device or shared memory.
    Context fn cuMemFree_v2(pointer: DevicePtr) |driver, pointer| memory::free(driver, pointer.0, Kind::Device);
    /// Frees pinned host memory.
    Context fn cuMemFreeHost(pointer: HostPtr) |driver, pointer| memory::free(driver, pointer.0 as usize, Kind::Host);

    // Copies.

    /// Copies to the device, and waits for it.
    Context fn cuMemcpyHtoD_v2(to: DevicePtr, from: HostPtr, len: usize) |driver, to, from, len| {
        to_device(driver, to, from, len, CuStream::NULL)?.map_or(Ok(()), |stream| finish(&stream))
    };
    /// Copies from the device, and waits for it.
    Context fn cuMemcpyDtoH_v2(to: HostPtr, from: DevicePtr, len: usize) |driver, to, from, len| {
        from_device(driver, to, from, len, CuStream::NULL)?.map_or(Ok(()), |stream| finish(&stream))
    };
    /// Copies to the device in a stream. The host's memory is read when the copy's turn comes, as from pinned memory.
    Context fn cuMemcpyHtoDAsync_v2(to: DevicePtr, from: HostPtr, len: usize, stream: CuStream)
        |driver, to, from, len, stream| to_device(driver, to, from, len, stream).map(drop);
    /// Copies from the device in a stream.
    Context fn cuMemcpyDtoHAsync_v2(to: HostPtr, from: DevicePtr, len: usize, stream: CuStream)
        |driver, to, from, len, stream| from_device(driver, to, from, len, stream).map(drop);
    /// Copies on the device, or between two, in a stream.
    Context fn cuMemcpyDtoDAsync_v2(to: DevicePtr, from: DevicePtr, len: usize, stream: CuStream)
        |driver, to, from, len, stream| on_device(driver, to, from, len, stream);
    /// Copies between two contexts in a stream.
    Context fn cuMemcpyPeerAsync(
        to: DevicePtr, to_context: CuContext, from: DevicePtr, from_context: CuContext, len: usize, stream: CuStream
    ) |driver, to, to_context, from, from_context, len, stream| {
        driver.context(to_context)?;
        driver.context(from_context)?;
        on_device(driver, to, from, len, stream)
    };

    // Streams.

    /// Makes a stream in the current context.
    Context fn cuStreamCreate(stream: Out<CuStream>, flags: u32) |driver, stream, flags| {
        let stream = stream.check()?;
        stream.set(stream::create(driver, flags)?);
        Ok(())
    };
    /// Ends a stream; what is queued is still done.
    Handle fn cuStreamDestroy_v2(stream: CuStream) |driver, stream| stream::destroy(driver, stream);
    /// Waits for all that a stream has been given.
    Handle fn cuStreamSynchronize(stream: CuStream) |driver, stream| finish(&*driver.stream(stream)?);
    /// Whether a stream has done all that it has been given.
    Handle fn cuStreamQuery(stream: CuStream) |driver, stream| driver.stream(stream)?.query();
    /// Makes a stream wait for an event's newest record. `flags` must be 0 or `CU_EVENT_WAIT_EXTERNAL`.
    Handle fn cuStreamWaitEvent(stream: CuStream, event: CuEvent, flags: u32) |driver, stream, event, flags| {
        if flags > 1 {
            return Err(code::CUDA_ERROR_INVALID_VALUE);
        }
        let stream = driver.stream(stream)?;
        driver.event(event)?.make_wait(driver, &stream);
        Ok(())
    };

    // Events.

    /// Makes an event in the current context.
    Context fn cuEventCreate(event: Out<CuEvent>, flags: u32) |driver, event, flags| {
        let event = event.check()?;
        event.set(event::create(driver, flags)?);
        Ok(())
    };
    /// Records an event in a stream of its own context.
    Handle fn cuEventRecord(event: CuEvent, stream: CuStream) |driver, event, stream| {
        driver.event(event)?.record(driver, &driver.stream(stream)?)
    };
    /// Waits for an event's newest record.
    Handle fn cuEventSynchronize(event: CuEvent) |driver, event| driver.event(event)?.synchronize();
    /// Whether an event's newest record is done.
    Init fn cuEventQuery(event: CuEvent) |driver, event| driver.event(event)?.query();
    /// Ends an event.
    Handle fn cuEventDestroy_v2(event: CuEvent) |driver, event| event::destroy(driver, event);
    /// The same by its old name, which LLVM's plugin uses.
    Handle fn cuEventDestroy(event: CuEvent) |driver, event| event::destroy(driver, event);

    // Modules and kernels.

    /// Loads a device image into the current context. The options are not looked at.
    Context fn cuModuleLoadDataEx(
        module: Out<CuModule>, image: HostPtr, count: u32, options: *const c_void, values: *const c_void
    ) |driver, module, image, _, _, _| {
        let module = module.check()?;
        module.set(module::load(driver, image.0 as usize)?);
        Ok(())
    };
    /// Ends a module.
    Handle fn cuModuleUnload(module: CuModule) |driver, module| module::unload(driver, module);
    /// An entry point of a module.
    Handle fn cuModuleGetFunction(function: Out<CuFunction>, module: CuModule, name: Text)
        |driver, function, module, name| {
        let function = function.check()?;
        function.set(module::function(driver, module, name.get()?)?);
        Ok(())
    };
    /// A variable of a module.
    Handle fn cuModuleGetGlobal_v2(pointer: Out<DevicePtr>, size: Out<usize>, module: CuModule, name: Text)
        |driver, pointer, size, module, name| {
        let global = module::global(driver, module, name.get()?)?;
        pointer.set(DevicePtr(global.0));
        size.set(global.1);
        Ok(())
    };
    /// One of a kernel's numbers.
    Handle fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: CuFunction)
        |driver, value, attribute, function| {
        let value = value.check()?;
        driver.tables().functions.get(&function).ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
        // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, and below CU_FUNC_ATTRIBUTE_MAX the ones that say nothing here.
        value.set(match attribute {
            0 => launch::MAX_THREADS_PER_BLOCK as i32,
            1..16 => 0,
            _ => return Err(code::CUDA_ERROR_INVALID_VALUE),
        });
        Ok(())
    };
    /// Launches a kernel in a stream. The arguments are read before this returns.
    Context fn cuLaunchKernel(
        function: CuFunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: CuStream, params: *const c_void, extra: *const c_void
    ) |driver, function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params, extra| {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        launch::launch(driver, function, shape, stream, params, extra)
    };
}

fn init(driver: &Driver, flags: u32) -> Result<()> {
    if flags != 0 {
        return Err(code::CUDA_ERROR_INVALID_VALUE);
    }
    if driver.contexts.is_empty() {
        return Err(code::CUDA_ERROR_NO_DEVICE);
    }
    let mut byte = [0];
    if launch::peek([1u8].as_ptr() as usize, &mut byte) != 1 {
        say("process_vm_readv is not allowed here, and without it kernels get no arguments");
        return Err(code::CUDA_ERROR_OPERATING_SYSTEM);
    }
    if !driver.initialised.swap(true, Ordering::SeqCst) {
        account::prepare(driver.env.account, driver.env.gone);
    }
    Ok(())
}

fn describe(known: Option<&'static std::ffi::CStr>, text: Out<*const c_char>) -> Result<()> {
    text.check()?.set(known.map_or(std::ptr::null(), |known| known.as_ptr()));
    known.map(drop).ok_or(code::CUDA_ERROR_INVALID_VALUE)
}

fn total(driver: &Driver, bytes: Out<usize>, device: i32) -> Result<()> {
    driver.device(device)?;
    bytes.check()?.set(driver.env.memory);
    Ok(())
}

/// `CUdevice_attribute` by number, up to those of CUDA 11.4; one that says nothing here is 0.
fn attribute_of(context: &Context, attribute: i32) -> Option<i32> {
    Some(match attribute {
        1 => launch::MAX_THREADS_PER_BLOCK as i32,
        2..=4 => launch::MAX_BLOCK[attribute as usize - 2] as i32,
        5..=7 => launch::MAX_GRID[attribute as usize - 5] as i32,
        8 => launch::MAX_SHARED as i32,
        // Constant memory, warp size, pitch, registers, clock rate, alignment.
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 => 64 << 10,
        13 | 36 => 1_000_000,
        14 => 512,
        // Overlap, host memory mapped, concurrent kernels, unified addressing, and the like.
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 89 | 90 | 95 => 1,
        16 => 16,
        33 => context.device as i32 + 1,
        // Bus width, L2 cache, threads of a processor, copy engines, compute capability 8.0.
        37 => 256,
        38 => 4 << 20,
        39 => 2048,
        40 => 2,
        75 => 8,
        17..=119 => 0,
        _ => return None,
    })
}

fn allocate(driver: &Driver, pointer: Out<DevicePtr>, size: usize) -> Result<()> {
    let pointer = pointer.check()?;
    pointer.set(DevicePtr(memory::alloc(driver, size, Kind::Device)?));
    Ok(())
}

fn allocate_host(driver: &Driver, pointer: Out<HostPtr>, size: usize) -> Result<()> {
    let pointer = pointer.check()?;
    pointer.set(HostPtr(memory::alloc(driver, size, Kind::Host)? as *mut c_void));
    Ok(())
}

/// Queues a copy; the answer is its stream, or nothing where there is nothing to copy.
fn copy(driver: &Driver, to: usize, from: usize, len: usize, stream: CuStream) -> Result<Option<Arc<Stream>>> {
    let stream = driver.stream(stream)?;
    if len == 0 {
        return Ok(None);
    }
    stream.push(driver, Command::Copy { to, from, len });
    Ok(Some(stream))
}

fn check_device(driver: &Driver, pointer: DevicePtr, len: usize) -> Result<()> {
    if len == 0 { Ok(()) } else { driver.check_range(pointer.0, len) }
}

fn check_host(pointer: HostPtr, len: usize) -> Result<()> {
    if pointer.0.is_null() && len > 0 { Err(code::CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
}

fn to_device(driver: &Driver, to: DevicePtr, from: HostPtr, len: usize, s: CuStream) -> Result<Option<Arc<Stream>>> {
    check_device(driver, to, len)?;
    check_host(from, len)?;
    copy(driver, to.0, from.0 as usize, len, s)
}

fn from_device(driver: &Driver, to: HostPtr, from: DevicePtr, len: usize, s: CuStream) -> Result<Option<Arc<Stream>>> {
    check_host(to, len)?;
    check_device(driver, from, len)?;
    copy(driver, to.0 as usize, from.0, len, s)
}

fn on_device(driver: &Driver, to: DevicePtr, from: DevicePtr, len: usize, stream: CuStream) -> Result<()> {
    check_device(driver, to, len)?;
    check_device(driver, from, len)?;
    copy(driver, to.0, from.0, len, stream).map(drop)
}

/// Waits for a stream, and hears what went wrong in its context.
fn finish(stream: &Stream) -> Result<()> {
    stream.synchronize();
    stream.context.usable()
}
