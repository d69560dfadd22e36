//! Several clusters under load, the group above them, and faults that strike a whole cluster or that group.

mod fault;
mod federation_mover;
mod models;
mod plans;
mod round;
mod run;
mod scenario;
mod system;

#[cfg(test)]
pub(crate) use scenario::PREFIX;

pub(crate) use scenario::names;

pub use run::run_federation;
pub use scenario::FederationScenario;
