//! Quotas of tenants: token buckets, and the shares of frontends in one quota.
//!
//! Time is an argument, and nothing here does I/O.

mod quota_book;
mod split;
mod token_bucket;

pub use quota_book::{Demand, QuotaBook, TenantDemand, TenantShare};
pub use token_bucket::{BURST, TokenBucket};
