//! What Table 4 and Figures 8 and 9 of the Symphony paper share: one model on 8 GPUs, Poisson, no network (section
//! 5.2.2).

use anyhow::Result;
use symphony_simulator::RunResult;

use crate::data::Table4Row;
use crate::lab::Lab;
use crate::setup::{Models, Setup};
use crate::system::{self, System};

/// The systems of the paper and of ours, in the order in which they are drawn.
pub(crate) const SYSTEMS: [System; 6] =
    [system::SYMPHONY, system::AUTO, system::EAGER, system::CLIPPER, system::CLOCKWORK, system::NEXUS_1];

/// One row's scenario, with the default policy.
pub(crate) fn setup(lab: &Lab<'_>, row: &Table4Row) -> Setup {
    let Table4Row { model, alpha_ms, beta_ms, slo_ms, .. } = row;
    let models = vec![Models { slo_ms: *slo_ms, ..Models::line(model, *alpha_ms, *beta_ms) }];
    lab.setup(&format!("table 4, {model}"), row.gpus, models)
}

/// Each known system's run of one row at its own goodput.
pub(crate) fn at_goodput(lab: &Lab<'_>, row: &Table4Row) -> Result<Vec<(System, f64, RunResult)>> {
    let systems = lab.known(&SYSTEMS);
    let setups: Vec<_> = systems.iter().map(|system| setup(lab, row).with_policy(system.policy)).collect();
    let goodputs = lab.goodputs(&setups)?;
    let runs = lab.runs(&setups.into_iter().zip(goodputs.iter().copied()).collect::<Vec<_>>())?;
    Ok(systems.into_iter().zip(goodputs).zip(runs).map(|((system, goodput), run)| (system, goodput, run)).collect())
}
