//! Scheduling policies as operators write them: a name and its options, with one canonical text.
//!
//! Pure: text is parsed into validated values, and values are formatted to the same text again. Nothing here knows how
//! a policy works; `symphony-scheduler` builds its objects.

mod auto_rule;
mod choices;
mod error;
mod keys;
mod model_policy;
mod options;
mod policy_spec;
mod research;
mod shares;
mod text;
mod unmerged_policy;

pub use auto_rule::AutoRule;
pub use choices::{DropRule, ModelPolicyName, ResearchTrigger, ShedChoice, TriggerChoice};
pub use error::{PolicyError, Refused};
pub use model_policy::ModelPolicy;
pub use options::{PolicyOptions, RegisteredPolicy, is_policy_name};
pub use policy_spec::{CLUSTER_POLICY_NAMES, POLICY_NAMES, PolicySpec};
pub use research::{GpuChoice, ReadyOrder, ResearchChoices, SimulatedPolicy};
pub use shares::{SloShare, TargetShare};
pub use text::{POLICY_TEXT_BYTES_MAX, PolicyText};
pub use unmerged_policy::UnmergedPolicy;
