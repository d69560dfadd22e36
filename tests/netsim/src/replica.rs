//! A scheduler replica: the production control plane, and the leads that it gives.

use symphony_control_plane::{
    ControlPlane, ControlPlaneConfig, Engine, Environment, EpochSettings, HeartbeatListener, Listeners, OnDiskError,
    SnapshotEvery, Timing,
};
use symphony_types::BootId;

use crate::cluster::{CONTROL_PORT, Cluster, DISPATCH_PORT, HEARTBEAT_PORT, Observed};
use crate::dispatch::leads;

/// A run has some hundred entries: each replica takes snapshots, and one that was away for long is sent one.
const SNAPSHOT: SnapshotEvery = SnapshotEvery { entries: 40, entries_kept: 10 };

/// Simulated milliseconds.
fn wall_clock() -> u64 {
    u64::try_from(turmoil::sim_elapsed().unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// One boot of a replica; ends with its host, or when the replica can no longer be part of the cluster.
pub(crate) async fn live(cluster: Cluster, name: &'static str) -> turmoil::Result {
    let hosted = cluster.replicas.borrow().get(name).cloned();
    // A spare machine is up, and has no listener.
    let Some(hosted) = hosted else { return std::future::pending().await };
    let boot = cluster.fresh_boot();
    cluster.trace.note(format_args!("{name} starts as {} in boot {boot}", hosted.id));
    let listeners = Listeners {
        control: cluster.links.listen(name, CONTROL_PORT).await?,
        heartbeat: HeartbeatListener::Tasks(cluster.links.listen(name, HEARTBEAT_PORT).await?),
    };
    let disk = hosted.data_dir.display().to_string();
    let dispatch = cluster.links.listen(name, DISPATCH_PORT).await?;
    let config = ControlPlaneConfig {
        cluster: "netsim".to_owned(),
        node: hosted.id,
        boot: BootId::new(boot),
        replicas: hosted.configured,
        dispatch_addr: format!("{name}:{DISPATCH_PORT}"),
        data_dir: hosted.data_dir,
        timing: Timing::lan(),
        engine: Engine::Memory,
        on_disk_error: OnDiskError::Stop,
        net: cluster.links.net(name),
        environment: Environment::Simulation { disk: hosted.disk, snapshot: SNAPSHOT },
        join: hosted.join,
        epochs: EpochSettings::default(),
        request_delays: symphony_types::Nanos::ZERO,
        wall_clock,
        policies: Default::default(),
    };
    let plane = std::rc::Rc::new(ControlPlane::start(config, listeners).await?);
    let looked_at = std::rc::Rc::clone(&plane);
    let observed = Observed {
        views: plane.view(),
        leadership: plane.leadership(),
        in_contact: plane.in_contact(),
        digest: Box::new(move || looked_at.digest()),
    };
    cluster.observed.borrow_mut().insert(name, observed);
    let leads = leads::run(cluster.clone(), name, (hosted.id, BootId::new(boot)), &plane, dispatch);
    let mut ends = plane.ends();
    let words = tokio::select! {
        biased;
        ended = ends.wait_for(Option::is_some) => ended?.clone().map(|fatal| fatal.to_string()).unwrap_or_default(),
        () = leads => return Ok(()),
    };
    // As the program does: logs the reason, and ends. The directory contains the number of this process.
    let words = words.replace(&disk, "its directory");
    cluster.trace.note(format_args!("{name} ends: {words}"));
    cluster.observed.borrow_mut().remove(name);
    if let Some(hosted) = cluster.replicas.borrow_mut().get_mut(name) {
        hosted.disk.kill();
        hosted.ended = Some(words);
    }
    Ok(())
}
