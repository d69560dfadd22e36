//! A policy decides for the whole sub-cluster, as the view says: it serves, its fault ends the lead, and one that is
//! not known here is not led.

use std::time::Duration;

use symphony_cluster_state::{LeadReport, PolicyFailure};
use symphony_protocol::dispatch::{EndReason, RequestHeader};
use symphony_protocol::view::{PolicyView, View};
use symphony_scheduler::{ClusterActions, ClusterInput, ClusterPolicy, PolicyRegistry};
use symphony_types::{FailReason, ModelId, Time};

use super::backend::sequences;
use super::frontend::header;
use super::scene::Scene;
use super::{SUBCLUSTER, TOKEN, soon};

/// Takes what it is given and does nothing, until a request of three items comes.
#[derive(Default)]
struct Faulty {
    waiting: usize,
    hangs: bool,
}

impl ClusterPolicy for Faulty {
    fn step(&mut self, _: Time, input: ClusterInput, _: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { request, .. } | ClusterInput::Return { request, .. } => {
                assert!(request.items != 3 || self.hangs, "planted");
                if request.items == 3 {
                    loop {
                        std::thread::park();
                    }
                }
                self.waiting += 1;
            }
            ClusterInput::Cancel { .. } => self.waiting -= 1,
            _ => {}
        }
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}

fn named(text: &str) -> impl FnOnce(&mut View) {
    let policy = Some(PolicyView { text: text.into(), failed: None });
    move |view: &mut View| view.subclusters.get_mut(&SUBCLUSTER).unwrap().policy = policy
}

async fn with_faulty(text: &str) -> Scene {
    let registry = PolicyRegistry::new().with("faulty", |_, options| {
        Ok(Box::new(Faulty { hangs: options.number("hangs", 0.0, 0.0..=1.0)? > 0.0, ..Faulty::default() }))
    });
    Scene::configured(named(text), |config| {
        config.policies = registry;
        config.stuck_after = Duration::from_secs(1);
    })
    .await
}

async fn reported(scene: &mut Scene) -> LeadReport {
    soon("a report", scene.reports.recv()).await.unwrap()
}

#[tokio::test]
async fn a_policy_of_the_view_decides_and_its_plans_are_under_token_and_sequence() {
    for policy in ["clockwork", "kairos", "ribbon", "drs", "clkwrk"] {
        let scene = Scene::with(named(policy)).await;
        let mut backend = scene.sealed().await;
        scene.served(1).await;
        assert_eq!(scene.runtime.status()[0].policy.as_deref(), Some(policy));
        let mut frontend = scene.frontend().await;
        for sequence in 1..4 {
            frontend.announce(&[header(sequence, 1)]);
            let plan = backend.plan().await;
            assert_eq!((plan.token, plan.sequence, plan.model), (TOKEN, sequence, ModelId::new(1)), "{policy}");
            assert_eq!(sequences(&plan), [sequence], "{policy}");
            backend.done(&plan);
        }
        frontend.announce(&[header(9, 77)]);
        assert_eq!(frontend.next_end().await, (9, EndReason::Failed(FailReason::ModelNotReady)), "{policy}");
        assert_eq!(scene.counter("violations"), 0, "{policy}");
    }
}

#[tokio::test]
async fn a_lost_backend_gives_the_policy_its_requests_back() {
    for policy in ["shepherd", "nexus"] {
        let scene = Scene::with(named(policy)).await;
        let mut backend = scene.sealed().await;
        scene.served(1).await;
        let frontend = scene.frontend().await;
        frontend.announce(&[header(1, 1)]);
        assert_eq!(sequences(&backend.plan().await), [1]);
        drop(backend);
        let mut backend = scene.sealed().await;
        let plan = backend.plan().await;
        assert_eq!((plan.sequence, sequences(&plan)), (1, vec![1]));
    }
}

#[tokio::test]
async fn a_panic_of_the_policy_ends_the_lead_and_no_request() {
    let mut scene = with_faulty("faulty").await;
    let _backend = scene.sealed().await;
    let mut frontend = scene.frontend().await;
    scene.until("seal", |scene| scene.runtime.loads().iter().any(|load| !load.models.is_empty())).await;
    frontend.announce(&[header(1, 1), RequestHeader { items: 3, ..header(2, 1) }, header(3, 1)]);
    let failure = PolicyFailure::Panicked;
    let failed = LeadReport::PolicyFailed { subcluster: SUBCLUSTER, token: TOKEN, failure };
    assert_eq!(reported(&mut scene).await, failed);
    frontend.closed().await;
    scene.until("end of the lead", |scene| scene.runtime.status().is_empty()).await;
}

#[tokio::test]
async fn a_policy_that_hangs_is_found_by_the_watchdog() {
    let mut scene = with_faulty("{ name = 'faulty', hangs = 1 }").await;
    let _backend = scene.sealed().await;
    let frontend = scene.frontend().await;
    scene.until("seal", |scene| scene.runtime.loads().iter().any(|load| !load.models.is_empty())).await;
    frontend.announce(&[RequestHeader { items: 3, ..header(1, 1) }]);
    let failure = PolicyFailure::Hung;
    let failed = LeadReport::PolicyFailed { subcluster: SUBCLUSTER, token: TOKEN, failure };
    assert_eq!(reported(&mut scene).await, failed);
}

#[tokio::test]
async fn what_this_program_does_not_know_is_not_led_here() {
    let mut scene = Scene::with(named("house")).await;
    let LeadReport::PolicyUnknown { subcluster: SUBCLUSTER, token: TOKEN, .. } = reported(&mut scene).await else {
        panic!("another report")
    };
    assert!(scene.runtime.status().is_empty());
}
