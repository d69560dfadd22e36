//! The microsecond dispatch loop of a scheduler replica: decision threads, and the links that feed them.
//!
//! A request enters by a frontend's link, becomes part of a candidate on its model's worker, gets a GPU from the
//! sub-cluster's rank worker, and leaves as a batch plan on a backend's link. No decision is made here: the workers
//! carry inputs to the pure objects of `symphony-scheduler` and their orders to where they belong.

mod backend_link;
mod clock;
mod counters;
mod crew;
mod crews;
mod decision_thread;
mod decision_threads;
mod doorbell;
mod explain;
mod flight_log;
mod frontend_link;
mod id_map;
mod in_process;
mod inbox;
mod leads;
mod learning;
mod load;
mod messages;
mod metrics;
mod model_worker;
mod offer_board;
mod rank_worker;
mod reach;
mod relapses;
mod runtime;
mod sent_plans;
mod servable;
mod spin_stretch;
mod standby;
mod subcluster;
mod sweeper;
mod tape_recorder;
mod tape_writer;
mod tapes;
mod thread_watch;
mod turn_order;
mod watchdog;
mod worker;
mod worker_metrics;
mod workers;

pub use clock::Clock;
pub use counters::Counters;
pub use decision_threads::DecisionThreads;
pub use in_process::{InProcess, Orders};
pub use load::{GpuLoad, ModelLoad};
pub use metrics::{METRIC_NAMES, register_metrics};
pub use model_worker::REDRIVE_WAIT;
pub use offer_board::SUBCLUSTER_MODELS_MAX;
pub use runtime::{LeadStatus, Report, Runtime, SubclusterLoad};
pub use subcluster::LeadConfig;
pub use symphony_controllers::{LearningSettings, SlowGpu};
pub use symphony_controllers::{OnlineProfileSettings, StragglerSettings};
pub use tapes::Tapes;
pub use worker::ThreadPolicy;
pub use worker_metrics::{WorkerDurations, WorkerKind};
pub use workers::DecisionConfig;
