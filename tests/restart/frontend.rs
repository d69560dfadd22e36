//! A frontend dies and comes back; one that is told to stop drains.

use std::time::Duration;

use symphony_tests::{Shape, emulated_model, phase, tell};

#[test]
fn a_restarted_frontend_serves_without_anything_else_being_touched() {
    tell("frontend-restart", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let before = cluster.view().unwrap();

        phase("the frontend is killed with requests in flight");
        let mut load = cluster.spawn_load("load", &["resnet=50"], 30).unwrap();
        let accepted = cluster.accepted().unwrap();
        cluster.wait_for_accepted(accepted + 50).unwrap();
        cluster.kill("frontend").unwrap();
        load.kill().unwrap();

        phase("it comes back with a new life");
        cluster.restart("frontend").unwrap();
        cluster
            .wait_for_view("the new life", |view| {
                let (id, was) = before.frontends.first_key_value()?;
                view.frontends.get(id).filter(|now| now.boot != was.boot).map(|_| ())
            })
            .unwrap();
        cluster.wait_until_it_serves("resnet").unwrap();
        let after = cluster.view().unwrap();
        let leaders = |view: &symphony_protocol::view::View| -> Vec<_> {
            view.subclusters.values().map(|s| (s.leader, s.token)).collect()
        };
        assert_eq!(leaders(&after), leaders(&before), "a frontend's death is no reason to change leaders");
        cluster.wait_for_a_balanced_ledger().unwrap();

        phase("told to stop, it ends by itself and with success");
        let status = cluster.stop("frontend", Duration::from_secs(20)).unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
    });
}
