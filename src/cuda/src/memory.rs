//! Device memory: the driver's kinds of it, and a manager that keeps small blocks for reuse.

use crate::driver::{Driver, Failed, Result, codes};
use crate::report::{Address, dp, report};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a block was allocated, and so how it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On the device.
    Device,
    /// On the host, pinned, visible to the device.
    Host,
    /// Managed: moves to whoever uses it.
    Shared,
}

impl Kind {
    /// The kind that `__tgt_rtl_data_alloc` names by number.
    pub const fn from_number(number: i32) -> Option<Self> {
        match number {
            0 | 3 => Some(Self::Device),
            1 => Some(Self::Host),
            2 => Some(Self::Shared),
            _ => None,
        }
    }
}

/// The driver, and the context that a device's memory is in.
#[derive(Clone, Copy)]
pub struct Place<'d> {
    /// The driver.
    pub driver: &'d Driver,
    /// A `CUcontext`.
    pub context: usize,
}

impl Place<'_> {
    /// Makes the context the current one; what fails is reported.
    fn enter(self) -> Result {
        let current = self.driver.set_current(self.context);
        check(self.driver, current, "cuCtxSetCurrent");
        current
    }
}

/// All memory of one device. The driver is called only for what the manager does not have.
#[derive(Debug)]
pub struct Memory {
    /// Every block that the driver gave and has not got back.
    live: Mutex<HashMap<usize, Block>>,
    /// Free blocks by exact size, in buckets so that threads do not all meet.
    free: [Mutex<BTreeMap<usize, VecDeque<usize>>>; BUCKETS],
    /// Larger blocks go back to the driver at once; 0: all do.
    threshold: usize,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    kind: Kind,
    /// Its size if the manager keeps it.
    managed: Option<usize>,
    /// The manager has it: it is in nobody's use.
    idle: bool,
    /// What debug lines call its node.
    node: usize,
}

const BUCKETS: usize = 13;

/// The bucket of a size: 4 to 8 bytes go to 1, 8 to 16 to 2, and so on; smaller ones to 0, larger ones to the last but
/// one.
fn bucket_of(size: usize) -> usize {
    let floor = 1usize << (usize::BITS - 1 - size.leading_zeros());
    dp!("findBucket: Size {size} is floored to {floor}.");
    // LLVM's search, whose upper end is not reached for sizes past the last bucket.
    let size_of = |bucket: usize| if bucket == 0 { 0 } else { 1usize << (bucket + 1) };
    let (mut low, mut high) = (0, BUCKETS - 1);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if size_of(middle) == floor {
            return middle;
        }
        if size_of(middle) > floor {
            high = middle - 1;
        } else {
            low = middle;
        }
    }
    dp!("findBucket: Size {size} goes to bucket {low}");
    low
}

impl Memory {
    /// No memory, and a manager for blocks of up to `threshold` bytes.
    pub fn new(threshold: usize) -> Self {
        Self { live: Mutex::default(), free: Default::default(), threshold }
    }

    /// Allocates `size` bytes of `kind`; null if there is none, which has been reported.
    pub fn allocate(&self, place: Place<'_>, kind: Kind, size: usize) -> *mut c_void {
        if size == 0 {
            return null_mut();
        }
        if kind != Kind::Device || self.threshold == 0 {
            return self.take(place, kind, size, None).map_or(null_mut(), |address| address as *mut c_void);
        }
        dp!("MemoryManagerTy::allocate: size {size} with host pointer {}.", Address(0));
        if size > self.threshold {
            dp!("{size} is greater than the threshold {}. Allocate it directly from device", self.threshold);
            let address = self.take_or_free_and_take(place, size, None);
            dp!("Got target pointer {}. Return directly.", Address(address.unwrap_or(0)));
            return address.unwrap_or(0) as *mut c_void;
        }
        let reused = {
            let mut bucket = self.free[bucket_of(size)].lock();
            bucket.get_mut(&size).and_then(VecDeque::pop_front)
        };
        if let Some(address) = reused {
            self.set_idle(address, false);
            dp!("Find one node {} in the bucket.", Address(self.node_of(address)));
            return address as *mut c_void;
        }
        dp!("Cannot find a node in the FreeLists. Allocate on device.");
        let Some(address) = self.take_or_free_and_take(place, size, Some(size)) else { return null_mut() };
        dp!("Node address {}, target pointer {}, size {size}", Address(self.node_of(address)), Address(address));
        address as *mut c_void
    }

    fn node_of(&self, address: usize) -> usize {
        self.live.lock().get(&address).map_or(0, |block| block.node)
    }

    /// Notes whether the manager has a block. False if that was so already.
    fn set_idle(&self, address: usize, idle: bool) -> bool {
        let mut live = self.live.lock();
        live.get_mut(&address).is_some_and(|block| std::mem::replace(&mut block.idle, idle) != idle)
    }

