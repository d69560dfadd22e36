//! The tools of the `symphony` binary that tests and benches use as well.

pub mod load;
