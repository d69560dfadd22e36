//! Runs the simulation, in a process of its own.

use std::process::{Command, Output};

pub(crate) fn netsim(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_symphony-netsim")).args(arguments).output().expect("it starts");
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output
}
