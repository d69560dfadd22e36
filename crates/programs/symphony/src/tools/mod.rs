//! Tools that talk to a cluster or work on files.

pub(crate) mod apply;
mod arrivals_file;
pub(crate) mod backup;
pub(crate) mod certs;
#[cfg(feature = "simulation")]
pub(crate) mod compare;
pub(crate) mod context;
pub(crate) mod describe;
mod device_timeline;
pub(crate) mod duty;
pub(crate) mod explain;
pub(crate) mod federation;
pub(crate) mod get;
mod get_page;
pub(crate) mod health;
pub(crate) mod hung_policies;
pub(crate) mod keys;
pub(crate) mod load;
mod load_pipeline;
mod load_trace;
mod machine;
pub(crate) mod members;
pub(crate) mod model;
mod operation;
mod pack;
#[cfg(feature = "simulation")]
pub(crate) mod paper;
mod partition;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod profile;
mod profile_compare;
mod profile_gemm;
mod profile_report;
pub(crate) mod replay;
pub(crate) mod requested_model;
mod roll_out;
pub(crate) mod shell;
#[cfg(feature = "simulation")]
pub(crate) mod sim;
#[cfg(feature = "simulation")]
mod sim_explain;
#[cfg(feature = "simulation")]
mod sim_timeline;
mod split;
pub(crate) mod subcluster;
pub(crate) mod tape;
pub(crate) mod trace;
pub(crate) mod upgrade;
mod watch;
mod wide;
