//! Whole clusters by one command.

mod demo;
mod up;
mod up_clusters;
