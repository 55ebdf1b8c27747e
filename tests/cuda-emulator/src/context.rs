//! Primary contexts, one a device, and which of them is current on a thread.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::account::Kind;
use crate::code::{self, Code, Result};
use crate::driver::{self, Driver};
use crate::handle::CuContext;

/// `CU_CTX_FLAGS_MASK` of CUDA 12.
const FLAGS_MASK: u32 = 0xff;

/// The limits that can be asked for, with what a GPU has at first: `CU_LIMIT_STACK_SIZE` and its followers.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

/// How deep a thread's stack of contexts can be; CUDA has no such limit.
const DEPTH: usize = 16;

/// A device's primary context. It exists while somebody retains it.
#[derive(Debug)]
pub struct Context {
    /// The device's number.
    pub device: usize,
    /// Its handle, the same whenever it exists.
    pub handle: CuContext,
    /// The error that it keeps, or 0.
    error: AtomicU32,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    retained: u32,
    flags: u32,
    peers: BTreeSet<usize>,
    limits: [usize; LIMITS.len()],
}

impl Context {
    /// The context of a device, which does not exist yet.
    pub fn new(device: usize) -> Context {
        let inner = Inner { retained: 0, flags: 0, peers: BTreeSet::new(), limits: LIMITS };
        Context { device, handle: CuContext::new(device), error: AtomicU32::new(0), inner: Mutex::new(inner) }
    }

    /// Whether somebody retains it.
    pub fn exists(&self) -> bool {
        self.inner.lock().retained > 0
    }

    /// Whether this is that.
    pub fn is(&self, other: &Context) -> bool {
        self.device == other.device
    }

    /// Fails with the error that the context keeps, if any.
    pub fn usable(&self) -> Result<()> {
        match self.error.load(Ordering::SeqCst) {
            0 => Ok(()),
            error => Err(error),
        }
    }

    /// Makes the context keep a first error.
    pub fn fail(&self, error: Code) {
        // A second error says nothing new.
        let _ = self.error.compare_exchange(0, error, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// `cuDevicePrimaryCtxRetain`
    pub fn retain(&self) -> CuContext {
        let mut inner = self.inner.lock();
        inner.retained += 1;
        if inner.retained == 1 {
            driver::made(Kind::Context);
        }
        self.handle
    }

    /// `cuDevicePrimaryCtxRelease`
    pub fn release(&'static self, driver: &Driver) -> Result<()> {
        let last = {
            let mut inner = self.inner.lock();
            inner.retained = inner.retained.checked_sub(1).ok_or(code::CUDA_ERROR_INVALID_CONTEXT)?;
            inner.retained == 0
        };
        if last {
            driver.destroy_context(self);
            let mut inner = self.inner.lock();
            inner.peers.clear();
            inner.limits = LIMITS;
            self.error.store(0, Ordering::SeqCst);
            driver::released(Kind::Context);
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxGetState`
    pub fn state(&self) -> (u32, i32) {
        let inner = self.inner.lock();
        (inner.flags, i32::from(inner.retained > 0))
    }

    /// `cuDevicePrimaryCtxSetFlags`
    pub fn set_flags(&self, flags: u32) -> Result<()> {
        if flags & !FLAGS_MASK != 0 || !matches!(flags & 7, 0 | 1 | 2 | 4) {
            return Err(code::CUDA_ERROR_INVALID_VALUE);
        }
        self.inner.lock().flags = flags;
        Ok(())
    }

    /// `cuCtxEnablePeerAccess`
    pub fn enable_peer(&self, peer: &Context, flags: u32) -> Result<()> {
        if flags != 0 {
            return Err(code::CUDA_ERROR_INVALID_VALUE);
        }
        if self.is(peer) {
            return Err(code::CUDA_ERROR_INVALID_CONTEXT);
        }
        if !self.inner.lock().peers.insert(peer.device) {
            return Err(code::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        Ok(())
    }

    /// `cuCtxGetLimit`
    pub fn limit(&self, limit: u32) -> Result<usize> {
        self.inner.lock().limits.get(limit as usize).copied().ok_or(code::CUDA_ERROR_UNSUPPORTED_LIMIT)
    }

    /// `cuCtxSetLimit`
    pub fn set_limit(&self, limit: u32, value: usize) -> Result<()> {
        let mut inner = self.inner.lock();
        let slot = inner.limits.get_mut(limit as usize).ok_or(code::CUDA_ERROR_UNSUPPORTED_LIMIT)?;
        *slot = value;
        Ok(())
    }
}

// Without a destructor, so that calls work to the very end of the process.
thread_local! {
    static STACK: Cell<([usize; DEPTH], usize)> = const { Cell::new(([0; DEPTH], 0)) };
}

/// The handle on top of this thread's stack, or null.
pub fn top() -> CuContext {
    let (stack, depth) = STACK.get();
    if depth == 0 { CuContext::NULL } else { CuContext(stack[depth - 1]) }
}

/// This thread's current context, if there is one, it exists, and keeps no error.
pub fn current() -> Result<&'static Context> {
    let handle = top();
    if handle == CuContext::NULL {
        return Err(code::CUDA_ERROR_INVALID_CONTEXT);
    }
    let context = driver::get()?.context(handle).map_err(|_| code::CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    context.usable()?;
    Ok(context)
}

/// `cuCtxSetCurrent`: puts `handle` in the place of the top; null takes the top away.
pub fn set_top(handle: CuContext) -> Result<()> {
    let (_, depth) = STACK.get();
    if depth > 0 {
        pop()?;
    }
    if handle == CuContext::NULL { Ok(()) } else { push(handle) }
}

/// `cuCtxPushCurrent`
pub fn push(handle: CuContext) -> Result<()> {
    let (mut stack, depth) = STACK.get();
    *stack.get_mut(depth).ok_or(code::CUDA_ERROR_INVALID_VALUE)? = handle.0;
    STACK.set((stack, depth + 1));
    Ok(())
}

/// `cuCtxPopCurrent`
pub fn pop() -> Result<CuContext> {
    let handle = top();
    let (stack, depth) = STACK.get();
    STACK.set((stack, depth.checked_sub(1).ok_or(code::CUDA_ERROR_INVALID_CONTEXT)?));
    Ok(handle)
}
