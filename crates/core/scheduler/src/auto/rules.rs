//! The rules of `auto`, each of which experiments may switch off.

use symphony_policy::AutoRule;

/// All rules are in force, except in experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) load: bool,
    pub(crate) short_waits: bool,
    pub(crate) gaps: bool,
    pub(crate) spacing: bool,
    pub(crate) overrun: bool,
    pub(crate) budget: bool,
}

impl Rules {
    pub(crate) const ALL: Self =
        Self { load: true, short_waits: true, gaps: true, spacing: true, overrun: true, budget: true };

    pub(crate) fn without(rules: &[AutoRule]) -> Self {
        let holds = |rule| !rules.contains(&rule);
        Self {
            load: holds(AutoRule::Load),
            short_waits: holds(AutoRule::ShortWaits),
            gaps: holds(AutoRule::Gaps),
            spacing: holds(AutoRule::Spacing),
            overrun: holds(AutoRule::Overrun),
            budget: holds(AutoRule::Budget),
        }
    }
}
