//! Finds GPUs that are slower than their peers or fail where their peers do not, sets them aside, and tries them again.

use std::collections::BTreeMap;

use symphony_types::{GpuId, ModelId, Nanos, Time};

use crate::failures::{self, UsualFailures};

/// The most models whose usual time is remembered: the limit of one rank worker.
const MODELS_MAX: usize = 1 << 16;
/// The number of batches after which a model's usual time is trusted.
const MODEL_BATCHES_MIN: u32 = 32;
/// The step by which one batch moves a trusted usual time, as a logarithm: two percent.
const USUAL_STEP: f64 = 0.02;
/// One batch counts at most this many times the slowdown searched for: a pause does not mean a sick GPU.
const BATCH_COUNTS_MAX: f64 = 2.0;
/// Logarithms of real over expected time are clamped to ±4, a factor of e⁴ ≈ 55.
const LOG_MAX: f64 = 4.0;
/// A GPU with this share of the sufficient evidence is a suspect: after three or four batches at the slowdown searched
/// for.
const SUSPECT_AT: f64 = 0.25;
/// Only GPUs that ran within this time serve as peers.
const PEER_RAN_WITHIN: Nanos = Nanos::from_millis(60_000);
/// The number of times that the pause doubles at most.
const DOUBLINGS_MAX: u32 = 20;

/// A ratio to its peers' times. GPUs of one kind differ by less, by clocks and temperature; one that is slower makes
/// batches late.
const SLOW_FACTOR: f64 = 1.2;
/// As the sum of logarithms above half of the slowdown: a GPU that is 1.5 times slower is found in 11 batches; a sound
/// GPU with noise of 5 % is mistaken for it once in e²⁰⁰ batches, with 20 % once in e¹³.
const EVIDENCE: f64 = 3.0;
/// A share of the GPUs of a kind: the others hold the load, and most peers are sound.
const SHARE_MAX: f64 = 0.25;
/// A passing cause, such as another program, is often over by then.
const PAUSE: Nanos = Nanos::from_millis(30_000);
/// The longest pause of a GPU that is set aside again and again: one that was repaired comes back within an hour.
pub const QUARANTINE_MAX: Nanos = Nanos::from_millis(3_600_000);
/// More than four times the batches that find a GPU which is 1.5 times slower.
const TRIAL_BATCHES: u32 = 50;
/// As long as the longest pause: what was sick before is another matter.
const FORGIVEN_AFTER: Nanos = QUARANTINE_MAX;

/// Settings of the search for stragglers.
#[derive(Clone, Debug, PartialEq)]
pub struct StragglerSettings {
    /// The slowdown searched for: a GPU that takes this many times as long as its peers is too slow.
    pub slow_factor: f64,
    /// Sufficient evidence, as the sum of logarithms above half of the slowdown.
    pub evidence: f64,
    /// At most this share of the GPUs is set aside at once, rounded down.
    pub share_max: f64,
    /// The first pause of a GPU; each further one is twice as long.
    pub pause: Nanos,
    /// The longest pause.
    pub pause_max: Nanos,
    /// The number of batches on trial that a GPU must run like its peers.
    pub trial_batches: u32,
    /// After serving this long since its trial, a GPU starts with the first pause again.
    pub forgiven_after: Nanos,
}

impl Default for StragglerSettings {
    fn default() -> Self {
        Self {
            slow_factor: SLOW_FACTOR,
            evidence: EVIDENCE,
            share_max: SHARE_MAX,
            pause: PAUSE,
            pause_max: QUARANTINE_MAX,
            trial_batches: TRIAL_BATCHES,
            forgiven_after: FORGIVEN_AFTER,
        }
    }
}

/// Whether a GPU may be granted, and how it is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuState {
    /// In use.
    Serving,
    /// Set aside until this time.
    Quarantined(Time),
    /// In use on trial, with this many batches left.
    OnTrial(u32),
}

/// An instruction about a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quarantine {
    /// Set it aside.
    Out {
        /// The GPU that is too slow, or whose batches fail.
        gpu: GpuId,
        /// Slowdown of its batches relative to the usual time, failed ones left out.
        slowdown: f64,
        /// Number of failed batches.
        failed: u32,
        /// When its trial starts.
        until: Time,
    },
    /// Use it again, on trial.
    Try(GpuId),
    /// It runs like its peers again: the trial is over, nothing is to be done.
    Passed(GpuId),
}

/// The usual time of a model: the logarithm of real over expected time, near its median over all peers.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    log: f64,
    batches: u32,
}

#[derive(Clone, Copy, Debug)]
struct Gpu {
    state: GpuState,
    /// Evidence that the GPU is slow: grows with slow batches, shrinks to zero with others (CUSUM).
    evidence: f64,
    /// Sum and number of the logarithmic slowdowns since the evidence was zero.
    slow: (f64, u32),
    /// Evidence (CUSUM as well) that the GPU fails where its peers do not, and the failures since that was zero.
    failing: (f64, u32),
    ran_at: Option<Time>,
    times_out: u32,
    /// When its last trial was passed.
    passed_at: Option<Time>,
}

