//! The interface between the decision objects and the world that executes their orders.

use symphony_scheduler::{ModelActions, ModelInput};
use symphony_types::Time;

/// Sees each step of a model queue before its orders are executed. Tests plant faults here, since the production
/// objects cannot be made to violate their invariants otherwise.
pub(crate) trait Tap {
    fn model_step(&mut self, now: Time, input: &ModelInput, actions: &mut ModelActions);
}

/// Changes nothing.
pub(crate) struct Open;

impl Tap for Open {
    #[inline]
    fn model_step(&mut self, _: Time, _: &ModelInput, _: &mut ModelActions) {}
}
