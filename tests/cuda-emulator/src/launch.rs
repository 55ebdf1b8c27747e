//! Kernel launches: arguments read at the call, and the run on a stream's thread.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::code::{self, Code, Result};
use crate::context::{self, Context};
use crate::driver::{self, Driver};
use crate::handle::{CuFunction, CuStream};
use crate::stream::Command;

/// More arguments than a kernel is likely to have; one that has fewer ignores the rest.
const MAX_ARGS: usize = 64;

/// Limits of a launch, as a GPU has them and as `cuDeviceGetAttribute` says.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// The widest grid in each direction.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// The widest block in each direction.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Bytes of shared memory a block can have.
pub const MAX_SHARED: u32 = 48 << 10;

/// A launch as its stream sees it.
#[derive(Debug)]
pub struct Launch {
    name: Arc<str>,
    address: usize,
    args: Box<[usize; MAX_ARGS]>,
    /// The blocks among the arguments, with `EMU_CHECK`.
    blocks: Vec<usize>,
    /// How the run shall end instead, with `EMU_FAIL`.
    fault: Option<Code>,
}

/// Copies memory that may not be there; the answer is how many bytes came.
pub fn peek(address: usize, buffer: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: buffer.len() };
    // SAFETY: always.
    let pid = unsafe { libc::getpid() };
    // SAFETY: `local` is the buffer; the kernel checks `remote`.
    let count = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    usize::try_from(count).unwrap_or(0)
}

fn peek_word(address: usize) -> Option<usize> {
    let mut word = [0; size_of::<usize>()];
    (peek(address, &mut word) == word.len()).then(|| usize::from_ne_bytes(word))
}

/// The values of the arguments, and how many of them are arguments for sure: the driver is not told how many there
/// are. LLVM's plugin, and who does as it does, points to one array of values, one after the other.
fn read_args(params: usize) -> (Box<[usize; MAX_ARGS]>, usize) {
    let mut args = Box::new([0; MAX_ARGS]);
    let mut sure = 0;
    let mut last: Option<usize> = None;
    for (i, arg) in args.iter_mut().enumerate() {
        let Some(place) = peek_word(params.wrapping_add(i * size_of::<usize>())) else { break };
        let Some(value) = peek_word(place) else { continue };
        *arg = value;
        let follows = last.is_none_or(|last| place == last.wrapping_add(size_of::<usize>()));
        if sure == i && follows {
            (sure, last) = (i + 1, Some(place));
        }
    }
    (args, sure)
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
}

impl Shape {
    fn check(self) -> Result<()> {
        let within = |sizes: [u32; 3], limits: [u32; 3]| sizes.iter().zip(limits).all(|(&n, max)| n > 0 && n <= max);
        let threads = self.block.iter().fold(1u32, |product, &n| product.saturating_mul(n));
        let fits = within(self.grid, MAX_GRID) && within(self.block, MAX_BLOCK) && self.shared <= MAX_SHARED;
        if fits && threads <= MAX_THREADS_PER_BLOCK { Ok(()) } else { Err(code::CUDA_ERROR_INVALID_VALUE) }
    }
}

/// `cuLaunchKernel`
pub fn launch(
    driver: &Driver,
    function: CuFunction,
    shape: Shape,
    stream: CuStream,
    params: *const c_void,
    extra: *const c_void,
) -> Result<()> {
    let (name, address, context) = {
        let tables = driver.tables();
        let function = tables.functions.get(&function).ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
        (function.name.clone(), function.address, function.context)
    };
    context.usable()?;
    shape.check()?;
    if !extra.is_null() {
        return Err(code::CUDA_ERROR_NOT_SUPPORTED);
    }
    let stream = driver.stream(stream)?;
    // CUDA: a launch fails on a stream of another device than the current one.
    if !stream.context.is(context) || !context.is(context::current()?) {
        return Err(code::CUDA_ERROR_INVALID_HANDLE);
    }
    let (args, sure) = read_args(params as usize);
    let blocks = if driver.env.check { driver.tables().memory.use_blocks(&name, &args[..sure]) } else { Vec::new() };
    let fault = driver.kernel_fault();
    stream.push(driver, Command::Launch(Launch { name, address, args, blocks, fault }));
    Ok(())
}

