//! Backends that drain and learn when no more plans come.

use symphony_protocol::execute::ToBackend;
use symphony_types::Duty;

use super::backend::sequences;
use super::frontend::header;
use super::scene::Scene;
use super::{BACKEND, GPU, TOKEN};

#[tokio::test]
async fn a_draining_backend_is_told_when_no_more_plans_come_and_used_again_if_wanted() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.announce(&[header(1, 1)]);
    let plan = backend.plan().await;

    let duty = |duty| scene.change(|view| view.backends.get_mut(&BACKEND).unwrap().duty = duty);
    duty(Duty::Draining);
    assert_eq!(backend.next().await, ToBackend::Retired { gpus: vec![GPU] });
    frontend.announce(&[header(2, 1)]);
    backend.done(&plan);
    backend.says_nothing().await;

    // It learns that plans come again before the first one; drained again meanwhile, it must wait for the next message.
    duty(Duty::Serving);
    backend.asked_to_seal_again(TOKEN).await;
    backend.seal(TOKEN, vec![], vec![]);
    let plan = backend.plan().await;
    assert_eq!((plan.sequence, sequences(&plan)), (2, vec![2]), "under the same seal");
    duty(Duty::Draining);
    backend.done(&plan);
    assert_eq!(backend.next().await, ToBackend::Retired { gpus: vec![GPU] });
}

#[tokio::test]
async fn a_backend_that_drains_before_it_is_used_is_sealed_and_told_at_once() {
    let scene = Scene::with(|view| view.backends.get_mut(&BACKEND).unwrap().duty = Duty::Draining).await;
    let mut backend = scene.sealed().await;
    assert_eq!(backend.next().await, ToBackend::Retired { gpus: vec![GPU] });
    scene.change(|view| view.backends.get_mut(&BACKEND).unwrap().duty = Duty::Serving);
    backend.asked_to_seal_again(TOKEN).await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.announce(&[header(1, 1)]);
    assert_eq!(backend.plan().await.sequence, 1);
}
