//! Every scheduling decision of Symphony, and nothing else: no clock, no thread, no socket.
//!
//! Two objects, each with one method `step(now, input, &mut actions)`: [`ModelQueue`] holds the requests of one model
//! and forms its batches, [`GpuRanker`] holds the free times of the GPUs of one sub-cluster and says which model gets
//! which GPU when. A host (the runtime or the simulator) carries their actions to where they belong.

mod account;
mod actions;
mod aimd;
mod auto;
mod class_profiles;
mod class_window;
mod class_windows;
mod cluster_policy;
mod data_delays;
mod delays;
mod gpu_counts;
mod lateness_meter;
mod min_tree;
mod model_queue;
mod patience;
mod payload_meter;
mod plan_check;
mod policy;
mod pool_control;
mod pool_signal;
mod pressure;
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
    Candidate, ModelAction, ModelActions, ModelInput, Orders, Plan, RankAction, RankActions, RankInput, Request,
};
pub use auto::demand::{DEMAND_LEVELS, Demand};
pub use auto::early_start::EarlyStart;
pub use class_profiles::ClassProfiles;
pub use cluster_policy::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy};
pub use data_delays::{DataDelaySettings, DataDelays};
pub use delays::{DataDelay, DelaySource, Delays};
pub use gpu_counts::GpuCounts;
pub use lateness_meter::{LatenessMeter, Overrun};
pub use min_tree::MinTree;
pub use model_queue::{ModelQueue, ModelQueueConfig, QUEUE_REQUESTS_MAX};
pub use payload_meter::{PAYLOAD_DELAY_FORGOTTEN_AFTER, PayloadDelay, PayloadMeter};
pub use plan_check::{PlanCheck, Violation};
pub use policy::{BatchLimit, Policy, Shed, Trigger};
pub use pool_control::{POOL_TICK, PRESSURE_VALID, PoolControl, PoolInput};
pub use pool_signal::PoolSignal;
pub use pressure::Pressure;
pub use ranker::{GPUS_MAX, GpuRanker, MODELS_MAX, PLANS_AHEAD_MAX};
pub use rate_meter::RateMeter;
pub use symphony_policy::{DropRule, GpuChoice, ReadyOrder, TargetShare};
pub use target_batch::target_batch;
pub use why::{DropCause, GrantWhy, IDLE_COUNTED_MAX, Matched, PlanWhy, Rival, ShedCause};
