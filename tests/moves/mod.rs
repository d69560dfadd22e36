//! Models and backends move between sub-clusters under load, and no request fails.

mod popularity;
mod under_load;
mod words;
