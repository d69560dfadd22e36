//! Executors that break, devices that fail, models that go: what it costs, and which requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use symphony_executor::{
    BatchInputs, ExecuteError, ModelExecutor, OnnxExecutor, OnnxOptions, StagedExecutor, default_signature,
    load_runtime,
};
use symphony_executor_gpu::overlap::{DeviceError, FakeDevice, FakeFault, FakePace};
use symphony_executor_gpu::{Answers, StagedModel};
use symphony_protocol::execute::Execute;
use symphony_testkit::needed;
use symphony_types::{FailReason, ModelId};
use symphony_zoo::Fault;
use tokio::sync::mpsc;

use super::fakes::{InSteps, Meddled, Meddles};
use super::scene::{FRONTEND, ITEM_BYTES, MODEL, Scene, answer, input, plan, request, soon};
use crate::accepted_plan::UnloadGuard;
use crate::plan_intake::IntakeEvent;

/// Takes its time to give its memory back.
#[derive(Debug)]
struct SlowToGo {
    freed: Arc<AtomicBool>,
}

impl Meddles for SlowToGo {}

impl Drop for SlowToGo {
    fn drop(&mut self) {
        // Time enough for a word that does not wait to arrive.
        std::thread::sleep(Duration::from_millis(50));
        self.freed.store(true, Ordering::Release);
    }
}

#[tokio::test]
async fn a_model_has_gone_when_its_plans_have_run_and_its_memory_is_free() {
    let freed = Arc::new(AtomicBool::new(false));
    let mut scene = Scene::new(Meddled::with(SlowToGo { freed: Arc::clone(&freed) }));
    let (leader, _) = scene.sealed().await;
    scene.own(7, input(1, 1));
    scene.execute(&leader, plan(1, Duration::from_millis(30), &[request(FRONTEND, 7, 1)]));
    let (gone, mut has_gone) = mpsc::unbounded_channel();
    scene.events.send(IntakeEvent::Unloaded(Arc::new(UnloadGuard { model: MODEL, gone }))).ok().unwrap();
    assert_eq!(soon(has_gone.recv()).await, Some(MODEL));
    assert!(freed.load(Ordering::Acquire), "not before its memory is free");
    assert_eq!(scene.results.try_recv().unwrap().1.result.sequence, 7, "not before its plan has run");
}

/// Breaks on its first batch: panics, or answers with too little.
#[derive(Debug)]
struct Breaks {
    panics: bool,
    broken: bool,
}

impl Meddles for Breaks {
    fn run(
        &mut self,
        works: &mut dyn ModelExecutor,
        batch: &BatchInputs<'_>,
        outputs: &mut Vec<Vec<u8>>,
    ) -> Result<(), ExecuteError> {
        if std::mem::replace(&mut self.broken, true) {
            return works.run(batch, outputs);
        }
        assert!(!self.panics, "planted");
        *outputs = vec![vec![1]];
        Ok(())
    }
}

#[tokio::test]
async fn an_executor_that_breaks_fails_its_batch_and_the_gpu_goes_on() {
    for panics in [true, false] {
        let mut scene = Scene::new(Meddled::with(Breaks { panics, broken: false }));
        let (mut leader, _) = scene.sealed().await;
        scene.own(1, input(1, 1));
        scene.execute(&leader, plan(1, Duration::ZERO, &[request(FRONTEND, 1, 1)]));
        assert_eq!(scene.result().await, (1, Err(FailReason::ExecutionFailed)));
        assert_eq!(leader.done().await.sequence, 1);
        scene.execute(&leader, plan(2, Duration::ZERO, &[request(FRONTEND, 1, 1)]));
        assert_eq!(scene.result().await, (1, Ok(answer(1))));
    }
}

#[tokio::test]
async fn a_device_that_fails_costs_the_batch_and_nothing_else() {
    let full = DeviceError::OutOfMemory("2 MB asked for".into());
    let device = FakeDevice::new(&[ITEM_BYTES], FakePace::default(), 1).with_faults(vec![FakeFault::Compute(1, full)]);
    let model = StagedModel::new(device, "fake", default_signature(), 8, Answers::Checksums);
    let mut scene = Scene::new(Box::new(model));
    let (mut leader, _) = scene.sealed().await;
    for (sequence, fate) in [(1, true), (2, false), (3, true)] {
        scene.own(sequence, input(sequence as u8, 1));
        scene.execute(&leader, plan(sequence, Duration::ZERO, &[request(FRONTEND, sequence, 1)]));
        let expected = if fate { Ok(answer(sequence as u8)) } else { Err(FailReason::OutOfMemory) };
        assert_eq!(scene.result().await, (sequence, expected));
        assert_eq!(leader.done().await.failed.len(), usize::from(!fate));
    }
}

