//! Every scheduling decision of Symphony, and nothing else: no clock, no thread, no socket.
//!
//! Three objects, each driven by one method `step` with the time and an input: [`ModelQueue`] holds the requests of
//! one model and forms its batches; [`GpuRanker`] knows when the GPUs of one sub-cluster are free and decides which
//! model gets which GPU when; [`PoolControl`] tells all queues the pressure on that sub-cluster and how early to start.
//! A host (the runtime or the simulator) executes their actions.
//!
//! A [`ClusterPolicy`] takes the place of all three, with one `step` for a whole sub-cluster: the port for policies
//! that a program adds to its [`PolicyRegistry`].

mod actions;
mod auto;
mod cluster;
mod cluster_policy;
mod meters;
mod plan_check;
mod policy;
pub mod policy_kit;
mod pool;
mod queue;
mod ranker;
pub mod rivals;
mod why;

pub use actions::{
    Candidate, ModelAction, ModelActions, ModelInput, Orders, Plan, RankAction, RankActions, RankInput, Request,
};
pub use auto::demand::Demand;
pub use auto::early_start::{DEMAND_LEVELS, EarlyStart};
pub use cluster::facts::ClusterFacts;
pub use cluster::guard::{BoxedPolicy, GuardedPolicy, PolicyFault};
pub use cluster::model::ClusterModel;
pub use cluster::orders::CLUSTER_ORDERS_MAX;
pub use cluster::referee::ClusterReferee;
pub use cluster::registry::{PolicyRegistry, RegistryError};
pub use cluster_policy::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy};
pub use meters::data_delays::{DataDelaySettings, DataDelays};
pub use meters::delays::{DataDelay, DelaySource, Delays};
pub use meters::lateness_meter::{LatenessMeter, Overrun};
pub use meters::rate_meter::RateMeter;
pub use plan_check::{PlanCheck, Violation};
pub use policy::{BatchLimit, Policy, Shed, Trigger};
pub use pool::account::Account;
pub use pool::control::{POOL_TICK, PRESSURE_VALID, PoolControl, PoolInput};
pub use pool::pressure::Pressure;
pub use pool::signal::PoolSignal;
pub use queue::class_profiles::ClassProfiles;
pub use queue::model_queue::{ModelQueue, ModelQueueConfig, QUEUE_REQUESTS_MAX};
pub use queue::target_batch::target_batch;
pub use ranker::gpu_counts::GpuCounts;
pub use ranker::gpu_ranker::{GPUS_MAX, GpuRanker, MODELS_MAX};
pub use ranker::min_tree::MinTree;
pub use symphony_policy::{DropRule, GpuChoice, PolicyOptions, ReadyOrder, TargetShare};
pub use why::{DropCause, GrantWhy, IDLE_COUNTED_MAX, Matched, PlanWhy, Rival, ShedCause};
