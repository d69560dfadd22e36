//! The real outcomes of the requests on the tapes, as far as their lead knew.

use std::collections::BTreeMap;

use symphony_paper::{ComparedModel, ComparedRun};
use symphony_tape::{RecordedLoad, RecordedOutcome};
use symphony_types::Nanos;
use symphony_workload::Window;

/// Its name among the policies.
const NAME: &str = "recorded";

/// The row beside the simulated ones.
pub(super) struct Recorded {
    pub(super) run: ComparedRun,
    /// Requests that their clients withdrew.
    pub(super) cancelled: u64,
    /// Requests whose outcome is not on the tapes.
    pub(super) unknown: u64,
}

/// Of one model's name.
#[derive(Default)]
struct Tally {
    offered: u64,
    good: u64,
    late: u64,
    dropped: u64,
    cancelled: u64,
    unknown: u64,
    /// Of those that ran.
    took: Vec<Nanos>,
}

impl Tally {
    fn add(&mut self, slo: Nanos, outcome: RecordedOutcome) {
        self.offered += 1;
        match outcome {
            RecordedOutcome::Ran(took) => {
                self.took.push(took);
                if took <= slo { self.good += 1 } else { self.late += 1 }
            }
            RecordedOutcome::Dropped => self.dropped += 1,
            RecordedOutcome::Cancelled => self.cancelled += 1,
            RecordedOutcome::Unknown => self.unknown += 1,
        }
    }

    fn model(mut self, name: &str) -> ComparedModel {
        self.took.sort_unstable();
        let ended = self.took.len() as f64 + self.dropped as f64;
        // The latency of a dropped request is infinite, as in the simulated rows.
        let quantile = |share: f64| {
            let rank = (share * ended).ceil().max(1.0) as usize;
            self.took.get(rank - 1).map(|took| took.as_millis_f64())
        };
        ComparedModel {
            name: name.to_owned(),
            offered: self.offered,
            good: self.good,
            late: self.late,
            dropped: self.dropped,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
        }
    }
}

/// The requests that arrived in the window, and the batches that began in it, on `gpus` GPUs, which is zero if their
/// number is not on the tapes. `lasts`: the time of which GPUs were used a share, as in the simulated runs.
pub(super) fn recorded(load: &RecordedLoad, window: Window, gpus: u32, lasts: Nanos) -> Option<Recorded> {
    let begin = load.begin()?;
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut ran = Nanos::ZERO;
    for model in load.models().values() {
        for request in model.requests.iter().filter(|request| window.holds(request.at.since(begin))) {
            tallies.entry(&model.name).or_default().add(request.slo, request.outcome);
        }
        let began = model.batches.iter().filter(|batch| window.holds(batch.start.since(begin)));
        began.for_each(|batch| ran += batch.took);
    }
    let sum = |of: fn(&Tally) -> u64| tallies.values().map(of).sum::<u64>();
    let (offered, good, late) = (sum(|tally| tally.offered), sum(|tally| tally.good), sum(|tally| tally.late));
    let (dropped, cancelled) = (sum(|tally| tally.dropped), sum(|tally| tally.cancelled));
    let unknown = sum(|tally| tally.unknown);
    let (gpu_s, there_s) = (ran.as_secs_f64(), f64::from(gpus) * lasts.as_secs_f64());
    let gpu_utilization = if there_s > 0.0 { gpu_s / there_s } else { 0.0 };
    let models = tallies.into_iter().map(|(name, tally)| tally.model(name)).collect();
    let policy = NAME.to_owned();
    let run = ComparedRun { policy, gpus, offered, good, late, dropped, gpu_s, gpu_utilization, models };
    Some(Recorded { run, cancelled, unknown })
}

