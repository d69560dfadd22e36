//! The first start of a cluster with one cut link: the replicas at its ends never hear from each other, and only the
//! third hears all and may found. The two must open to it, for it needs their votes.

use std::time::Duration;

use crate::cluster::{HOSTS, VOTERS};
use crate::election::another_leads;
use crate::simulation::Simulation;

/// The founder leads and something was agreed within this time: the second after which a majority's answers are enough,
/// and elections.
const FOUNDED_WITHIN: Duration = Duration::from_secs(3);

pub(crate) fn tell(simulation: &mut Simulation, seed: u64) -> Result<String, String> {
    let founders = &HOSTS[..VOTERS];
    let founder = founders[(seed % VOTERS as u64) as usize];
    let ends: Vec<_> = founders.iter().copied().filter(|&host| host != founder).collect();
    let (one, other) = (ends[0], ends[1]);
    simulation.cluster.trace.note_at(simulation.sim.elapsed(), format_args!("no link between {one} and {other}"));
    simulation.sim.partition(one, other);
    let founded = another_leads(simulation, "", FOUNDED_WITHIN)?.ok_or_else(|| {
        format!("I8: {FOUNDED_WITHIN:?} after the start nobody leads, and {founder} reaches both others")
    })?;
    simulation.sim.repair(one, other);
    simulation.cluster.links.reset(&[one], &[other]);
    let served = simulation.until_it_serves(|_| {})?;
    simulation.linearizable()?;
    Ok(format!("agreed after {} ms, served {} ms after healing", founded.as_millis(), served.as_millis()))
}
