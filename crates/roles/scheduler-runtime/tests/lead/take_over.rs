//! Requests of a former leader or of a lost backend: run again if no backend has them, and only then.

use symphony_protocol::dispatch::EndReason;
use symphony_protocol::view::{BackendView, GpuView, HolderView};
use symphony_types::{BackendId, BootId, Duty, FailReason, GpuId, ModelId};

use super::backend::sequences;
use super::frontend::{header, id};
use super::scene::Scene;
use super::{BACKEND, BACKEND_BOOT, GPU, TOKEN};

#[tokio::test]
async fn after_a_take_over_only_what_no_backend_has_is_run_again() {
    let scene = Scene::patient().await;
    let mut backend = scene.asked_to_seal().await;
    let frontend = scene.frontend().await;
    frontend.redrive(&[1, 2, 3].map(|sequence| header(sequence, 1)));
    // In flight and finished, under the leader before this one.
    backend.seal(TOKEN, vec![id(1)], vec![id(2)]);
    assert_eq!(sequences(&backend.plan().await), [3]);
    scene.until("count of known requests", |scene| scene.counter("redriven_known_requests") == 2).await;
}

#[tokio::test]
async fn what_a_lost_backend_had_runs_again_under_the_next_seal() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.announce(&[header(1, 1)]);
    assert_eq!(backend.plan().await.sequence, 1);
    drop(backend);
    let mut backend = scene.sealed().await;
    let plan = backend.plan().await;
    assert_eq!((plan.sequence, sequences(&plan)), (1, vec![1]), "plans count anew");
    backend.done(&plan);
    frontend.announce(&[header(2, 1)]);
    assert_eq!(backend.plan().await.sequence, 2);
}

#[tokio::test]
async fn what_a_backend_had_from_the_former_leader_runs_again_when_it_is_lost() {
    let scene = Scene::patient().await;
    let backend = scene.asked_to_seal().await;
    let frontend = scene.frontend().await;
    frontend.redrive(&[header(1, 1)]);
    backend.seal(TOKEN, vec![id(1)], vec![]);
    scene.until("request known", |scene| scene.counter("redriven_known_requests") == 1).await;
    drop(backend);
    assert_eq!(sequences(&scene.sealed().await.plan().await), [1]);
}

#[tokio::test]
async fn a_take_over_while_a_backend_drains_goes_on_with_what_the_others_hold() {
    let scene = Scene::with(|view| {
        // The draining backend has model 2 already; the other one is still loading it.
        let (drains, boot) = (BackendId::new(4), BootId::new(8));
        let former = view.backends[&BACKEND].clone();
        let gpus = vec![GpuView { id: GpuId::new(17), ..former.gpus[0].clone() }];
        view.backends.insert(drains, BackendView { boot, gpus, duty: Duty::Draining, up: true, ..former });
        for model in view.models.values_mut() {
            model.holders.insert(drains, HolderView { boot, state: Ok(()) });
        }
        view.models.get_mut(&ModelId::new(2)).unwrap().holders.remove(&BACKEND);
    })
    .await;
    // Both are dialled; the requested seals tell them apart.
    let (mut backend, mut drains) = (scene.dialled().await, scene.dialled().await);
    let (first, _) = (backend.first_seal().await, drains.first_seal().await);
    if first[0].0 != GPU {
        std::mem::swap(&mut backend, &mut drains);
    }
    backend.seal(TOKEN, vec![], vec![]);
    scene.served(1).await;
    let mut frontend = scene.frontend().await;
    frontend.announce(&[header(1, 1)]);
    assert_eq!(sequences(&backend.plan().await), [1]);
    frontend.announce(&[header(2, 2)]);
    assert_eq!(frontend.next_end().await, (2, EndReason::Failed(FailReason::ModelNotReady)));
    scene.change(|view| {
        let ready = HolderView { boot: BACKEND_BOOT, state: Ok(()) };
        view.models.get_mut(&ModelId::new(2)).unwrap().holders.insert(BACKEND, ready);
    });
    scene.served(2).await;
}