impl Gpu {
    /// Discards the evidence against the GPU.
    const fn begin_anew(&mut self) {
        (self.evidence, self.slow, self.failing) = (0.0, (0.0, 0), (0.0, 0));
    }
}

/// Watches the GPUs of one kind in a sub-cluster; they run the same models and are therefore comparable.
///
/// Only differences between peers count: if a model becomes slower on all of them, its usual time follows; if all GPUs
/// are slow at once, none is blamed. A GPU that alone runs a model defines that model's usual time.
#[derive(Clone, Debug)]
pub struct Stragglers {
    settings: StragglerSettings,
    usual: BTreeMap<ModelId, Usual>,
    failures: UsualFailures,
    gpus: BTreeMap<GpuId, Gpu>,
}

impl Stragglers {
    /// Without GPUs. Settings out of range are replaced by the nearest valid value: a factor above 1, a share of at
    /// most one.
    #[must_use]
    pub fn new(settings: StragglerSettings) -> Self {
        let slow_factor = if settings.slow_factor > 1.01 { settings.slow_factor } else { 1.01 };
        let share_max = if settings.share_max.is_nan() { 0.0 } else { settings.share_max.clamp(0.0, 1.0) };
        let settings = StragglerSettings { slow_factor, share_max, ..settings };
        Self { settings, usual: BTreeMap::new(), failures: UsualFailures::default(), gpus: BTreeMap::new() }
    }

    /// A GPU of this kind is now in use.
    pub fn add(&mut self, gpu: GpuId) {
        let new = Gpu {
            state: GpuState::Serving,
            evidence: 0.0,
            slow: (0.0, 0),
            failing: (0.0, 0),
            ran_at: None,
            times_out: 0,
            passed_at: None,
        };
        self.gpus.entry(gpu).or_insert(new);
    }

    /// A GPU is removed. If fewer may now be set aside, others start their trials.
    pub fn remove(&mut self, gpu: GpuId) -> Vec<Quarantine> {
        self.gpus.remove(&gpu);
        let mut tries = Vec::new();
        while self.quarantined() > self.quarantined_max() {
            let out = self.gpus.iter().filter_map(|(&gpu, known)| match known.state {
                GpuState::Quarantined(until) => Some((until, gpu)),
                _ => None,
            });
            let Some((_, soonest)) = out.min() else { break };
            tries.push(self.try_again(soonest));
        }
        tries
    }

    /// A model is gone.
    pub fn forget(&mut self, model: ModelId) {
        self.usual.remove(&model);
    }

    /// The state of a GPU; `None` if it is unknown.
    #[must_use]
    pub fn state(&self, gpu: GpuId) -> Option<GpuState> {
        self.gpus.get(&gpu).map(|known| known.state)
    }

    /// Whether a GPU is under suspicion or on trial, so that its measurements should not enter profiles. A GPU that
    /// could not be set aside anyway is no suspect.
    #[must_use]
    pub fn is_suspect(&self, gpu: GpuId) -> bool {
        let Some(known) = self.gpus.get(&gpu) else { return true };
        match known.state {
            GpuState::Serving => self.quarantined_max() > 0 && known.evidence >= SUSPECT_AT * self.settings.evidence,
            GpuState::Quarantined(_) | GpuState::OnTrial(_) => true,
        }
    }

