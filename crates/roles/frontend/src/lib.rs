//! The frontend: accepts requests, keeps their inputs, and gives each exactly one answer.

mod access;
mod clusters;
mod counts;
mod data_server;
mod dispatch;
mod frontend;
mod inner;
pub mod metrics;
pub mod oip;
mod pictures;
mod records;
mod repository;
mod requests;

pub use access::tenants::Tenants;
pub use clusters::cluster::ClusterAccess;
pub use counts::ledger::LedgerCounts;
pub use frontend::{Frontend, StartError};
pub use repository::repository_service::{RepositoryAccess, TOKEN_BYTES_MIN, read_token};
