//! Fault scenarios against real processes: what they are, how they are run, and what a run found.

mod admin;
mod checker;
mod cluster;
mod fault;
mod federation;
mod journal;
mod load;
mod network;
mod report;
mod run;
mod run_failure;
mod scenario;
mod staged;
mod thousand;
mod views;

pub use federation::{FederationScenario, run_federation};
pub use report::{
    AimReport, Attainment, Fault, FaultState, Ledger, Outcome, Report, ReportSummary, RoundReport, Summary,
};
pub use run::{RunPlan, Times, run};
pub use scenario::{Links, Scenario};
pub use thousand::{LedBy, ProcessUsage, ThousandPlan, ThousandReport, play, run_thousand};
