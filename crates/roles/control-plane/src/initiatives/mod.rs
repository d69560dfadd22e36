//! Proposals that the leader of the control group makes of its own accord.

pub(crate) mod frontend_reaper;
pub(crate) mod initiative;
pub(crate) mod lead_balancer;
pub(crate) mod mover;