#[tokio::test]
async fn a_device_that_is_lost_is_told_apart_and_whoever_started_the_backend_hears_of_it() {
    let lost = DeviceError::Lost("an illegal address".into());
    let device = FakeDevice::new(&[ITEM_BYTES], FakePace::default(), 1).with_faults(vec![FakeFault::Compute(1, lost)]);
    let model = StagedModel::new(device, "fake", default_signature(), 8, Answers::Checksums);
    let mut scene = Scene::new(Box::new(model));
    let (mut leader, _) = scene.sealed().await;
    for (sequence, fate) in [(1, Ok(answer(1))), (2, Err(FailReason::GpuLost))] {
        scene.own(sequence, input(1, 1));
        scene.execute(&leader, plan(sequence, Duration::ZERO, &[request(FRONTEND, sequence, 1)]));
        assert_eq!(scene.result().await, (sequence, fate));
        assert_eq!(leader.done().await.sequence, sequence);
        assert_eq!(*scene.lost.borrow(), sequence > 1);
    }
}

/// A model on a device that panics once, after a step of its second batch was done in part.
#[derive(Debug)]
struct Panics {
    model: StagedModel<FakeDevice>,
    /// Which step, and how often it has yet to be called.
    step: &'static str,
    left: u32,
    resets: bool,
}

impl Panics {
    fn panic_in(&mut self, step: &str) {
        if self.step == step {
            self.left = self.left.wrapping_sub(1);
            assert!(self.left != 0, "planted");
        }
    }
}

impl StagedExecutor for Panics {
    fn stage(&mut self, batch: &BatchInputs<'_>) -> Result<(), ExecuteError> {
        self.model.stage(batch)?;
        self.panic_in("stage");
        Ok(())
    }

    fn staged(&self) -> usize {
        self.model.staged()
    }

    fn launch(&mut self) -> Result<(), ExecuteError> {
        self.model.launch()?;
        self.panic_in("launch");
        Ok(())
    }

    fn is_done(&mut self) -> Result<bool, ExecuteError> {
        self.model.is_done()
    }

    fn finish(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        self.panic_in("finish");
        self.model.finish(outputs)
    }

    fn reset(&mut self) {
        assert!(self.resets, "planted");
        self.model.reset();
    }
}

#[tokio::test]
async fn after_a_panic_every_batch_has_its_own_answer() {
    for step in ["stage", "launch", "finish"] {
        for resets in [true, false] {
            let device = FakeDevice::new(&[ITEM_BYTES], FakePace::default(), 1);
            let model = StagedModel::new(device, "fake", default_signature(), 8, Answers::Checksums);
            let mut scene = Scene::new(InSteps::of(Panics { model, step, left: 2, resets }));
            let (mut leader, _) = scene.sealed().await;
            for sequence in 1..=4 {
                scene.own(sequence, input(sequence as u8, 1));
                scene.execute(&leader, plan(sequence, Duration::ZERO, &[request(FRONTEND, sequence, 1)]));
                let expected = match sequence {
                    2 => Err(FailReason::ExecutionFailed),
                    3.. if !resets => Err(FailReason::ModelNotReady),
                    _ => Ok(answer(sequence as u8)),
                };
                assert_eq!(scene.result().await, (sequence, expected), "{step}, resets: {resets}");
                assert_eq!(leader.done().await.sequence, sequence);
            }
        }
    }
}

#[tokio::test]
async fn a_model_that_fails_when_it_runs_fails_its_requests_and_others_go_on() {
    let Some(runtime) = needed("onnxruntime", load_runtime(None)) else { return };
    let load = |fault: Fault| -> Box<dyn ModelExecutor> {
        let options = OnnxOptions { batch_max: 8, ..OnnxOptions::default() };
        Box::new(OnnxExecutor::from_memory(&runtime, "fault", fault.build().bytes(), &options).unwrap())
    };
    let numbers = |number: f32| Bytes::from(number.to_le_bytes().repeat(4));
    let other = ModelId::new(2);
    for (fault, reason) in [
        (Fault::IndexOutOfRange, FailReason::ExecutionFailed),
        (Fault::ReshapeMismatch, FailReason::ExecutionFailed),
        (Fault::OutputTooLong, FailReason::ExecutionFailed),
        (Fault::OutOfMemory, FailReason::OutOfMemory),
    ] {
        let mut scene = Scene::new(load(fault));
        // Square roots: it works.
        scene.events.send(IntakeEvent::Loaded(other, vec![load(Fault::NotANumber)])).ok().unwrap();
        let (mut leader, _) = scene.sealed().await;
        scene.own(1, numbers(9.0));
        scene.own(2, numbers(9.0));
        scene.execute(&leader, plan(1, Duration::ZERO, &[request(FRONTEND, 1, 1)]));
        scene.execute(&leader, Execute { model: other, ..plan(2, Duration::ZERO, &[request(FRONTEND, 2, 1)]) });
        assert_eq!(scene.result().await, (1, Err(reason)), "{fault:?}");
        assert_eq!(scene.result().await, (2, Ok(numbers(3.0))), "{fault:?}");
        assert_eq!((leader.done().await.failed.len(), leader.done().await.failed.len()), (1, 0), "{fault:?}");
    }
}
