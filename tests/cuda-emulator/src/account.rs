//! The account: what was made and never released, said at the very end of the process, or when it aborts.
//!
//! The end must come after the teardown of whoever uses the driver. That runs in destructors registered with
//! `atexit`, or in a library's `.fini_array`; a library that is opened late, as a driver is, finishes before those
//! that opened it. So this library's own `.fini_array` does nothing but register a handler with `on_exit`: the C
//! library runs handlers that were registered during `exit` too, and only after the handler that is running, which
//! is the one that works through all `.fini_array`s.

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::env::Account;
use crate::{driver, say};

/// What the account counts.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Stream,
    Event,
    Allocation,
    Module,
    Context,
}

const WORDS: [&str; 5] = ["streams", "events", "allocations", "modules", "contexts"];

/// How many of each are not released.
pub static LIVE: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// How many calls and kernels `EMU_FAIL` has made fail.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// How many blocks were freed under a kernel that had them as arguments; counted with `EMU_CHECK`.
static EARLY_FREES: AtomicU64 = AtomicU64::new(0);

/// The exit code of a program that ends well but leaves something, with `EMU_ACCOUNT=strict`.
pub const STRICT_EXIT: c_int = 97;

/// At most so many names are listed.
const NAMES_SHOWN: usize = 20;

/// Counts a block that was freed too early.
pub fn note_early_free() {
    EARLY_FREES.fetch_add(1, Ordering::Relaxed);
}

/// Counts a call or a kernel that was made to fail.
pub fn note_fault() {
    FAULTS.fetch_add(1, Ordering::Relaxed);
}

/// For a test in the same process: how many streams, events, allocations, modules and contexts there are now, and how
/// many calls and kernels `EMU_FAIL` has made fail so far.
///
/// # Safety
///
/// `counts` is a place for six numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emu_counts(counts: *mut [u64; 6]) {
    let [streams, events, allocations, modules, contexts] = LIVE.each_ref().map(|count| count.load(Ordering::Relaxed));
    let faults = FAULTS.load(Ordering::Relaxed);
    // SAFETY: a place for them, by this function's contract.
    unsafe { counts.write([streams, events, allocations, modules, contexts, faults]) };
}

fn is_clean() -> bool {
    LIVE.iter().chain([&EARLY_FREES]).all(|count| count.load(Ordering::Relaxed) == 0)
}

/// A line in a fixed place: a signal handler must not allocate.
struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// The counts, in one line to stderr. Safe in a signal handler.
fn print(when: &str) {
    let mut line = Line { bytes: [0; 256], len: 0 };
    let mut counts = || -> std::fmt::Result {
        write!(line, "emulator: left at {when}: ")?;
        for (word, count) in WORDS.iter().zip(&LIVE) {
            write!(line, "{} {word}, ", count.load(Ordering::Relaxed))?;
        }
        writeln!(line, "{} frees too early", EARLY_FREES.load(Ordering::Relaxed))
    };
    // 256 bytes are enough for six numbers.
    let _ = counts();
    // SAFETY: the buffer holds `len` bytes. A short write to stderr cannot be helped here.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len) };
}

unsafe extern "C" {
    /// The C library's; not among the `libc` crate's functions.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), arg: *mut c_void) -> c_int;
}

/// Registers a handler for the end of the process, before all that were registered so far.
fn at_exit(function: extern "C" fn(c_int, *mut c_void)) {
    // SAFETY: the function takes what `on_exit` passes, uses no argument, and this library is never unloaded.
    if unsafe { on_exit(function, std::ptr::null_mut()) } != 0 {
        say("the C library takes no more exit handlers: there will be no account");
    }
}

/// The very end.
extern "C" fn finish(status: c_int, _: *mut c_void) {
    let Some(driver) = driver::peek() else { return };
    print("exit");
    if is_clean() {
        return;
    }
    let names = driver::left_over();
    if !names.is_empty() {
        let more = if names.len() > NAMES_SHOWN { " ..." } else { "" };
        say(&format!("left: {}{more}", names[..names.len().min(NAMES_SHOWN)].join(" ")));
    }
    if driver.env.account == Account::Strict && status == 0 {
        // SAFETY: null means all streams, whose text `_exit` would lose.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        // SAFETY: always; nothing is left to be done.
        unsafe { libc::_exit(STRICT_EXIT) };
    }
}

extern "C" fn at_fini() {
    if driver::peek().is_some_and(|driver| driver.env.account != Account::Off) {
        at_exit(finish);
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_FINI: extern "C" fn() = at_fini;

extern "C" fn go(_: c_int, _: *mut c_void) {
    if let Some(driver) = driver::peek() {
        driver.gone.store(true, Ordering::SeqCst);
    }
}

/// What was to be done about SIGABRT before this library came.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

extern "C" fn on_abort(signal: c_int) {
    print("abort");
    if let Some(former) = FORMER.get() {
        // SAFETY: both point to whole structures, or are null where the old value is not wanted.
        unsafe { libc::sigaction(signal, former, std::ptr::null_mut()) };
    }
    // SAFETY: always; the signal comes again when this handler has returned.
    unsafe { libc::raise(signal) };
}

/// Sees to what has to happen at the end, once, at `cuInit`.
pub fn prepare(account: Account, gone: bool) {
    if gone {
        at_exit(go);
    }
    if account == Account::Off {
        return;
    }
    let mut former = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes is a value of this plain structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_abort as *const () as usize;
    // SAFETY: the handler calls only what a signal handler may; `former` is a place for one structure.
    if unsafe { libc::sigaction(libc::SIGABRT, &action, former.as_mut_ptr()) } == 0 {
        // SAFETY: `sigaction` has succeeded, so it has filled it in.
        let _ = FORMER.set(unsafe { former.assume_init() });
    }
}
