//! The messages of the control group's leader only drip through to the other replicas, while it hears all of them. Old
//! messages keep arriving, and more are sent than get through: they must not keep the others loyal all that time.

use std::time::Duration;

use crate::cluster::HOSTS;
use crate::election::another_leads;
use crate::simulation::Simulation;

/// The others have elected within this time: an answer of 240 ms ago is missed, a silence of 240 ms at most, and
/// elections. With the rule in force at most half a second passes; messages from before the leader knew of its lost
/// quorum last for more than a second.
const ELECTED_WITHIN: Duration = Duration::from_millis(900);

pub(crate) fn tell(simulation: &mut Simulation) -> Result<String, String> {
    simulation.until_it_serves(|_| {})?;
    let slow = simulation.cluster.leader().ok_or("nobody leads")?;
    let others: Vec<_> = HOSTS.into_iter().filter(|&host| host != slow).collect();
    simulation.cluster.trace.note_at(simulation.sim.elapsed(), format_args!("{slow} leads and its words drip through"));
    simulation.cluster.links.drip(slow, &others);
    let elected = another_leads(simulation, slow, ELECTED_WITHIN)?.ok_or_else(|| {
        format!("loyal: {ELECTED_WITHIN:?} after the words of {slow} began to drip nobody else leads and agrees")
    })?;
    simulation.cluster.links.flow();
    let served = simulation.until_it_serves(|_| {})?;
    Ok(format!("agreed again after {} ms, served {} ms after healing", elected.as_millis(), served.as_millis()))
}
