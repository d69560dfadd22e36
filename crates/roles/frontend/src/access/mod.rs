//! Who may call: tenants, their keys and rights, and how much they may ask for.

mod charges;
pub(crate) mod quota_sharing;
pub(crate) mod tenant;
pub(crate) mod tenants;
