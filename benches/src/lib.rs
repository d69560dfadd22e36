//! What the benchmarks share: a cluster in virtual time that records what its decision objects are told, so that a
//! benchmark can tell it to them again and time nothing else.

pub mod frames;
mod host;
pub mod pull;
pub mod stress;
mod tape;

pub use host::{CONFIG_SLO, Host, queue_config};
pub use tape::{ModelTape, RankTape, Tapes, record};
