//! Under which name a request was accepted, for whoever answers it: with a result, an error, or because time is up.

use std::sync::{Arc, OnceLock};

use symphony_types::RequestId;

/// Filled by the service when it accepts the request; stays empty if it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt(Arc<OnceLock<RequestId>>);

impl Receipt {
    /// The request was accepted under this name. Only the first one counts.
    pub fn accepted(&self, id: RequestId) {
        let _ = self.0.set(id);
    }

    /// The name, if the request was accepted.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        self.0.get().copied()
    }
}
