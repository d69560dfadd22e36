//! Leaders: what they are sent, what is refused, and when no more plans come.

use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_protocol::execute::{EndedPlan, Execute, FromBackend, Refusal, ToBackend};
use symphony_protocol::journal::Record;
use symphony_types::PayloadDelay;
use symphony_types::{BootId, FailReason, GpuId, ModelId, Nanos, NodeId, SubclusterId, Token};

use super::scene::{
    BOOT, FRONTEND, GPU, ITEM_BYTES, SILENT, SUBCLUSTER, Scene, TOKEN, emulated, input, plan, request, soon,
};
use crate::journal::Journal;
use crate::plan_intake::{DELAY_SENT_EVERY, IntakeEvent};

#[tokio::test]
async fn a_leader_hears_how_long_inputs_take_with_its_seal_and_when_that_has_changed() {
    let mut scene = Scene::new(emulated());
    let take = |scene: &Scene, micros| {
        let delay = PayloadDelay { fixed: Nanos::from_micros(micros), per_mib: Nanos::from_micros(900) };
        *scene.frontends.delay.lock().unwrap() = Some(delay);
    };
    let payload_delay = |micros: u64| FromBackend::PayloadDelay { fixed: micros * 1000, per_mib: 900_000 };
    take(&scene, 200);
    let (mut leader, _) = scene.sealed().await;
    assert_eq!(leader.next().await, payload_delay(200));
    scene.own(7, input(1, 1));
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(FRONTEND, 7, 1)]));
    leader.done().await;
    // It just got one; it learns of the change soon, although no other plan comes.
    take(&scene, 300);
    scene.execute(&leader, plan(2, Duration::ZERO, &[request(FRONTEND, 7, 1)]));
    assert_eq!(leader.done().await.sequence, 2);
    assert_eq!(leader.next().await, payload_delay(300));
    // An unchanged delay is not sent again.
    for sequence in 3..=12 {
        scene.execute(&leader, plan(sequence, Duration::ZERO, &[request(FRONTEND, 7, 1)]));
        leader.done().await;
        tokio::time::sleep(DELAY_SENT_EVERY / 8).await;
    }
    // A new leader gets it at once.
    let (mut next, _) = scene.sealed().await;
    assert_eq!(next.next().await, payload_delay(300));
}

#[tokio::test]
async fn what_does_not_match_the_promise_is_refused_with_the_reason() {
    let mut scene = Scene::new(emulated());
    let mut stranger = scene.linked().await;
    let now = |sequence| plan(sequence, Duration::ZERO, &[request(FRONTEND, 1, 1)]);
    scene.execute(&stranger, now(1));
    assert_eq!(stranger.refusal().await, (1, Refusal::NeedSeal { promised: Token::new(10) }));

    let (mut leader, _) = scene.sealed().await;
    scene.execute(&leader, Execute { gpu: GpuId::new(8), ..now(1) });
    assert_eq!(leader.refusal().await, (1, Refusal::UnknownGpu));
    scene.execute(&leader, Execute { token: Token::new(10), ..now(1) });
    assert_eq!(leader.refusal().await, (1, Refusal::Fenced { promised: TOKEN }));
    scene.execute(&leader, Execute { backend_boot: BootId::new(4), ..now(1) });
    assert_eq!(leader.refusal().await, (1, Refusal::WrongBoot { boot: BOOT }));
    scene.execute(&leader, now(2));
    assert_eq!(leader.refusal().await, (2, Refusal::OutOfSequence { expected: 1 }));
    // A plan for an unknown model counts too: the next plan is the second.
    scene.execute(&leader, Execute { model: ModelId::new(2), ..now(1) });
    assert_eq!(leader.refusal().await, (1, Refusal::ModelNotReady));
    // Two may wait, the third may not.
    let later = |sequence| plan(sequence, Duration::from_millis(100), &[request(FRONTEND, 1, 1)]);
    for sequence in 2..5 {
        scene.execute(&leader, later(sequence));
    }
    assert_eq!(leader.refusal().await, (4, Refusal::QueueFull));
    assert_eq!((leader.done().await.sequence, leader.done().await.sequence), (2, 3));
    // A seal for another sub-cluster promises nothing.
    let other = SubclusterId::new(2);
    let seal = ToBackend::Seal { subcluster: other, gpus: vec![(GPU, Token::new(99))] };
    scene.send(&stranger, seal.clone());
    scene.execute(&leader, Execute { model: ModelId::new(2), ..now(4) });
    assert_eq!(leader.refusal().await, (4, Refusal::ModelNotReady), "the promise stands");
    // Once the backend moves there, the token of that sub-cluster's leader is larger.
    scene.events.send(IntakeEvent::Homes(vec![SUBCLUSTER, other])).ok().unwrap();
    let successor = scene.linked().await;
    scene.send(&successor, seal);
    scene.execute(&leader, Execute { model: ModelId::new(2), ..now(5) });
    assert_eq!(leader.refusal().await, (5, Refusal::Fenced { promised: Token::new(99) }));
}

