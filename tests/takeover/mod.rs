//! Replicas die, leave, join and are replaced under load, and no request is lost or answered twice.

mod backup;
mod control_leader;
mod control_plane_down;
mod drain;
mod members;
mod pipeline_stage;
mod rolled_back;
mod rolling_restart;
mod subcluster_leader;
mod wiped;

use std::collections::BTreeSet;

use symphony_protocol::view::View;
use symphony_tests::{Shape, TestCluster, emulated_model, tell};

/// Whether three replicas lead the two sub-clusters and the control group.
fn apart(view: &View) -> bool {
    let leaders = view.subclusters.values().filter_map(|s| s.leader).map(|(node, _)| node);
    leaders.chain(view.control_leader).collect::<BTreeSet<_>>().len() == 3
}

/// A story of two sub-clusters with a model each, `first` and `second`, both served, and led by different replicas,
/// neither of which leads the control group.
pub(crate) fn two_subclusters(test: &str, story: impl Fn(&mut TestCluster)) {
    tell(test, &Shape::emulated(&["first", "second"]), |cluster| {
        for name in ["first", "second"] {
            let _ = cluster.cli(&emulated_model(name, name)).ended_with(0);
            cluster.wait_until_it_serves(name).unwrap();
        }
        // At once, unless another replica was elected meanwhile: then leads move, one after the other.
        cluster.wait_for_view("leaders that are apart", |view| apart(view).then_some(())).unwrap();
        story(cluster);
    });
}
