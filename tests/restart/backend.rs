//! The only backend of a sub-cluster dies under load.

use symphony_tests::{Shape, emulated_model, phase, tell};

/// Seconds of load.
const LOAD_S: u32 = 10;

#[test]
fn a_restarted_backend_is_somebody_new_and_serves_again() {
    tell("backend-restart", &Shape::emulated(&["default"]), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let view = cluster.view().unwrap();
        let (id, before) = view.backends.first_key_value().unwrap();

        phase("load, and the backend is killed");
        let accepted = cluster.accepted().unwrap();
        let load = cluster.spawn_load("load", &["resnet=40"], LOAD_S).unwrap();
        cluster.wait_for_accepted(accepted + 80).unwrap();
        cluster.kill("backend-default").unwrap();

        phase("it comes back under the same name with a new boot, and its GPUs with larger tokens");
        cluster.restart("backend-default").unwrap();
        let (now, after) = cluster
            .wait_for_view("the new boot", |view| {
                let now = view.backends.get(id).filter(|b| b.up && b.boot != before.boot)?;
                let ready = view.models.values().all(|m| m.is_ready(view));
                ready.then(|| (now.clone(), view.clone()))
            })
            .unwrap();
        let token = |view: &symphony_protocol::view::View, backend| {
            let backend: &symphony_protocol::view::BackendView = backend;
            view.gpu_token(backend, &backend.gpus[0])
        };
        assert!(token(&after, &now) > token(&view, before), "tokens only grow: {after:?}");

        phase("requests are served again; each of those before had an outcome");
        cluster.wait_until_it_serves("resnet").unwrap();
        let report = cluster.load_report(load, LOAD_S).unwrap();
        report.check_safety().unwrap();
        assert!(report.number("resnet", "good").unwrap() > 0.0, "{}", report.json);
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