#[tokio::test]
async fn a_leader_that_links_again_is_told_of_plans_in_flight_and_not_of_their_ends() {
    let mut scene = Scene::new(emulated());
    let (former, _) = scene.sealed().await;
    // Its frontend hangs, so it is in flight until well after its start, however slow this machine is.
    scene.execute(&former, plan(1, Duration::from_secs(1), &[request(SILENT, 7, 1)]));
    let (mut leader, sealed) = scene.sealed().await;
    assert_eq!(sealed.in_flight, [request(SILENT, 7, 1).id]);
    assert!(sealed.free_in > 0);
    // Both are number one, and only the second is this link's.
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(FRONTEND, 8, 1)]));
    assert_eq!((scene.result().await.0, scene.result().await.0), (7, 8));
    assert_eq!(leader.done().await.failed, [(request(FRONTEND, 8, 1).id, FailReason::PayloadLost)]);
}

#[tokio::test]
async fn a_leader_that_comes_again_is_answered_once_inputs_are_within_reach_and_another_lead_at_once() {
    let mut scene = Scene::new(emulated());
    let seal = |token| ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, token)] };
    scene.frontends.ready.send_replace(false);
    let (mut former, _) = scene.sealed().await;
    scene.send(&former, seal(TOKEN));
    assert!(matches!(former.next().await, FromBackend::Sealed { .. }), "its connection has not ended");
    // Of two connections that come again, the first does not wait for its answer.
    let (gone, mut again) = (scene.linked().await, scene.linked().await);
    scene.send(&gone, seal(TOKEN));
    scene.send(&again, seal(TOKEN));
    scene.events.send(IntakeEvent::Disconnected(gone.connection)).ok().unwrap();
    scene.execute(&again, plan(1, Duration::ZERO, &[request(FRONTEND, 1, 1)]));
    assert_eq!(again.refusal().await, (1, Refusal::NeedSeal { promised: TOKEN }), "it has no answer yet");
    scene.frontends.ready.send_replace(true);
    assert!(matches!(again.next().await, FromBackend::Sealed { .. }));
    scene.execute(&again, plan(1, Duration::ZERO, &[request(FRONTEND, 1, 1)]));
    assert_eq!(again.done().await.sequence, 1);

    scene.frontends.ready.send_replace(false);
    let mut next = scene.linked().await;
    scene.send(&next, seal(Token::new(20)));
    assert!(matches!(next.next().await, FromBackend::Sealed { .. }));
}

#[tokio::test]
async fn a_new_leader_is_told_what_has_just_ended() {
    let mut scene = Scene::new(emulated());
    scene.own(1, Bytes::from(vec![1; ITEM_BYTES]));
    let (mut former, _) = scene.sealed().await;
    scene.execute(&former, plan(1, Duration::ZERO, &[request(FRONTEND, 1, 1)]));
    assert_eq!(former.done().await.sequence, 1);
    // Its result may be lost: announced again, it must not run again.
    let mut next = scene.linked().await;
    scene.send(&next, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, Token::new(20))] });
    let FromBackend::Sealed { finished, gpus, .. } = next.next().await else { panic!("no seal") };
    assert_eq!((finished, gpus[0].in_flight.as_slice()), (vec![request(FRONTEND, 1, 1).id], [].as_slice()));
}

