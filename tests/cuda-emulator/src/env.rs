//! The switches: environment variables, read once at the first call. The crate's documentation has their table.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::code::Code;

/// What is counted and said at the end of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Account {
    /// Nothing.
    Off,
    /// What was never released.
    Print,
    /// The same, and the exit code is [`STRICT_EXIT`](crate::account::STRICT_EXIT) when there was something.
    Strict,
}

/// One entry of `EMU_FAIL`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The driver function, or [`KERNEL`].
    pub call: String,
    /// Which call of it, from 1.
    pub nth: u64,
    /// What that call answers.
    pub code: Code,
}

/// The name that `EMU_FAIL` has for a kernel's run, as against its launch.
pub const KERNEL: &str = "kernel";

/// All switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Env {
    /// `EMU_DEVICES`
    pub devices: usize,
    /// `EMU_MEMORY`: bytes of each device.
    pub memory: usize,
    /// `EMU_SEED`
    pub seed: u64,
    /// `EMU_DELAY_US`
    pub delay: Duration,
    /// `EMU_TRACE`
    pub trace: Option<PathBuf>,
    /// `EMU_FAIL`
    pub faults: Vec<Fault>,
    /// `EMU_POISON`
    pub poison: bool,
    /// `EMU_CHECK`
    pub check: bool,
    /// `EMU_CONTEXT=strict`
    pub strict_context: bool,
    /// `EMU_ACCOUNT`
    pub account: Account,
    /// `EMU_GONE`
    pub gone: bool,
}

impl Env {
    /// Reads the `EMU_` variables out of an environment; the error is one line.
    pub fn read(vars: impl Iterator<Item = (OsString, OsString)>) -> Result<Env, String> {
        let mut env = Env {
            devices: 1,
            memory: 8 << 30,
            seed: 0,
            delay: Duration::ZERO,
            trace: None,
            faults: Vec::new(),
            poison: false,
            check: false,
            strict_context: false,
            account: Account::Off,
            gone: false,
        };
        let mut visible = None;
        for (name, value) in vars {
            if name == VISIBLE {
                visible = Some(value);
                continue;
            }
            let Some(name) = name.to_str().filter(|name| name.starts_with("EMU_")) else { continue };
            let text = value.to_str().unwrap_or("\u{fffd}");
            let known = match name {
                "EMU_TRACE" => {
                    env.trace = (!value.is_empty()).then(|| PathBuf::from(value.clone()));
                    true
                }
                "EMU_DEVICES" => set(&mut env.devices, text.parse().ok().filter(|&n| n <= 64)),
                "EMU_MEMORY" => set(&mut env.memory, text.parse().ok()),
                "EMU_SEED" => set(&mut env.seed, text.parse().ok()),
                "EMU_DELAY_US" => set(&mut env.delay, text.parse().ok().map(Duration::from_micros)),
                "EMU_FAIL" => set(&mut env.faults, faults(text)),
                "EMU_POISON" => set(&mut env.poison, flag(text)),
                "EMU_CHECK" => set(&mut env.check, flag(text)),
                "EMU_GONE" => set(&mut env.gone, flag(text)),
                "EMU_CONTEXT" => {
                    set(&mut env.strict_context, ["handle", "strict"].iter().position(|v| *v == text).map(|i| i == 1))
                }
                "EMU_ACCOUNT" => {
                    let account = match text {
                        "" | "0" => Some(Account::Off),
                        "1" => Some(Account::Print),
                        "strict" => Some(Account::Strict),
                        _ => None,
                    };
                    set(&mut env.account, account)
                }
                // A switch with a spelling mistake would make a test pass that tests nothing.
                _ => return Err(format!("{name} is not a switch of the emulator")),
            };
            if !known {
                return Err(format!("{name}={text:?} is not a value that this switch takes"));
            }
        }
        if let Some(list) = visible {
            env.devices = count_visible(list.to_str().unwrap_or(""), env.devices);
        }
        Ok(env)
    }
}

/// A real driver's own switch: which devices there are.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// As CUDA documents it, the list ends at the first number that is no device. All devices being alike, only the count
/// matters.
fn count_visible(list: &str, devices: usize) -> usize {
    list.split(',').map_while(|item| item.trim().parse::<usize>().ok().filter(|&device| device < devices)).count()
}

fn set<T>(slot: &mut T, value: Option<T>) -> bool {
    value.map(|value| *slot = value).is_some()
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "" | "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// `cuMemAlloc_v2:3:2,kernel:1:719`
fn faults(text: &str) -> Option<Vec<Fault>> {
    let fault = |part: &str| {
        let mut fields = part.split(':');
        let call = fields.next()?.to_owned();
        let nth = fields.next()?.parse().ok().filter(|&n| n > 0)?;
        let code = fields.next()?.parse().ok().filter(|&code| code != 0)?;
        let known = call == KERNEL || crate::api::CALLS.iter().any(|(name, _)| *name == call);
        (fields.next().is_none() && known).then_some(Fault { call, nth, code })
    };
    text.split(',').filter(|part| !part.is_empty()).map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Env, String> {
        Env::read(vars.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn every_switch_is_read() {
        let env = read(&[
            ("EMU_DEVICES", "2"),
            ("EMU_FAIL", "cuMemAlloc_v2:3:2,kernel:1:719"),
            ("EMU_ACCOUNT", "strict"),
            ("EMU_CONTEXT", "strict"),
            ("EMU_POISON", "1"),
            ("EMU_DELAY_US", "300"),
            ("PATH", "/bin"),
        ])
        .expect("these are fine");
        let fault = |call: &str, nth, code| Fault { call: call.to_owned(), nth, code };
        assert_eq!(env.devices, 2);
        assert_eq!(env.faults, [fault("cuMemAlloc_v2", 3, 2), fault("kernel", 1, 719)]);
        assert_eq!(env.account, Account::Strict);
        assert!(env.strict_context && env.poison && !env.check);
        assert_eq!(env.delay, Duration::from_micros(300));
    }

    #[test]
    fn the_drivers_own_list_of_devices_counts() {
        let devices = |list: &str| read(&[("CUDA_VISIBLE_DEVICES", list), ("EMU_DEVICES", "3")]).expect("fine").devices;
        assert_eq!(["", "1", "0,2", "2,7,0", "-1", "0,x"].map(devices), [0, 1, 2, 1, 0, 1]);
    }

    #[test]
    fn a_mistake_is_an_error() {
        for (name, value) in [
            ("EMU_TRAEC", "x"),
            ("EMU_DEVICES", "two"),
            ("EMU_DEVICES", "65"),
            ("EMU_FAIL", "cuMemAlloc:0:2"),
            ("EMU_FAIL", "cuNoSuchCall:1:2"),
            ("EMU_FAIL", "cuMemAlloc_v2:0:2"),
            ("EMU_FAIL", "cuMemAlloc_v2:1:0"),
            ("EMU_FAIL", "cuMemAlloc_v2:1"),
            ("EMU_POISON", "yes"),
            ("EMU_ACCOUNT", "2"),
            ("EMU_CONTEXT", "loose"),
        ] {
            let error = read(&[(name, value)]).expect_err(name);
            assert!(error.contains(name) && !error.contains('\n'), "{error}");
        }
    }
}
