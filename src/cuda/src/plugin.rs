//! The plugin as a whole: the driver, the settings and the devices, from the library's loading to its end.

use crate::device::{Device, Done, Refused, ok, report_call};
use crate::driver::{Driver, Failed, Missing, codes};
use crate::env::Settings;
use crate::memory::{Kind, Place, check};
use crate::report::{self, Address, dp, report};
use omptarget_abi::AsyncInfo;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// Everything that the plugin has. Without a driver it has no devices.
pub struct Plugin {
    driver: Option<Driver>,
    pub(crate) settings: Settings,
    devices: Vec<Device>,
    requires: AtomicI64,
    /// Pairs of devices of which the first may reach the second's memory.
    peers: Mutex<HashSet<(i32, i32)>>,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// The plugin; made at the first call.
pub fn plugin() -> &'static Plugin {
    PLUGIN.get_or_init(Plugin::start)
}

/// Ends the plugin, if it was ever made.
pub fn stop() {
    if let Some(plugin) = PLUGIN.get() {
        plugin.release();
    }
}

impl Plugin {
    fn start() -> Self {
        dp!("Start initializing CUDA");
        let driver = match Driver::load() {
            Ok(driver) => Some(driver),
            Err(missing) => {
                dp!("Failed to load CUDA shared library");
                if let Missing::Function(name) = missing {
                    report!("The CUDA driver has no {name}: no CUDA device is used");
                }
                None
            }
        };
        let count = driver.as_ref().map_or(0, count_devices);
        let settings = if count > 0 { Settings::read() } else { Settings::default() };
        let devices = (0..count).map(|number| Device::new(number, &settings)).collect();
        Self { driver, settings, devices, requires: AtomicI64::new(0), peers: Mutex::default() }
    }

    /// How many devices there are.
    pub fn count(&self) -> usize {
        self.devices.len()
    }

    /// Device `number` and the driver.
    pub fn device(&self, number: i32) -> Done<(&Device, &Driver)> {
        let device = usize::try_from(number).ok().and_then(|number| self.devices.get(number));
        match (device, &self.driver) {
            (Some(device), Some(driver)) => Ok((device, driver)),
            _ => {
                report!("Device {number} does not exist: there are {}", self.devices.len());
                Err(Refused)
            }
        }
    }

    /// Whether device `number` exists.
    pub fn has(&self, number: i32) -> bool {
        usize::try_from(number).is_ok_and(|number| number < self.devices.len())
    }

    /// Takes over the program's `requires` clauses.
    pub fn set_requires(&self, flags: i64) {
        dp!("Init requires flags to {flags}");
        self.requires.store(flags, Ordering::Relaxed);
    }

    /// The program's `requires` clauses.
    pub fn requires(&self) -> i64 {
        self.requires.load(Ordering::Relaxed)
    }

    /// Allocates memory of the kind with this number.
    pub fn allocate(&self, number: i32, size: usize, kind: i32) -> Done<*mut c_void> {
        let (device, driver) = self.device(number)?;
        let Some(kind) = Kind::from_number(kind) else {
            report!("Invalid target data allocation kind or requested allocator not implemented yet");
            return Err(Refused);
        };
        let place = Place { driver, context: device.context()?.addr() };
        Ok(device.memory().allocate(place, kind, size))
    }

    /// Frees memory.
    pub fn free(&self, number: i32, memory: *mut c_void) -> Done {
        let (device, driver) = self.device(number)?;
        let place = Place { driver, context: device.context()?.addr() };
        if device.memory().free(place, memory.addr()) { Ok(()) } else { Err(Refused) }
    }

    /// Waits for a call's stream, on the device that it belongs to.
    pub fn synchronize(&self, number: i32, info: &mut AsyncInfo) -> Done {
        let (device, driver) = self.device(number)?;
        if info.queue.is_null() {
            return Ok(());
        }
        let owner = std::iter::once(device).chain(&self.devices).find(|device| device.owns_stream(info.queue));
        let Some(owner) = owner else {
            report!("Stream {} is of no device", Address(info.queue.addr()));
            return Err(Refused);
        };
        // SAFETY: the owner was just asked.
        unsafe { owner.synchronize(driver, info) }
    }

