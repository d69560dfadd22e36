//! Recorded inputs of decision objects, to be replayed.

use std::hint::black_box;

use symphony_scheduler::{GpuRanker, ModelActions, ModelInput, ModelQueue, RankActions, RankInput};
use symphony_types::Time;

use crate::VirtualHost;

/// Time before the recording: queues fill, and the rate is measured (it takes 50 ms until the first figure).
const WARM_UP_S: f64 = 0.5;

/// What a recording holds.
#[derive(Clone, Debug)]
pub struct Tapes {
    /// The model queues' part.
    pub model: ModelTape,
    /// The ranker's part.
    pub rank: RankTape,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that were planned.
    pub planned: u64,
    /// Batches they were planned in.
    pub batches: u64,
}

/// Model queues as they were when the recording began, and their inputs since.
#[derive(Clone, Debug)]
pub struct ModelTape {
    /// The queues.
    pub queues: Vec<ModelQueue>,
    pub(crate) inputs: Vec<(u32, Time, ModelInput)>,
}

/// The ranker as it was when the recording began, and its inputs since.
#[derive(Clone, Debug)]
pub struct RankTape {
    /// The ranker.
    pub ranker: GpuRanker,
    pub(crate) inputs: Vec<(Time, RankInput)>,
}

impl ModelTape {
    /// Number of inputs.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.inputs.len()
    }

    /// Tells `queues`, a copy of [`ModelTape::queues`], everything once more.
    pub fn replay(&self, queues: &mut [ModelQueue], actions: &mut ModelActions) {
        for &(model, now, input) in &self.inputs {
            actions.clear();
            queues[model as usize].step(now, input, actions);
            black_box(&*actions);
        }
    }
}

impl RankTape {
    /// Number of inputs.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.inputs.len()
    }

    /// Tells `ranker`, a copy of [`RankTape::ranker`], everything once more.
    pub fn replay(&self, ranker: &mut GpuRanker, actions: &mut RankActions) {
        for &(now, input) in &self.inputs {
            actions.clear();
            ranker.step(now, input, actions);
            black_box(&*actions);
        }
    }
}

/// Records `requests` requests of a cluster of `models` models and `gpus` GPUs of `classes` classes under `rate_rps` in
/// total.
#[must_use]
pub fn record(models: u32, gpus: u32, classes: usize, rate_rps: f64, requests: u64) -> Tapes {
    let mut host = VirtualHost::new(models, gpus, classes);
    host.serve((rate_rps * WARM_UP_S) as u64, rate_rps);
    host.tapes = Some(Tapes {
        model: ModelTape { queues: host.queues.clone(), inputs: Vec::new() },
        rank: RankTape { ranker: host.ranker.clone(), inputs: Vec::new() },
        requests,
        planned: 0,
        batches: 0,
    });
    host.serve(requests, rate_rps);
    host.tapes.expect("recording began")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_ends_where_the_recording_ended_and_the_load_is_that_of_table_4() {
        let tapes = record(1, 8, 1, 5_000.0, 10_000);
        let mean_batch = tapes.planned as f64 / tapes.batches as f64;
        assert!((10.0..17.0).contains(&mean_batch), "the paper's staggered batch is 16, got {mean_batch}");
        assert!(tapes.planned > 9_800, "{} of 10000 were planned", tapes.planned);

        // Queued requests are those that arrived and were neither planned nor dropped; a replay must leave as many.
        let mut host = VirtualHost::new(1, 8, 1);
        host.serve(2_500, 5_000.0);
        host.serve(10_000, 5_000.0);
        let mut queues = tapes.model.queues.clone();
        tapes.model.replay(&mut queues, &mut ModelActions::default());
        assert_eq!(queues[0].len(), host.queues[0].len());
        assert_eq!(queues[0].target_batch(), host.queues[0].target_batch());
        let mut ranker = tapes.rank.ranker.clone();
        tapes.rank.replay(&mut ranker, &mut RankActions::new());
        for gpu in 0..8 {
            let gpu = symphony_types::GpuId::new(gpu);
            assert_eq!(ranker.free_at(gpu), host.ranker.free_at(gpu));
        }
    }
}
