//! How a model is served, as far as that may change meanwhile.

use symphony_protocol::view::ModelView;
use symphony_scheduler::Policy;
use symphony_types::Nanos;

/// What may change of a model while it is served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServedAs {
    pub(crate) slo: Nanos,
    pub(crate) policy: Policy,
}

impl ServedAs {
    pub(crate) fn of(model: &ModelView) -> Self {
        let slo = model.spec.slo;
        Self { slo, policy: Policy::of(&model.spec.policy, slo, model.spec.value) }
    }
}
