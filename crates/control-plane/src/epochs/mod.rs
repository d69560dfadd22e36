//! The epoch loop of the Raft leader: what the leads have to do, a better plan for it, and its proposal (docs/epoch-path.md).

mod load_book;
mod load_reports;
mod planner;
mod problem;
mod settings;

pub(crate) use load_book::LoadBook;
pub use load_reports::LoadReports;
pub(crate) use planner::{Ask, Planner};
pub use settings::{EpochMode, EpochSettings};
