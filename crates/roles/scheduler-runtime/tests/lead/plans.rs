//! From a request to a plan: tokens and sequence numbers, refusals, places on a GPU, kinds of GPUs, models.

use std::time::Duration;

use symphony_net::Net;
use symphony_protocol::dispatch::EndReason;
use symphony_protocol::execute::{Done, Execute, FromBackend, Refusal, SealedGpu, ToBackend};
use symphony_protocol::view::{BackendView, GpuView, HolderView};
use symphony_transport::link_over;
use symphony_types::{BackendId, BootId, FailReason, GpuId, LatencyProfile, ModelId, Nanos, Token};
use tokio::net::TcpListener;

use super::backend::{Backend, sequences};
use super::frontend::header;
use super::scene::{Scene, model};
use super::{BACKEND, BACKEND_BOOT, GPU, TOKEN, soon};

#[tokio::test]
async fn a_request_becomes_a_plan_under_token_boot_and_sequence() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    for sequence in 1..4 {
        frontend.announce(&[header(sequence, 1)]);
        let plan = backend.plan().await;
        assert_eq!((plan.gpu, plan.token, plan.backend_boot), (GPU, TOKEN, BACKEND_BOOT));
        assert_eq!((plan.sequence, plan.model, sequences(&plan)), (sequence, ModelId::new(1), vec![sequence]));
        backend.done(&plan);
    }
}

#[tokio::test]
async fn a_refused_plan_is_made_again_and_the_count_goes_on() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.announce(&[header(1, 1)]);
    let Execute { gpu, token, sequence, model, .. } = backend.plan().await;
    let refusal = Refusal::ModelNotReady;
    backend.sender.send(FromBackend::Refused { gpu, sequence, token, model, refusal }).unwrap();
    let plan = backend.plan().await;
    assert_eq!((plan.sequence, sequences(&plan)), (2, vec![1]));
}

#[tokio::test]
async fn a_gpu_that_runs_over_its_prediction_gets_no_plan_before_it_reports() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.announce(&[header(1, 1)]);
    let plan = backend.plan().await;
    // Far more than a plan's 2 ms pass without a report: its remaining time is unknown, and the next request has to
    // wait.
    tokio::time::sleep(Duration::from_millis(10)).await;
    frontend.announce(&[header(2, 1)]);
    let early = tokio::time::timeout(Duration::from_millis(50), backend.receiver.receive()).await;
    assert!(early.is_err(), "a plan for a GPU that is overdue: {early:?}");
    backend.done(&plan);
    assert_eq!(backend.plan().await.sequence, 2);
}

#[tokio::test]
async fn an_unloaded_model_fails_what_waits_and_the_next_model_is_served() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(2).await;
    let mut frontend = scene.frontend().await;
    frontend.announce(&[header(1, 2)]);
    scene.until("request in the queue", |scene| scene.counter("requests") >= 2).await;
    scene.change(|view| {
        view.models.remove(&ModelId::new(2));
    });
    assert_eq!(frontend.next_end().await, (1, EndReason::Failed(FailReason::ModelNotReady)));
    scene.change(|view| {
        view.models.insert(ModelId::new(3), model("next", "eager"));
    });
    scene.served(3).await;
    let frontend = scene.frontend().await;
    frontend.announce(&[header(2, 3)]);
    assert_eq!(sequences(&backend.plan().await), [2]);
}

#[tokio::test]
async fn a_gpu_of_a_kind_never_seen_joins_while_requests_wait_and_runs_them_by_its_own_profile() {
    // Seconds: a GPU may be given another plan when it should have ended the first, however late this machine is.
    let scene = Scene::with(|view| {
        let profiles = &mut view.models.get_mut(&ModelId::new(1)).unwrap().spec.profiles;
        for (kind, seconds) in [("kind", 3.0), ("slow", 5.0)] {
            let line = LatencyProfile::from_line(seconds * 500.0, seconds * 500.0, 8).unwrap();
            profiles.get_mut(kind).unwrap().latency = line;
        }
    })
    .await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    frontend.announce(&[header(1, 1)]);
    assert_eq!(backend.plan().await.latency, Nanos::from_millis(3_000).get());
    // The only GPU is busy: this one waits.
    frontend.announce(&[header(2, 1)]);
    scene.until("request in the queue", |scene| scene.counter("requests") >= 3).await;

    let (id, boot, gpu) = (BackendId::new(4), BootId::new(8), GpuId::new(17));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    scene.change(|view| {
        let slow = GpuView { id: gpu, kind: "slow".into(), memory_bytes: 1, binding: Token::new(4) };
        let former = view.backends[&BACKEND].clone();
        view.backends.insert(id, BackendView { boot, exec_addr: addr, gpus: vec![slow], ..former });
        for model in view.models.values_mut() {
            model.holders.insert(id, HolderView { boot, state: Ok(()) });
        }
    });
    let (stream, _) = soon("link to the second backend", listener.accept()).await.unwrap();
    let (sender, receiver) = link_over(Net::plaintext().accept(stream, &[]).await.unwrap());
    let mut second = Backend { sender, receiver };
    assert!(matches!(second.next().await, ToBackend::Hello { .. }));
    assert!(matches!(second.next().await, ToBackend::Seal { .. }));
    let gpus = vec![SealedGpu { gpu, promised: TOKEN, free_in: 0, in_flight: vec![] }];
    second.sender.send(FromBackend::Sealed { boot, gpus, finished: vec![], plans: vec![] }).unwrap();
    let plan = second.plan().await;
    assert_eq!((plan.gpu, sequences(&plan), plan.latency), (gpu, vec![2], Nanos::from_millis(5_000).get()));

    // Without the first backend the slow kind serves alone, beginning with the lost GPU's request.
    scene.change(|view| {
        view.backends.remove(&BACKEND);
    });
    let Execute { token, sequence, model, latency, .. } = plan;
    let done = Done { gpu, token, sequence, model, start_late: 0, latency, free_in: 0, failed: vec![] };
    second.sender.send(FromBackend::Done(done)).unwrap();
    assert_eq!(sequences(&second.plan().await), [1]);
    assert_eq!(scene.counter("violations"), 0);
}
