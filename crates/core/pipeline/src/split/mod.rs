//! The budget split: how much of the SLO each stage plans for (the Nexus paper, section 6.2).

mod budgets;
mod cost;
mod dynamic;
mod spread;

pub use budgets::{Split, StageBudget, Unsplittable, even_split, split, split_options};
pub use cost::{BatchOption, Cost, options};
pub use spread::{spread, spread_takes};
