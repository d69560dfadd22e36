//! Fault scenarios against real processes.
fn main() {}
