//! Every scheduling decision of Symphony, and nothing else: no clock, no thread, no socket.
//!
//! Two objects, each with one method `step(now, input, &mut actions)`: [`ModelQueue`] holds the requests of one model
//! and forms its batches, [`GpuRanker`] holds the free times of the GPUs of one sub-cluster and says which model gets
//! which GPU when. A host (the runtime or the simulator) carries their actions to where they belong.

mod account;
mod actions;
mod aimd;
mod anticipation;
mod class_profiles;
mod class_window;
mod class_windows;
mod cluster_policy;
mod company;
mod data_delays;
mod delays;
mod early_start;
mod gap_meter;
mod idle_gpus;
mod lateness_meter;
mod min_tree;
mod model_queue;
mod outlook;
mod patience;
mod payload_meter;
mod plan_check;
mod policy;
mod pool_word;
mod pressure;
mod pressure_control;
mod queued;
mod ranker;
mod rate_meter;
mod request_items;
pub mod rivals;
mod shedding;
mod target_batch;
mod why;

pub use account::Account;
pub use actions::{
    Candidate, Demand, Growth, ModelAction, ModelActions, ModelInput, Orders, Plan, RankAction, RankActions, RankInput,
    Request,
};
pub use class_profiles::ClassProfiles;
pub use cluster_policy::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy};
pub use company::Company;
pub use data_delays::{DataDelaySettings, DataDelays};
pub use delays::{DataDelay, DelaySource, Delays};
pub use idle_gpus::IdleGpus;
pub use lateness_meter::LatenessMeter;
pub use min_tree::MinTree;
pub use model_queue::{ModelQueue, ModelQueueConfig, QUEUE_REQUESTS_MAX};
pub use payload_meter::{PAYLOAD_DELAY_FORGOTTEN_AFTER, PayloadDelay, PayloadMeter};
pub use plan_check::{PlanCheck, Violation};
pub use policy::{BatchLimit, Policy, Shed, Trigger};
pub use pool_word::PoolWord;
pub use pressure::Pressure;
pub use pressure_control::{PRESSURE_TICK, PRESSURE_VALID, PressureControl, PressureInput};
pub use ranker::{GPUS_MAX, GpuRanker, MODELS_MAX, PLANS_AHEAD_MAX};
pub use rate_meter::RateMeter;
pub use symphony_policy::{DropRule, GpuChoice, ReadyOrder, TargetShare};
pub use target_batch::target_batch;
pub use why::{DropCause, GrantWhy, IDLE_COUNTED_MAX, Matched, PlanWhy, Rival, ShedCause};
