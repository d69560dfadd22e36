//! The GPUs as the policy knows them: up while they are sealed, routed, in use, and without plans of others.

use std::collections::VecDeque;

use symphony_scheduler::ClusterInput;
use symphony_types::{GpuClass, GpuId, Time};
use tokio::sync::mpsc::UnboundedSender;

use super::PolicyWorker;
use crate::workers::messages::{PlanId, RankMessage, SealNumber};

/// A plan that was sent and has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    sequence: u64,
    /// The model's slot when it was sent.
    pub(super) model: u32,
    pub(super) start: Time,
}

/// A GPU of the sub-cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Gpu {
    pub(super) class: GpuClass,
    /// The seal under which it is in use; none while it is lost.
    pub(super) seal: Option<SealNumber>,
    /// Number of the next plan.
    pub(super) next: u64,
    /// Plans that were sent and have not ended.
    pub(super) out: VecDeque<Out>,
    free_at: Time,
    retired: bool,
    /// Whether it is too slow to be used. Kept across seals: the GPU is the same.
    quarantined: bool,
    /// Whether the policy may plan on it.
    up: bool,
}

impl Gpu {
    /// The next plan has been sent.
    pub(super) fn sent(&mut self, model: u32, start: Time) {
        self.out.push_back(Out { sequence: self.next, model, start });
        self.next += 1;
    }

    /// It is lost with its plans. Returns its seal, if it had one.
    pub(super) fn lose(&mut self) -> Option<SealNumber> {
        self.out.clear();
        self.seal.take()
    }

    /// A plan has ended or will not run.
    pub(super) fn ended(&mut self, plan: PlanId) -> Option<Out> {
        let under_seal = self.seal == Some(plan.seal);
        let at = self.out.iter().position(|out| under_seal && out.sequence == plan.sequence)?;
        self.out.remove(at)
    }
}

impl PolicyWorker {
    pub(super) fn receive_gpu(&mut self, now: Time, message: RankMessage) {
        match message {
            RankMessage::GpuReady { gpu, class, seal, free_at } => self.gpu_ready(now, gpu, class, seal, free_at),
            RankMessage::Lost { gpu, seal } => self.lost(now, gpu, seal),
            RankMessage::Done { plan, free_at, .. } => {
                if let Some(gpu) = self.under_seal(plan.gpu, plan.seal) {
                    gpu.free_at = free_at;
                }
            }
            RankMessage::Retire { gpu, seal, round, done } => self.retire(now, gpu, seal, (round, done)),
            RankMessage::Resume { gpu, seal } => {
                if let Some(known) = self.under_seal(gpu, seal) {
                    known.retired = false;
                    self.settle(now, gpu);
                }
            }
            RankMessage::Quarantine { gpu, out } => {
                self.gpu_mut(gpu).quarantined = out;
                self.settle(now, gpu);
            }
            // Refusals come with the models' messages. The others are of queues and their ranker: no grants are made
            // here, and the policy has its own way with overload.
            RankMessage::Refused { .. }
            | RankMessage::Release { .. }
            | RankMessage::Account(_)
            | RankMessage::Consolidate
            | RankMessage::Forget { .. } => {}
        }
    }

    /// What is known of a GPU, which may be new.
    fn gpu_mut(&mut self, gpu: u32) -> &mut Gpu {
        let slot = gpu as usize;
        if slot >= self.gpus.len() {
            self.gpus.resize_with(slot + 1, Gpu::default);
        }
        &mut self.gpus[slot]
    }

    fn under_seal(&mut self, gpu: u32, seal: SealNumber) -> Option<&mut Gpu> {
        self.gpus.get_mut(gpu as usize).filter(|known| known.seal == Some(seal))
    }

    fn gpu_ready(&mut self, now: Time, gpu: u32, class: GpuClass, seal: SealNumber, free_at: Time) {
        let known = self.gpu_mut(gpu);
        if known.seal.is_some_and(|newer| newer > seal) {
            return;
        }
        known.lose();
        self.settle(now, gpu);
        let known = self.gpu_mut(gpu);
        (known.seal, known.class, known.next, known.free_at) = (Some(seal), class, 1, free_at);
        known.retired = false;
        self.settle(now, gpu);
    }

    /// The GPU is lost under this seal.
    pub(super) fn lost(&mut self, now: Time, gpu: u32, seal: SealNumber) {
        if let Some(known) = self.under_seal(gpu, seal) {
            known.lose();
            self.settle(now, gpu);
        }
    }

    fn retire(&mut self, now: Time, gpu: u32, seal: SealNumber, round: (u64, UnboundedSender<u64>)) {
        let Some(known) = self.under_seal(gpu, seal) else { return };
        known.retired = true;
        self.settle(now, gpu);
        self.retired.push(round);
    }

    /// Tells the policy whether it may plan on the GPU, if that has changed. A GPU that comes back is up once the plans
    /// that were sent before have ended.
    pub(super) fn settle(&mut self, now: Time, gpu: u32) {
        let Some(known) = self.gpus.get_mut(gpu as usize) else { return };
        let usable = known.seal.is_some_and(|seal| self.delivery.has_route(gpu, seal));
        let usable = usable && !known.retired && !known.quarantined;
        let (id, class, free_at) = (GpuId::new(gpu), known.class, known.free_at);
        if known.up && !usable {
            known.up = false;
            self.gpus_by_class[class.index()] -= 1;
            self.step(now, ClusterInput::GpuDown(id));
        } else if !known.up && usable && known.out.is_empty() {
            known.up = true;
            self.gpus_by_class[class.index()] += 1;
            self.step(now, ClusterInput::GpuUp { gpu: id, class, free_at });
        }
    }
}
