//! What a process says about itself: its log, its metrics, its health, its broken invariants, and a console.
//!
//! Names of metrics live in one file per crate as [`MetricName`]s, and [`check_law`] keeps them honest in that crate's
//! tests. [`violated`] counts a broken invariant wherever it is seen. [`serve`] offers all of it over HTTP.

mod duration_histogram;
mod error_histogram;
mod http;
mod invariant;
mod law;
mod log;
pub mod names;
mod process;
mod refusals;
mod registry;

pub use duration_histogram::{DurationCounts, DurationHistogram};
pub use error_histogram::{ErrorCounts, ErrorHistogram};
pub use http::{Surface, router, serve};
pub use invariant::{violated, violations};
pub use law::{Kind, LABELS_MAX, MetricName, Unit, check_law};
pub use log::{LogError, LogForm, LogOptions, init_logging};
pub use registry::Registry;
