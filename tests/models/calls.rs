//! Calls into the core as LLVM's `targetDataBegin`, `target` and `targetDataEnd` make them.

use super::checker::{Condvar, Mutex};
use super::note;
use super::world::{Kernel, WORD, World, plugin};
use omptarget::device::{self, CopyIn, Device, Found, Handle, TargetPointer};
use omptarget::mapping::{BeginRequest, CountKind, EndRequest, HostRange};

use omptarget_abi::{AsyncInfo, OFFLOAD_SUCCESS, Region};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// A map clause, as the compiler passes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Map {
    /// First host address.
    pub host: usize,
    /// Words mapped.
    pub words: usize,
    pub to: bool,
    pub from: bool,
    pub always: bool,
    pub delete: bool,
    /// `MEMBER_OF`: the struct counts, its members do not.
    pub member: bool,
    /// `PTR_AND_OBJ`: the host address of the pointer to what is mapped.
    pub pointer: Option<usize>,
}

impl Map {
    const fn range(&self) -> HostRange {
        HostRange::new(self.host, (self.words * WORD) as i64)
    }
}

/// A pointer on the host whose copy on the device points to the device.
#[derive(Clone, Copy, Debug)]
struct Shadow {
    host: usize,
    target: usize,
}

/// The program: a device, and the runtime's own state around it.
#[derive(Debug)]
pub struct Program {
    pub device: Device,
    pub world: Arc<World>,
    /// `ShadowPtrMap`, by the pointer's host address.
    shadows: Mutex<BTreeMap<usize, Shadow>>,
    tasks: usize,
    /// How many tasks have said that they are done.
    done: Mutex<usize>,
    changed: Condvar,
}

/// LLVM's `AsyncInfoTy` of one call.
struct Call(Box<AsyncInfo>);

impl Call {
    fn new() -> Self {
        Self(Box::new(AsyncInfo { queue: null_mut() }))
    }

    fn info(&mut self) -> NonNull<AsyncInfo> {
        NonNull::from(&mut *self.0)
    }
}

