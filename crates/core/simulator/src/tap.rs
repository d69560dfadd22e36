//! The seam between the decision objects and the world that carries their orders out.

use symphony_scheduler::{ModelActions, ModelInput};
use symphony_types::Time;

/// Sees each step of a model queue before its orders are carried out. Tests plant faults here; there is no other way
/// to make the production objects break their promises.
pub(crate) trait Tap {
    fn model_step(&mut self, now: Time, input: &ModelInput, actions: &mut ModelActions);
}

/// Lets everything pass.
pub(crate) struct Open;

impl Tap for Open {
    #[inline]
    fn model_step(&mut self, _: Time, _: &ModelInput, _: &mut ModelActions) {}
}
