//! First come, first served, on the best GPU that is free.

use symphony_types::{GpuClass, Time};

use super::heterogeneity::Heterogeneity;
use super::line::{Line, Query};
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::ClusterActions;
use crate::rivals::cluster::{Cluster, GpuAvailability};
use crate::rivals::gpu_book::GpuBook;

/// How many queries from the head on are checked for being lost: a bound of the time of one step. Those behind came
/// later, and are checked as they come nearer.
const EXAMINED_MAX: usize = 1024;

/// Models, GPUs, and what these are worth to each model: what `ribbon` and `drs` share.
#[derive(Clone, Debug)]
pub(super) struct FirstCome {
    pub(super) cluster: Cluster,
    pub(super) gpus: GpuBook,
    /// By model.
    pub(super) values: Vec<Heterogeneity>,
}

impl FirstCome {
    pub(super) fn new(plans_max: u32) -> Self {
        Self { cluster: Cluster::default(), gpus: GpuBook::new(plans_max), values: Vec::new() }
    }

    /// The present models or classes have changed.
    pub(super) fn weigh(&mut self) {
        self.cluster.set_classes(self.gpus.classes());
        let classes = self.cluster.classes();
        let value = |slot| {
            let known = self.cluster.get(slot);
            known.map_or_else(Heterogeneity::default, |known| Heterogeneity::of_profiles(known, classes))
        };
        self.values = (0..self.cluster.slots()).map(value).collect();
    }

    /// Repeatedly gives the head of the line to the best free GPU that it may use; where it would be late there it is
    /// dropped. Returns when to look again, if nothing happens before.
    pub(super) fn serve(
        &mut self,
        now: Time,
        line: &mut Line,
        may_use: impl Fn(&ClusterModel, &Heterogeneity, &Query, GpuClass) -> bool,
        out: &mut ClusterActions,
    ) -> Time {
        loop {
            let lost_at = line.drop_lost(&self.cluster, now, EXAMINED_MAX, out);
            let Some(&head) = line.get(0) else { return Time::NEVER };
            let (slot, request) = (head.model as usize, head.waiting.request);
            let (Some(known), Some(values)) = (self.cluster.get(slot), self.values.get(slot)) else { return lost_at };
            let lead = known.delays.lead(request.items);
            let (mut best, mut turn): (Option<(f64, GpuAvailability)>, _) = (None, Time::NEVER);
            for gpu in (0..self.gpus.len()).filter(|&gpu| self.gpus.is_up(gpu)) {
                let availability = self.gpus.availability(gpu);
                let takes_it = request.items <= known.batch_max(availability.class)
                    && may_use(known, values, &head, availability.class);
                if !takes_it || !self.gpus.has_room(gpu) || self.gpus.is_overdue(gpu, now) {
                    continue;
                }
                let value = values.of(availability.class);
                if availability.free_at > now + lead {
                    turn = turn.min(availability.free_at - lead);
                } else if best.is_none_or(|(most, _)| value > most) {
                    best = Some((value, availability));
                }
            }
            let Some((_, gpu)) = best else { return lost_at.min(turn) };
            line.take(0);
            let start = known.start(now, gpu.free_at, request.items);
            if start + known.latency(gpu.class, request.items) > head.waiting.must_end_by {
                self.cluster.give_up(now, slot, &head.waiting, out);
            } else if let Some(plan) = out.plan(head.model, known, (gpu.id, gpu.class), start, [request]) {
                self.gpus.planned(&plan);
            }
        }
    }
}
