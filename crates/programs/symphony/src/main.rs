//! The program as it is released: with the policies that every program has.

use std::process::ExitCode;

use symphony_scheduler::PolicyRegistry;

fn main() -> ExitCode {
    symphony::main_with(PolicyRegistry::new())
}
