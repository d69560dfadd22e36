//! What the leader of the control group proposes of its own accord.

pub(crate) mod frontend_reaper;
pub(crate) mod initiative;
pub(crate) mod lead_balancer;
pub(crate) mod mover;
