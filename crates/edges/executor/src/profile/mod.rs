//! Measures ℓ(b) and memory, and keeps them in the files that `symphony profile` writes and `symphony model load`
//! reads.

mod compare;
mod independence;
mod inputs;
mod interpolate;
mod measure;
mod profile_file;

pub use compare::{Comparison, compare};
pub use independence::Dependence;
pub(crate) use independence::{find_dependence, first_difference};
pub(crate) use inputs::{plausible_input, unlike_input};
pub use interpolate::raise_to_monotone;
pub use measure::{Limit, MeasureError, MeasureOptions, MeasuredBatch, Measurement, Progress, Statistic, measure};
pub use profile_file::{GpuProfile, ProfileFile, ProfileFileError};