    /// Copies between devices, or within one: peer to peer if the driver can, else as it can.
    ///
    /// # Safety
    ///
    /// Both ranges are `size` bytes of their device.
    pub unsafe fn exchange(
        &self,
        from: i32,
        source: *const c_void,
        to: i32,
        target: *mut c_void,
        size: usize,
        info: &mut AsyncInfo,
    ) -> Done {
        let (source_device, driver) = self.device(from)?;
        let (target_device, _) = self.device(to)?;
        if size == 0 {
            return Ok(());
        }
        source_device.enter(driver)?;
        let stream = source_device.stream(driver, info)?;
        let (target, source) = (target.addr() as u64, source.addr() as u64);
        if from != to && self.can_reach(driver, source_device, target_device) {
            let (source_context, target_context) = (source_device.context()?, target_device.context()?);
            // SAFETY: the ranges are valid by this function's contract, each in its device's context.
            let copied =
                unsafe { driver.memcpy_peer_async(target, target_context, source, source_context, size, stream) };
            let Err(Failed(code)) = copied else { return Ok(()) };
            dp!(
                "Error returned from cuMemcpyPeerAsync. src_ptr = {}, src_id ={from}, dst_ptr = {}, dst_id ={to}",
                Address(source as usize),
                Address(target as usize)
            );
            report_call(driver, "cuMemcpyPeerAsync", code);
        }
        // SAFETY: as above; the driver finds the devices by the addresses.
        unsafe { driver.memcpy_dtod_async(target, source, size, stream) }.map_err(|Failed(code)| {
            dp!(
                "Error when copying data from device to device. Pointers: src = {}, dst = {}, size = {size}",
                Address(source as usize),
                Address(target as usize)
            );
            report_call(driver, "cuMemcpyDtoDAsync", code);
            Refused
        })
    }

    /// Whether the current context may reach the other device's memory; asked and enabled once for each pair.
    fn can_reach(&self, driver: &Driver, from: &Device, to: &Device) -> bool {
        let pair = (from.number(), to.number());
        if self.peers.lock().contains(&pair) {
            return true;
        }
        let failed = |function: &str, code| {
            report!("Error returned from {function}. src = {}, dst = {}", pair.0, pair.1);
            report::driver_error(driver, code);
            false
        };
        let mut can = 0;
        // SAFETY: `can` may be written to.
        if let Err(Failed(code)) = unsafe { driver.device_can_access_peer(&raw mut can, pair.0, pair.1) } {
            return failed("cuDeviceCanAccessPeer", code);
        }
        if can == 0 {
            dp!("P2P memcpy not supported so fall back to D2D memcpy");
            return false;
        }
        let Ok(context) = to.context() else { return false };
        // SAFETY: a live context, and another one is current.
        match unsafe { driver.ctx_enable_peer_access(context, 0) } {
            Ok(()) | Err(Failed(codes::PEER_ACCESS_ALREADY_ENABLED)) => {
                self.peers.lock().insert(pair);
                true
            }
            Err(Failed(code)) => failed("cuCtxEnablePeerAccess", code),
        }
    }

    fn release(&self) {
        let Some(driver) = &self.driver else { return };
        self.devices.iter().for_each(|device| device.release(driver));
    }
}

fn count_devices(driver: &Driver) -> i32 {
    // SAFETY: takes no pointers; the driver wants it called first.
    match unsafe { driver.init(0) } {
        // A machine without a GPU is no error.
        Err(Failed(codes::NO_DEVICE)) => {
            dp!("There are no devices supporting CUDA.");
            return 0;
        }
        initialised if !check(driver, initialised, "cuInit") => return 0,
        _ => {}
    }
    let mut count = 0;
    // SAFETY: `count` may be written to.
    let counted = unsafe { driver.device_get_count(&raw mut count) };
    if ok(driver, counted, "cuDeviceGetCount").is_err() {
        return 0;
    }
    if count == 0 {
        dp!("There are no devices supporting CUDA.");
    }
    count
}
