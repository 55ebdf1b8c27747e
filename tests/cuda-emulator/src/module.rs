//! Modules: device images that have been loaded into the process.

use std::ffi::{CStr, CString, c_void};
use std::io::Write;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::sync::Arc;

use crate::account::Kind;
use crate::code::{self, Result};
use crate::context::{self, Context};
use crate::driver::{self, Driver, Serial};
use crate::handle::{CuFunction, CuModule};
use crate::image::{self, Image};
use crate::say;

/// What follows a kernel's name in the name of the variable that holds its mode.
const EXEC_MODE: &str = "_exec_mode";

/// Kernels of x86 images have no such variable: generic, `OMP_TGT_EXEC_MODE_GENERIC`.
static GENERIC: u8 = 1;

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    /// The context that was current when it was loaded.
    pub context: &'static Context,
    handle: CuModule,
    base: usize,
    image: Image,
}

/// An entry point of a module.
#[derive(Debug)]
pub struct Function {
    /// The symbol's name.
    pub name: Arc<str>,
    /// Where it is.
    pub address: usize,
    /// The module's context.
    pub context: &'static Context,
    module: CuModule,
}

impl Module {
    fn memory(&self) -> impl Iterator<Item = Range<usize>> {
        let generic = std::ptr::from_ref(&GENERIC) as usize;
        let segment = |range: &Range<usize>| self.base + range.start..self.base + range.end;
        self.image.segments.iter().map(segment).chain(std::iter::once(generic..generic + 1))
    }

    /// Whether all of `len` bytes at an address are the module's.
    pub fn contains(&self, address: usize, len: usize) -> bool {
        self.memory().any(|range| range.contains(&address) && len <= range.end - address)
    }

    /// The variable that an address is in, or just the module.
    pub fn name_of(&self, address: usize) -> Option<String> {
        if !self.contains(address, 1) {
            return None;
        }
        let module = self.handle.name();
        let offset = |value: usize| address.wrapping_sub(self.base.wrapping_add(value));
        let mut variables = self.image.symbols.iter().filter(|(_, symbol)| !symbol.is_function);
        let found = variables.find(|(_, symbol)| offset(symbol.value) < symbol.size.max(1));
        Some(match found {
            Some((name, symbol)) if offset(symbol.value) == 0 => format!("{module}:{name}"),
            Some((name, symbol)) => format!("{module}:{name}+{}", offset(symbol.value)),
            None => module,
        })
    }

    fn has_function(&self, name: &str) -> bool {
        self.image.symbols.get(name).is_some_and(|symbol| symbol.is_function)
    }
}

/// `cuModuleLoadDataEx`
pub fn load(driver: &Driver, address: usize) -> Result<CuModule> {
    let context = context::current()?;
    let image = image::check(image::read(address)?)?;
    let base = open(&image)?;
    let mut tables = driver.tables();
    let handle = CuModule::new(tables.next(Serial::Module));
    tables.modules.insert(handle, Module { context, handle, base, image });
    driver::made(Kind::Module);
    Ok(handle)
}

/// Loads an image; the answer is its base address. It stays loaded, since libomp keeps pointers into it, and so does
/// its file, since the dynamic linker would take the next image under the same name for this one.
fn open(image: &Image) -> Result<usize> {
    // SAFETY: the name is a string with a zero byte.
    let fd = unsafe { libc::memfd_create(c"device-image".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(code::CUDA_ERROR_OPERATING_SYSTEM);
    }
    // SAFETY: new, and nobody else's.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    file.write_all(&image.bytes).map_err(|_| code::CUDA_ERROR_OPERATING_SYSTEM)?;
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_| code::CUDA_ERROR_UNKNOWN)?;
    // SAFETY: a path with a zero byte; `image::check` has looked the file through. Its constructors are the
    // program's own code.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: always; `dlopen` has just failed on this thread.
        let message = unsafe { libc::dlerror() };
        // SAFETY: after a failure it is a string, and stays one until the next call.
        let message = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        say(&format!("the device image cannot be loaded: {message}"));
        return Err(image::refused(&message));
    }
    let _ = file.into_raw_fd();
    let mut map = MaybeUninit::<*const LinkMap>::uninit();
    // SAFETY: RTLD_DI_LINKMAP writes one pointer, and there is a place for it.
    let found = unsafe { dlinfo(library, RTLD_DI_LINKMAP, map.as_mut_ptr().cast()) };
    if found != 0 {
        return Err(code::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED);
    }
    // SAFETY: `dlinfo` has succeeded.
    let map = unsafe { map.assume_init() };
    // SAFETY: the link map lives as long as the library, which is never closed.
    Ok(unsafe { (*map).base })
}

/// The first field of `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
}

const RTLD_DI_LINKMAP: i32 = 2;

unsafe extern "C" {
    /// The C library's; not among the `libc` crate's functions for this system.
    fn dlinfo(library: *mut c_void, request: i32, info: *mut c_void) -> i32;
}

/// `cuModuleUnload`: waits for the kernels that are queued.
pub fn unload(driver: &Driver, handle: CuModule) -> Result<()> {
    let find = |module: &Module| module.context;
    let context = driver.tables().modules.get(&handle).map(find).ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
    driver.drain(context);
    let mut tables = driver.tables();
    tables.modules.remove(&handle).ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
    tables.functions.retain(|_, function| function.module != handle);
    driver::released(Kind::Module);
    context.usable()
}

/// `cuModuleGetFunction`
pub fn function(driver: &Driver, handle: CuModule, name: &str) -> Result<CuFunction> {
    let mut guard = driver.tables();
    let tables = &mut *guard;
    let module = tables.modules.get(&handle).ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
    module.context.usable()?;
    let symbol = module.image.symbols.get(name).filter(|symbol| symbol.is_function);
    let address = module.base + symbol.ok_or(code::CUDA_ERROR_NOT_FOUND)?.value;
    let function = Function { name: name.into(), address, context: module.context, module: handle };
    let known = tables.functions.iter().find(|(_, f)| f.module == handle && f.address == address);
    if let Some((&handle, _)) = known {
        return Ok(handle);
    }
    let handle = CuFunction::new(tables.next(Serial::Function));
    tables.functions.insert(handle, function);
    Ok(handle)
}

/// `cuModuleGetGlobal`: address and size.
pub fn global(driver: &Driver, handle: CuModule, name: &str) -> Result<(usize, usize)> {
    let tables = driver.tables();
    let module = tables.modules.get(&handle).ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
    module.context.usable()?;
    if let Some(symbol) = module.image.symbols.get(name).filter(|symbol| !symbol.is_function) {
        return Ok((module.base + symbol.value, symbol.size));
    }
    match name.strip_suffix(EXEC_MODE) {
        Some(kernel) if module.has_function(kernel) => Ok((std::ptr::from_ref(&GENERIC) as usize, 1)),
        _ => Err(code::CUDA_ERROR_NOT_FOUND),
    }
}
