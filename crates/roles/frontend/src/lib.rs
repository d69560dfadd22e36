//! The frontend: accepts requests, keeps their inputs, and gives each exactly one answer.

mod cluster;
mod control_plane;
mod data_server;
mod decoders;
mod frontend;
mod leader_link;
#[cfg(test)]
mod leader_link_tests;
mod ledger;
mod metrics;
pub mod names;
pub mod oip;
mod plan;
mod rates;
mod repository_desk;
mod repository_listing;
mod request_table;
mod rerouter;
mod routing;
mod statistics;
#[cfg(test)]
mod test_pictures;

pub use cluster::ClusterAccess;
pub use frontend::{Frontend, StartError, image_limits};
pub use ledger::LedgerCounts;
pub use repository_desk::{RepositoryAccess, TOKEN_BYTES_MIN, read_token};
