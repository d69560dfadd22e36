//! Plans: their start and end, and the inputs of their requests.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_executor::{BatchInputs, ExecuteError, ModelExecutor, Segment};
use symphony_protocol::execute::{Execute, FromBackend, HostedModel, PlannedRequest, Refusal};
use symphony_types::{FailReason, ModelId};
use tokio::sync::mpsc;

use super::fakes::{Meddled, Meddles, Sibling};
use super::scene::{FAR, FRONTEND, MODEL, SILENT, Scene, TOKEN, answer, emulated, input, plan, request};

use crate::accepted_plan::UnloadGuard;
use crate::gpu_time::GpuTime;
use crate::plan_intake::IntakeEvent;

#[tokio::test]
async fn a_plan_runs_when_its_inputs_are_there_and_its_end_is_reported() {
    let mut scene = Scene::new(emulated());
    let (mut leader, sealed) = scene.sealed().await;
    assert_eq!((sealed.free_in, sealed.in_flight), (0, vec![]));
    scene.own(7, input(1, 1));
    let begin = Instant::now();
    scene.execute(&leader, plan(1, FAR, &[request(FRONTEND, 7, 1)]));
    assert_eq!(scene.result().await, (7, Ok(answer(1))));
    // ℓ(1) is 5 ms.
    assert!((Duration::from_millis(5)..FAR).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    let done = leader.done().await;
    assert_eq!((done.sequence, done.token, done.free_in, done.failed), (1, TOKEN, 0, vec![]));
    assert_eq!(done.start_late, 0);
}

#[tokio::test]
async fn plans_of_two_models_run_one_after_the_other_and_each_takes_its_whole_time() {
    const OTHER: ModelId = ModelId::new(2);
    const PLANS: u64 = 10;
    let mut scene = Scene::new(emulated());
    scene.events.send(IntakeEvent::Loaded(OTHER, vec![emulated()])).ok().unwrap();
    let (mut leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    let begin = Instant::now();
    let in_turn = |sequence| {
        let model = if sequence % 2 == 0 { OTHER } else { MODEL };
        Execute { model, ..plan(sequence, FAR, &[request(FRONTEND, 7, 1)]) }
    };
    scene.execute(&leader, in_turn(1));
    for sequence in 1..=PLANS {
        // Its inputs come while the one before it runs.
        if sequence < PLANS {
            scene.execute(&leader, in_turn(sequence + 1));
        }
        let done = leader.done().await;
        assert_eq!((done.sequence, done.start_late), (sequence, 0));
        // ℓ(1) is 5 ms.
        assert!(done.latency >= 5_000_000, "{done:?}");
    }
    let took = begin.elapsed();
    assert!((Duration::from_millis(5 * PLANS)..FAR).contains(&took), "{took:?}");
}

#[tokio::test]
async fn the_end_of_a_plan_whose_inputs_are_there_is_told_from_now_however_late_its_start() {
    let mut scene = Scene::new(emulated());
    let (mut leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    // The first waits for its frontend until the inputs of the second have come.
    scene.execute(&leader, plan(1, FAR, &[request(SILENT, 7, 1)]));
    scene.execute(&leader, plan(2, FAR, &[request(FRONTEND, 7, 1)]));
    scene.answered(1).await;
    scene.frontends.silence.send_replace(false);
    let done = leader.done().await;
    assert_eq!((done.sequence, done.free_in), (1, 5_000_000));
    let done = leader.done().await;
    assert_eq!((done.sequence, done.free_in), (2, 0));
}

/// Looks for a gap while it runs.
#[derive(Debug)]
struct LooksForAGap {
    time: Arc<OnceLock<Arc<GpuTime>>>,
    found: Arc<Mutex<Vec<bool>>>,
}

impl Meddles for LooksForAGap {
    fn run(
        &mut self,
        executor: &mut dyn ModelExecutor,
        batch: &BatchInputs<'_>,
        outputs: &mut Vec<Vec<u8>>,
    ) -> Result<(), ExecuteError> {
        let found = self.time.get().unwrap().wait_for_gap(Duration::from_millis(1));
        self.found.lock().unwrap().push(found);
        executor.run(batch, outputs)
    }
}

#[tokio::test]
async fn the_batches_of_a_load_find_a_gap_before_and_after_plans_only() {
    const LONG: Duration = Duration::from_secs(60);
    let (time, found) = (Arc::default(), Arc::<Mutex<Vec<bool>>>::default());
    let looks = LooksForAGap { time: Arc::clone(&time), found: Arc::clone(&found) };
    let mut scene = Scene::new(Meddled::with(looks));
    time.set(Arc::clone(&scene.time)).unwrap();
    assert!(scene.time.wait_for_gap(LONG), "there is no plan yet");
    let (mut leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    for sequence in [1, 2] {
        scene.execute(&leader, plan(sequence, Duration::ZERO, &[request(FRONTEND, 7, 1)]));
    }
    assert_eq!((leader.done().await.sequence, leader.done().await.sequence), (1, 2));
    assert!(scene.time.wait_for_gap(LONG), "there is no plan any more");
    assert_eq!(*found.lock().unwrap(), [false, false]);
}

#[tokio::test]
async fn rows_of_models_that_share_no_trunk_here_are_a_batch_of_each_and_all_are_refused_if_one_is_not_loaded() {
    const OTHER: ModelId = ModelId::new(2);
    let mut scene = Scene::new(emulated());
    scene.events.send(IntakeEvent::Loaded(OTHER, vec![emulated()])).ok().unwrap();
    let (mut leader, _) = scene.sealed().await;
    for sequence in 1..=3 {
        scene.own(sequence, input(sequence as u8, 1));
    }
    let of = |model, sequence| PlannedRequest { model, ..request(FRONTEND, sequence, 1) };
    let own = ModelId::default();
    let begin = Instant::now();
    scene.execute(&leader, plan(1, FAR, &[of(own, 1), of(OTHER, 2), of(own, 3)]));
    let mut results = Vec::new();
    for _ in 1..=3 {
        results.push(scene.result().await);
    }
    results.sort_by_key(|&(sequence, _)| sequence);
    assert_eq!(results, [1, 2, 3].map(|sequence| (sequence, Ok(answer(sequence as u8)))));
    let done = leader.done().await;
    assert!(begin.elapsed() < FAR, "it waited for its start");
    // ℓ(2) and ℓ(1) are 6 and 5 ms, one after the other.
    assert!(done.failed.is_empty() && done.latency >= 10_900_000, "{done:?}");
    scene.execute(&leader, plan(2, Duration::ZERO, &[of(own, 1), of(ModelId::new(9), 2)]));
    assert_eq!(leader.refusal().await, (2, Refusal::ModelNotReady));
    scene.execute(&leader, plan(3, Duration::ZERO, &[of(own, 1)]));
    assert_eq!(leader.done().await.sequence, 3, "the sequence goes on");
}

#[tokio::test]
async fn rows_of_models_that_share_a_trunk_are_one_batch_and_leaders_are_told_who_shares() {
    const SISTER: ModelId = ModelId::new(2);
    const STRANGER: ModelId = ModelId::new(3);
    let ran = Arc::<Mutex<Vec<Vec<Segment>>>>::default();
    let mut scene = Scene::new(Sibling::sharing(&ran));
    for (model, executor) in [(SISTER, Sibling::sharing(&ran)), (STRANGER, emulated())] {
        scene.events.send(IntakeEvent::Loaded(model, vec![executor])).ok().unwrap();
    }
    let hosted = |models: &[ModelId]| {
        let trunk = 7_u128.to_be_bytes();
        let hosted = |&model| HostedModel { model, trunk_share: 900_000, suffix_share: 200_000, trunk };
        FromBackend::Hosts { models: models.iter().map(hosted).collect() }
    };
    let (mut leader, _) = scene.sealed().await;
    assert_eq!(leader.next().await, hosted(&[MODEL, SISTER]));
    for sequence in 1..=4 {
        scene.own(sequence, input(sequence as u8, 1));
    }
    let of = |model, sequence| PlannedRequest { model, ..request(FRONTEND, sequence, 1) };
    let own = ModelId::default();
    let gone = of(SISTER, 9);
    let rows = [of(own, 1), of(SISTER, 2), of(STRANGER, 3), gone, of(own, 4)];
    scene.execute(&leader, plan(1, Duration::ZERO, &rows));
    let mut results = Vec::new();
    for _ in rows {
        results.push(scene.result().await);
    }
    results.sort_by_key(|&(sequence, _)| sequence);
    let right = |sequence: u64| (sequence, Ok(answer(sequence as u8)));
    let expected = [right(1), right(2), right(3), right(4), (9, Err(FailReason::PayloadLost))];
    assert_eq!(results, expected);
    let segment = |model: ModelId| Segment { variant: model.get(), rows: 1 };
    assert_eq!(*ran.lock().unwrap(), [[MODEL, SISTER, MODEL].map(segment)]);
    assert_eq!(leader.done().await.failed, [(gone.id, FailReason::PayloadLost)]);

    let (signal, _gone) = mpsc::unbounded_channel();
    scene.events.send(IntakeEvent::Unloaded(Arc::new(UnloadGuard { model: SISTER, gone: signal }))).ok().unwrap();
    assert_eq!(leader.next().await, hosted(&[MODEL]));
}

#[tokio::test]
async fn a_request_without_a_whole_input_fails_alone() {
    let mut scene = Scene::new(emulated());
    let (mut leader, _) = scene.sealed().await;
    scene.own(1, input(1, 1));
    scene.own(3, input(3, 2));
    scene.own(4, Bytes::new());
    let requests = [
        request(FRONTEND, 1, 1),
        request(FRONTEND, 2, 1),        // has its outcome already
        request(FRONTEND, 3, 1),        // longer than one item
        request(FRONTEND, 4, 0),        // no item at all
        request(FRONTEND, 1, u32::MAX), // more items than there can be
        request(SILENT, 5, 1),          // its frontend hangs
    ];
    scene.execute(&leader, plan(1, Duration::ZERO, &requests));
    let mut results = Vec::new();
    for _ in &requests {
        results.push(scene.result().await);
    }
    results.sort_by_key(|(sequence, result)| (*sequence, result.is_err()));
    let lost = Err(FailReason::PayloadLost);
    let expected = [(1, Ok(answer(1)))]
        .into_iter()
        .chain([1, 2, 3, 4, 5].map(|sequence| (sequence, lost.clone())))
        .collect::<Vec<_>>();
    assert_eq!(results, expected);
    assert_eq!(leader.done().await.failed.len(), 5);
}

#[tokio::test]
async fn the_end_of_a_plan_behind_a_late_one_is_told_from_now() {
    let mut scene = Scene::new(emulated());
    let (mut leader, _) = scene.sealed().await;
    // The first waits 100 ms for a frontend that hangs; the second was planned for 5 ms from now, and will take 5.
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(SILENT, 1, 1)]));
    scene.execute(&leader, plan(2, Duration::from_millis(5), &[request(SILENT, 2, 1)]));
    let done = leader.done().await;
    assert_eq!((done.sequence, done.free_in), (1, 5_000_000));
}

#[tokio::test]
async fn a_plan_begins_at_its_start_if_it_misses_only_inputs_of_a_frontend_that_was_waited_for_in_vain() {
    const START_IN: Duration = Duration::from_millis(200);
    let mut scene = Scene::new(emulated());
    let (mut leader, _) = scene.sealed().await;
    scene.own(1, input(1, 1));
    let requests = [request(FRONTEND, 1, 1), request(SILENT, 1, 1)];
    scene.execute(&leader, plan(1, Duration::ZERO, &requests));
    leader.done().await;
    let begin = Instant::now();
    scene.execute(&leader, plan(2, START_IN, &requests));
    let done = leader.done().await;
    assert!(begin.elapsed() >= START_IN, "it began before, and its input might yet have come: {done:?}");
    assert_eq!(done.failed, [(requests[1].id, FailReason::PayloadLost)]);
}

/// Otherwise, while a frontend is unreachable for backends, each batch with one of its requests starts 100 ms late for
/// all others in it.
#[tokio::test]
async fn a_frontend_that_was_waited_for_in_vain_is_not_waited_for_again_until_an_input_of_it_comes() {
    const LATE_MAX_NS: u64 = 100_000_000;
    let mut scene = Scene::new(emulated());
    let (mut leader, _) = scene.sealed().await;
    scene.own(1, input(1, 1));
    let requests = [request(FRONTEND, 1, 1), request(SILENT, 1, 1)];
    let lost = [(requests[1].id, FailReason::PayloadLost)];
    scene.execute(&leader, plan(1, Duration::ZERO, &requests));
    let done = leader.done().await;
    assert!(done.start_late >= LATE_MAX_NS && done.failed == lost, "{done:?}");

    // A stalled machine starts late as well, but not each time.
    let mut soonest = u64::MAX;
    for sequence in 2..10 {
        scene.execute(&leader, plan(sequence, Duration::from_millis(5), &requests));
        let done = leader.done().await;
        assert_eq!(done.failed, lost);
        soonest = soonest.min(done.start_late);
    }
    assert!(soonest < LATE_MAX_NS / 2, "{soonest} ns");

    // An earlier request's input arrives, and the frontend is waited for again.
    scene.frontends.silence.send_replace(false);
    scene.execute(&leader, plan(10, Duration::from_millis(50), &requests));
    assert_eq!(leader.done().await.failed, []);
    scene.frontends.silence.send_replace(true);
    scene.execute(&leader, plan(11, Duration::ZERO, &requests));
    let done = leader.done().await;
    assert!(done.start_late >= LATE_MAX_NS && done.failed == lost, "{done:?}");
}
