//! Whether anything else ran on the machine while something was measured.

use std::fs;

/// Processor time since the machine and this process were started, in the kernel's ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticks {
    /// Of all processors, whatever they did.
    all: u64,
    /// Of those, in which they did something.
    busy: u64,
    /// This process, and those of its children that have ended.
    own: u64,
}

/// The ticks by now, if the kernel tells.
pub(super) fn ticks() -> Option<Ticks> {
    read(&fs::read_to_string("/proc/stat").ok()?, &fs::read_to_string("/proc/self/stat").ok()?)
}

fn read(machine: &str, process: &str) -> Option<Ticks> {
    let number = |word: &str| word.parse::<u64>().ok();
    let cpu = machine.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, waiting for disks, interrupts of two kinds, stolen by other machines; what follows is
    // in the first two already.
    let fields = cpu.split_whitespace().take(8).map(number).collect::<Option<Vec<_>>>()?;
    let all = fields.iter().sum();
    let idle = fields.get(3)? + fields.get(4)?;
    // The name may have blanks. After it come the state as the 3rd field, and times from the 14th to the 17th.
    let times = process.rsplit_once(") ")?.1.split_whitespace().skip(11).take(4).map(number);
    let times: [u64; 4] = times.collect::<Option<Vec<_>>>()?.try_into().ok()?;
    Some(Ticks { all, busy: all - idle, own: times.iter().sum() })
}

/// Which part of the machine's processor time others had between two moments.
pub(super) fn others(before: Ticks, after: Ticks) -> f64 {
    let busy = after.busy.saturating_sub(before.busy).saturating_sub(after.own.saturating_sub(before.own));
    busy as f64 / after.all.saturating_sub(before.all).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_had_is_what_is_busy_and_not_ours() {
        let process = |own: u64| format!("17 (a b) c) R 1 17 17 0 -1 4194304 0 0 0 0 {own} 1 2 3 20 0 1 0 99 0 0\n");
        let machine = |user: u64, idle: u64| format!("cpu  {user} 5 10 {idle} 20 1 1 3 7 8\ncpu0 1 1 1 1 1\n");
        let before = read(&machine(100, 1000), &process(40)).expect("ticks");
        assert_eq!(before, Ticks { all: 1140, busy: 120, own: 46 });
        let after = read(&machine(180, 1120), &process(90)).expect("ticks");
        assert_eq!(others(before, after), 30.0 / 200.0);
        assert_eq!(others(before, before), 0.0);
        assert_eq!(read("intr 1\n", &process(1)), None);
        assert_eq!(read(&machine(1, 1), "17 (x) R 1"), None);
    }

    #[test]
    fn this_machine_tells() {
        let before = ticks().expect("ticks");
        let after = ticks().expect("ticks");
        assert!(after.all >= before.all && after.own >= before.own);
    }
}