impl Program {
    /// A program of so many tasks, on a device of its own.
    pub fn new(world: &Arc<World>, tasks: usize) -> Self {
        Self {
            device: Device::new(plugin(), true),
            world: Arc::clone(world),
            shadows: Mutex::new(BTreeMap::new()),
            tasks,
            done: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    /// A word of the program's memory.
    pub fn host(&self, address: usize) -> usize {
        self.world.host(address).load(SeqCst)
    }

    /// `target`: maps, runs the kernel with the device address of the first clause, unmaps.
    pub fn target(&self, maps: &[Map], kernel: Kernel) {
        let mut call = Call::new();
        self.begin(maps, &mut call);
        let pointer = self.look_up(&maps[0], false);
        let mut argument = pointer.target;
        drop(pointer);
        let region = Region {
            entry: (&raw const kernel).cast_mut().cast(),
            arguments: &raw mut argument,
            offsets: null_mut(),
            count: 1,
            teams: 0,
            thread_limit: 0,
            trip_count: 0,
        };
        // SAFETY: the call is this thread's, and no other reference to its record is in use.
        let record = unsafe { self.device.record(call.info()) };
        // SAFETY: the kernel and its argument are read at the launch.
        let run = unsafe { self.device.run(&region, true, record) };
        self.check(run.is_ok(), "a launch");
        self.end(maps, &mut call);
    }

    /// `target enter data`.
    pub fn enter(&self, maps: &[Map]) {
        let mut call = Call::new();
        self.begin(maps, &mut call);
        self.synchronize(&mut call);
    }

    /// `target exit data`.
    pub fn exit(&self, maps: &[Map]) {
        self.end(maps, &mut Call::new());
    }

    /// `target update to`, with the pointers that are attached there.
    pub fn update_to(&self, map: &Map) {
        let mut call = Call::new();
        let pointer = self.look_up(map, false);
        let target = pointer.target;
        self.submit(target, map.host as *mut c_void, map.words, &mut call);
        let attached = pointer.entry.as_ref().is_some_and(|entry| entry.may_contain_attached_pointers());
        let shadows = self.shadows.lock().expect("no thread panics with it");
        for (address, shadow) in shadows.range(map.host..map.host + map.words * WORD).filter(|_| attached) {
            let place = self.place(shadow.target);
            self.submit(target.wrapping_byte_add(address - map.host), place, 1, &mut call);
        }
        drop(shadows);
        Self::drop(pointer);
        self.synchronize(&mut call);
    }

    fn submit(&self, target: *mut c_void, host: *mut c_void, words: usize, call: &mut Call) {
        // SAFETY: the call is this thread's, and no other reference to its record is in use.
        let record = unsafe { self.device.record(call.info()) };
        // SAFETY: the range is mapped, and models keep their memory.
        let copied = unsafe { self.device.submit_unlocked(target, host, (words * WORD) as i64, record) };
        self.check(copied.is_ok(), "a copy");
    }

    /// `getVoidPtrLocation`: a place for a pointer, which is never given up.
    fn place(&self, pointer: usize) -> *mut c_void {
        self.world.with(|state| {
            state.places.push(Box::new(pointer));
            (&raw mut **state.places.last_mut().expect("just pushed")).cast()
        })
    }

    /// Says that a task is done.
    pub fn say_done(&self) {
        *self.done.lock().expect("no thread panics with it") += 1;
        self.changed.notify_all();
    }

    /// Waits until all other tasks have said so.
    pub fn wait_for_others(&self) {
        let mut done = self.done.lock().expect("no thread panics with it");
        while *done < self.tasks - 1 {
            done = self.changed.wait(done).expect("no thread panics with it");
        }
    }

    fn check(&self, holds: bool, what: &str) {
        if !holds {
            self.world.with(|state| state.faults.push(format!("{what} failed")));
        }
    }

    fn synchronize(&self, call: &mut Call) {
        // SAFETY: the call is this thread's, and no reference to its record is in use.
        let done = unsafe { Device::synchronize(call.info()) };
        self.check(done.is_ok(), "a synchronisation");
    }

    fn get(&self, map: &Map, range: HostRange, update: bool, copy: CopyIn, call: &mut Call) -> TargetPointer<'_> {
        let request = BeginRequest {
            range,
            base: range.begin(),
            name: 0,
            kind: CountKind::Dynamic,
            implicit: false,
            update,
            close: false,
            present: false,
            unified: false,
        };
        let deleted = self.world.with(|state| state.deleted.clone());
        // SAFETY: models keep their memory, and the call is this thread's.
        let pointer = unsafe { self.device.target_pointer(&request, copy, call.info(), |pointer| pointer) };
        self.check(!pointer.target.is_null(), "a mapping");
        if pointer.entry.as_ref().is_some_and(|entry| deleted.contains(&entry.target_begin())) {
            self.world.with(|state| state.faults.push(format!("{map:x?} finds what was deleted before")));
        }
        if let Some(entry) = &pointer.entry {
            note!(
                "{:?} begin {range:x?} at {:x} new {} {:?}",
                device::caller(),
                entry.target_begin(),
                pointer.found == Found::New,
                entry.counts()
            );
        }
        pointer
    }

    /// LLVM's `targetDataBegin`.
    fn begin(&self, maps: &[Map], call: &mut Call) {
        for map in maps {
            let pointer_range = |address| HostRange::new(address, WORD as i64);
            let pointer = map.pointer.map(|address| {
                let copy = CopyIn { to: false, always: false };
                (address, self.get(map, pointer_range(address), !map.member, copy, call))
            });
            let update = !map.member || map.pointer.is_some();
            let pointee = self.get(map, map.range(), update, CopyIn { to: map.to, always: map.always }, call);
            if let Some((address, pointer)) = pointer {
                self.attach(address, &pointer, pointee.target.addr(), call);
            }
        }
    }

    /// Has the device's copy of the pointer at `address` point to `target`, unless it does.
    fn attach(&self, address: usize, pointer: &TargetPointer<'_>, target: usize, call: &mut Call) {
        let entry = pointer.entry.as_ref().expect("a pointer is mapped or the model has failed");
        let mut shadows = self.shadows.lock().expect("no thread panics with it");
        note!("{:?} attach {address:x} to {target:x}, was {:x?}", device::caller(), shadows.get(&address));
        let known = shadows.get(&address).is_some_and(|shadow| shadow.target == target);
        // The latter as the C++ face asks it.
        if known && self.device.is_attached(address, target) {
            return;
        }
        shadows.insert(address, Shadow { host: self.host(address), target });
        entry.set_may_contain_attached_pointers();
        let mut transfer = entry.transfer().lock();
        drop(shadows);
        let place = self.place(target);
        // SAFETY: the call is this thread's, and no other reference to its record is in use.
        let record = unsafe { self.device.record(call.info()) };
        let (to, from) = (pointer.target, place);
        // SAFETY: the pointer is mapped, and the place is never reused.
        let submitted = unsafe { self.device.submit_locked(entry, &mut transfer, to, from, WORD as i64, record) };
        let recorded = self.device.record_copy(&mut transfer, record);
        self.check(submitted.is_ok() && recorded.is_ok(), "an attachment");
    }

    /// LLVM drops the handle on what it has looked up, as the bridge notes.
    fn drop(pointer: TargetPointer<'_>) {
        if let Some(Handle::Counted(entry)) = &pointer.entry {
            device::unset_held(Arc::as_ptr(entry));
        }
    }

    fn look_up(&self, map: &Map, update: bool) -> TargetPointer<'_> {
        let request = EndRequest {
            range: map.range(),
            kind: CountKind::Dynamic,
            update,
            must_contain: true,
            force_delete: map.delete,
            unified: false,
        };
        self.device.target_begin(&request, |pointer| pointer)
    }

