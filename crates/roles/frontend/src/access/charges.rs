//! What callers take of their quotas, with refusals counted.

use symphony_types::Nanos;

use crate::access::tenant::TenantPlace;
use crate::access::tenants::Tenants;
use crate::oip::{Caller, InferError};

impl Caller {
    /// Gives one of its requests a place, before it is read.
    ///
    /// # Errors
    /// If it has used up a quota or has as many requests in flight as it may, which is counted.
    pub(crate) fn take_place(&self, tenants: Option<&Tenants>) -> Result<Option<TenantPlace>, InferError> {
        let (Some(tenant), Some(tenants)) = (self.known_tenant(), tenants) else { return Ok(None) };
        let place = tenant.take_place(tenants.now());
        place.map(Some).inspect_err(|error| tenants.refused(self.name(), error.error_status().reason))
    }

    /// Takes from its quotas what a request costs.
    ///
    /// # Errors
    /// If one is used up, which is counted.
    pub(crate) fn charge(&self, tenants: Option<&Tenants>, items: u32, gpu_time: Nanos) -> Result<(), InferError> {
        let (Some(tenant), Some(tenants)) = (self.known_tenant(), tenants) else { return Ok(()) };
        let charged = tenant.charge(tenants.now(), items, gpu_time);
        charged.inspect_err(|error| tenants.refused(self.name(), error.error_status().reason))
    }
}
