//! Request headers from one frontend process to one scheduler process over TCP on loopback and through shared memory:
//! how many a core carries, and how long one takes. The links, messages and connections are those of the servers; what
//! the servers do with requests before and behind them is not here.

mod clock;
mod frontend;
mod report;
mod scheduler;

pub use frontend::{Options, run};
pub use report::{LatencyRow, RateRow, Report};
pub use scheduler::{LinkKind, Served, serve};
