//! Replicas die, leave, come and are replaced under load, and nobody's request is lost or answered twice.

mod control_leader;
mod control_plane_down;
mod drain;
mod members;
mod rolling_restart;
mod subcluster_leader;

use symphony_tests::{Shape, TestCluster, emulated_model, tell};

/// A story of two sub-clusters with a model each, `first` and `second`, both served.
pub(crate) fn two_subclusters(test: &str, story: impl Fn(&mut TestCluster)) {
    tell(test, &Shape::emulated(&["first", "second"]), |cluster| {
        for name in ["first", "second"] {
            let _ = cluster.cli(&emulated_model(name, name)).ended_with(0);
            cluster.wait_until_it_serves(name).unwrap();
        }
        story(cluster);
    });
}
