//! The content of `/api/view`: the view of a process, for `top`, `get ledger` and operators.

use serde_json::{Value, json};
use symphony_protocol::view::View;
use symphony_telemetry::buckets::REQUEST_SECONDS;
use symphony_transport::{ReadCounts, ReadPath, Readings};
use symphony_types::Invariant;

use crate::inspect::events;
use crate::inspect::models::no_gpu;

/// The view as JSON; `counts` gives a model's counters if this process has them.
pub(crate) fn view_json(view: &View, role: &str, name: &str, counts: &dyn Fn(&str) -> Value) -> Value {
    let nodes: Vec<_> = view
        .nodes
        .iter()
        .map(|(id, n)| {
            json!({ "id": id.get(), "up": n.up, "control_addr": n.control_addr, "dispatch_addr": n.dispatch_addr,
                    "duty": n.duty.label() })
        })
        .collect();
    let subclusters: Vec<_> = view
        .subclusters
        .iter()
        .map(|(id, s)| {
            let standbys: Vec<_> = s.standbys.iter().map(|n| n.get()).collect();
            let leader = s.leader.map(|(node, _)| node.get());
            let successor = s.successor.map(|next| next.node.get());
            json!({ "id": id.get(), "name": s.name, "leader": leader, "token": s.token.get(), "standbys": standbys,
                    "successor": successor, "policy": s.policy.as_ref().map(|policy| &policy.text),
                    "policy_failed": s.policy.as_ref().and_then(|policy| policy.failed.as_ref()) })
        })
        .collect();
    let backends: Vec<_> = view
        .backends
        .iter()
        .map(|(id, b)| {
            let gpus: Vec<_> = b
                .gpus
                .iter()
                .map(|g| {
                    let token = view.gpu_token(b, g).get();
                    json!({ "id": g.id.get(), "kind": g.kind, "memory_bytes": g.memory_bytes, "token": token })
                })
                .collect();
            json!({ "id": id.get(), "name": b.name, "up": b.up, "subcluster": b.subcluster.get(),
                    "executor": b.executor, "exec_addr": b.exec_addr, "gpus": gpus, "duty": b.duty.label(),
                    "drained": b.drained })
        })
        .collect();
    let frontends: Vec<_> = view
        .frontends
        .iter()
        .map(|(id, f)| {
            json!({ "id": id.get(), "name": f.name, "data_addr": f.data_addr, "console_addr": f.console_addr,
                    "duty": f.duty.label(), "drained": f.drained })
        })
        .collect();
    let models: Vec<_> = view
        .models
        .iter()
        .map(|(id, m)| {
            let failed = m.holders.values().find_map(|r| r.state.clone().err());
            // A report by a backend that is gone does not concern the present ones.
            let reason = no_gpu(view, m).map(str::to_owned).or(failed).unwrap_or_default();
            json!({ "id": id.get(), "name": m.spec.name, "subcluster": m.subcluster.get(),
                    "slo_ms": m.spec.slo.as_millis_f64(), "ready": m.is_ready(view), "reason": reason,
                    "counts": counts(&m.spec.name) })
        })
        .collect();
    let broken: u64 = Invariant::ALL.into_iter().map(symphony_telemetry::violations).sum();
    json!({
        "cluster": view.cluster, "role": role, "name": name, "epoch": view.epoch.get(),
        "applied_index": view.applied_index, "control_leader": view.control_leader.map(|n| n.get()),
        "invariant_violations": broken, "nodes": nodes, "subclusters": subclusters, "backends": backends,
        "frontends": frontends, "models": models, "events": events::json(view),
        "latency_bounds_s": REQUEST_SECONDS.as_slice(),
    })
}

/// The transports by which a backend's inputs arrived, and its present transport to each frontend.
pub(crate) fn payloads_json(readings: &Readings) -> Value {
    let pairs: Vec<_> = readings
        .pairs
        .iter()
        .map(|pair| json!({ "frontend": pair.frontend.get(), "transport": pair.way.label(), "reads": reads_json(&pair.reads) }))
        .collect();
    let us = |time: symphony_types::Nanos| time.get() as f64 / 1e3;
    let delay = readings.delay.map(|delay| json!({ "fixed_us": us(delay.fixed), "per_mib_us": us(delay.per_mib) }));
    json!({ "reads": reads_json(&readings.reads), "damaged": readings.damaged, "delay": delay, "frontends": pairs })
}

/// Quantiles are upper bounds of the finer buckets behind the metrics.
fn reads_json(reads: &[ReadCounts; ReadPath::COUNT]) -> Value {
    let one = |(way, counts): (ReadPath, &ReadCounts)| {
        let us = |quantile| counts.times.quantile(quantile).get() as f64 / 1e3;
        let value = json!({ "reads": counts.times.count(), "inputs": counts.inputs, "bytes": counts.bytes,
                            "p50_us": us(0.5), "p99_us": us(0.99), "p9999_us": us(0.9999) });
        (way.label().to_owned(), value)
    };
    Value::Object(ReadPath::ALL.into_iter().zip(reads).map(one).collect())
}
