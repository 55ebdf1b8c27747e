//! Device memory: blocks of host memory that are known by their ranges. A freed block is kept for the next
//! allocation of its size and never goes back to the process, so that a late kernel harms no one else.

use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::account::{self, Kind as Counted};
use crate::code::{self, Result};
use crate::context::{self, Context};
use crate::driver::{self, Driver};
use crate::say;

/// As `cuMemAlloc` aligns.
const ALIGN: usize = 256;

/// What fills new memory when `EMU_POISON` is set, and what fills freed memory.
pub const POISON_NEW: u8 = 0xa5;
/// See [`POISON_NEW`].
pub const POISON_FREED: u8 = 0x5a;

/// Which call a block came from, and so how it is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `cuMemAlloc` or `cuMemAllocManaged`
    Device,
    /// `cuMemAllocHost`
    Host,
}

/// An allocation.
#[derive(Debug)]
struct Block {
    serial: usize,
    size: usize,
    kind: Kind,
    context: &'static Context,
}

impl Block {
    fn name(&self) -> String {
        let word = if self.kind == Kind::Host { "host" } else { "mem" };
        format!("{word}{}", self.serial)
    }
}

/// All allocations.
#[derive(Debug, Default)]
pub struct Memory {
    blocks: BTreeMap<usize, Block>,
    /// Freed addresses by rounded size; the last one freed goes first, as in a real allocator.
    free: HashMap<usize, Vec<usize>>,
    serial: usize,
    /// With `EMU_CHECK`: the kernels, queued or running, that have a block as an argument.
    users: HashMap<usize, Vec<Arc<str>>>,
}

fn rounded(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(ALIGN)
}

/// Overwrites a block that nobody should look into.
fn fill(address: usize, size: usize, byte: u8) {
    // SAFETY: the block came from `alloc` with at least this size, and is never given back to the system.
    unsafe { std::ptr::write_bytes(address as *mut u8, byte, size) };
}

impl Memory {
    fn find_block(&self, address: usize, len: usize) -> Option<(usize, &Block)> {
        let (&start, block) = self.blocks.range(..=address).next_back()?;
        let offset = address - start;
        // One past the end is a place for nothing, so it belongs to the block for no bytes only.
        (offset < block.size && len <= block.size - offset).then_some((start, block))
    }

    /// Whether all of `len` bytes at `address` are in one block.
    pub fn find(&self, address: usize, len: usize) -> Option<()> {
        self.find_block(address, len).map(|_| ())
    }

    /// The block's name, with the offset into it.
    pub fn name_of(&self, address: usize) -> Option<String> {
        let (start, block) = self.find_block(address, 0)?;
        Some(if address == start { block.name() } else { format!("{}+{}", block.name(), address - start) })
    }

    /// The names of all blocks, in order of their making.
    pub fn names(&self) -> Vec<String> {
        let mut blocks: Vec<_> = self.blocks.values().collect();
        blocks.sort_by_key(|block| block.serial);
        blocks.iter().map(|block| block.name()).collect()
    }

    fn used_by(&self, context: &Context) -> usize {
        let device = self.blocks.values().filter(|block| block.kind == Kind::Device && block.context.is(context));
        device.map(|block| block.size).sum()
    }

    fn take(&mut self, size: usize) -> Option<usize> {
        let size = rounded(size)?;
        if let Some(address) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Some(address);
        }
        let layout = Layout::from_size_align(size, ALIGN).ok()?;
        // SAFETY: the size is not 0, `alloc` below has seen to it.
        let address = unsafe { std::alloc::alloc(layout) };
        (!address.is_null()).then_some(address as usize)
    }

    fn give(&mut self, address: usize, block: &Block, poison: bool) {
        if poison {
            fill(address, block.size, POISON_FREED);
        }
        if let Some(size) = rounded(block.size) {
            self.free.entry(size).or_default().push(address);
        }
    }

    /// Takes back what a context's end takes away; the answer is the names.
    pub fn drop_all_of(&mut self, context: &Context, poison: bool) -> Vec<String> {
        let of_context = self.blocks.iter().filter(|(_, block)| block.context.is(context));
        let addresses: Vec<usize> = of_context.map(|(&address, _)| address).collect();
        let mut names = Vec::new();
        for address in addresses {
            if let Some(block) = self.blocks.remove(&address) {
                names.push(block.name());
                self.give(address, &block, poison);
            }
        }
        names
    }

    /// Notes that a kernel has these values as arguments; the answer is for [`Memory::unuse`].
    pub fn use_blocks(&mut self, kernel: &Arc<str>, args: &[usize]) -> Vec<usize> {
        let mut serials: Vec<usize> =
            args.iter().filter_map(|&arg| self.find_block(arg, 0)).map(|(_, block)| block.serial).collect();
        serials.sort_unstable();
        serials.dedup();
        serials.iter().for_each(|&serial| self.users.entry(serial).or_default().push(kernel.clone()));
        serials
    }

    /// The kernel is done.
    pub fn unuse(&mut self, kernel: &Arc<str>, serials: &[usize]) {
        for serial in serials {
            let Some(users) = self.users.get_mut(serial) else { continue };
            if let Some(index) = users.iter().position(|user| user == kernel) {
                users.swap_remove(index);
            }
            if users.is_empty() {
                self.users.remove(serial);
            }
        }
    }
}

/// `cuMemAlloc` and its kin.
pub fn alloc(driver: &Driver, size: usize, kind: Kind) -> Result<usize> {
    let context = context::current()?;
    if size == 0 {
        return Err(code::CUDA_ERROR_INVALID_VALUE);
    }
    let mut guard = driver.tables();
    let memory = &mut guard.memory;
    let fits = memory.used_by(context).checked_add(size).is_some_and(|sum| sum <= driver.env.memory);
    if kind == Kind::Device && !fits {
        return Err(code::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let address = memory.take(size).ok_or(code::CUDA_ERROR_OUT_OF_MEMORY)?;
    if driver.env.poison {
        fill(address, size, POISON_NEW);
    }
    memory.blocks.insert(address, Block { serial: memory.serial, size, kind, context });
    memory.serial += 1;
    driver::made(Counted::Allocation);
    Ok(address)
}

/// `cuMemFree` or `cuMemFreeHost`
pub fn free(driver: &Driver, address: usize, kind: Kind) -> Result<()> {
    let mut guard = driver.tables();
    let memory = &mut guard.memory;
    if memory.blocks.get(&address).is_none_or(|block| block.kind != kind) {
        return Err(code::CUDA_ERROR_INVALID_VALUE);
    }
    let Some(block) = memory.blocks.remove(&address) else { return Err(code::CUDA_ERROR_INVALID_VALUE) };
    if let Some(kernels) = memory.users.get(&block.serial) {
        account::note_early_free();
        say(&format!("{} is freed, and is an argument of a kernel that is not done: {}", block.name(), kernels[0]));
    }
    memory.give(address, &block, driver.env.poison);
    driver::released(Counted::Allocation);
    Ok(())
}
