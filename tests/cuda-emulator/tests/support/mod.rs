//! What the tests share: a process of its own for each, a device image, and the driver's calls without ceremony.

#![allow(dead_code, missing_docs)]

use std::ffi::{CString, c_void};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicI32, Ordering};

use omptarget_cuda_emulator::code::CUDA_SUCCESS;
use omptarget_cuda_emulator::handle::{
    CuContext, CuEvent, CuFunction, CuModule, CuStream, DevicePtr, HostPtr, Out, Text,
};
use omptarget_cuda_emulator::{api, tag};

/// Calls a driver function; the value is its code.
macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: the tests pass what the driver API asks for, or what it must refuse without touching it.
        unsafe { omptarget_cuda_emulator::api::$name($($arg),*) }
    }};
}
pub(crate) use cu;

const CHILD: &str = "CUDA_EMULATOR_TEST_CHILD";

/// Runs `body` in a process of its own, since the driver, its switches and its end are a process's: the test calls
/// itself. What the process says and how it ends is returned.
pub fn alone(test: &str, switches: &[(&str, &str)], body: fn()) -> Output {
    if std::env::var_os(CHILD).is_some() {
        body();
        std::process::exit(0);
    }
    let exe = std::env::current_exe().expect("a test has a file");
    let mut command = Command::new(exe);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, "1");
    command.envs(switches.iter().copied()).output().expect("the test starts again")
}

/// Like [`alone`], and the process must end well.
pub fn passes(test: &str, switches: &[(&str, &str)], body: fn()) -> String {
    let output = alone(test, switches, body);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {text}", output.status);
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn ok(code: u32) {
    assert_eq!(code, CUDA_SUCCESS);
}

/// Gets what a call puts into its first argument.
fn out<T>(empty: T, call: impl FnOnce(Out<T>) -> u32) -> Result<T, u32> {
    let mut value = empty;
    match call(Out(&mut value)) {
        CUDA_SUCCESS => Ok(value),
        code => Err(code),
    }
}

/// Starts the driver and makes the context of a device current.
pub fn start(device: i32) -> CuContext {
    ok(cu!(cuInit(0)));
    let context = out(CuContext::NULL, |out| cu!(cuDevicePrimaryCtxRetain(out, device))).expect("a context");
    ok(cu!(cuCtxSetCurrent(context)));
    context
}

pub fn stream(flags: u32) -> Result<CuStream, u32> {
    out(CuStream::NULL, |out| cu!(cuStreamCreate(out, flags)))
}

pub fn event() -> Result<CuEvent, u32> {
    out(CuEvent::NULL, |out| cu!(cuEventCreate(out, 0)))
}

pub fn alloc(size: usize) -> Result<DevicePtr, u32> {
    out(DevicePtr(0), |out| cu!(cuMemAlloc_v2(out, size)))
}

pub fn load(image: &[u8]) -> Result<CuModule, u32> {
    let none = std::ptr::null();
    let image = HostPtr(image.as_ptr().cast_mut().cast());
    out(CuModule::NULL, |out| cu!(cuModuleLoadDataEx(out, image, 0, none, none)))
}

pub fn function(module: CuModule, name: &str) -> Result<CuFunction, u32> {
    let name = CString::new(name).expect("a name");
    out(CuFunction::NULL, |out| cu!(cuModuleGetFunction(out, module, Text(name.as_ptr()))))
}

/// Address and size of a module's variable.
pub fn global(module: CuModule, name: &str) -> Result<(DevicePtr, usize), u32> {
    let name = CString::new(name).expect("a name");
    let mut size = 0;
    let pointer = out(DevicePtr(0), |out| cu!(cuModuleGetGlobal_v2(out, Out(&mut size), module, Text(name.as_ptr()))))?;
    Ok((pointer, size))
}

/// Launches one thread with these arguments, and spoils them right after.
pub fn launch(function: CuFunction, stream: CuStream, args: &[usize]) -> u32 {
    let mut values = args.to_vec();
    let params: Vec<*const usize> = values.iter().map(std::ptr::from_ref).collect();
    let params = params.as_ptr().cast::<c_void>();
    let code = cu!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, std::ptr::null()));
    values.fill(usize::MAX);
    code
}

pub fn write(to: DevicePtr, value: i32) {
    let from = HostPtr(std::ptr::from_ref(&value).cast_mut().cast());
    ok(cu!(cuMemcpyHtoD_v2(to, from, 4)));
}

pub fn read(from: DevicePtr) -> i32 {
    let mut value = 0i32;
    ok(cu!(cuMemcpyDtoH_v2(HostPtr(std::ptr::from_mut(&mut value).cast()), from, 4)));
    value
}

/// What `gated_add` waits for.
pub struct Gate(Box<AtomicI32>);

impl Gate {
    pub fn closed() -> Gate {
        Gate(Box::new(AtomicI32::new(0)))
    }

    pub fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    pub fn open(&self) {
        self.0.store(1, Ordering::Release);
    }
}

/// The tests' device image, compiled by the C compiler that Rust links with, and tagged.
pub fn image() -> Vec<u8> {
    let mut image = untagged_image();
    let sum = tag::check_sum(&image);
    image[tag::MACHINE_AT..tag::MACHINE_AT + 2].copy_from_slice(&tag::EM_CUDA.to_le_bytes());
    image[tag::FLAGS_AT..tag::FLAGS_AT + 4].copy_from_slice(&sum.to_le_bytes());
    image
}

/// The same as the compiler leaves it.
pub fn untagged_image() -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("kernels.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/kernels.c");
    let mut command = Command::new("cc");
    let status = command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&file).arg(source).status();
    assert!(status.expect("a C compiler").success());
    std::fs::read(file).expect("an image")
}

/// All calls and what they need, for tests that go through the list.
pub fn calls() -> &'static [(&'static str, api::Needs)] {
    api::CALLS
}
