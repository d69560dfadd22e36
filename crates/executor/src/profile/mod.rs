//! Measures ℓ(b) and memory, and keeps them in the files that `symphony profile` writes and `symphony model load` reads.

mod file;
mod interpolate;
mod measure;
mod resources;

pub use file::{GpuProfile, ProfileFile, ProfileFileError};
pub use measure::{MeasureError, MeasureOptions, MeasuredBatch, Measurement, Progress, measure};