    /// The number of GPUs set aside.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.gpus.values().filter(|gpu| matches!(gpu.state, GpuState::Quarantined(_))).count()
    }

    /// The number of GPUs that may be set aside at once.
    #[must_use]
    pub fn quarantined_max(&self) -> usize {
        (self.settings.share_max * self.gpus.len() as f64).floor() as usize
    }

    /// Starts the trials of GPUs whose pause is over.
    pub fn tick(&mut self, now: Time) -> Vec<Quarantine> {
        let due = |known: &Gpu| matches!(known.state, GpuState::Quarantined(until) if until <= now);
        let due: Vec<_> = self.gpus.iter().filter(|(_, known)| due(known)).map(|(&gpu, _)| gpu).collect();
        due.into_iter().map(|gpu| self.try_again(gpu)).collect()
    }

    /// A batch of the model took `took` on a GPU instead of `expected`. Ignored for unknown GPUs and for GPUs that are
    /// set aside and finish their remaining batches.
    pub fn ran(&mut self, now: Time, gpu: GpuId, model: ModelId, expected: Nanos, took: Nanos) -> Option<Quarantine> {
        let state = self.gpus.get(&gpu)?.state;
        if matches!(state, GpuState::Quarantined(_)) || expected == Nanos::ZERO || took == Nanos::ZERO {
            return None;
        }
        let failing = self.failures.ended(false);
        if let Some(known) = self.gpus.get_mut(&gpu) {
            let evidence = (known.failing.0 + failing).max(0.0);
            known.failing = (evidence, if evidence > 0.0 { known.failing.1 } else { 0 });
        }
        let log = (took.get() as f64 / expected.get() as f64).ln().clamp(-LOG_MAX, LOG_MAX);
        let slower = self.compare(model, log, state)?;
        let (slow, evidence) = (self.settings.slow_factor.ln(), self.settings.evidence);
        let known = self.gpus.get_mut(&gpu)?;
        known.ran_at = Some(now);
        let counted = slower.clamp(-BATCH_COUNTS_MAX * slow, BATCH_COUNTS_MAX * slow);
        // Half of the slowdown: there a batch is equally likely from a slow GPU and from a sound one.
        known.evidence = (known.evidence + counted - slow / 2.0).clamp(0.0, 2.0 * evidence);
        known.slow = if known.evidence > 0.0 { (known.slow.0 + slower, known.slow.1 + 1) } else { (0.0, 0) };
        // A GPU that was slow before needs less evidence.
        let enough = if matches!(state, GpuState::OnTrial(_)) { evidence / 2.0 } else { evidence };
        if known.evidence >= enough {
            return self.consider_quarantine(now, gpu, |known| known.evidence / enough);
        }
        if let GpuState::OnTrial(left) = known.state {
            known.state = GpuState::OnTrial(left.saturating_sub(1));
            if left <= 1 {
                known.state = GpuState::Serving;
                known.passed_at = Some(now);
                return Some(Quarantine::Passed(gpu));
            }
        }
        None
    }

    /// The executor reports that a whole batch failed. A failure frees its GPU at once for the next batch; but if peers
    /// fail as often, the model or a client is at fault.
    pub fn failed(&mut self, now: Time, gpu: GpuId) -> Option<Quarantine> {
        let state = self.gpus.get(&gpu)?.state;
        if matches!(state, GpuState::Quarantined(_)) {
            return None;
        }
        let failing = self.failures.ended(true);
        let enough = if matches!(state, GpuState::OnTrial(_)) { failures::ENOUGH / 2.0 } else { failures::ENOUGH };
        let known = self.gpus.get_mut(&gpu)?;
        known.ran_at = Some(now);
        known.failing =
            ((known.failing.0 + failing).clamp(0.0, 2.0 * failures::ENOUGH), known.failing.1.saturating_add(1));
        if known.failing.0 >= enough {
            self.consider_quarantine(now, gpu, |known| known.failing.0 / enough)
        } else {
            None
        }
    }

    /// The logarithmic slowdown relative to the usual time, which it also updates; `None` until the usual time is
    /// trusted.
    fn compare(&mut self, model: ModelId, log: f64, state: GpuState) -> Option<f64> {
        if !self.usual.contains_key(&model) && self.usual.len() >= MODELS_MAX {
            return None;
        }
        let usual = self.usual.entry(model).or_default();
        let slower = log - usual.log;
        let trusted = usual.batches >= MODEL_BATCHES_MIN;
        if state == GpuState::Serving {
            usual.batches = usual.batches.saturating_add(1);
            // The mean of the first batches, then small steps towards the median, which a few slow GPUs hardly move.
            usual.log += if trusted {
                USUAL_STEP * (slower / USUAL_STEP).clamp(-1.0, 1.0)
            } else {
                slower / f64::from(usual.batches)
            };
        }
        trusted.then_some(slower)
    }

    /// Handles sufficient evidence against a GPU. It is set aside if its peers have less evidence, relative to what
    /// suffices, and not too many are set aside already.
    fn consider_quarantine(&mut self, now: Time, gpu: GpuId, evidence: impl Fn(&Gpu) -> f64) -> Option<Quarantine> {
        if self.quarantined() >= self.quarantined_max() {
            return None;
        }
        let ran = |known: &Gpu| known.ran_at.is_some_and(|at| now.since(at) < PEER_RAN_WITHIN);
        let peer = |&(&other, known): &(&GpuId, &Gpu)| other != gpu && known.state == GpuState::Serving && ran(known);
        let mut peers: Vec<f64> = self.gpus.iter().filter(peer).map(|(_, known)| evidence(known)).collect();
        peers.sort_unstable_by(f64::total_cmp);
        // No peers, or all are slow: the cause is something else, and all evidence is discarded.
        if peers.get(peers.len() / 2).is_none_or(|&median| median >= 0.5) {
            self.gpus.values_mut().for_each(Gpu::begin_anew);
            return None;
        }
        let known = self.gpus.get_mut(&gpu)?;
        if known.passed_at.is_some_and(|at| now.since(at) >= self.settings.forgiven_after) {
            known.times_out = 0;
        }
        let pause = self.settings.pause.saturating_mul(1 << known.times_out.min(DOUBLINGS_MAX));
        let until = now + pause.min(self.settings.pause_max);
        let slowdown = (known.slow.0 / f64::from(known.slow.1.max(1))).exp();
        known.times_out = known.times_out.saturating_add(1);
        known.state = GpuState::Quarantined(until);
        let failed = known.failing.1;
        known.begin_anew();
        Some(Quarantine::Out { gpu, slowdown, failed, until })
    }

    fn try_again(&mut self, gpu: GpuId) -> Quarantine {
        if let Some(known) = self.gpus.get_mut(&gpu) {
            known.state = GpuState::OnTrial(self.settings.trial_batches.max(1));
        }
        Quarantine::Try(gpu)
    }
}
