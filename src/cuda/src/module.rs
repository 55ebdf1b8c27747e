//! Device images: the check, loading, and the table of their kernels and globals.

use crate::device::{Device, Done, Refused, ok, report_call};
use crate::driver::{CUdeviceptr, CUfunction, CUmodule, Driver, Failed, codes};
use crate::env::Settings;
use crate::report::{Address, dp, report};
use object::read::elf::{ElfFile32, ElfFile64};
use omptarget_abi::{DeviceImage, OffloadEntry, REQUIRES_UNIFIED_SHARED_MEMORY, TargetTable};
use std::ffi::{CStr, CString, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::atomic::AtomicI32;

/// `EM_CUDA`.
const MACHINE_CUDA: u16 = 190;

/// How a kernel's threads are used (`OMPTgtExecModeFlags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionMode(pub i8);

impl ExecutionMode {
    /// One thread runs the region, others join its parallel parts.
    pub const GENERIC: Self = Self(1);
    /// All threads run all of it.
    pub const SPMD: Self = Self(2);
    /// Generic by source, run as SPMD.
    pub const GENERIC_SPMD: Self = Self(3);
}

/// A kernel: what the runtime gets as its entry point.
#[derive(Debug)]
pub struct Kernel {
    name: CString,
    function: CUfunction,
    mode: ExecutionMode,
    /// Most threads of a block, 0 until the driver has been asked.
    pub(crate) most_threads: AtomicI32,
}

// SAFETY: a `CUfunction` may be used by any thread that has its context current.
unsafe impl Send for Kernel {}
// SAFETY: as above; nothing but the atomic changes.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Its symbol.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// The driver's handle.
    pub const fn function(&self) -> CUfunction {
        self.function
    }

    /// How its threads are used.
    pub const fn mode(&self) -> ExecutionMode {
        self.mode
    }
}

/// A loaded image. The table and the kernels stay where they are: the runtime keeps their addresses.
#[derive(Debug)]
pub struct Image {
    module: CUmodule,
    /// The entry points that the runtime has.
    kernels: Vec<Kernel>,
    entries: Vec<OffloadEntry>,
    table: Box<TargetTable>,
}

// SAFETY: a `CUmodule` may be used by any thread that has its context current; the pointers in the table point into the
// image itself and to the program's constants.
unsafe impl Send for Image {}

impl Image {
    /// The driver's handle.
    pub const fn module(&self) -> CUmodule {
        self.module
    }
}

/// The bytes of an image.
///
/// # Safety
///
/// `image` is valid, and its bytes are readable for as long as the result is used.
unsafe fn bytes<'i>(image: &DeviceImage) -> &'i [u8] {
    let size = image.image_end.addr().saturating_sub(image.image_start.addr());
    if image.image_start.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: readable by this function's contract.
    unsafe { &*slice_from_raw_parts(image.image_start.cast(), size) }
}

/// Whether an image is an ELF file for CUDA.
///
/// # Safety
///
/// `image` is a valid `__tgt_device_image`.
pub unsafe fn is_for_cuda(image: &DeviceImage) -> bool {
    // SAFETY: the same contract.
    machine_of(unsafe { bytes(image) }) == Some(MACHINE_CUDA)
}

/// The machine of an ELF file, none if the bytes are no sound ELF file.
pub fn machine_of(bytes: &[u8]) -> Option<u16> {
    use object::read::elf::FileHeader;
    if !bytes.starts_with(b"\x7fELF") {
        dp!("Not an ELF image!");
        return None;
    }
    let machine = match bytes.get(4) {
        Some(1) => ElfFile32::<object::Endianness>::parse(bytes).map(|file| file.elf_header().e_machine(file.endian())),
        _ => ElfFile64::<object::Endianness>::parse(bytes).map(|file| file.elf_header().e_machine(file.endian())),
    };
    machine.inspect_err(|error| dp!("Unable to get ELF handle: {error}!")).ok().map(|machine| machine.0)
}

/// What an image's loading needs beside the image.
#[derive(Clone, Copy)]
pub struct Loading<'p> {
    /// The driver.
    pub driver: &'p Driver,
    /// The settings.
    pub settings: &'p Settings,
    /// The program's `requires` clauses.
    pub requires: i64,
    /// How many devices there are.
    pub devices: usize,
}

