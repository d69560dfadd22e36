//! The id under which a request was accepted and the trace that it is in, for its answer: a result, an error, or the
//! end of its time.

use std::sync::{Arc, OnceLock};

use symphony_telemetry::TraceContext;
use symphony_types::RequestId;

/// Filled by the service when it accepts the request; stays empty if it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt(Arc<Known>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    id: OnceLock<RequestId>,
    trace: OnceLock<TraceContext>,
}

impl Receipt {
    /// The request was accepted under this name. Only the first one counts.
    pub fn accepted(&self, id: RequestId) {
        let _ = self.0.id.set(id);
    }

    /// The name, if the request was accepted.
    #[must_use]
    pub fn id(&self) -> Option<RequestId> {
        self.0.id.get().copied()
    }

    /// The request is traced, with this as the span of its whole way here. Only the first one counts.
    pub fn traced(&self, context: TraceContext) {
        let _ = self.0.trace.set(context);
    }

    /// Its span, if the request is traced.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        self.0.trace.get().copied()
    }
}
