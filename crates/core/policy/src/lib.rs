//! Scheduling policies as operators write them: a name, its options, and one text for both.
//!
//! Pure: text comes in, checked values go out, and values become the same text again. Nothing here knows how a policy
//! works; `symphony-scheduler` makes its objects of it.

mod auto_rule;
mod choices;
mod error;
mod model_policy;
mod policy_spec;
mod shares;
mod text;

pub use auto_rule::AutoRule;
pub use choices::{DropRule, GpuChoice, ModelPolicyName, ReadyOrder, ShedChoice, TriggerChoice};
pub use error::{PolicyError, Refused};
pub use model_policy::ModelPolicy;
pub use policy_spec::PolicySpec;
pub use shares::{SloShare, TargetShare};
pub use text::{POLICY_TEXT_BYTES_MAX, PolicyText};
