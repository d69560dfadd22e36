//! The decision thread of a sub-cluster's leader hangs. It asks the control group to give the lead to another replica;
//! where it hears no answer it stops its heartbeats, and sends them again once the group has settled what it asked.

use std::time::Duration;

use symphony_types::{NodeId, Token};

use crate::cluster::HOSTS;
use crate::simulation::Simulation;
use crate::stale_leader::newest;

/// In calm, another replica leads within this time: the look for hung leads (50 ms), the limit for a turn (100 ms), and
/// an entry of the log.
const CEDED_WITHIN: Duration = Duration::from_millis(400);
/// Without answers: as in calm and the 100 ms of the `LeadReporter` more; where the hung replica
/// led the control group too, also an election of up to 1.5 s.
const REPLACED_WITHIN: Duration = Duration::from_millis(2_000);
/// By then the replica is silent, since it asked again and nobody answered, and has lost contact with the control group
/// (`Liveness::LAN.unconfirmed_max`), which only heartbeats bring back.
const SILENT_WITHIN: Duration = Duration::from_millis(1_100);
/// Then nothing holds the replica down, and nobody has to do anything: some elections.
const SERVES_WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn tell(simulation: &mut Simulation) -> Result<String, String> {
    simulation.until_it_serves(|_| {})?;
    let (_, token) = leader(simulation)?;
    let calm = until_replaced(simulation, token, CEDED_WITHIN)?;
    simulation.until_it_serves(|_| {})?;

    let (deaf, token) = leader(simulation)?;
    let others: Vec<_> = HOSTS.into_iter().filter(|&host| host != deaf).collect();
    for &other in &others {
        simulation.sim.partition_oneway(other, deaf);
    }
    let unheard = until_replaced(simulation, token, REPLACED_WITHIN)?;
    simulation.pass(SILENT_WITHIN)?;
    for &other in &others {
        simulation.sim.repair(other, deaf);
    }
    simulation.cluster.links.reset(&[deaf], &others);
    let served = simulation.until_it_serves_within(SERVES_WITHIN, |_| {})?;
    let [calm, unheard, served] = [calm, unheard, served].map(|time| time.as_millis());
    Ok(format!("replaced after {calm} ms, without answers after {unheard} ms, served {served} ms after healing"))
}

/// The host of the sub-cluster's leader, and the token.
fn leader(simulation: &Simulation) -> Result<(&'static str, Token), String> {
    let (_, leader, token) = newest(&simulation.cluster).ok_or("nobody leads the sub-cluster")?;
    Ok((host(simulation, leader).ok_or("its leader has no host")?, token))
}

fn host(simulation: &Simulation, of: NodeId) -> Option<&'static str> {
    simulation.cluster.replicas.borrow().members().find(|(_, hosted)| hosted.id == of).map(|(host, _)| host)
}

/// Has the leader hang; how long it takes until there is a later token.
fn until_replaced(simulation: &mut Simulation, token: Token, within: Duration) -> Result<Duration, String> {
    let (hangs, _) = leader(simulation)?;
    simulation.cluster.hangs.borrow_mut().insert(hangs);
    let begun = simulation.sim.elapsed();
    loop {
        simulation.step()?;
        let took = simulation.sim.elapsed() - begun;
        if newest(&simulation.cluster).is_some_and(|(_, _, now)| now > token) {
            return Ok(took);
        }
        if took > within {
            return Err(format!("hang: {within:?} after the leads of {hangs} hung nobody else leads them"));
        }
    }
}
