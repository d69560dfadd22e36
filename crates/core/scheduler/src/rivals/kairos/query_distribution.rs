//! Kairos's query distribution.

use std::sync::Arc;

use symphony_types::{GpuClass, GpuId, Nanos, Time};

use super::forecast::Forecast;
use super::line::{Line, LineOrder};
use super::matcher::{Matcher, Weights};
use crate::cluster::facts::ClusterFacts;
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterActions, ClusterInput, ClusterPolicy};
use crate::rivals::cluster::Cluster;
use crate::rivals::gpu_book::GpuBook;

/// The most plans of a GPU: the running one and the one that is on its way to follow it.
const PLANS_MAX: u32 = 2;

/// What the operator chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KairosSettings {
    /// Whether matching goes by latencies that were learnt from the first query on (section 5.1), not by profiles.
    pub learn: bool,
}

/// Optimises the GPU time that is left for what comes next, weighted by what each GPU is worth, at the cost of batches:
/// requests are never merged.
///
/// The Kairos paper, section 5.1. Queries of all models wait in one line by deadline. At each input the first of them,
/// two for each GPU, are matched to all GPUs, busy ones included, at the least sum of C·L: the time L until the query
/// would have ended there, weighted by the heterogeneity coefficient C; 10 times the target where that is too late. A
/// query that is matched to a GPU whose turn it is now is sent; one that is matched to a GPU that is still busy waits
/// for the next matching. A query is dropped when it could not end in time on an idle GPU; the paper's system serves
/// it late. With delays a query is sent so early that it arrives when its GPU is free.
#[derive(Clone, Debug)]
pub struct Kairos {
    settings: KairosSettings,
    cluster: Cluster,
    line: Line,
    gpus: GpuBook,
    matcher: Matcher,
    /// By model.
    forecasts: Vec<Forecast>,
    /// By GPU: start and items of the plans that have not ended. Kept only to learn from.
    sent: Vec<Vec<(Time, u32)>>,
    /// The longest target of all models.
    target: Nanos,
    wake_at: Time,
}

impl Kairos {
    /// Without models and GPUs, which come as inputs.
    #[must_use]
    pub fn new(facts: &ClusterFacts, settings: KairosSettings) -> Self {
        Self {
            settings,
            cluster: Cluster::default(),
            line: Line::new(LineOrder::Deadline),
            gpus: GpuBook::new(facts.plans_max.min(PLANS_MAX)),
            matcher: Matcher::default(),
            forecasts: Vec::new(),
            sent: Vec::new(),
            target: Nanos::ZERO,
            wake_at: Time::NEVER,
        }
    }

    /// A model has come, changed or gone.
    fn set_model(&mut self, model: u32, known: Option<Arc<ClusterModel>>) {
        let learn = self.settings.learn;
        let Some(slot) = self.cluster.set(model, known) else { return };
        if slot >= self.forecasts.len() {
            self.forecasts.resize_with(slot + 1, || Forecast::new(learn));
        }
        if let Some(known) = self.cluster.get(slot) {
            self.forecasts[slot].update(known, self.cluster.classes());
            self.line.rekey(&self.cluster, model);
        } else {
            self.forecasts[slot] = Forecast::new(learn);
            self.line.forget(model);
        }
        let known = (0..self.cluster.slots()).filter_map(|slot| self.cluster.get(slot));
        self.target = known.map(|known| known.slo).max().unwrap_or(Nanos::ZERO);
    }

    /// The usable GPUs are others.
    fn gpus_changed(&mut self) {
        if self.cluster.set_classes(self.gpus.classes()) {
            let classes = self.cluster.classes();
            for (slot, forecast) in self.forecasts.iter_mut().enumerate() {
                if let Some(known) = self.cluster.get(slot) {
                    forecast.update(known, classes);
                }
            }
        }
    }

    fn gpu_up(&mut self, gpu: GpuId, class: GpuClass, free_at: Time) {
        if self.gpus.up(gpu, class, free_at) {
            let slot = gpu.get() as usize;
            if slot >= self.sent.len() {
                self.sent.resize(slot + 1, Vec::new());
            }
            self.sent[slot].clear();
        }
        self.gpus_changed();
    }

    fn gpu_down(&mut self, gpu: GpuId) {
        self.gpus.down(gpu);
        if let Some(sent) = self.sent.get_mut(gpu.get() as usize) {
            sent.clear();
        }
        self.gpus_changed();
    }

    /// The items of a plan that has ended; it is forgotten.
    fn ended(&mut self, gpu: GpuId, start: Time) -> Option<u32> {
        let sent = self.sent.get_mut(gpu.get() as usize)?;
        let at = sent.iter().position(|&(planned, _)| planned == start)?;
        Some(sent.remove(at).1)
    }

