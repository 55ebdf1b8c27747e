#![doc = include_str!("../README.md")]
//!
//! ## Map
//!
//! [`api`] has the exported functions and what each needs; [`driver`] the tables behind them; [`context`], [`stream`],
//! [`event`], [`memory`], [`module`] and [`launch`] what they do; [`image`] and [`tag`] look device images through;
//! [`env`](mod@env), [`trace`] and [`account`] are the switches.

pub mod account;
pub mod api;
pub mod code;
pub mod context;
pub mod driver;
pub mod env;
pub mod event;
pub mod handle;
pub mod image;
pub mod launch;
pub mod memory;
pub mod module;
pub mod stream;
pub mod tag;
pub mod trace;

/// Says something to a person, in one line.
fn say(text: &str) {
    use std::io::Write;
    // Where stderr is closed there is nobody to tell.
    let _ = std::io::stderr().write_all(format!("emulator: {text}\n").as_bytes());
}
