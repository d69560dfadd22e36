//! Inputs get the time that backends have measured, within bounds, while the measurement is valid.

use symphony_protocol::execute::FromBackend;
use symphony_types::Nanos;

use super::BACKEND;
use super::backend::Backend;
use super::frontend::header;
use super::scene::{DATA_MAX, Scene};

/// Model 1 runs at once: its plans start when their inputs have arrived.
#[tokio::test]
async fn what_a_backend_has_measured_is_planned_for_until_it_is_gone() {
    let scene = Scene::new().await;
    let mut backend = scene.sealed().await;
    scene.served(1).await;
    let frontend = scene.frontend().await;
    let mut sequence = 0;
    // How long the leader gives the input of the next plan.
    let mut given = async |backend: &mut Backend| {
        sequence += 1;
        frontend.announce(&[header(sequence, 1)]);
        let plan = backend.plan().await;
        backend.done(&plan);
        Nanos::new(plan.start_in)
    };
    let second = Nanos::from_millis(1_000);
    assert!(given(&mut backend).await < second, "nothing is known yet");
    let says = |backend: &Backend, fixed: Nanos| {
        backend.sender.send(FromBackend::PayloadDelay { fixed: fixed.get(), per_mib: 0 }).unwrap();
    };
    says(&backend, second);
    let (mut long, mut longest) = (Nanos::ZERO, Nanos::ZERO);
    while long < Nanos::from_millis(900) {
        long = given(&mut backend).await;
    }
    let measured = scene.runtime.status()[0].payload_delay.expect("it was measured");
    assert_eq!((measured.fixed, measured.per_mib), (second, Nanos::ZERO));
    // The measured value is clamped.
    says(&backend, Nanos::MAX);
    while longest < Nanos::from_millis(1_900) {
        longest = given(&mut backend).await;
    }
    assert!(longest <= DATA_MAX, "{longest}");
    scene.change(|view| view.backends.get_mut(&BACKEND).unwrap().up = false);
    scene.until("its word to be forgotten", |scene| scene.runtime.status()[0].payload_delay.is_none()).await;
}

#[tokio::test]
async fn a_backend_that_says_nothing_more_of_its_inputs_is_not_planned_for_for_ever() {
    let scene = Scene::forgetful(Nanos::from_millis(300)).await;
    let backend = scene.sealed().await;
    scene.served(1).await;
    backend.sender.send(FromBackend::PayloadDelay { fixed: 7_000_000, per_mib: 77_000_000 }).unwrap();
    scene.until("its word", |scene| scene.runtime.status()[0].payload_delay.is_some()).await;
    scene.until("it to be forgotten", |scene| scene.runtime.status()[0].payload_delay.is_none()).await;
}
