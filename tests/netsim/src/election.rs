//! Waits for another leader of the control group.

use std::time::Duration;

use crate::simulation::Simulation;

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
