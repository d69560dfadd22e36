//! Whether a replica's storage keeps its word when processes are killed, power is cut, disks fail and bits rot.

pub mod actor;
pub mod damage;
pub mod faults;
pub mod kill;
pub mod plants;
pub mod power_loss;
pub mod replica;
pub mod soak;
pub mod stall;
pub mod verifier;

mod child;
mod command;
mod cut;
mod disk;
mod file_change;
mod history;
mod mark;
mod pool;
mod report;

pub use report::{Lost, Report};
