//! The CUDA driver: the only user of cudarc, which finds and loads the library and gives its types.
//!
//! Each function is looked up once, as `extern "C" fn(...) -> u32`: cudarc's own result type is an enum, and a code that
//! it does not list would be undefined behaviour the moment a newer driver returned it. A driver that lacks a function
//! is found out here, before anything is called.

mod code;

pub use code::{Code, codes};
pub use cudarc::driver::sys::{
    CUcontext, CUdevice_attribute as Attribute, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream,
};

use crate::report::dp;
use cudarc::driver::sys;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;

/// A driver's answer other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed(pub Code);

/// A driver call's result.
pub type Result<T = ()> = std::result::Result<T, Failed>;

/// Why there is no driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No library of any known name.
    Library,
    /// The library has no such function.
    Function(&'static str),
}

macro_rules! functions {
    ($($name:ident = [$($symbol:literal),+] ($($argument:ident: $type:ty),*);)*) => {
        /// The functions of the driver that the plugin calls.
        ///
        /// Each method is a call: `unsafe`, with the driver's own conditions on handles and memory.
        pub struct Driver {
            $($name: unsafe extern "C" fn($($type),*) -> u32,)*
        }

        impl Driver {
            fn resolve(find: impl Fn(&str) -> *const c_void) -> std::result::Result<Self, Missing> {
                Ok(Self {$($name: {
                    let names = [$($symbol),+];
                    let plain = names[names.len() - 1];
                    let found = names.iter().map(|name| (name, find(name))).find(|(_, address)| !address.is_null());
                    let Some((name, address)) = found else {
                        dp!("Unable to find '{plain}' in '{LIBRARY}'!");
                        return Err(Missing::Function(plain));
                    };
                    dp!("Implementing {plain} with dlsym({name}) -> {address:p}");
                    // SAFETY: the driver's function of this name has this type, by NVIDIA's `cuda.h`.
                    unsafe { transmute_copy::<*const c_void, unsafe extern "C" fn($($type),*) -> u32>(&address) }
                },)*})
            }

            $(
                #[doc = concat!("`", $($symbol, "` / `",)+ "` of the driver API.")]
                ///
                /// # Safety
                ///
                /// Handles are live and of the driver, pointers and sizes as its documentation says.
                #[allow(clippy::too_many_arguments)]
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result {
                    // SAFETY: the caller keeps the driver's conditions.
                    match unsafe { (self.$name)($($argument),*) } {
                        0 => Ok(()),
                        code => Err(Failed(code)),
                    }
                }
            )*
        }
    };
}

const LIBRARY: &str = "libcuda.so";

