//! The telemetry of a process: log, metrics, health, broken invariants, and a console.
//!
//! Each crate defines its metrics as [`MetricName`]s, most in one file, and its tests check them with [`check_names`].
//! [`violated`] counts a broken invariant. [`serve`] exports everything over HTTP.

pub mod buckets;
mod console;
mod duration_histogram;
mod error_histogram;
mod exposition;
mod fine_buckets;
pub mod history;
mod http;
mod invariant;
mod log;
mod name_rules;
pub mod names;
mod native;
mod page_guard;
mod page_hosts;
mod plain_text;
mod process;
mod refusals;
mod registry;
#[cfg(test)]
mod scraped;
mod traces;
mod value_histogram;

pub use console::{ConsoleAnswer, ConsoleQuestion};
pub use duration_histogram::{DurationCounts, DurationHistogram};
pub use error_histogram::{ErrorCounts, ErrorHistogram};
pub use fine_buckets::FineBuckets;
pub use http::{Surface, router, serve};
pub use invariant::{violated, violations};
pub use log::{LogError, LogFilter, LogForm, LogOptions, init_logging};
pub use name_rules::{Kind, LABELS_MAX, MetricName, Unit, check_names};
pub use native::native_histogram;
pub use page_guard::{Page, PageCaller, PageConnection, PageGuard, PageRefusal};
pub use page_hosts::is_unnamed_host;
pub use registry::Registry;
pub use traces::{FinishedSpan, NoTraceContext, SpanIds, TRACEPARENT, TraceContext, TraceError, Traces};
pub use value_histogram::{ValueCounts, ValueHistogram};
