//! The microsecond dispatch loop of a scheduler replica: decision threads, and the links that feed them.
//!
//! A request enters by a frontend's link, becomes part of a candidate on its model's worker, gets a GPU from the
//! sub-cluster's rank worker, and leaves as a batch plan on a backend's link. No decision is made here: the workers
//! carry inputs to the pure objects of `symphony-scheduler` and their orders to where they belong.

mod in_process;
mod lead;
mod links;
mod metrics;
mod records;
mod runtime;
mod threads;
mod workers;

pub use in_process::{InProcess, Orders};
pub use lead::subcluster::LeadConfig;
pub use metrics::{METRIC_NAMES, register_metrics};
pub use records::tapes::Tapes;
pub use runtime::{LeadStatus, Runtime, SubclusterLoad};
pub use symphony_controllers::{LearningSettings, SlowGpu};
pub use symphony_controllers::{OnlineProfileSettings, StragglerSettings};
pub use threads::clock::Clock;
pub use threads::decision_threads::DecisionThreads;
pub use threads::hung_threads::{STUCK_AFTER_LAN, STUCK_AFTER_RELAXED};
pub use threads::worker::ThreadPolicy;
pub use workers::counters::Counters;
pub use workers::decision_config::DecisionConfig;
pub use workers::load::{GpuLoad, ModelBatches, ModelLoad};
pub use workers::offer_board::SUBCLUSTER_MODELS_MAX;
pub use workers::worker_metrics::{WorkerDurations, WorkerKind};