    fn learn(&mut self, (gpu, model, start): (GpuId, u32, Time), latency: Nanos) {
        let Some(items) = self.ended(gpu, start) else { return };
        let (slot, class) = (model as usize, self.gpus.availability(gpu.get() as usize).class);
        if let (Some(known), Some(forecast)) = (self.cluster.get(slot), self.forecasts.get_mut(slot)) {
            forecast.measured(known, self.cluster.classes(), (class, items, latency));
        }
    }

    /// Drops what is lost, and matches and sends until nothing more can be sent now. Returns when to decide again, if
    /// nothing happens before.
    fn decide(&mut self, now: Time, out: &mut ClusterActions) -> Time {
        loop {
            self.matcher.update_instances(now, &self.gpus);
            let rows = self.matcher.rows().max(1);
            let lost_at = self.line.drop_lost(&self.cluster, now, rows, out);
            let leads = self.line.first(rows).filter_map(|query| {
                let known = self.cluster.get(query.model as usize)?;
                Some(known.delays.lead(query.waiting.request.items))
            });
            let Some(lead_max) = leads.max() else { return Time::NEVER };
            let open = self.matcher.instances().iter().filter(|instance| instance.has_room);
            let mut turns = open.map(|instance| instance.gpu.free_at - lead_max);
            let mut next = turns.clone().filter(|&turn| turn > now).min().unwrap_or(Time::NEVER).min(lost_at);
            if !turns.any(|turn| turn <= now) {
                return next;
            }
            let weights = Weights { cluster: &self.cluster, forecasts: &self.forecasts, target: self.target };
            self.matcher.solve(now, &self.line, weights);
            let mut has_sent = false;
            // From the last row on, so that those before keep their places.
            for at in (0..self.matcher.pairs().len()).rev() {
                let (row, column) = self.matcher.pairs()[at];
                match self.send(now, row, column, out) {
                    Turn::Sent => has_sent = true,
                    Turn::At(turn) => next = next.min(turn),
                    Turn::Never => {}
                }
            }
            if !has_sent {
                return next;
            }
        }
    }

    /// Sends a query to the GPU that it is matched to, if it is that one's turn.
    fn send(&mut self, now: Time, row: usize, column: usize, out: &mut ClusterActions) -> Turn {
        let instance = self.matcher.instances()[column];
        let Some(query) = self.line.get(row).copied().filter(|_| instance.has_room) else { return Turn::Never };
        let Some(known) = self.cluster.get(query.model as usize) else { return Turn::Never };
        let (gpu, items) = (instance.gpu, query.waiting.request.items);
        // The learnt latency may be wrong; the host plans by the profile.
        if known.finish(gpu.class, now, gpu.free_at, items) > query.waiting.must_end_by {
            return Turn::Never;
        }
        let lead = known.delays.lead(items);
        if gpu.free_at > now + lead {
            return Turn::At(gpu.free_at - lead);
        }
        let start = known.start(now, gpu.free_at, items);
        let planned = out.plan(query.model, known, (gpu.id, gpu.class), start, [query.waiting.request]);
        let Some(plan) = planned else { return Turn::Never };
        self.line.take(row);
        self.gpus.planned(&plan);
        if self.settings.learn {
            self.sent[gpu.id.get() as usize].push((plan.start, items));
        }
        Turn::Sent
    }
}

/// What became of a pair.
enum Turn {
    Sent,
    /// The GPU's turn comes then.
    At(Time),
    /// It would be late.
    Never,
}

impl ClusterPolicy for Kairos {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Arrive { model, request } | ClusterInput::Return { model, request } => {
                self.line.admit(&self.cluster, (model, request), now, out);
            }
            ClusterInput::Cancel { model, request } => {
                self.line.cancel(&self.cluster, model, &request);
            }
            ClusterInput::GpuUp { gpu, class, free_at } => self.gpu_up(gpu, class, free_at),
            ClusterInput::GpuDown(gpu) => self.gpu_down(gpu),
            ClusterInput::Done { gpu, model, start, latency, .. } => {
                if self.settings.learn {
                    self.learn((gpu, model, start), latency);
                }
                self.gpus.done(now, gpu);
            }
            ClusterInput::Refused { gpu, start, .. } => {
                self.ended(gpu, start);
                self.gpus.refused(now, gpu, start);
            }
            ClusterInput::Model { model, known } => self.set_model(model, Some(known)),
            ClusterInput::ModelGone(model) => self.set_model(model, None),
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        let wake_at = self.decide(now, out);
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.wake_at(wake_at);
        }
    }

    fn waiting(&self) -> usize {
        self.line.len()
    }
}