// In LLVM's order, so that debug logs agree. Where the driver has a newer form of a function, it comes first.
functions! {
    init = ["cuInit"](flags: c_uint);
    ctx_get_device = ["cuCtxGetDevice"](device: *mut c_int);
    device_get = ["cuDeviceGet"](device: *mut c_int, ordinal: c_int);
    device_get_attribute = ["cuDeviceGetAttribute"](value: *mut c_int, attribute: Attribute, device: c_int);
    device_get_count = ["cuDeviceGetCount"](count: *mut c_int);
    func_get_attribute = ["cuFuncGetAttribute"](value: *mut c_int, attribute: c_int, function: CUfunction);
    device_get_name = ["cuDeviceGetName"](name: *mut c_char, size: c_int, device: c_int);
    device_total_mem = ["cuDeviceTotalMem"](size: *mut usize, device: c_int);
    driver_get_version = ["cuDriverGetVersion"](version: *mut c_int);
    get_error_string = ["cuGetErrorString"](code: u32, text: *mut *const c_char);
    launch_kernel = ["cuLaunchKernel"](
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void
    );
    mem_alloc = ["cuMemAlloc_v2", "cuMemAlloc"](memory: *mut CUdeviceptr, size: usize);
    mem_alloc_host = ["cuMemAllocHost"](memory: *mut *mut c_void, size: usize);
    mem_alloc_managed = ["cuMemAllocManaged"](memory: *mut CUdeviceptr, size: usize, flags: c_uint);
    memcpy_dtod_async = ["cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync"](
        target: CUdeviceptr, source: CUdeviceptr, size: usize, stream: CUstream
    );
    memcpy_dtoh = ["cuMemcpyDtoH_v2", "cuMemcpyDtoH"](target: *mut c_void, source: CUdeviceptr, size: usize);
    memcpy_dtoh_async = ["cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync"](
        target: *mut c_void, source: CUdeviceptr, size: usize, stream: CUstream
    );
    memcpy_htod = ["cuMemcpyHtoD_v2", "cuMemcpyHtoD"](target: CUdeviceptr, source: *const c_void, size: usize);
    memcpy_htod_async = ["cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync"](
        target: CUdeviceptr, source: *const c_void, size: usize, stream: CUstream
    );
    mem_free = ["cuMemFree_v2", "cuMemFree"](memory: CUdeviceptr);
    mem_free_host = ["cuMemFreeHost"](memory: *mut c_void);
    module_get_function = ["cuModuleGetFunction"](function: *mut CUfunction, module: CUmodule, name: *const c_char);
    module_get_global = ["cuModuleGetGlobal_v2", "cuModuleGetGlobal"](
        memory: *mut CUdeviceptr, size: *mut usize, module: CUmodule, name: *const c_char
    );
    module_unload = ["cuModuleUnload"](module: CUmodule);
    stream_create = ["cuStreamCreate"](stream: *mut CUstream, flags: c_uint);
    stream_destroy = ["cuStreamDestroy_v2", "cuStreamDestroy"](stream: CUstream);
    stream_synchronize = ["cuStreamSynchronize"](stream: CUstream);
    ctx_set_current = ["cuCtxSetCurrent"](context: CUcontext);
    device_primary_ctx_release = ["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"](device: c_int);
    device_primary_ctx_get_state = ["cuDevicePrimaryCtxGetState"](
        device: c_int, flags: *mut c_uint, active: *mut c_int
    );
    device_primary_ctx_set_flags = ["cuDevicePrimaryCtxSetFlags_v2", "cuDevicePrimaryCtxSetFlags"](
        device: c_int, flags: c_uint
    );
    device_primary_ctx_retain = ["cuDevicePrimaryCtxRetain"](context: *mut CUcontext, device: c_int);
    module_load_data_ex = ["cuModuleLoadDataEx"](
        module: *mut CUmodule, image: *const c_void, options: c_uint, keys: *mut c_int, values: *mut *mut c_void
    );
    device_can_access_peer = ["cuDeviceCanAccessPeer"](can: *mut c_int, device: c_int, peer: c_int);
    ctx_enable_peer_access = ["cuCtxEnablePeerAccess"](peer: CUcontext, flags: c_uint);
    memcpy_peer_async = ["cuMemcpyPeerAsync"](
        target: CUdeviceptr, target_context: CUcontext, source: CUdeviceptr, source_context: CUcontext, size: usize,
        stream: CUstream
    );
    ctx_get_limit = ["cuCtxGetLimit"](value: *mut usize, limit: c_uint);
    ctx_set_limit = ["cuCtxSetLimit"](limit: c_uint, value: usize);
    event_create = ["cuEventCreate"](event: *mut CUevent, flags: c_uint);
    event_record = ["cuEventRecord"](event: CUevent, stream: CUstream);
    stream_wait_event = ["cuStreamWaitEvent"](stream: CUstream, event: CUevent, flags: c_uint);
    event_synchronize = ["cuEventSynchronize"](event: CUevent);
    event_destroy = ["cuEventDestroy_v2", "cuEventDestroy"](event: CUevent);
}

impl Driver {
    /// Loads the driver's library and looks every function up.
    pub fn load() -> std::result::Result<Self, Missing> {
        // SAFETY: only opens libraries of CUDA's names, whose initialisers are the driver's own.
        if !unsafe { sys::is_culib_present() } {
            dp!("Unable to load library '{LIBRARY}'!");
            return Err(Missing::Library);
        }
        // SAFETY: as above; it is present, so that this does not panic.
        let library = unsafe { sys::culib() };
        Self::resolve(|name| {
            let name = format!("{name}\0");
            // SAFETY: only the address is taken here; `resolve` gives it its type.
            unsafe { library.get::<*const c_void>(name.as_bytes()) }.map_or(std::ptr::null(), |symbol| *symbol)
        })
    }

    /// What the driver says of a code; none if it does not know it, or is gone.
    pub fn error_string(&self, code: Code) -> Result<String> {
        let mut text = std::ptr::null();
        // SAFETY: `text` may be written to.
        unsafe { self.get_error_string(code, &raw mut text) }?;
        if text.is_null() {
            return Err(Failed(code::INVALID_VALUE));
        }
        // SAFETY: on success the driver answers a NUL-terminated string that lives as long as the library.
        let text = unsafe { CStr::from_ptr(text) };
        Ok(text.to_string_lossy().into_owned())
    }

    /// Makes the context at `address` this thread's current one.
    pub fn set_current(&self, address: usize) -> Result {
        // SAFETY: the driver knows its contexts, and answers an error for anything else.
        unsafe { self.ctx_set_current(address as CUcontext) }
    }
}
