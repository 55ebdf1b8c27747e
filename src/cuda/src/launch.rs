//! Launching: how many teams of how many threads, and the launch itself.

use crate::device::{Device, Done, Limits, Refused, ok};
use crate::driver::{Driver, codes};
use crate::env::Settings;
use crate::module::{ExecutionMode, Kernel};
use crate::report::{self, Address, dp, report};
use omptarget_abi::{AsyncInfo, Region};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// Threads of a block before the kernel's own limit.
fn threads(region: &Region, mode: ExecutionMode, limits: &Limits) -> i32 {
    let threads = if region.thread_limit > 0 {
        dp!("Setting CUDA threads per block to requested {}", region.thread_limit);
        if mode == ExecutionMode::GENERIC {
            dp!("Adding master warp: +{} threads", limits.warp_size);
            region.thread_limit.saturating_add(limits.warp_size)
        } else {
            region.thread_limit
        }
    } else {
        dp!("Setting CUDA threads per block to default {}", limits.threads);
        limits.threads
    };
    if threads > limits.threads_per_block {
        dp!("Threads per block capped at device limit {}", limits.threads_per_block);
        return limits.threads_per_block;
    }
    threads
}

/// Blocks of the grid.
fn blocks(region: &Region, mode: ExecutionMode, limits: &Limits, settings: &Settings, threads: i32) -> Done<u32> {
    let trips = region.trip_count;
    let blocks = if region.teams > 0 {
        dp!("Using requested number of teams {}", region.teams);
        region.teams as u64
    } else if trips > 0 && settings.num_teams.is_none_or(|teams| teams < 0) {
        let blocks = match mode {
            // One team an iteration: the loop is the teams' alone.
            ExecutionMode::GENERIC | ExecutionMode::GENERIC_SPMD => trips,
            // One thread an iteration: the loop is the teams' and the threads'.
            ExecutionMode::SPMD => trips.div_ceil(threads as u64),
            ExecutionMode(unknown) => {
                report!("Unknown execution mode: {unknown}");
                return Err(Refused);
            }
        };
        dp!("Using {blocks} teams due to loop trip count {trips} and number of threads per block {threads}");
        blocks
    } else {
        dp!("Using default number of teams {}", limits.teams);
        limits.teams as u64
    };
    let most = limits.blocks_per_grid as u64;
    if blocks > most {
        dp!("Capping number of teams to team limit {most}");
    }
    Ok(blocks.min(most) as u32)
}

impl Device {
    /// Launches a region on a call's stream.
    ///
    /// # Safety
    ///
    /// The entry point is from the table of one of this device's images. The arrays have `count` elements, which are
    /// what the kernel takes.
    pub unsafe fn launch(&self, driver: &Driver, settings: &Settings, region: &Region, info: &mut AsyncInfo) -> Done {
        self.enter(driver)?;
        let limits = self.limits()?;
        let count = usize::try_from(region.count).map_err(|_| {
            report!("A region with {} arguments", region.count);
            Refused
        })?;
        if region.entry.is_null() {
            report!("A region without an entry point");
            return Err(Refused);
        }
        let mut values: Vec<*mut c_void> = (0..count)
            .map(|index| {
                // SAFETY: inside the array, by this function's contract.
                let value = unsafe { region.arguments.wrapping_add(index).read() };
                // SAFETY: as above.
                value.wrapping_byte_offset(unsafe { region.offsets.wrapping_add(index).read() })
            })
            .collect();
        let mut arguments: Vec<*mut c_void> = values.iter_mut().map(|value| (&raw mut *value).cast()).collect();

        // SAFETY: a kernel of one of the device's images, which live to the end of the program.
        let kernel = unsafe { &*region.entry.cast_const().cast::<Kernel>() };
        let mode = kernel.mode();
        let mut threads = threads(region, mode, &limits);
        let most = self.most_threads(driver, kernel)?;
        if most < threads {
            dp!("Threads per block capped at kernel limit {most}");
            threads = most;
        }
        let blocks = blocks(region, mode, &limits, settings, threads)?;
        if report::info_is_on(report::INFO_KERNEL) {
            let mode = match mode {
                ExecutionMode::SPMD => "SPMD",
                ExecutionMode::GENERIC => "Generic",
                _ => "SPMD-Generic",
            };
            report::info_line(
                self.number(),
                format_args!(
                    "Launching kernel {} with {blocks} blocks and {threads} threads in {mode} mode",
                    kernel.name().to_string_lossy()
                ),
            );
        }
        let stream = self.stream(driver, info)?;
        // SAFETY: the kernel is of this device; the arguments are what it takes, by this function's contract, and are
        // read before the call returns.
        let launched = unsafe {
            driver.launch_kernel(
                kernel.function(),
                blocks,
                1,
                1,
                threads as u32,
                1,
                1,
                settings.shared_memory,
                stream,
                arguments.as_mut_ptr(),
                null_mut(),
            )
        };
        ok(driver, launched, "cuLaunchKernel")?;
        dp!("Launch of entry point at {} successful!", Address(region.entry.addr()));
        Ok(())
    }

