//! Events. A record is a signal of its own: who waits, waits for the record that was newest when it asked.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::account::Kind;
use crate::code::{self, Result};
use crate::context::{self, Context};
use crate::driver::{self, Driver, Serial};
use crate::handle::CuEvent;
use crate::stream::{Command, Stream};

/// `CU_EVENT_BLOCKING_SYNC`, `CU_EVENT_DISABLE_TIMING` and `CU_EVENT_INTERPROCESS`.
const FLAGS_MASK: u32 = 7;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// Something that happens once.
#[derive(Debug, Default)]
pub struct Signal {
    done: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// It has happened.
    pub fn set(&self) {
        *self.done.lock() = true;
        self.changed.notify_all();
    }

    /// Whether it has happened.
    pub fn is_set(&self) -> bool {
        *self.done.lock()
    }

    /// Waits until it happens.
    pub fn wait(&self) {
        let mut done = self.done.lock();
        while !*done {
            self.changed.wait(&mut done);
        }
    }
}

/// An event and its newest record; without one it counts as done.
#[derive(Debug)]
pub struct Event {
    /// The context that was current when it was made.
    pub context: &'static Context,
    newest: Mutex<Option<Arc<Signal>>>,
}

impl Event {
    fn newest(&self) -> Option<Arc<Signal>> {
        self.newest.lock().clone()
    }

    /// `cuEventRecord`
    pub fn record(&self, driver: &Driver, stream: &Arc<Stream>) -> Result<()> {
        if !self.context.is(stream.context) {
            return Err(code::CUDA_ERROR_INVALID_HANDLE);
        }
        let signal = Arc::new(Signal::default());
        // Under the lock, so that of two records on one stream the later one is the newest.
        let mut newest = self.newest.lock();
        stream.push(driver, Command::Record(signal.clone()));
        *newest = Some(signal);
        Ok(())
    }

    /// `cuStreamWaitEvent`
    pub fn make_wait(&self, driver: &Driver, stream: &Arc<Stream>) {
        if let Some(signal) = self.newest() {
            stream.push(driver, Command::Wait(signal));
        }
    }

    /// `cuEventSynchronize`
    pub fn synchronize(&self) -> Result<()> {
        if let Some(signal) = self.newest() {
            signal.wait();
        }
        self.context.usable()
    }

    /// `cuEventQuery`
    pub fn query(&self) -> Result<()> {
        let done = self.newest().is_none_or(|signal| signal.is_set());
        if done { Ok(()) } else { Err(code::CUDA_ERROR_NOT_READY) }
    }
}

/// `cuEventCreate`
pub fn create(driver: &Driver, flags: u32) -> Result<CuEvent> {
    if flags & !FLAGS_MASK != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
        return Err(code::CUDA_ERROR_INVALID_VALUE);
    }
    let event = Event { context: context::current()?, newest: Mutex::new(None) };
    let mut tables = driver.tables();
    let handle = CuEvent::new(tables.next(Serial::Event));
    tables.events.insert(handle, Arc::new(event));
    driver::made(Kind::Event);
    Ok(handle)
}

/// `cuEventDestroy`: what waits for the event goes on waiting for its record.
pub fn destroy(driver: &Driver, handle: CuEvent) -> Result<()> {
    let event = driver.tables().events.remove(&handle).ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
    driver::released(Kind::Event);
    event.context.usable()
}
