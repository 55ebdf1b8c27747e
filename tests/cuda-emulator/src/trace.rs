//! The record of driver calls: one JSON object a line, with names in place of addresses.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use serde_json::Value;

use crate::code::Code;

thread_local! {
    static THREAD: Cell<Option<u32>> = const { Cell::new(None) };
}

static THREADS: AtomicU32 = AtomicU32::new(0);

/// This thread's number, in the order in which threads made their first call.
fn thread() -> u32 {
    THREAD.get().unwrap_or_else(|| {
        let number = THREADS.fetch_add(1, Ordering::Relaxed);
        THREAD.set(Some(number));
        number
    })
}

/// An open trace file and the number of its last line.
#[derive(Debug)]
pub struct Trace(Mutex<(File, u64)>);

impl Trace {
    /// Starts the file anew.
    pub fn create(path: &Path) -> Result<Trace, String> {
        let file =
            File::create(path).map_err(|error| format!("EMU_TRACE: cannot write {}: {error}", path.display()))?;
        Ok(Trace(Mutex::new((file, 0))))
    }

    /// Adds a call that has ended. Nothing can be done about a full disk here; the reader sees a line missing.
    pub fn line(&self, call: &str, args: &[(&str, Value)], result: Code) {
        let thread = thread();
        let args = args.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect::<Vec<_>>().join(",");
        let mut inner = self.0.lock();
        inner.1 += 1;
        let n = inner.1;
        let line =
            format!("{{\"n\":{n},\"thread\":{thread},\"call\":\"{call}\",\"args\":{{{args}}},\"result\":{result}}}\n");
        let _ = inner.0.write_all(line.as_bytes());
    }
}
