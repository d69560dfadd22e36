//! Splits and runs of pipelines.

mod never_panics;
mod runs;
mod shapes;
mod split;