    fn most_threads(&self, driver: &Driver, kernel: &Kernel) -> Done<i32> {
        let known = kernel.most_threads.load(Ordering::Relaxed);
        if known != 0 {
            return Ok(known);
        }
        let mut most = 0;
        let attribute = codes::FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: `most` may be written to, the function is loaded.
        let asked = unsafe { driver.func_get_attribute(&raw mut most, attribute, kernel.function()) };
        ok(driver, asked, "cuFuncGetAttribute")?;
        kernel.most_threads.store(most, Ordering::Relaxed);
        Ok(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { blocks_per_grid: 65536, threads_per_block: 1024, warp_size: 32, teams: 128, threads: 128 };

    fn region(teams: i32, thread_limit: i32, trip_count: u64) -> Region {
        let (entry, arguments, offsets) = (null_mut(), null_mut(), null_mut());
        Region { entry, arguments, offsets, count: 0, teams, thread_limit, trip_count }
    }

    fn settings(num_teams: Option<i32>) -> Settings {
        Settings { num_teams, ..Settings::default() }
    }

    #[test]
    fn a_generic_region_has_a_warp_more() {
        assert_eq!(threads(&region(0, 64, 0), ExecutionMode::GENERIC, &LIMITS), 96);
        assert_eq!(threads(&region(0, 64, 0), ExecutionMode::SPMD, &LIMITS), 64);
        assert_eq!(threads(&region(0, 0, 0), ExecutionMode::GENERIC, &LIMITS), 128);
        assert_eq!(threads(&region(0, i32::MAX, 0), ExecutionMode::GENERIC, &LIMITS), 1024);
    }

    #[test]
    fn teams_follow_the_request_then_the_trip_count_then_the_default() {
        let blocks = |region, mode, num_teams| blocks(&region, mode, &LIMITS, &settings(num_teams), 128);
        assert_eq!(blocks(region(7, 0, 1000), ExecutionMode::SPMD, None), Ok(7));
        assert_eq!(blocks(region(0, 0, 1000), ExecutionMode::SPMD, None), Ok(8));
        assert_eq!(blocks(region(0, 0, 1000), ExecutionMode::GENERIC, None), Ok(1000));
        assert_eq!(blocks(region(0, 0, 1000), ExecutionMode::GENERIC_SPMD, None), Ok(1000));
        assert_eq!(blocks(region(0, 0, 1000), ExecutionMode::SPMD, Some(5)), Ok(128), "the default, which is 5 then");
        assert_eq!(blocks(region(0, 0, 0), ExecutionMode::SPMD, None), Ok(128));
        assert_eq!(blocks(region(0, 0, 9), ExecutionMode(9), None), Err(Refused));
    }

    #[test]
    fn trip_counts_have_64_bits() {
        let many = region(0, 0, (1 << 32) + 5);
        assert_eq!(blocks(&many, ExecutionMode::GENERIC, &LIMITS, &settings(None), 128), Ok(65536));
    }
}
