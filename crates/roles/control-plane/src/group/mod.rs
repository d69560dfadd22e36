//! The control group: how a replica joins it, its state machine, its members, and how a command is agreed.

pub(crate) mod checkpoints;
pub(crate) mod disk;
pub(crate) mod founding;
pub(crate) mod host;
pub(crate) mod lead_reports;
pub(crate) mod lives;
pub(crate) mod membership;
pub(crate) mod propose;
pub(crate) mod registrar;