#[tokio::test]
async fn a_new_leader_is_told_how_much_longer_than_predicted_plans_took() {
    let mut scene = Scene::new(emulated());
    scene.own(1, Bytes::from(vec![1; ITEM_BYTES]));
    let (mut former, _) = scene.sealed().await;
    scene.execute(&former, plan(1, Duration::ZERO, &[request(FRONTEND, 1, 1)]));
    let done = former.done().await;
    // A failed batch says nothing about latency.
    scene.execute(&former, plan(2, Duration::ZERO, &[request(FRONTEND, 2, 1)]));
    assert_eq!(former.done().await.failed, [(request(FRONTEND, 2, 1).id, FailReason::PayloadLost)]);
    let mut leader = scene.linked().await;
    scene.send(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, TOKEN)] });
    let FromBackend::Sealed { plans, .. } = leader.next().await else { panic!("no seal") };
    let predicted = plan(1, Duration::ZERO, &[]).latency;
    assert_eq!(plans, [EndedPlan { longer: done.latency.saturating_sub(predicted), predicted }]);
}

#[tokio::test]
async fn it_is_idle_once_no_more_plans_come_and_the_last_one_has_run() {
    let mut scene = Scene::new(emulated());
    scene.own(1, Bytes::from(vec![1; ITEM_BYTES]));
    let (leader, _) = scene.sealed().await;
    soon(scene.idle.wait_for(|idle| !idle)).await.unwrap();
    scene.execute(&leader, plan(1, Duration::from_millis(50), &[request(FRONTEND, 1, 1)]));
    scene.send(&leader, ToBackend::Retired { gpus: vec![GPU] });
    assert!(scene.result().await.1.is_ok(), "what was sent before runs");
    soon(scene.idle.wait_for(|idle| *idle)).await.unwrap();
    // It is in use again, before any plan.
    scene.send(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, TOKEN)] });
    soon(scene.idle.wait_for(|idle| !idle)).await.unwrap();
    scene.send(&leader, ToBackend::Retired { gpus: vec![GPU] });
    soon(scene.idle.wait_for(|idle| *idle)).await.unwrap();

    // Another leader, which has not announced that no plans come: it may send some.
    let (next, _) = scene.sealed().await;
    soon(scene.idle.wait_for(|idle| !idle)).await.unwrap();
    scene.send(&leader, ToBackend::Retired { gpus: vec![GPU] });
    scene.send(&next, ToBackend::Retired { gpus: vec![GpuId::new(77)] });
    scene.send(&next, ToBackend::Retired { gpus: vec![GPU] });
    soon(scene.idle.wait_for(|idle| *idle)).await.unwrap();
    scene.events.send(IntakeEvent::Disconnected(next.connection)).ok().unwrap();
    assert!(*scene.idle.borrow(), "nor does anybody who has gone");
}

#[tokio::test]
async fn the_journal_has_every_promise_plan_and_execution_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let journal = Journal::open(&path, 1 << 20).unwrap();
    let mut scene = Scene::with_journal(emulated(), Some(journal));
    let mut leader = scene.linked().await;
    scene.send(&leader, ToBackend::Hello { node: NodeId::new(2), boot: BootId::new(20) });
    // One below the registration's token: asked for, not promised.
    scene.send(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, Token::new(9))] });
    scene.send(&leader, ToBackend::Seal { subcluster: SUBCLUSTER, gpus: vec![(GPU, TOKEN)] });
    scene.own(7, input(1, 1));
    scene.execute(&leader, Execute { token: Token::new(10), ..plan(1, Duration::ZERO, &[request(FRONTEND, 7, 1)]) });
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(FRONTEND, 7, 1), request(FRONTEND, 8, 1)]));
    while !matches!(leader.next().await, FromBackend::Done(_)) {}
    let give_up = Instant::now() + Duration::from_secs(30);
    let records: Vec<Record> = loop {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("\"ran\"") && text.ends_with('\n') {
            break text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        assert!(Instant::now() < give_up, "{text}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let [
        Record::Registered { boot: 5, token: 10, .. },
        Record::Sealed { node: 2, token: 9, promised: 10, .. },
        Record::Sealed { token: 11, promised: 11, .. },
        Record::Accepted { at_ns, gpu: 9, node: 2, token: 11, sequence: 1 },
        Record::Ran { gpu: 9, token: 11, sequence: 1, start_ns, end_ns, requests },
    ] = &records[..]
    else {
        panic!("{records:?}");
    };
    // ℓ(1) is 5 ms, counted from when its inputs were there; the clock may be off by some microseconds.
    assert!(at_ns <= start_ns && *end_ns >= start_ns + 4_000_000, "the batch took its profile's time: {records:?}");
    assert_eq!(*requests, [(FRONTEND.get(), 1, 7)], "the request without an input was not executed");
}
