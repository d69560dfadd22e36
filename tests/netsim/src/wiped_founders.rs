//! All replicas die, and two of three lose their disks. They must not found an empty group beside the state of the
//! third one, neither while it is down nor when it comes.

use std::time::Duration;

use crate::cluster::{HOSTS, VOTERS};
use crate::election::nobody_leads;
use crate::simulation::Simulation;

/// How long the two have an opportunity to found a group: many rounds of questions, and several elections.
const OPPORTUNITY: Duration = Duration::from_secs(3);
/// The two have ended within this time after the third has come.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

pub(crate) fn tell(simulation: &mut Simulation, seed: u64) -> Result<String, String> {
    simulation.until_it_serves(|_| {})?;
    let founders = &HOSTS[..VOTERS];
    let third = founders[(seed % VOTERS as u64) as usize];
    let wiped: Vec<_> = founders.iter().copied().filter(|&host| host != third).collect();
    for &host in founders {
        simulation.kill(host)?;
    }
    for &host in &wiped {
        simulation.cluster.replicas.borrow_mut().wipe(host);
        simulation.cluster.trace.note_at(simulation.sim.elapsed(), format_args!("the disk of {host} is empty"));
        simulation.start(host);
    }
    nobody_leads(simulation, OPPORTUNITY, &format!("and {third} alone has the state"))?;
    simulation.start(third);
    let words = |simulation: &Simulation, host: &str| {
        simulation.cluster.replicas.borrow().get(host).and_then(|hosted| hosted.ended.clone())
    };
    nobody_leads(simulation, ENDED_WITHIN, &format!("and {third} alone has the state"))?;
    for &host in &wiped {
        let reason = words(simulation, host);
        if !reason.as_ref().is_some_and(|reason| reason.contains("has an empty disk")) {
            return Err(format!("founding: {host} did not end over an empty disk, but: {reason:?}"));
        }
    }
    Ok(format!("{} ended, and nobody led", wiped.join(" and ")))
}
