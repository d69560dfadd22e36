//! What the benchmarks share: a cluster in virtual time that records what its decision objects are told, so that a
//! benchmark can tell it to them again and time nothing else.

pub mod frames;
pub mod measured;
pub mod pull;
pub mod stress;
mod tape;
mod virtual_time;

pub use tape::{ModelTape, RankTape, Tapes, record};
pub use virtual_time::{CONFIG_SLO, VirtualHost, queue_config};
