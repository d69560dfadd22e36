//! The workers of one sub-cluster: hosts of the decision objects of `symphony-scheduler`, and their messages.

pub(crate) mod corrections;
pub(crate) mod counters;
pub(crate) mod decision_config;
pub(crate) mod delivery;
pub(crate) mod id_map;
pub(crate) mod load;
pub(crate) mod messages;
pub(crate) mod model_worker;
pub(crate) mod offer_board;
pub(crate) mod policy_worker;
pub(crate) mod rank_worker;
pub(crate) mod sent_plans;
pub(crate) mod subcluster_workers;
pub(crate) mod worker_metrics;
