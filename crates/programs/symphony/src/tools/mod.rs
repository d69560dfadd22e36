//! Tools that talk to a cluster or work on files.

pub(crate) mod certs;
mod device_timeline;
pub(crate) mod duty;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod federation;
pub(crate) mod frontend_page;
pub(crate) mod get;
pub(crate) mod health;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod members;
pub(crate) mod model;
mod operation;
pub(crate) mod paper;
mod partition;
pub(crate) mod plan;
pub(crate) mod profile;
mod profile_compare;
mod profile_gemm;
mod profile_report;
pub(crate) mod replay;
pub(crate) mod sim;
mod sim_explain;
pub(crate) mod table;
mod timeline;
