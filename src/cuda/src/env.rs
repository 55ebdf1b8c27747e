//! Settings from the environment.
//!
//! A value must be a whole number, alone, within its range. Anything else (empty, `four`, `12abc`, a number out of
//! range) is named in one warning line and the default is used. LLVM's plugin aborts on most of these and takes `12abc`
//! for 12; a setting that is silently half read helps nobody.

use std::io::Write;
use std::ops::RangeInclusive;

/// The number in variable `name`, if it is set and valid.
pub fn number(name: &str, range: RangeInclusive<i64>) -> Option<i64> {
    let value = std::env::var_os(name)?;
    let value = value.to_string_lossy();
    let parsed = parse(&value, &range);
    if parsed.is_none() {
        let line = format!(
            "CUDA warning: '{name}' must be a whole number from {} to {}, '{value}' ignored\n",
            range.start(),
            range.end()
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    parsed
}

fn parse(value: &str, range: &RangeInclusive<i64>) -> Option<i64> {
    value.trim().parse().ok().filter(|number| range.contains(number))
}

/// The settings of the plugin, read once, when it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `OMP_TEAM_LIMIT`: most teams of a region.
    pub team_limit: Option<i32>,
    /// `OMP_TEAMS_THREAD_LIMIT`: most threads of a team.
    pub teams_thread_limit: Option<i32>,
    /// `OMP_NUM_TEAMS`: teams of a region that does not say.
    pub num_teams: Option<i32>,
    /// `LIBOMPTARGET_SHARED_MEMORY_SIZE`: bytes of dynamic shared memory of each launch.
    pub shared_memory: u32,
    /// `LIBOMPTARGET_NUM_INITIAL_STREAMS`: streams made with the device.
    pub initial_streams: usize,
    /// `LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD`: largest allocation that is kept for reuse; 0 keeps none.
    pub memory_threshold: usize,
    /// `LIBOMPTARGET_STACK_SIZE`: bytes of stack of a device thread.
    pub stack_size: Option<usize>,
    /// `LIBOMPTARGET_HEAP_SIZE`: bytes of the device's heap.
    pub heap_size: Option<usize>,
    /// `LIBOMPTARGET_DEVICE_RTL_DEBUG`: debug bits of the device's runtime.
    pub device_debug: u32,
}

/// Streams that a device starts with.
const INITIAL_STREAMS: usize = 32;
/// Most streams to start with; a driver has room for a few thousand.
const MOST_INITIAL_STREAMS: i64 = 4096;
/// Largest allocation that is kept for reuse.
const MEMORY_THRESHOLD: usize = 1 << 13;

impl Default for Settings {
    fn default() -> Self {
        Self {
            team_limit: None,
            teams_thread_limit: None,
            num_teams: None,
            shared_memory: 0,
            initial_streams: INITIAL_STREAMS,
            memory_threshold: MEMORY_THRESHOLD,
            stack_size: None,
            heap_size: None,
            device_debug: 0,
        }
    }
}

impl Settings {
    /// Reads the environment, in LLVM's order and with its debug lines.
    pub fn read() -> Self {
        use crate::report::dp;
        let int = |name| number(name, i64::from(i32::MIN)..=i64::from(i32::MAX)).map(|value| value as i32);
        let size = |name| number(name, 0..=i64::MAX).map(|value| value as usize);
        let team_limit = int("OMP_TEAM_LIMIT").inspect(|value| dp!("Parsed OMP_TEAM_LIMIT={value}"));
        let teams_thread_limit =
            int("OMP_TEAMS_THREAD_LIMIT").inspect(|value| dp!("Parsed OMP_TEAMS_THREAD_LIMIT={value}"));
        let num_teams = int("OMP_NUM_TEAMS").inspect(|value| dp!("Parsed OMP_NUM_TEAMS={value}"));
        let shared_memory = number("LIBOMPTARGET_SHARED_MEMORY_SIZE", 0..=i64::from(i32::MAX))
            .inspect(|value| dp!("Parsed LIBOMPTARGET_SHARED_MEMORY_SIZE = {value}"));
        let initial_streams = number("LIBOMPTARGET_NUM_INITIAL_STREAMS", 0..=MOST_INITIAL_STREAMS)
            .inspect(|value| dp!("Parsed LIBOMPTARGET_NUM_INITIAL_STREAMS={value}"));
        let memory_threshold = size("LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD");
        if memory_threshold == Some(0) {
            dp!("Disabled memory manager as user set LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD=0.");
        }
        Self {
            team_limit: team_limit.filter(|limit| *limit > 0),
            teams_thread_limit: teams_thread_limit.filter(|limit| *limit > 0),
            num_teams,
            shared_memory: shared_memory.unwrap_or(0) as u32,
            initial_streams: initial_streams.map_or(INITIAL_STREAMS, |streams| streams as usize),
            memory_threshold: memory_threshold.unwrap_or(MEMORY_THRESHOLD),
            stack_size: size("LIBOMPTARGET_STACK_SIZE"),
            heap_size: size("LIBOMPTARGET_HEAP_SIZE"),
            device_debug: int("LIBOMPTARGET_DEVICE_RTL_DEBUG").unwrap_or(0) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_whole_numbers_in_range_count() {
        let range = 0..=100;
        assert_eq!(parse("42", &range), Some(42));
        assert_eq!(parse(" 42 ", &range), Some(42));
        for wrong in ["", "four", "12abc", "101", "-1", "99999999999999999999", "0x10"] {
            assert_eq!(parse(wrong, &range), None, "{wrong}");
        }
    }
}
