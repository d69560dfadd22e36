//! DeepRecSys's query distribution, as the Kairos paper uses it.

use std::sync::Arc;

use symphony_types::{GpuClass, Time};

use super::first_come::FirstCome;
use super::heterogeneity::Heterogeneity;
use super::line::{Line, LineOrder, Query};
use super::ribbon::PLANS_MAX;
use super::threshold::Threshold;
use crate::actions::Request;
use crate::cluster::facts::ClusterFacts;
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterAction, ClusterActions, ClusterInput, ClusterPolicy};

/// Optimises the use of fast GPUs for large queries, at the cost of small ones that wait while a fast GPU is idle.
///
/// The Kairos paper, section 7, after *DeepRecSys* (ISCA 2020). Queries of more items than a threshold go to GPUs of
/// the base class, the others to the other classes; each side is first come, first served, the fastest free GPU first.
/// The threshold of each model is found by hill climbing on the queries that are lost, unless it is given. A query that
/// no GPU of its side takes, because there is none or none runs a batch so large, goes to the other side.
#[derive(Clone, Debug)]
pub struct Drs {
    first_come: FirstCome,
    given: Option<u32>,
    /// By model.
    thresholds: Vec<Threshold>,
    /// Queries above the threshold of their model when they came.
    large: Line,
    small: Line,
    wake_at: Time,
}

impl Drs {
    /// Without models and GPUs, which come as inputs. Queries of up to `threshold` items go to auxiliary GPUs; without
    /// a number it is sought.
    #[must_use]
    pub fn new(facts: &ClusterFacts, threshold: Option<u32>) -> Self {
        Self {
            first_come: FirstCome::new(facts.plans_max.min(PLANS_MAX)),
            given: threshold,
            thresholds: Vec::new(),
            large: Line::new(LineOrder::Arrival),
            small: Line::new(LineOrder::Arrival),
            wake_at: Time::NEVER,
        }
    }

    fn set_model(&mut self, model: u32, known: Option<Arc<ClusterModel>>) {
        let is_gone = known.is_none();
        self.first_come.cluster.set(model, known);
        for line in [&mut self.large, &mut self.small] {
            if is_gone {
                line.forget(model);
            }
            line.rekey(&self.first_come.cluster, model);
        }
        self.changed();
    }

    /// Models or GPUs are others: what each class is worth is, too, and a threshold whose range changes is searched for
    /// again.
    fn changed(&mut self) {
        self.first_come.weigh();
        let FirstCome { cluster, values, .. } = &self.first_come;
        let given = self.given;
        let threshold = |(slot, values): (usize, &Heterogeneity)| {
            let sought = match (given, cluster.get(slot)) {
                (Some(items), _) => Threshold::fixed(items),
                (None, Some(known)) => Threshold::climbing(known, values),
                (None, None) => Threshold::default(),
            };
            let kept = self.thresholds.get(slot).filter(|kept| kept.has_range_of(&sought));
            kept.copied().unwrap_or(sought)
        };
        self.thresholds = values.iter().enumerate().map(threshold).collect();
    }

    fn admit(&mut self, model: u32, request: Request, came: Time, out: &mut ClusterActions) {
        let threshold = self.thresholds.get(model as usize).map_or(0, Threshold::items);
        let line = if request.items > threshold { &mut self.large } else { &mut self.small };
        line.admit(&self.first_come.cluster, (model, request), came, out);
    }

    /// Serves both sides, and counts what becomes of their queries.
    fn serve(&mut self, now: Time, out: &mut ClusterActions) -> Time {
        let before = out.list.len();
        let classes = self.first_come.cluster.classes();
        // What no GPU of its side takes goes to the other one.
        let is_taken = |known: &ClusterModel, query: &Query, is_side: &dyn Fn(GpuClass) -> bool| {
            let takes = |class| classes.has(class) && query.waiting.request.items <= known.batch_max(class);
            GpuClass::all().any(|class| is_side(class) && takes(class))
        };
        let large = |known: &ClusterModel, values: &Heterogeneity, query: &Query, class| {
            values.is_base(class) || !is_taken(known, query, &|class| values.is_base(class))
        };
        let small = |known: &ClusterModel, values: &Heterogeneity, query: &Query, class| {
            values.is_auxiliary(class) || !is_taken(known, query, &|class| values.is_auxiliary(class))
        };
        let wake_at = self.first_come.serve(now, &mut self.large, large, out);
        let wake_at = wake_at.min(self.first_come.serve(now, &mut self.small, small, out));
        for action in &out.list[before..] {
            let (model, is_lost) = match action {
                ClusterAction::Execute { model, .. } => (*model, false),
                ClusterAction::Drop { model, .. } => (*model, true),
                _ => continue,
            };
            if let Some(threshold) = self.thresholds.get_mut(model as usize) {
                threshold.ended(is_lost);
            }
        }
        wake_at
    }
}

impl ClusterPolicy for Drs {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        let FirstCome { cluster, gpus, .. } = &mut self.first_come;
        match input {
            ClusterInput::Arrive { model, request } => self.admit(model, request, now, out),
            ClusterInput::Return { model, request } => self.admit(model, request, Time::ZERO, out),
            ClusterInput::Cancel { model, request } => {
                if !self.large.cancel(cluster, model, &request) {
                    self.small.cancel(cluster, model, &request);
                }
            }
            ClusterInput::GpuUp { gpu, class, free_at } => {
                gpus.up(gpu, class, free_at);
                self.changed();
            }
            ClusterInput::GpuDown(gpu) => {
                gpus.down(gpu);
                self.changed();
            }
            ClusterInput::Done { gpu, .. } => gpus.done(now, gpu),
            ClusterInput::Refused { gpu, start, .. } => gpus.refused(now, gpu, start),
            ClusterInput::Model { model, known } => self.set_model(model, Some(known)),
            ClusterInput::ModelGone(model) => self.set_model(model, None),
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        let wake_at = self.serve(now, out);
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.wake_at(wake_at);
        }
    }

    fn waiting(&self) -> usize {
        self.large.len() + self.small.len()
    }
}
