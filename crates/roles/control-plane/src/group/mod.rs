//! The control group: joining, state machine, members, and proposals.

pub(crate) mod boot_history;
pub(crate) mod checkpoints;
pub(crate) mod disk;
pub(crate) mod founding;
pub(crate) mod lead_reports;
pub(crate) mod levels;
pub(crate) mod membership;
pub(crate) mod propose;
pub(crate) mod registrar;
pub(crate) mod restoration;
pub(crate) mod state_machine;
