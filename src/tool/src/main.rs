//! The `omptarget` command.
fn main() {}
