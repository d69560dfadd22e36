//! The load of a lead, by model and by GPU.

use std::collections::BTreeMap;

use symphony_types::{GpuId, ITEM_BOUNDS, ModelId, Nanos, SubclusterId, Token};

use crate::control as pb;

/// The load of a lead since it began, by its last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadView {
    /// The lead: under another token everything is counted from zero.
    pub token: Token,
    /// How long ago the report came.
    pub age: Nanos,
    /// What was counted of each model of the lead.
    pub models: BTreeMap<ModelId, ModelLoadView>,
    /// What was counted of each GPU of the lead.
    pub gpus: BTreeMap<GpuId, GpuLoadView>,
    /// GPU time that deferred batches of all that was asked would have taken; none if the lead does not measure it.
    pub demand: Option<Nanos>,
}

/// What a lead has counted of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLoadView {
    /// Items of the requests that came.
    pub arrived_items: u64,
    /// Requests that were given up.
    pub dropped: u64,
    /// Requests whose batch ran.
    pub executed: u64,
    /// Of these: which got no result.
    pub failed: u64,
    /// Of these: whose batch ended after their deadlines.
    pub late: u64,
    /// Requests that waited for a batch when it was reported.
    pub queued: u64,
    /// Requests that came, by their items, in the buckets of [`ITEM_BOUNDS`]; zeros at the end are left out. Empty if
    /// the lead does not measure it.
    pub request_items: Vec<u64>,
}

/// What a lead has counted of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuLoadView {
    /// Execution time of its batches, summed.
    pub busy: Nanos,
    /// Batches.
    pub plans: u64,
}

impl From<&pb::SubclusterLoad> for LoadView {
    /// From a lead's report.
    fn from(load: &pb::SubclusterLoad) -> Self {
        let models = load.models.iter().map(|m| {
            let pb::ModelLoad { model, arrived_items, dropped, executed, failed, late, queued, ref request_items } = *m;
            // What is beyond the last bucket has no size.
            let request_items = request_items.iter().copied().take(ITEM_BOUNDS.len()).collect();
            let counted = ModelLoadView { arrived_items, dropped, executed, failed, late, queued, request_items };
            (ModelId::new(model), counted)
        });
        let gpus = load.gpus.iter().map(|g| {
            let counted = GpuLoadView { busy: Nanos::new(g.busy_ns), plans: g.plans };
            (GpuId::new(g.gpu), counted)
        });
        Self {
            token: Token::new(load.token),
            age: Nanos::ZERO,
            models: models.collect(),
            gpus: gpus.collect(),
            demand: load.demand_ns.map(Nanos::new),
        }
    }
}

impl LoadView {
    /// As a lead reports it.
    pub(super) fn message(&self, subcluster: SubclusterId) -> pb::SubclusterLoad {
        let models = self.models.iter().map(|(id, m)| {
            let ModelLoadView { arrived_items, dropped, executed, failed, late, queued, request_items } = m.clone();
            pb::ModelLoad { model: id.get(), arrived_items, dropped, executed, failed, late, queued, request_items }
        });
        let gpus = self.gpus.iter().map(|(id, g)| pb::GpuLoad {
            gpu: id.get(),
            busy_ns: g.busy.get(),
            plans: g.plans,
            ..pb::GpuLoad::default()
        });
        pb::SubclusterLoad {
            subcluster: subcluster.get(),
            token: self.token.get(),
            models: models.collect(),
            gpus: gpus.collect(),
            demand_ns: self.demand.map(Nanos::get),
            ..pb::SubclusterLoad::default()
        }
    }
}