impl Launch {
    /// Runs the kernel, unless its context is broken.
    pub fn run(self, context: &Context, works: bool) {
        match self.fault {
            Some(fault) => context.fail(fault),
            None if works => {
                prepare_openmp();
                // SAFETY: the address is a function of a loaded image, which never goes away, and an entry point
                // of clang's takes words only, at most so many.
                unsafe { call(self.address, &self.args) };
            }
            None => {}
        }
        if let (Some(driver), false) = (driver::peek(), self.blocks.is_empty()) {
            driver.tables().memory.unuse(&self.name, &self.blocks);
        }
    }
}

/// Calls a function with all the words that a kernel may take.
///
/// # Safety
///
/// * `address` must be a function that takes integers or pointers, at most as many as there are in `args`, and each
///   must be what the function expects.
unsafe fn call(address: usize, args: &[usize; MAX_ARGS]) {
    macro_rules! call_with {
        ($($i:literal)*) => {{
            type Kernel = unsafe extern "C" fn($(word!($i)),*);
            // SAFETY: by this function's contract; in the C calling convention the callee ignores surplus words.
            let kernel: Kernel = unsafe { std::mem::transmute::<usize, Kernel>(address) };
            // SAFETY: by this function's contract.
            unsafe { kernel($(args[$i]),*) }
        }};
    }
    macro_rules! word {
        ($i:literal) => {
            usize
        };
    }
    call_with!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
}

/// Tells libomp, if the program has it, that regions inside kernels run on this thread alone: each stream's thread
/// is a root of its own to libomp, and a team for every one of them would use up its slots for threads.
fn prepare_openmp() {
    thread_local! {
        static DONE: Cell<bool> = const { Cell::new(false) };
    }
    if DONE.replace(true) {
        return;
    }
    // SAFETY: the name is a string with a zero byte.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"omp_set_num_threads".as_ptr()) };
    if !address.is_null() {
        type SetNumThreads = unsafe extern "C" fn(c_int);
        // SAFETY: OpenMP gives this name to a function of this type.
        let set_num_threads = unsafe { std::mem::transmute::<*mut c_void, SetNumThreads>(address) };
        // SAFETY: 1 is a number that it takes, on any thread.
        unsafe { set_num_threads(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_far_as_there_are_any() {
        let values = [7usize, 8, 9];
        let params: Vec<*const usize> = values.iter().map(std::ptr::from_ref).collect();
        let (args, sure) = read_args(params.as_ptr() as usize);
        assert_eq!(args[..3], values);
        assert!(sure >= 3);
        assert_eq!(read_args(0), (Box::new([0; MAX_ARGS]), 0));
        assert_eq!(read_args(8), (Box::new([0; MAX_ARGS]), 0));
    }

    #[test]
    fn memory_that_is_not_there_gives_no_bytes() {
        let mut buffer = [0; 4];
        assert_eq!(peek(16, &mut buffer), 0);
        assert_eq!(peek([1u8, 2, 3, 4].as_ptr() as usize, &mut buffer), 4);
        assert_eq!(buffer, [1, 2, 3, 4]);
    }

    #[test]
    fn a_kernel_gets_its_sixty_fourth_argument() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static SEEN: AtomicUsize = AtomicUsize::new(0);
        macro_rules! kernel {
            ($($name:ident)*) => {
                #[allow(clippy::too_many_arguments)]
                extern "C" fn kernel($($name: usize),*, last: usize) {
                    SEEN.store(0 $(+ $name)* + 1000 * last, Ordering::SeqCst);
                }
            };
        }
        kernel!(a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14 a15 a16 a17 a18 a19 a20 a21 a22 a23 a24 a25 a26 a27
            a28 a29 a30 a31 a32 a33 a34 a35 a36 a37 a38 a39 a40 a41 a42 a43 a44 a45 a46 a47 a48 a49 a50 a51 a52 a53
            a54 a55 a56 a57 a58 a59 a60 a61 a62);
        let mut args = [1; MAX_ARGS];
        args[63] = 5;
        // SAFETY: the function takes 64 words.
        unsafe { call(kernel as *const () as usize, &args) };
        assert_eq!(SEEN.load(Ordering::SeqCst), 63 + 5000);
    }
}
