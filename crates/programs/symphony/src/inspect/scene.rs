//! A small cluster for tests.

use std::collections::BTreeMap;
use std::time::Duration;

use symphony_protocol::view::{
    AdviceView, BackendView, FleetAdviceView, FleetChoiceView, FrontendView, GpuLoadView, GpuView, HolderView,
    KindAdviceView, LoadView, ModelLoadView, ModelSource, ModelSpec, ModelView, SubclusterView, View,
};
use symphony_telemetry::buckets::REQUEST_SECONDS;
use symphony_types::{
    BackendId, BootId, Epoch, FrontendId, GpuId, ModelId, Nanos, NodeId, RequestValue, Signature, SubclusterId, Token,
};

use super::sample::{FrontendCounts, ModelCounts, Sample};

pub(crate) const GPU: GpuId = GpuId::new(4);

/// A frontend's counters of model `m`, with four items per batch.
pub(crate) fn counted(received: u64, in_time: u64, late: u64, dropped: u64, failed: u64) -> ModelCounts {
    let executed_items = in_time + late;
    let executed_batches = executed_items as f64 / 4.0;
    let mut latency_counts = vec![0; REQUEST_SECONDS.len() + 1];
    // In time within 20 ms, all others within 40 ms.
    latency_counts[REQUEST_SECONDS.partition_point(|&bound| bound < 0.02)] = in_time;
    latency_counts[REQUEST_SECONDS.partition_point(|&bound| bound < 0.04)] = received - in_time;
    let refused = received / 10;
    ModelCounts { received, in_time, late, dropped, failed, executed_items, executed_batches, refused, latency_counts }
}

fn model(name: &str, subcluster: SubclusterId) -> ModelView {
    let spec = ModelSpec {
        name: name.into(),
        subcluster: String::new(),
        slo: Nanos::from_millis(25),
        source: ModelSource::Emulated,
        signature: Signature { inputs: vec![], outputs: vec![] },
        transforms: Default::default(),
        profiles: BTreeMap::new(),
        policy: Default::default(),
        value: RequestValue::ONE,
    };
    let ready = HolderView { boot: BootId::new(5), state: Ok(()) };
    ModelView {
        spec,
        subcluster,
        moving: None,
        holders: [(BackendId::new(subcluster.get()), ready)].into(),
        trunk: None,
    }
}

/// A cluster with two sub-clusters, `pool` and `spare`. Each has a model and a GPU; only the lead of the first has
/// reported, a second ago.
pub(crate) fn view() -> View {
    let (pool, spare, boot) = (SubclusterId::new(1), SubclusterId::new(2), BootId::new(5));
    let subcluster = |name: &str, leader: Option<u64>, load| SubclusterView {
        name: name.into(),
        leader: leader.map(|node| (NodeId::new(node), boot)),
        token: Token::new(9),
        load,
        ..SubclusterView::default()
    };
    let load = LoadView {
        token: Token::new(9),
        age: Nanos::from_millis(1000),
        models: [(ModelId::new(1), ModelLoadView { queued: 2, ..ModelLoadView::default() })].into(),
        gpus: [(GPU, GpuLoadView { busy: Nanos::from_millis(700), plans: 30 })].into(),
        demand: Some(Nanos::from_millis(400)),
    };
    let backend = |name: &str, subcluster, gpu| {
        let gpu = GpuView { id: gpu, kind: "a100".into(), memory_bytes: 0, binding: Token::default() };
        BackendView { name: name.into(), boot, up: true, subcluster, gpus: vec![gpu], ..BackendView::default() }
    };
    let frontend = FrontendView { name: "front".into(), boot, console_addr: "f:1".into(), ..FrontendView::default() };
    View {
        cluster: "blue".into(),
        applied_index: 31,
        epoch: Epoch::new(4),
        control_leader: Some(NodeId::new(1)),
        subclusters: [(pool, subcluster("pool", Some(1), Some(load))), (spare, subcluster("spare", None, None))].into(),
        backends: [
            (BackendId::new(1), backend("b-1", pool, GPU)),
            (BackendId::new(2), backend("b-2", spare, GpuId::new(5))),
        ]
        .into(),
        models: [(ModelId::new(1), model("m", pool)), (ModelId::new(2), model("quiet", spare))].into(),
        frontends: [(FrontendId::new(1), frontend)].into(),
        ..View::default()
    }
}

/// Two GPUs of kind `a100` and nine of `t4`; with a budget, what they cost of it.
pub(crate) fn advice(budget_per_hour: Option<f64>) -> AdviceView {
    let kind = |kind: &str, target, price_per_hour| KindAdviceView {
        kind: kind.to_owned(),
        target,
        release: Vec::new(),
        price_per_hour: budget_per_hour.and(Some(price_per_hour)),
    };
    let chosen = FleetChoiceView { price_per_hour: 8.15, bound_rps: 410.0, needed_rps: 400.0, rate_rps: 340.0 };
    AdviceView {
        reason: "fleet".to_owned(),
        bad_rate: 0.0,
        idle_fraction: 0.0,
        busy_gpus: 0.0,
        demand_gpus: None,
        kinds: vec![kind("a100", 2, 2.5), kind("t4", 9, 0.35)],
        slow: Vec::new(),
        drifts: Vec::new(),
        fleet: budget_per_hour.map(|budget_per_hour| FleetAdviceView {
            budget_per_hour,
            chosen: Some(chosen),
            refused: String::new(),
        }),
    }
}

/// The cluster `at_s` seconds after the start.
pub(crate) fn sample(at_s: u64) -> Sample {
    let (view, boot) = (view(), BootId::new(5));
    let models = [("m".to_owned(), counted(1000, 900, 50, 40, 10))].into();
    let frontends = [(FrontendId::new(1), Ok(FrontendCounts { boot, models }))].into();
    Sample { at: Duration::from_secs(at_s), view, frontends }
}