    /// LLVM's `targetDataEnd`.
    fn end(&self, maps: &[Map], call: &mut Call) {
        let mut release = Vec::new();
        for map in maps.iter().rev() {
            let pointer = self.look_up(map, !map.member || map.pointer.is_some());
            let last = pointer.found == Found::Last;
            let target = pointer.target;
            let Some(entry) = &pointer.entry else { continue };
            note!(
                "{:?} end {:x} at {:x} last {last} {:?} left by {:?}",
                device::caller(),
                map.host,
                entry.target_begin(),
                entry.counts(),
                entry.leaving()
            );
            if last && map.delete {
                self.world.with(|state| state.deleted.insert(entry.target_begin()));
            }
            let del_entry = last && (!map.member || map.pointer.is_some());
            if map.from && (map.always || last) {
                // SAFETY: the call is this thread's, and no other reference to its record is in use.
                let record = unsafe { self.device.record(call.info()) };
                let (host, size) = (map.host as *mut c_void, (map.words * WORD) as i64);
                // SAFETY: the range is mapped, and models keep their memory.
                let copied = unsafe { self.device.retrieve(host, target, size, record) };
                self.check(copied.is_ok(), "a copy back");
            }
            if (map.from || del_entry) && entry.may_contain_attached_pointers() {
                self.restore(map, del_entry);
            }
            if del_entry {
                release.push(map.range());
            }
            Self::drop(pointer);
        }
        self.synchronize(call);
        for range in release {
            self.check(self.device.release(range, CountKind::Dynamic) == OFFLOAD_SUCCESS, "a release");
        }
    }

    /// Puts the host's pointers in a range back, and forgets them if the mapping goes.
    fn restore(&self, map: &Map, goes: bool) {
        let mut shadows = self.shadows.lock().expect("no thread panics with it");
        let inside: Vec<usize> =
            shadows.range(map.host..map.host + map.words * WORD).map(|(address, _)| *address).collect();
        for address in inside {
            if map.from {
                let host = shadows[&address].host;
                self.world.host(address).store(host, SeqCst);
            }
            if goes {
                shadows.remove(&address);
            }
        }
    }
}
