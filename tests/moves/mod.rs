//! Models and backends move between sub-clusters under load, and no request fails; GPUs are asked for when they are missing.

mod gpus;
mod keda;
mod measured;
mod memory;
mod popularity;
mod under_load;
mod words;
