//! The leader of a sub-cluster is cut off from the other replicas, which put another one in its place, and not from its
//! backend. It does not know, dials the backend again and seals under its old token: the backend must not go back to
//! it.

use std::time::Duration;

use symphony_protocol::view::SubclusterView;
use symphony_types::{NodeId, SubclusterId, Token};

use crate::cluster::{Cluster, HOSTS};
use crate::simulation::Simulation;

/// The backend whose sub-cluster it is.
const BACKEND: &str = "b1";
/// Another replica leads within this time: detection takes 50 ms, an election perhaps before that 120 ms and more.
const REPLACED_WITHIN: Duration = Duration::from_millis(700);
/// By then the new leader has sealed, and the old one has dialled and sealed again.
const SEALED_WITHIN: Duration = Duration::from_millis(100);

pub(crate) fn tell(simulation: &mut Simulation) -> Result<String, String> {
    simulation.until_it_serves(|_| {})?;
    let (id, leader, token) = newest(&simulation.cluster).ok_or("nobody leads the sub-cluster")?;
    let host =
        simulation.cluster.replicas.borrow().members().find(|(_, hosted)| hosted.id == leader).map(|(host, _)| host);
    let stale = host.ok_or("its leader has no host")?;
    let others: Vec<_> = HOSTS.into_iter().filter(|&host| host != stale).collect();
    simulation.cluster.trace.note_at(simulation.sim.elapsed(), format_args!("{stale} leads {id} and hears no replica"));
    for &other in &others {
        simulation.sim.partition(stale, other);
    }
    let begun = simulation.sim.elapsed();
    let replaced = loop {
        simulation.step()?;
        let took = simulation.sim.elapsed() - begun;
        if newest(&simulation.cluster).is_some_and(|(_, _, now)| now > token) {
            break took;
        }
        if took > REPLACED_WITHIN {
            return Err(format!("I8: nobody took {id} over within {took:?}"));
        }
    };
    simulation.pass(SEALED_WITHIN)?;
    simulation.cluster.links.reset(&[stale], &[BACKEND]);
    simulation.pass(SEALED_WITHIN)?;
    for &other in &others {
        simulation.sim.repair(stale, other);
    }
    simulation.cluster.links.reset(&[stale], &others);
    let served = simulation.until_it_serves(|_| {})?;
    Ok(format!("replaced after {} ms, served {} ms after healing", replaced.as_millis(), served.as_millis()))
}

/// The leader of the sub-cluster, by the most recent view.
pub(crate) fn newest(cluster: &Cluster) -> Option<(SubclusterId, NodeId, Token)> {
    let (id, subcluster) = subcluster(cluster)?;
    Some((id, subcluster.leader?.0, subcluster.token))
}

/// The sub-cluster, by the most recent view.
pub(crate) fn subcluster(cluster: &Cluster) -> Option<(SubclusterId, SubclusterView)> {
    let observed = cluster.observed.borrow();
    let views = observed.values().map(|replica| replica.views.borrow().clone());
    let view = views.max_by_key(|view| view.applied_index)?;
    let backend = view.backends.values().find(|backend| backend.name == BACKEND)?;
    Some((backend.subcluster, view.subclusters.get(&backend.subcluster)?.clone()))
}
