//! A replica is down since the first moments of its cluster; another one loses its disk, and the third is down. The one
//! that comes back does not know what the other two agreed on without it, so its vote must not be joined by that of the
//! empty disk: together they are a quorum that has forgotten all.

use std::time::Duration;

use crate::cluster::{HOSTS, VOTERS};
use crate::election::nobody_leads;
use crate::simulation::Simulation;

/// A replica leads for the first time within this time.
const LED_WITHIN: Duration = Duration::from_secs(10);
/// What the two agree on without the third, by entries: their registrations, and more.
const AGREED: u64 = 6;
/// How long that may take: clients wait 2 s for each host that is not there.
const AGREED_WITHIN: Duration = Duration::from_secs(60);
/// How long the empty disk and the one left behind have an opportunity to elect: several elections.
const OPPORTUNITY: Duration = Duration::from_secs(3);
/// The empty one has ended within this time after the one that knows it has come.
const ENDED_WITHIN: Duration = Duration::from_secs(2);
/// The two with disks agree again within this time.
const BACK_WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn tell(simulation: &mut Simulation, seed: u64) -> Result<String, String> {
    let founders = &HOSTS[..VOTERS];
    let founded = |simulation: &Simulation| {
        let replicas = simulation.cluster.replicas.borrow();
        founders.iter().all(|host| replicas.get(host).is_some_and(|hosted| hosted.disk.durable_term().is_some()))
    };
    let leader = loop {
        simulation.step()?;
        match simulation.cluster.leader() {
            Some(leader) if founded(simulation) => break leader,
            _ if simulation.sim.elapsed() > LED_WITHIN => return Err("setup: nobody leads".into()),
            _ => {}
        }
    };
    let followers: Vec<_> = founders.iter().copied().filter(|&host| host != leader).collect();
    let order = usize::from(seed.is_multiple_of(2));
    let (behind, wiped) = (followers[order], followers[1 - order]);

    simulation.kill(behind)?;
    let (begun, index) = (simulation.sim.elapsed(), simulation.judge.last_index());
    while simulation.judge.last_index() < index + AGREED {
        simulation.step()?;
        if simulation.sim.elapsed() > begun + AGREED_WITHIN {
            return Err(format!("I8: {leader} and {wiped} agreed on fewer than {AGREED} entries in {AGREED_WITHIN:?}"));
        }
    }
    simulation.kill(leader)?;
    simulation.kill(wiped)?;
    simulation.cluster.replicas.borrow_mut().wipe(wiped);
    simulation.cluster.trace.note_at(simulation.sim.elapsed(), format_args!("the disk of {wiped} is empty"));
    simulation.start(wiped);
    simulation.start(behind);
    nobody_leads(simulation, OPPORTUNITY, &format!("and {leader} alone has what was agreed"))?;

    let index = simulation.judge.last_index();
    simulation.start(leader);
    simulation.pass(ENDED_WITHIN)?;
    let reason = simulation.cluster.replicas.borrow().get(wiped).and_then(|hosted| hosted.ended.clone());
    if !reason.as_ref().is_some_and(|reason| reason.contains("has an empty disk")) {
        return Err(format!("founding: {wiped} did not end over an empty disk, but: {reason:?}"));
    }
    let back = simulation.sim.elapsed() + BACK_WITHIN;
    while simulation.judge.last_index() <= index {
        simulation.step()?;
        if simulation.sim.elapsed() > back {
            return Err(format!("I8: {leader} and {behind} agree on nothing"));
        }
    }
    Ok(format!("{wiped} ended, and the others agree"))
}
