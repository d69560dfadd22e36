//! What a stress run does.

use std::time::Duration;

use symphony_scheduler::{Delays, ModelQueueConfig, Policy, QUEUE_REQUESTS_MAX};
use symphony_types::{LatencyProfile, Nanos};

/// One run at one rate.
#[derive(Clone, Debug)]
pub struct StressPlan {
    /// Models, equally popular.
    pub models: u32,
    /// GPUs of all backends together.
    pub gpus: u32,
    /// Model threads beside the rank thread; 0 runs both kinds of worker on one thread.
    pub model_threads: u32,
    /// Requests per second in total; arrivals are Poisson.
    pub rate_rps: f64,
    /// How long what is sent counts.
    pub duration: Duration,
    /// How long requests are sent before that.
    pub warmup: Duration,
    /// ℓ(b) = α·b + β, in milliseconds.
    pub alpha_ms: f64,
    /// See `alpha_ms`.
    pub beta_ms: f64,
    /// The largest batch.
    pub batch_max: u32,
    /// The SLO of every model.
    pub slo: Nanos,
    /// What of it the path takes.
    pub delays: Delays,
    /// Requests that fall due within this go out as one frame, as a frontend's link sends them.
    pub frame: Nanos,
    /// A request that is taken in later than this after its time fails the run.
    pub lag_max: Nanos,
    /// More bad requests than this share fail the run: a scheduler that drops everything is fast.
    pub bad_max: f64,
    /// GPUs never end what they were given: after two plans each nothing runs any more, and requests gather.
    pub hang: bool,
    /// Nothing is recorded for explanations: to measure what that costs.
    pub no_recorder: bool,
    /// Decision threads spin instead of sleeping.
    pub spin: bool,
    /// Decision threads are bound to cores, from this one on; the generator to the core before it.
    pub first_core: Option<usize>,
    /// Seed of the arrivals.
    pub seed: u64,
}

impl StressPlan {
    /// The configuration of each model.
    ///
    /// # Errors
    /// If the profile is invalid.
    pub fn model(&self) -> Result<ModelQueueConfig, symphony_types::ProfileError> {
        Ok(ModelQueueConfig {
            profiles: LatencyProfile::from_line(self.alpha_ms, self.beta_ms, self.batch_max)?.into(),
            slo: self.slo,
            policy: Policy::SYMPHONY,
            delays: self.delays,
            requests_max: QUEUE_REQUESTS_MAX,
        })
    }
}
