//! Streams: queues of commands, each run in order by a thread of its own.
//!
//! A thread starts with the first command. When its stream is destroyed it serves another stream and never ends:
//! libomp has a slot for each thread that has run a kernel, and at the end of the process would trip over one that
//! is just leaving.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::account::Kind;
use crate::code::{self, Result};
use crate::context::{self, Context};
use crate::driver::{self, Driver, Serial};
use crate::event::Signal;
use crate::handle::CuStream;
use crate::launch::Launch;

/// `CU_STREAM_NON_BLOCKING`: no order with the default stream.
const NON_BLOCKING: u32 = 1;

/// One in so many commands is delayed when `EMU_DELAY_US` is set.
const DELAY_ONE_IN: u64 = 5;

/// What a stream can be told to do.
#[derive(Debug)]
pub enum Command {
    /// Copy `len` bytes.
    Copy {
        /// To this address.
        to: usize,
        /// From this one.
        from: usize,
        /// So many.
        len: usize,
    },
    /// Run a kernel.
    Launch(Launch),
    /// Say that this point has been reached.
    Record(Arc<Signal>),
    /// Wait until another stream says so.
    Wait(Arc<Signal>),
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// The context that was current when it was made.
    pub context: &'static Context,
    /// Whether it keeps order with the default stream.
    blocking: bool,
    is_default: bool,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    commands: VecDeque<Command>,
    pushed: u64,
    done: u64,
    has_worker: bool,
    closed: bool,
    random: u64,
}

/// Threads without a stream: where to send the next one.
static IDLE: Mutex<Vec<Sender<Arc<Stream>>>> = Mutex::new(Vec::new());

impl Stream {
    fn new(context: &'static Context, blocking: bool, is_default: bool, random: u64) -> Stream {
        let queue = Queue { commands: VecDeque::new(), pushed: 0, done: 0, has_worker: false, closed: false, random };
        Stream { context, blocking, is_default, queue: Mutex::new(queue), changed: Condvar::new() }
    }

    /// The default stream of a context.
    pub fn default_of(context: &'static Context) -> Stream {
        Stream::new(context, false, true, context.device as u64)
    }

    /// Appends a command, behind what the default stream's rules put before it.
    pub fn push(self: &Arc<Stream>, driver: &Driver, command: Command) {
        if self.is_default {
            let others: Vec<_> = driver.tables().streams.values().cloned().collect();
            others.iter().filter(|s| s.blocking && s.context.is(self.context)).for_each(|s| self.follow(s));
        } else if self.blocking {
            self.follow(&driver.default_streams[self.context.device]);
        }
        self.append(command);
    }

    /// Makes this stream wait for all that `other` has been given.
    fn follow(self: &Arc<Stream>, other: &Arc<Stream>) {
        if !other.is_idle() {
            let signal = Arc::new(Signal::default());
            other.append(Command::Record(signal.clone()));
            self.append(Command::Wait(signal));
        }
    }

    fn append(self: &Arc<Stream>, command: Command) {
        let mut queue = self.queue.lock();
        queue.commands.push_back(command);
        queue.pushed += 1;
        if !queue.has_worker {
            queue.has_worker = true;
            employ(self.clone());
        }
        self.changed.notify_all();
    }

    /// Lets the thread go as soon as the queue is empty.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.changed.notify_all();
    }

    fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.done == queue.pushed
    }

    /// Waits until what has been pushed so far is done.
    pub fn synchronize(&self) {
        let mut queue = self.queue.lock();
        let goal = queue.pushed;
        while queue.done < goal {
            self.changed.wait(&mut queue);
        }
    }

    /// `cuStreamQuery`
    pub fn query(&self) -> Result<()> {
        if self.is_idle() { Ok(()) } else { Err(code::CUDA_ERROR_NOT_READY) }
    }

    /// Runs commands until the stream is destroyed and empty.
    fn serve(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(command) = queue.commands.pop_front() {
                let pause = self.pause(&mut queue.random);
                drop(queue);
                std::thread::sleep(pause);
                self.run(command);
                queue = self.queue.lock();
                queue.done += 1;
                self.changed.notify_all();
            } else if queue.closed {
                queue.has_worker = false;
                return;
            } else {
                self.changed.wait(&mut queue);
            }
        }
    }

    fn run(&self, command: Command) {
        // After an error that the context keeps, only the signals go on, so that nobody waits for ever.
        let works = self.context.usable().is_ok();
        match command {
            Command::Copy { to, from, len } if works => {
                // SAFETY: `check_range` has seen the device's side when the command was given; the host's side is
                // the caller's, as the driver API asks, until the stream has been synchronised.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
            }
            Command::Copy { .. } => {}
            Command::Launch(launch) => launch.run(self.context, works),
            Command::Record(signal) => signal.set(),
            Command::Wait(signal) => signal.wait(),
        }
    }

    /// How long the next command is held back: the stream's own sequence, from the seed.
    fn pause(&self, random: &mut u64) -> Duration {
        let delay = driver::peek().map_or(Duration::ZERO, |driver| driver.env.delay);
        if !delay.is_zero() && splitmix(random).is_multiple_of(DELAY_ONE_IN) { delay } else { Duration::ZERO }
    }
}

/// The generator SplitMix64: small, and good from any seed.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Gives a stream to an idle thread, or to a new one.
fn employ(stream: Arc<Stream>) {
    if let Some(worker) = IDLE.lock().pop() {
        // The thread is waiting: it leaves its loop only when the process ends.
        let _ = worker.send(stream);
        return;
    }
    let (sender, receiver) = channel::<Arc<Stream>>();
    std::thread::spawn(move || {
        let mut next = Some(stream);
        while let Some(stream) = next {
            stream.serve();
            drop(stream);
            IDLE.lock().push(sender.clone());
            next = receiver.recv().ok();
        }
    });
}

/// `cuStreamCreate`
pub fn create(driver: &Driver, flags: u32) -> Result<CuStream> {
    if flags & !NON_BLOCKING != 0 {
        return Err(code::CUDA_ERROR_INVALID_VALUE);
    }
    let context = context::current()?;
    let mut tables = driver.tables();
    let serial = tables.next(Serial::Stream);
    let handle = CuStream::new(serial);
    let random = driver.env.seed.wrapping_mul(0x1_0000_0001).wrapping_add(serial as u64);
    tables.streams.insert(handle, Arc::new(Stream::new(context, flags & NON_BLOCKING == 0, false, random)));
    driver::made(Kind::Stream);
    Ok(handle)
}

/// `cuStreamDestroy`: returns at once; what is queued is still done.
pub fn destroy(driver: &Driver, handle: CuStream) -> Result<()> {
    let stream = driver.tables().streams.remove(&handle).ok_or(code::CUDA_ERROR_INVALID_HANDLE)?;
    driver::released(Kind::Stream);
    stream.close();
    stream.context.usable()
}
