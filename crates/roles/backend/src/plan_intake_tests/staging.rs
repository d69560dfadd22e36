//! Executors that run in steps: when the next plan is staged.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use symphony_executor::{BatchInputs, ExecuteError, StagedExecutor, item_checksum};

use super::fakes::InSteps;
use super::scene::{FAR, FRONTEND, ITEM_BYTES, Scene, answer, input, plan, request};

/// Records its calls, and reports the end of a batch only after the next one is staged.
#[derive(Debug)]
struct Steps {
    done: Arc<Mutex<Vec<String>>>,
    staged: Vec<(u32, Vec<u8>)>,
    launched: Option<(u32, Vec<u8>)>,
    stages: u32,
    /// Whether the first attempt to stage the second batch fails.
    refuses: bool,
}

impl Steps {
    fn new(refuses: bool) -> (Self, Arc<Mutex<Vec<String>>>) {
        let done = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&done);
        (Self { done, staged: Vec::new(), launched: None, stages: 0, refuses }, kept)
    }

    fn record(&self, what: String) {
        self.done.lock().unwrap().push(what);
    }
}

impl StagedExecutor for Steps {
    fn stage(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError> {
        self.stages += 1;
        if batch.start.is_none_or(|start| start > Instant::now()) {
            self.record("planned start".into());
        }
        if self.stages == 2 && self.refuses {
            self.record("refuse".into());
            return Err(ExecuteError::Failed { items: batch.items, reason: "no room".into() });
        }
        self.record(format!("stage {}", batch.items));
        self.staged.push((batch.items, batch.tensors[0].to_vec()));
        Ok(())
    }

    fn staged(&self) -> usize {
        self.staged.len()
    }

    fn launch(&mut self) -> Result<(), ExecuteError> {
        let batch = self.staged.remove(0);
        self.record(format!("launch {}", batch.0));
        self.launched = Some(batch);
        Ok(())
    }

    fn is_done(&mut self) -> Result<bool, ExecuteError> {
        Ok(self.stages >= 2)
    }

    fn reset(&mut self) {
        unreachable!("nothing panics")
    }

    fn finish(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        let (items, input) = self.launched.take().unwrap();
        self.record(format!("finish {items}"));
        let answers = input.chunks(ITEM_BYTES).flat_map(|item| item_checksum([item]).to_le_bytes());
        *outputs = vec![answers.collect()];
        Ok(())
    }
}

#[tokio::test]
async fn the_next_plan_is_staged_while_one_runs_and_neither_waits_for_its_start() {
    let (steps, done) = Steps::new(false);
    let mut scene = Scene::new(InSteps::of(steps));
    let (mut leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    scene.own(8, input(2, 2));
    let begin = Instant::now();
    scene.execute(&leader, plan(1, FAR, &[request(FRONTEND, 7, 1)]));
    scene.execute(&leader, plan(2, FAR, &[request(FRONTEND, 8, 2)]));
    assert_eq!(scene.result().await, (7, Ok(answer(1))));
    let (second, answers) = scene.result().await;
    assert_eq!((second, answers.unwrap().len()), (8, 8));
    assert_eq!((leader.done().await.sequence, leader.done().await.sequence), (1, 2));
    assert!(begin.elapsed() < FAR);
    let done = done.lock().unwrap().clone();
    assert_eq!(done, ["stage 1", "launch 1", "stage 2", "finish 1", "launch 2", "finish 2"]);
}

#[tokio::test]
async fn a_plan_that_could_not_be_staged_ahead_is_staged_in_its_turn() {
    let (steps, done) = Steps::new(true);
    let mut scene = Scene::new(InSteps::of(steps));
    let (leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    scene.own(8, input(2, 2));
    scene.execute(&leader, plan(1, Duration::ZERO, &[request(FRONTEND, 7, 1)]));
    scene.execute(&leader, plan(2, Duration::from_millis(1), &[request(FRONTEND, 8, 2)]));
    assert!(scene.result().await.1.is_ok() && scene.result().await.1.is_ok());
    let done = done.lock().unwrap().clone();
    assert_eq!(done, ["stage 1", "launch 1", "refuse", "finish 1", "stage 2", "launch 2", "finish 2"]);
}