#[cfg(test)]
mod tests {
    use symphony_scheduler::{ModelAction, ModelActions, ModelInput, ModelQueueConfig, Plan, Policy, Request};
    use symphony_tape::{Chunk, Tape, TapeHeader, TapeOrigin};
    use symphony_types::{BootId, FrontendId, GpuId, LatencyProfile, ModelId, RequestId, RequestValue, Time};

    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(7) + Nanos::from_millis(ms)
    }

    fn request(sequence: u64) -> Request {
        let id = RequestId { frontend: FrontendId::new(1), boot: BootId::new(1), sequence };
        let deadline = at(sequence) + Nanos::from_millis(30);
        Request { id, deadline, items: 1, weight: RequestValue::ONE, variant: 0 }
    }

    /// Requests 0 to 3 arrive at the milliseconds of their numbers; 1 and 2 run, of which the second is late, and 3
    /// is withdrawn.
    fn load() -> RecordedLoad {
        let mut chunk = Chunk::with_capacity(0);
        let config = ModelQueueConfig {
            profiles: LatencyProfile::from_line(1.0, 5.0, 16).unwrap().into(),
            slo: Nanos::from_millis(30),
            policy: Policy::AUTO,
            delays: symphony_scheduler::Delays::default(),
            requests_max: 8,
        };
        chunk.model(0, ModelId::new(7), "m", 0, &config);
        for sequence in 0..4 {
            chunk.model_step(0, at(sequence), &ModelInput::Arrive(request(sequence)), &ModelActions::default());
        }
        for (sequence, ends_ms) in [(1, 21), (2, 52)] {
            let (start, took) = (at(ends_ms - 10), Nanos::from_millis(10));
            let plan = Plan {
                gpu: GpuId::new(0),
                start,
                end: start + took,
                batch: 1,
                must_end_by: Time::NEVER,
                first: 0,
                requests: 1,
                why: None,
            };
            let orders = ModelActions { list: vec![ModelAction::Execute(plan)], planned: vec![request(sequence)] };
            chunk.model_step(0, start, &ModelInput::Wake, &orders);
            let done = ModelInput::Done { start_late: Nanos::ZERO, latency: took, predicted: took };
            chunk.model_step(0, at(ends_ms), &done, &ModelActions::default());
        }
        chunk.model_step(0, at(53), &ModelInput::Cancel(request(3).id), &ModelActions::default());
        let mut bytes = TapeHeader { origin: TapeOrigin::default(), worker: "decide".into() }.to_bytes();
        bytes.extend_from_slice(chunk.seal());
        let mut load = RecordedLoad::default();
        load.add(&Tape::open(&bytes).unwrap()).unwrap();
        load
    }

    #[test]
    fn the_recorded_hour_is_counted_as_the_simulated_ones_are() {
        let found = recorded(&load(), Window::ALL, 2, Nanos::from_millis(100)).unwrap();
        let ComparedRun { policy, gpus, offered, good, late, dropped, gpu_s, gpu_utilization, models } = found.run;
        assert_eq!((policy.as_str(), gpus, offered), ("recorded", 2, 4));
        assert_eq!((good, late, dropped, found.cancelled, found.unknown), (1, 1, 0, 1, 1));
        assert!((gpu_s - 0.02).abs() < 1e-12 && (gpu_utilization - 0.1).abs() < 1e-12, "{gpu_s} {gpu_utilization}");
        assert_eq!((models.len(), models[0].p50_ms, models[0].p99_ms), (1, Some(20.0), Some(50.0)));
    }

    #[test]
    fn a_part_of_it_has_the_requests_that_arrived_and_the_batches_that_began_in_it() {
        let window = Window { from: Nanos::from_millis(1), span: Some(Nanos::from_millis(11)) };
        let found = recorded(&load(), window, 0, Nanos::from_millis(11)).unwrap();
        assert_eq!((found.run.offered, found.run.good, found.run.late, found.unknown), (3, 1, 1, 0));
        assert!((found.run.gpu_s - 0.01).abs() < 1e-12, "{}", found.run.gpu_s);
        assert_eq!(found.run.gpu_utilization, 0.0, "of how many GPUs is not known");
        assert!(recorded(&RecordedLoad::default(), Window::ALL, 1, Nanos::ZERO).is_none());
    }

    #[test]
    fn what_was_dropped_took_for_ever() {
        let mut tally = Tally::default();
        for _ in 0..98 {
            tally.add(Nanos::from_millis(9), RecordedOutcome::Ran(Nanos::from_millis(7)));
        }
        tally.add(Nanos::from_millis(9), RecordedOutcome::Dropped);
        tally.add(Nanos::from_millis(9), RecordedOutcome::Dropped);
        let model = tally.model("m");
        assert_eq!((model.good, model.dropped, model.p50_ms, model.p99_ms), (98, 2, Some(7.0), None));
    }
}
