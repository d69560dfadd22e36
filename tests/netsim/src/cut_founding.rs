//! The first start of a cluster with one cut link: the replicas at its ends never hear from each other, and only the
//! third hears all and may found. To the two it could be one that was left behind, so they wait until the link is back.

use std::time::Duration;

use crate::cluster::{HOSTS, VOTERS};
use crate::election::{another_leads, nobody_leads};
use crate::simulation::Simulation;

/// The founder has founded, and has had an opportunity to lead with votes that it must not get.
const CUT_FOR: Duration = Duration::from_secs(3);
/// After the link is back a replica leads and something was agreed within this time: a round of questions, and
/// elections.
const FOUNDED_WITHIN: Duration = Duration::from_secs(3);

pub(crate) fn tell(simulation: &mut Simulation, seed: u64) -> Result<String, String> {
    let founders = &HOSTS[..VOTERS];
    let founder = founders[(seed % VOTERS as u64) as usize];
    let ends: Vec<_> = founders.iter().copied().filter(|&host| host != founder).collect();
    let (one, other) = (ends[0], ends[1]);
    simulation.cluster.trace.note_at(simulation.sim.elapsed(), format_args!("no link between {one} and {other}"));
    simulation.sim.partition(one, other);
    nobody_leads(simulation, CUT_FOR, "by the vote of one that has not heard all others")?;
    simulation.sim.repair(one, other);
    simulation.cluster.links.reset(&[one], &[other]);
    let founded = another_leads(simulation, "", FOUNDED_WITHIN)?.ok_or_else(|| {
        format!("I8: {FOUNDED_WITHIN:?} after the link is back nobody leads, and {founder} has founded")
    })?;
    let served = simulation.until_it_serves(|_| {})?;
    simulation.linearizable()?;
    Ok(format!("agreed after {} ms, served {} ms after healing", founded.as_millis(), served.as_millis()))
}
