//! The leader of the control group hears no replica any more, and all of them hear it, while entries wait to be agreed.
//! What it sends must not keep the others loyal for ever: they elect, and it stops acting as a leader.

use std::time::Duration;

use crate::cluster::HOSTS;
use crate::election::another_leads;
use crate::simulation::Simulation;

/// The others have elected and agreed on something within this time: the lease of 120 ms, a silence of 240 ms at most,
/// and elections.
const ELECTED_WITHIN: Duration = Duration::from_millis(1_500);
/// After this time without a quorum no replica leads a sub-cluster (`Liveness::LAN.unconfirmed_max`), and some
/// heartbeats.
const SILENT_WITHIN: Duration = Duration::from_millis(1_100);

pub(crate) fn tell(simulation: &mut Simulation) -> Result<String, String> {
    simulation.until_it_serves(|_| {})?;
    let deaf = simulation.cluster.leader().ok_or("nobody leads")?;
    let others: Vec<_> = HOSTS.into_iter().filter(|&host| host != deaf).collect();
    simulation.cluster.trace.note_at(simulation.sim.elapsed(), format_args!("{deaf} leads and hears nobody any more"));
    for &other in &others {
        simulation.sim.partition_oneway(other, deaf);
    }
    let elected = another_leads(simulation, deaf, ELECTED_WITHIN)?
        .ok_or_else(|| format!("gate: {ELECTED_WITHIN:?} after {deaf} lost its ears nobody else leads and agrees"))?;
    simulation.pass(SILENT_WITHIN.saturating_sub(elected))?;
    let acts = simulation.cluster.observed.borrow().get(deaf).is_some_and(|replica| *replica.in_contact.borrow());
    if acts {
        return Err(format!("gate: {deaf} would still lead sub-clusters"));
    }
    for &other in &others {
        simulation.sim.repair(other, deaf);
    }
    simulation.cluster.links.reset(&[deaf], &others);
    let served = simulation.until_it_serves(|_| {})?;
    Ok(format!("agreed again after {} ms, served {} ms after healing", elected.as_millis(), served.as_millis()))
}
