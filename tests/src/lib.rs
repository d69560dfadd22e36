//! What the integration tests share: clusters of real processes, the program's own words, clients, and the entries of
//! the fuzz targets.

mod binary;
mod cluster;
mod federation;
pub mod fuzz_entries;
mod load_report;
mod node_files;
mod rest_client;
mod story;

pub use binary::{ProgramOutput, run, symphony};
pub use cluster::{BackendShape, Shape, TestCluster, emulated_model};
pub use federation::{CLUSTERS, TestFederation};
pub use load_report::LoadReport;
pub use node_files::REPOSITORY_TOKEN;
pub use rest_client::{Reply, RestClient, numbers};
pub use story::tell;

use std::sync::{Mutex, MutexGuard, PoisonError};

use symphony_testkit::needed;

/// Lets one test of this process at a time use the machine: real clocks and a dozen processes do not share two cores
/// with another dozen. Where each test is a process, the nextest profile runs two at a time, since they mostly wait.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs what a test is about to do, and why.
pub fn phase(words: &str) {
    eprintln!("phase: {words}");
}

/// Whether ONNX Runtime is here; a test that needs it ends without it, as [`needed`] says.
#[must_use]
pub fn onnxruntime_is_here() -> bool {
    needed("onnxruntime", symphony_executor::load_runtime(None)).is_some()
}