impl Device {
    /// Loads an image and makes the table of its entries. A failed image is unloaded again.
    ///
    /// # Safety
    ///
    /// `image` and its entries are valid, and its bytes are a whole image.
    pub unsafe fn load(&self, with: Loading<'_>, image: &DeviceImage) -> Done<*mut TargetTable> {
        let driver = with.driver;
        self.enter(driver)?;
        dp!("Load data from image {}", Address(image.image_start.addr()));
        let mut module = null_mut();
        // SAFETY: the image is whole, by this function's contract; there are no options.
        let loaded =
            unsafe { driver.module_load_data_ex(&raw mut module, image.image_start, 0, null_mut(), null_mut()) };
        ok(driver, loaded, "cuModuleLoadDataEx")?;
        dp!("CUDA module successfully loaded!");
        // SAFETY: the same contract.
        let filled = unsafe { self.fill(with, module, image) };
        let Ok(mut image) = filled else {
            // SAFETY: loaded just now, and nobody has a part of it.
            let unloaded = unsafe { driver.module_unload(module) };
            let _ = ok(driver, unloaded, "cuModuleUnload");
            return Err(Refused);
        };
        if image.entries.is_empty() {
            // LLVM takes a missing table for a failure; the module stays, it may have been loaded for its globals.
            self.images.lock().push(image);
            return Err(Refused);
        }
        let entries = image.entries.as_mut_ptr_range();
        *image.table = TargetTable { entries_begin: entries.start, entries_end: entries.end };
        let table = &raw mut *image.table;
        self.images.lock().push(image);
        Ok(table)
    }

    /// # Safety
    ///
    /// As for [`load`](Self::load).
    unsafe fn fill(&self, with: Loading<'_>, module: CUmodule, image: &DeviceImage) -> Done<Image> {
        let table = Box::new(TargetTable { entries_begin: null_mut(), entries_end: null_mut() });
        let count = image.entries_end.addr().saturating_sub(image.entries_begin.addr()) / size_of::<OffloadEntry>();
        // Room for all kernels: their addresses must not change.
        let kernels = Vec::with_capacity(count);
        let mut loaded = Image { module, kernels, entries: Vec::with_capacity(count), table };
        for index in 0..count {
            // SAFETY: one of the image's entries, valid by this function's contract.
            let entry = unsafe { &*image.entries_begin.wrapping_add(index) };
            if entry.addr.is_null() {
                dp!("Invalid binary: host entry '<null>' (size = {})...", entry.size);
                return Err(Refused);
            }
            // SAFETY: an entry has a NUL-terminated name.
            let name = unsafe { CStr::from_ptr(entry.name) };
            let addr = if entry.size != 0 {
                // SAFETY: the entry is valid.
                unsafe { self.global(with, module, index, entry, name) }?
            } else {
                loaded.kernels.push(self.kernel(with.driver, module, index, name)?);
                loaded.kernels.last_mut().map_or(null_mut(), |kernel| (&raw mut *kernel).cast())
            };
            loaded.entries.push(OffloadEntry { addr, ..*entry });
        }
        self.send_environment(with, module)?;
        Ok(loaded)
    }

    /// # Safety
    ///
    /// `entry` is a valid entry of the program, of a global.
    unsafe fn global(
        &self,
        with: Loading<'_>,
        module: CUmodule,
        index: usize,
        entry: &OffloadEntry,
        name: &CStr,
    ) -> Done<*mut c_void> {
        let shown = name.to_string_lossy();
        let (address, size) = find_global(with.driver, module, name).map_err(|Failed(code)| {
            report!("Loading global '{shown}' Failed");
            report_call(with.driver, "cuModuleGetGlobal", code);
            Refused
        })?;
        if size != entry.size {
            dp!("Loading global '{shown}' - size mismatch ({size} != {})", entry.size);
            return Err(Refused);
        }
        dp!("Entry point {} maps to global {shown} ({})", Address(index), Address(address as usize));
        if with.requires & REQUIRES_UNIFIED_SHARED_MEMORY != 0 {
            // The device's variable is a pointer to the host's.
            // SAFETY: a global of the program holds at least a pointer when memory is unified, as clang emits it.
            let copied = unsafe { with.driver.memcpy_htod(address, entry.addr, size_of::<*mut c_void>()) };
            ok(with.driver, copied, "cuMemcpyHtoD")?;
            // SAFETY: as above.
            let host = unsafe { *entry.addr.cast::<*mut c_void>() };
            dp!(
                "Copy linked variable host address ({}) to device address ({})",
                Address(host.addr()),
                Address(address as usize)
            );
        }
        Ok(address as *mut c_void)
    }

