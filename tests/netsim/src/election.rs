//! Waits for another leader of the control group.

use std::time::Duration;

use crate::simulation::Simulation;

/// Passes this time, in which nobody may lead; `why` ends the error's sentence.
pub(crate) fn nobody_leads(simulation: &mut Simulation, time: Duration, why: &str) -> Result<(), String> {
    let end = simulation.sim.elapsed() + time;
    while simulation.sim.elapsed() < end {
        simulation.step()?;
        if let Some(upstart) = simulation.cluster.leader() {
            return Err(format!("founding: {upstart} leads, {why}"));
        }
    }
    Ok(())
}

/// How long it takes until a node other than `former` leads and an entry is committed; none if that takes longer than
/// `within`.
pub(crate) fn another_leads(
    simulation: &mut Simulation,
    former: &str,
    within: Duration,
) -> Result<Option<Duration>, String> {
    let begun = simulation.sim.elapsed();
    let index = simulation.judge.last_index();
    loop {
        simulation.step()?;
        let took = simulation.sim.elapsed() - begun;
        let successor = simulation.cluster.leader().filter(|&leader| leader != former);
        if successor.is_some() && simulation.judge.last_index() > index {
            return Ok(Some(took));
        }
        if took > within {
            return Ok(None);
        }
    }
}
