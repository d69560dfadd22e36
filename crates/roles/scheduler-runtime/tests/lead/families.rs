//! Models that share a trunk: one queue while the backend in use hosts them, plans with rows of both, and nothing lost
//! when one of them goes, when the backend is lost, or when it hosts them no more.

use symphony_protocol::dispatch::EndReason;
use symphony_protocol::execute::{Execute, FromBackend, HostedModel, Refusal};
use symphony_protocol::view::{BackendView, GpuView, TrunkView, View};
use symphony_types::{BackendId, CutDigest, FailReason, GpuId, LatencyProfile, ModelId, Token};
use tokio::net::TcpListener;

use super::backend::{Backend, sequences};
use super::frontend::{Frontend, header};
use super::scene::{Scene, model};
use super::{SUBCLUSTER, soon};

const TRUNK: CutDigest = CutDigest::new(7);
const ONE: ModelId = ModelId::new(1);
const TWO: ModelId = ModelId::new(2);

fn on_one_trunk(view: &mut View) {
    for (id, shown) in &mut view.models {
        *shown = model(&format!("head-{id}"), "eager");
        shown.trunk = Some(TrunkView { cuts: vec![TRUNK], shared: Some(TRUNK) });
    }
}

fn hosts(models: &[ModelId]) -> FromBackend {
    let trunk = TRUNK.get().to_be_bytes();
    let hosted = |&model| HostedModel { model, trunk_share: 750_000, suffix_share: 250_000, trunk };
    FromBackend::Hosts { models: models.iter().map(hosted).collect() }
}

/// Asks both models at once, again and again, until the plan that has the last of both is as wanted; the backend runs
/// all others.
async fn planned(
    backend: &mut Backend,
    frontend: &Frontend,
    next: &mut u64,
    is_wanted: impl Fn(&Execute) -> bool,
) -> Execute {
    soon("plan", async {
        loop {
            let pair = [*next, *next + 1];
            *next += 2;
            frontend.announce(&[header(pair[0], 1), header(pair[1], 2)]);
            let mut left = pair.len();
            while left > 0 {
                let plan = backend.plan().await;
                left -= sequences(&plan).iter().filter(|sequence| pair.contains(sequence)).count();
                if left == 0 && is_wanted(&plan) {
                    return plan;
                }
                backend.done(&plan);
            }
        }
    })
    .await
}

fn is_mixed(plan: &Execute) -> bool {
    plan.requests.iter().any(|row| row.model != ModelId::default())
}

#[tokio::test]
async fn rows_of_both_are_planned_together_and_run_again_after_a_refusal_and_a_loss() {
    let scene = Scene::with(on_one_trunk).await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    scene.served(2).await;
    let (frontend, mut next) = (scene.frontend().await, 1);
    let alone = planned(&mut backend, &frontend, &mut next, |_| true).await;
    assert!(!is_mixed(&alone) && alone.requests.len() == 1, "nobody hosts them yet: {alone:?}");
    backend.done(&alone);

    backend.sender.send(hosts(&[ONE, TWO])).unwrap();
    let mixed = planned(&mut backend, &frontend, &mut next, is_mixed).await;
    let rows: Vec<_> = mixed.requests.iter().map(|row| (row.model, row.model_in(mixed.model))).collect();
    assert_eq!((mixed.model, &rows[..]), (ONE, &[(ModelId::default(), ONE), (TWO, TWO)][..]));
    // ℓ(b) is b + 1 ms: the trunk's part of ℓ(2), and each suffix's of ℓ(1).
    assert_eq!(mixed.latency, 3_250_000);

    let Execute { gpu, sequence, token, model, .. } = mixed;
    let refusal = Refusal::ModelNotReady;
    backend.sender.send(FromBackend::Refused { gpu, sequence, token, model, refusal }).unwrap();
    let again = backend.plan().await;
    assert_eq!((again.sequence, sequences(&again)), (sequence + 1, sequences(&mixed)));

    // The next link to the same boot of the backend: what it hosts is not forgotten.
    drop(backend);
    let mut backend = scene.sealed().await;
    let after = backend.plan().await;
    assert_eq!((after.sequence, sequences(&after)), (1, sequences(&mixed)));
    assert!(is_mixed(&after), "{after:?}");
    backend.done(&after);

    backend.sender.send(hosts(&[])).unwrap();
    let alone = planned(&mut backend, &frontend, &mut next, |plan| !is_mixed(plan)).await;
    assert_eq!(alone.requests.len(), 1, "{alone:?}");
}

#[tokio::test]
async fn one_that_is_unloaded_takes_its_own_requests_along_and_no_others() {
    // Five seconds: the GPU is given no other plan before the model is gone, however late this machine is.
    let slow = |view: &mut View| {
        on_one_trunk(view);
        for shown in view.models.values_mut() {
            let profile = shown.spec.profiles.get_mut("kind").unwrap();
            profile.latency = LatencyProfile::from_line(100.0, 4900.0, 8).unwrap();
        }
    };
    let scene = Scene::with(slow).await;
    let mut backend = scene.sealed().await;
    backend.sender.send(hosts(&[ONE, TWO])).unwrap();
    scene.served(1).await;
    scene.served(2).await;
    let (mut frontend, mut next) = (scene.frontend().await, 1);
    let running = planned(&mut backend, &frontend, &mut next, is_mixed).await;
    // The only GPU is busy: these wait.
    let before = scene.counter("requests");
    frontend.announce(&[header(next, 1), header(next + 1, 2)]);
    scene.until("requests in the queue", |scene| scene.counter("requests") == before + 2).await;
    scene.change(|view| {
        view.models.remove(&TWO);
    });
    assert_eq!(frontend.next_end().await, (next + 1, EndReason::Failed(FailReason::ModelNotReady)));
    backend.done(&running);
    let left = backend.plan().await;
    assert_eq!((left.model, sequences(&left)), (ONE, vec![next]));
}

#[tokio::test]
async fn models_whose_family_ends_are_served_on_beside_a_gpu_that_one_has_no_profile_for() {
    let has_a_profile = |view: &mut View| {
        on_one_trunk(view);
        let profiles = &mut view.models.get_mut(&TWO).unwrap().spec.profiles;
        let known = profiles["kind"].clone();
        profiles.insert("novel".to_owned(), known);
    };
    let scene = Scene::with(has_a_profile).await;
    let mut backend = scene.sealed().await;
    backend.sender.send(hosts(&[ONE, TWO])).unwrap();
    scene.served(1).await;
    scene.served(2).await;
    let (frontend, mut next) = (scene.frontend().await, 1);
    let mixed = planned(&mut backend, &frontend, &mut next, is_mixed).await;
    backend.done(&mixed);
    // A backend that cannot be used, since model 1 has no profile for its GPU, is linked nevertheless.
    let novel = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let exec_addr = novel.local_addr().unwrap().to_string();
    scene.change(|view| {
        let gpus = vec![GpuView { id: GpuId::new(10), kind: "novel".into(), memory_bytes: 1, binding: Token::new(4) }];
        let other = BackendView {
            name: "other".into(),
            up: true,
            exec_addr,
            subcluster: SUBCLUSTER,
            gpus,
            ..BackendView::default()
        };
        view.backends.insert(BackendId::new(4), other);
    });
    let _dialled = soon("link of the leader", novel.accept()).await.unwrap();
    backend.sender.send(hosts(&[])).unwrap();
    let alone = planned(&mut backend, &frontend, &mut next, |plan| !is_mixed(plan)).await;
    assert_eq!(alone.requests.len(), 1, "{alone:?}");
}
