//! What the driver says of a device, for people.

use crate::driver::{Attribute, Driver};
use crate::memory::check;
use crate::report::print;
use std::ffi::{CStr, c_char};

/// Prints a device's data to standard output, line by line as LLVM does.
pub fn print_device_info(driver: &Driver, number: i32) {
    use Attribute as A;
    let (mut device, mut version) = (0, 0);
    // SAFETY: `device` may be written to.
    check(driver, unsafe { driver.device_get(&raw mut device, number) }, "cuDeviceGet");
    // SAFETY: `version` may be written to; without an answer it is 0.
    check(driver, unsafe { driver.driver_get_version(&raw mut version) }, "cuDriverGetVersion");
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: `value` may be written to.
        check(
            driver,
            unsafe { driver.device_get_attribute(&raw mut value, attribute, device) },
            "cuDeviceGetAttribute",
        );
        value
    };
    let yes_no = |value: i32| if value == 0 { "No" } else { "Yes" };
    let flag = |of| yes_no(attribute(of));
    let line = |label: &str, tabs: &str, value: String| print(&format!("    {label}: {tabs}{value}\n"));

    line("CUDA Driver Version", "\t\t", format!("{version} "));
    line("CUDA Device Number", "\t\t", format!("{number} "));
    line("Device Name", "\t\t\t", format!("{} ", name(driver, device)));
    line("Global Memory Size", "\t\t", format!("{} bytes ", total_memory(driver, device)));
    line("Number of Multiprocessors", "\t\t", format!("{} ", attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
    line("Concurrent Copy and Execution", "\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP)));
    line("Total Constant Memory", "\t\t", format!("{} bytes", attribute(A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY)));
    let shared = attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    line("Max Shared Memory per Block", "\t", format!("{shared} bytes "));
    line("Registers per Block", "\t\t", format!("{} ", attribute(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)));
    line("Warp Size", "\t\t\t\t", format!("{} Threads ", attribute(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE)));
    line("Maximum Threads per Block", "\t\t", format!("{} ", attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)));
    let [x, y, z] = [
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
    ]
    .map(attribute);
    line("Maximum Block Dimensions", "\t\t", format!("{x}, {y}, {z} "));
    let [x, y, z] = [
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
    ]
    .map(attribute);
    line("Maximum Grid Dimensions", "\t\t", format!("{x} x {y} x {z} "));
    line("Maximum Memory Pitch", "\t\t", format!("{} bytes ", attribute(A::CU_DEVICE_ATTRIBUTE_MAX_PITCH)));
    line("Texture Alignment", "\t\t\t", format!("{} bytes ", attribute(A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)));
    line("Clock Rate", "\t\t\t", format!("{} kHz", attribute(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)));
    line("Execution Timeout", "\t\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT)));
    line("Integrated Device", "\t\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_INTEGRATED)));
    line("Can Map Host Memory", "\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)));
    let mode = match attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) {
        0 => "DEFAULT",
        2 => "PROHIBITED",
        3 => "EXCLUSIVE PROCESS",
        _ => "unknown",
    };
    line("Compute Mode", "\t\t\t", format!("{mode} "));
    line("Concurrent Kernels", "\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)));
    line("ECC Enabled", "\t\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_ECC_ENABLED)));
    line("Memory Clock Rate", "\t\t\t", format!("{} kHz", attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)));
    let width = attribute(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    line("Memory Bus Width", "\t\t\t", format!("{width} bits"));
    line("L2 Cache Size", "\t\t\t", format!("{} bytes ", attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)));
    let threads = attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    line("Max Threads Per SMP", "\t\t", format!("{threads} "));
    let engines = attribute(A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    line("Async Engines", "\t\t\t", format!("{} ({engines}) ", yes_no(engines)));
    line("Unified Addressing", "\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)));
    line("Managed Memory", "\t\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)));
    let concurrent = flag(A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
    line("Concurrent Managed Memory", "\t\t", format!("{concurrent} "));
    let preemption = flag(A::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED);
    line("Preemption Supported", "\t\t", format!("{preemption} "));
    line("Cooperative Launch", "\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)));
    // LLVM's spelling.
    line("Multi-Device Boars", "\t\t", format!("{} ", flag(A::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD)));
    let (major, minor) = (
        attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    );
    line("Compute Capabilities", "\t\t", format!("{major}{minor} "));
}

fn name(driver: &Driver, device: i32) -> String {
    let mut name: [c_char; 1000] = [0; 1000];
    // SAFETY: the buffer has the size that is said.
    check(driver, unsafe { driver.device_get_name(name.as_mut_ptr(), 1000, device) }, "cuDeviceGetName");
    name[999] = 0;
    // SAFETY: ends with the NUL just written, at the latest.
    unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
}

fn total_memory(driver: &Driver, device: i32) -> usize {
    let mut size = 0;
    // SAFETY: `size` may be written to.
    check(driver, unsafe { driver.device_total_mem(&raw mut size, device) }, "cuDeviceTotalMem");
    size
}
