//! What is shown while a step takes long: a spinner or bar on a terminal, a plain line elsewhere; always on stderr.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// Shows that one step is going on, until the returned value is dropped.
pub fn step(text: impl Into<String>) -> ProgressBar {
    show(text.into(), None)
}

/// Like [`step`], for work in `count` parts; call `inc(1)` after each.
pub fn steps(text: impl Into<String>, count: usize) -> ProgressBar {
    show(text.into(), Some(count as u64))
}

fn show(text: String, count: Option<u64>) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        eprintln!("{text} ...");
        return ProgressBar::hidden();
    }
    let (bar, template) = match count {
        Some(count) => (ProgressBar::new(count), "{spinner} {msg} {wide_bar} {pos}/{len}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} ({elapsed})"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
    bar.set_style(style);
    bar.set_message(text);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.with_finish(ProgressFinish::AndClear)
}