    /// Frees a block, or keeps it for reuse. False if the driver refused or the block is free already, which has been
    /// reported.
    pub fn free(&self, place: Place<'_>, address: usize) -> bool {
        let block = self.live.lock().get(&address).copied();
        let managed = self.threshold != 0;
        if managed {
            dp!("MemoryManagerTy::free: target memory {}.", Address(address));
        }
        if let Some(Block { managed: Some(size), node, .. }) = block {
            if !self.set_idle(address, true) {
                report!("Target memory {} is freed twice", Address(address));
                return false;
            }
            let bucket = bucket_of(size);
            dp!("Found its node {}. Insert it to bucket {bucket}.", Address(node));
            self.free[bucket].lock().entry(size).or_default().push_back(address);
            return true;
        }
        if managed {
            dp!("Cannot find its node. Delete it on device directly.");
        }
        self.give_back(place, address)
    }

    /// Gives a block back to the driver. False if the driver refused, which has been reported; the block is as it was.
    fn give_back(&self, place: Place<'_>, address: usize) -> bool {
        if place.enter().is_err() {
            return false;
        }
        // Out of the list before the driver may hand the address out again.
        let block = self.live.lock().remove(&address);
        let (freed, function) = to_driver(place.driver, block.map_or(Kind::Device, |block| block.kind), address);
        if freed.is_err()
            && let Some(block) = block
        {
            self.live.lock().insert(address, block);
        }
        check(place.driver, freed, function)
    }

    fn take_or_free_and_take(&self, place: Place<'_>, size: usize, managed: Option<usize>) -> Option<usize> {
        if let Some(address) = self.take(place, Kind::Device, size, managed) {
            return Some(address);
        }
        dp!("Failed to get memory on device. Free all memory in FreeLists and try again.");
        for bucket in &self.free {
            // The bucket is locked for this line only.
            let kept = std::mem::take(&mut *bucket.lock());
            for (size, addresses) in kept {
                for address in addresses {
                    if !self.give_back(place, address) {
                        bucket.lock().entry(size).or_default().push_back(address);
                    }
                }
            }
        }
        let address = self.take(place, Kind::Device, size, managed);
        if address.is_none() {
            dp!("Still cannot get memory on device probably because the device is OOM.");
        }
        address
    }

    fn take(&self, place: Place<'_>, kind: Kind, size: usize, managed: Option<usize>) -> Option<usize> {
        place.enter().ok()?;
        let driver = place.driver;
        let (mut device, mut host) = (0, null_mut());
        let (allocated, function) = match kind {
            // SAFETY: `device` may be written to.
            Kind::Device => (unsafe { driver.mem_alloc(&raw mut device, size) }, "cuMemAlloc"),
            // SAFETY: `host` may be written to.
            Kind::Host => (unsafe { driver.mem_alloc_host(&raw mut host, size) }, "cuMemAllocHost"),
            Kind::Shared => {
                // SAFETY: `device` may be written to.
                let allocated = unsafe { driver.mem_alloc_managed(&raw mut device, size, codes::MEM_ATTACH_GLOBAL) };
                (allocated, "cuMemAllocManaged")
            }
        };
        if !check(driver, allocated, function) {
            return None;
        }
        let address = if kind == Kind::Host { host.addr() } else { device as usize };
        // LLVM prints an address here; a number that no other node has will do.
        static NODE: AtomicUsize = AtomicUsize::new(0x1_0000);
        let node = NODE.fetch_add(16, Ordering::Relaxed);
        self.live.lock().insert(address, Block { kind, managed, idle: false, node });
        Some(address)
    }

    /// Gives everything back, used or not, and tells `freed` what came of each; stops at once when that says so.
    pub fn release(&self, driver: &Driver, mut freed: impl FnMut(Result, &str) -> Result) -> Result {
        for bucket in &self.free {
            bucket.lock().clear();
        }
        let live = std::mem::take(&mut *self.live.lock());
        for (address, block) in live {
            let (result, function) = to_driver(driver, block.kind, address);
            freed(result, function)?;
        }
        Ok(())
    }
}

/// Frees a block; the result is that of the driver's function of this name.
fn to_driver(driver: &Driver, kind: Kind, address: usize) -> (Result, &'static str) {
    match kind {
        // SAFETY: the driver gave this block, and it is freed once: it was taken out of the list.
        Kind::Device | Kind::Shared => (unsafe { driver.mem_free(address as u64) }, "cuMemFree"),
        // SAFETY: as above, and it is pinned host memory.
        Kind::Host => (unsafe { driver.mem_free_host(address as *mut c_void) }, "cuMemFreeHost"),
    }
}

/// Reports a driver call that failed, as LLVM does. True if it did not.
pub fn check(driver: &Driver, result: Result, function: &str) -> bool {
    if let Err(Failed(code)) = result {
        report!("Error returned from {function}");
        crate::report::driver_error(driver, code);
    }
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_to_llvms_buckets() {
        let buckets: Vec<_> = [1, 3, 4, 7, 8, 15, 16, 4096, 8191, 8192].into_iter().map(bucket_of).collect();
        assert!(buckets.is_sorted(), "{buckets:?}");
        assert!(buckets.iter().all(|bucket| *bucket < BUCKETS));
    }

    #[test]
    fn kinds_have_llvms_numbers() {
        assert_eq!(Kind::from_number(3), Some(Kind::Device));
        assert_eq!(Kind::from_number(1), Some(Kind::Host));
        assert_eq!(Kind::from_number(4), None);
    }
}
