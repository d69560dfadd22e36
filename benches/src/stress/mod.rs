//! The scheduler alone under load: real model and rank threads, a real clock, requests and GPUs in this process
//! (the Symphony paper, Figure 11).

mod arrivals;
mod gpus;
mod report;
mod run;
mod stress_plan;

pub use report::StressReport;
pub use run::run;
pub use stress_plan::StressPlan;
