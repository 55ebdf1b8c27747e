//! What is shown while a step takes long, always on stderr: a spinner or bar on a terminal, a plain line elsewhere.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How long a step may take before a line says that it is going on, where there is no terminal.
const PATIENCE: Duration = Duration::from_secs(1);

/// A step that is going on, until this is dropped.
pub struct Step {
    bar: ProgressBar,
    /// Its end wakes the thread that waits to print the plain line.
    _running: Option<Sender<()>>,
}

/// Starts to show a step.
pub fn step(text: impl Into<String>) -> Step {
    show(text.into(), None)
}

/// Like [`step`], for work in `count` parts; call [`Step::inc`] after each.
pub fn steps(text: impl Into<String>, count: usize) -> Step {
    show(text.into(), Some(count as u64))
}

impl Step {
    /// One part more is done.
    pub fn inc(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn show(text: String, count: Option<u64>) -> Step {
    if !std::io::stderr().is_terminal() {
        let (running, ended) = mpsc::channel::<()>();
        thread::spawn(move || {
            if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{text} ...");
            }
        });
        return Step { bar: ProgressBar::hidden(), _running: Some(running) };
    }
    let (bar, template) = match count {
        Some(count) => (ProgressBar::new(count), "{spinner} {msg} {wide_bar} {pos}/{len}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} ({elapsed})"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    bar.set_style(style);
    bar.set_message(text);
    bar.enable_steady_tick(Duration::from_millis(100));
    Step { bar, _running: None }
}
