//! Statistics of a tape.

use std::collections::BTreeMap;

use symphony_scheduler::{ClusterAction, ClusterActions, ModelAction, ModelActions, ModelInput, RankAction, Violation};
use symphony_types::{DropReason, Nanos, Time};

use crate::TapeEnd;

/// How a tape ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Without an end record: the process was killed or the disk was full, and unwritten records are lost.
    #[default]
    Cut,
    /// With an end record.
    Recorded(TapeEnd),
}

impl Ending {
    /// One word for tables and programs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Recorded(TapeEnd::Stopped) => "stopped",
            Self::Recorded(TapeEnd::Full) => "full",
            Self::Recorded(TapeEnd::Overflow) => "overflow",
        }
    }
}

/// Counts over the replayed part of a tape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records, including those that introduce or remove objects.
    pub records: u64,
    /// Decisions.
    pub steps: u64,
    /// Models introduced.
    pub models: u64,
    /// Requests that arrived, without returned and redriven ones.
    pub arrivals: u64,
    /// Batches planned.
    pub batches: u64,
    /// Items of all batches.
    pub batched_items: u64,
    /// Dropped requests.
    pub drops: BTreeMap<DropReason, u64>,
    /// GPUs granted to models.
    pub grants: u64,
    /// Times of the first and last decision.
    pub span: Option<(Time, Time)>,
    /// The first order of a policy for the whole sub-cluster that broke a rule (S1 to S5). It was not carried out; the
    /// counts here have it.
    pub violation: Option<Violation>,
    /// How the tape ends.
    pub ending: Ending,
}

impl Summary {
    /// Dropped requests, for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }

    /// Time from the first to the last decision.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        self.span.map_or(Nanos::ZERO, |(first, last)| last.since(first))
    }

    fn step(&mut self, now: Time) {
        self.steps += 1;
        self.span = Some(self.span.map_or((now, now), |(first, _)| (first, now)));
    }

    pub(crate) fn model_step(&mut self, now: Time, input: &ModelInput, actions: &ModelActions) {
        self.step(now);
        self.arrivals += u64::from(matches!(input, ModelInput::Arrive(_)));
        for action in &actions.list {
            match action {
                ModelAction::Execute(plan) => {
                    self.batches += 1;
                    self.batched_items += u64::from(plan.batch);
                }
                ModelAction::Drop { reason, .. } => *self.drops.entry(*reason).or_default() += 1,
                _ => {}
            }
        }
    }

    pub(crate) fn cluster_step(&mut self, now: Time, arrives: bool, orders: &ClusterActions) {
        self.step(now);
        self.arrivals += u64::from(arrives);
        for action in &orders.list {
            match action {
                ClusterAction::Execute { plan, .. } => {
                    self.batches += 1;
                    self.batched_items += u64::from(plan.batch);
                }
                ClusterAction::Drop { reason, .. } => *self.drops.entry(*reason).or_default() += 1,
                _ => {}
            }
        }
    }

    pub(crate) fn pool_step(&mut self, now: Time) {
        self.step(now);
    }

    pub(crate) fn rank_step(&mut self, now: Time, actions: &[RankAction]) {
        self.step(now);
        self.grants += actions.iter().filter(|action| matches!(action, RankAction::Grant { .. })).count() as u64;
    }
}
