//! What the leader of the control group says only drips through to the other replicas, and it hears all of them. What
//! arrives was said long ago, and there is more of it than gets through: it must not keep the others loyal for as long
//! as it lasts.

use std::time::Duration;

use crate::cluster::HOSTS;
use crate::election::another_leads;
use crate::simulation::Simulation;

/// The others have elected within this time: an answer of 240 ms ago is missed, a silence of 240 ms at most, and
/// elections. Half a second goes by at most as the rule is; what was said before the leader knew that it had lost its
/// quorum lasts for more than a second.
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