    fn kernel(&self, driver: &Driver, module: CUmodule, index: usize, name: &CStr) -> Done<Kernel> {
        let shown = name.to_string_lossy();
        let mut function = null_mut();
        // SAFETY: `function` may be written to, the module is loaded.
        let found = unsafe { driver.module_get_function(&raw mut function, module, name.as_ptr()) };
        found.map_err(|Failed(code)| {
            report!("Loading '{shown}' Failed");
            report_call(driver, "cuModuleGetFunction", code);
            Refused
        })?;
        dp!("Entry point {} maps to {shown} ({})", Address(index), Address(function.addr()));
        let mode = self.mode(driver, module, name)?;
        Ok(Kernel { name: name.to_owned(), function, mode, most_threads: AtomicI32::new(0) })
    }

    fn mode(&self, driver: &Driver, module: CUmodule, kernel: &CStr) -> Done<ExecutionMode> {
        let mut name = kernel.to_bytes().to_vec();
        name.extend(b"_exec_mode\0");
        let name = CString::from_vec_with_nul(name).expect("no NUL inside a C string");
        let shown = name.to_string_lossy();
        let Some((address, size)) = find_optional(driver, module, &name)? else {
            dp!("Loading global exec_mode '{shown}' - symbol missing, using default value GENERIC (1)");
            return Ok(ExecutionMode::GENERIC);
        };
        if size != size_of::<ExecutionMode>() {
            let expected = size_of::<ExecutionMode>();
            dp!("Loading global exec_mode '{shown}' - size mismatch ({size} != {expected})");
            return Err(Refused);
        }
        let mut mode = ExecutionMode::GENERIC;
        let host = (&raw mut mode).cast();
        // SAFETY: one byte on either side.
        unsafe { driver.memcpy_dtoh(host, address, size) }.map_err(|Failed(code)| {
            report!(
                "Error when copying data from device to host. Pointers: host = {}, device = {}, size = {size}",
                Address(host.addr()),
                Address(address as usize)
            );
            report_call(driver, "cuMemcpyDtoH", code);
            Refused
        })?;
        Ok(mode)
    }

    /// Tells the device's runtime what it is, if the image has one that wants to know.
    fn send_environment(&self, with: Loading<'_>, module: CUmodule) -> Done {
        let name = c"omptarget_device_environment";
        let shown = name.to_string_lossy();
        let devices = u32::try_from(with.devices).expect("the driver counts in int");
        // `DeviceEnvironmentTy`: debug kind, number of devices, number of this one, dynamic shared memory.
        let environment = [with.settings.device_debug, devices, self.number() as u32, with.settings.shared_memory];
        let Some((address, size)) = find_optional(with.driver, module, name)? else {
            dp!("Finding global device environment '{shown}' - symbol missing.");
            dp!("Continue, considering this is a device RTL which does not accept environment setting.");
            return Ok(());
        };
        if size != size_of_val(&environment) {
            // LLVM's line names the size of an int here.
            report!("Global device_environment '{shown}' - size mismatch ({size} != {})", size_of::<i32>());
            return Err(Refused);
        }
        let host = environment.as_ptr().cast::<c_void>();
        // SAFETY: `size` bytes on either side.
        unsafe { with.driver.memcpy_htod(address, host, size) }.map_err(|Failed(code)| {
            dp!(
                "Error when copying data from host to device. Pointers: host = {}, device = {}, size = {size}",
                Address(host.addr()),
                Address(address as usize)
            );
            report_call(with.driver, "cuMemcpyHtoD", code);
            Refused
        })?;
        dp!("Sending global device environment data {size} bytes");
        Ok(())
    }
}

fn find_global(driver: &Driver, module: CUmodule, name: &CStr) -> Result<(CUdeviceptr, usize), Failed> {
    let (mut address, mut size) = (0, 0);
    // SAFETY: both may be written to, the module is loaded.
    unsafe { driver.module_get_global(&raw mut address, &raw mut size, module, name.as_ptr()) }?;
    Ok((address, size))
}

/// A global that an image need not have. That it has none is one answer of the driver, and a failure is another.
fn find_optional(driver: &Driver, module: CUmodule, name: &CStr) -> Done<Option<(CUdeviceptr, usize)>> {
    match find_global(driver, module, name) {
        Ok(found) => Ok(Some(found)),
        Err(Failed(codes::NOT_FOUND)) => Ok(None),
        Err(Failed(code)) => {
            report_call(driver, "cuModuleGetGlobal", code);
            Err(Refused)
        }
    }
}
