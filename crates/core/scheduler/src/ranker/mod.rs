//! The GPUs of a sub-cluster: when each is free, and which model gets it.

pub(crate) mod gpu_counts;
pub(crate) mod gpu_ranker;
pub(crate) mod min_tree;
