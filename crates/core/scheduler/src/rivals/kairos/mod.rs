//! Kairos, and the rivals that its paper measures it against: requests of unequal size on unequal GPUs, none merged
//! with another.
//!
//! From *Kairos: Building Cost-Efficient Machine Learning Inference Systems with Heterogeneous Cloud Resources* (HPDC
//! 2023) and its published artifact. A request of n items is a *query* of batch size n there, and runs as a batch of
//! its own. Where a paper's rule would answer a query late, it is dropped instead: hosts take no plan that ends late
//! (invariant S2). So no GPU time is spent on what counts for nothing, to the advantage of all four alike.

mod clkwrk;
mod drs;
mod first_come;
mod forecast;
mod heterogeneity;
mod learnt;
mod line;
mod matcher;
mod query_distribution;
mod ribbon;
mod threshold;

pub use clkwrk::Clkwrk;
pub use drs::Drs;
pub use query_distribution::{Kairos, KairosSettings};
pub use ribbon::Ribbon;
