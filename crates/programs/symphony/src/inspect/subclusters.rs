//! Sub-clusters: who leads them, how busy they are, and what they are advised to have.

use serde_json::{Value, json};
use symphony_protocol::view::{AdviceView, KindAdviceView, PolicyView, SubclusterView, View};
use symphony_types::SubclusterId;

use super::Shown;
use super::gpus::slow;

/// All sub-clusters.
pub(crate) fn show(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (id, subcluster) in &view.subclusters {
        let (idle, demand) = gpu_use(view, *id, subcluster);
        let leader = subcluster.leader.map(|(node, _)| node);
        let standbys: Vec<_> = subcluster.standbys.iter().map(ToString::to_string).collect();
        let leader_name = leader.map_or_else(|| "none".to_owned(), |n| n.to_string());
        rows.push(vec![
            id.to_string(),
            subcluster.name.clone(),
            leader_name,
            subcluster.token.to_string(),
            standbys.join(", "),
            idle,
            demand,
            advice(view, *id, subcluster),
            policy(subcluster),
        ]);
        json.push(json!({ "id": id.get(), "name": subcluster.name, "leader": leader.map(|n| n.get()),
                          "token": subcluster.token.get(),
                          "standbys": subcluster.standbys.iter().map(|n| n.get()).collect::<Vec<_>>(),
                          "policy": subcluster.policy.as_ref().map(|policy| &policy.text),
                          "policy_failed": subcluster.policy.as_ref().and_then(|policy| policy.failed.as_ref()),
                          "advice": subcluster.advice.as_ref().map(advice_json) }));
    }
    let header = &["ID", "NAME", "LEADER", "TOKEN", "STANDBYS", "IDLE GPUS", "DEMAND", "GPUS WANTED", "POLICY"];
    (header, rows, Value::Array(json))
}

/// The policy that decides for the sub-cluster, with what became of it; `auto` if each model has its own.
pub(crate) fn policy(subcluster: &SubclusterView) -> String {
    subcluster.policy.as_ref().map_or_else(|| "auto".to_owned(), PolicyView::words)
}

/// The measured number of idle GPUs, and the number that the demand keeps busy, on which the advice is based:
/// `0.1 of 8`, `3.4 of 8`. GPUs that are set aside are left out.
pub(crate) fn gpu_use(view: &View, id: SubclusterId, subcluster: &SubclusterView) -> (String, String) {
    let Some(advice) = &subcluster.advice else { return Default::default() };
    let backends = view.backends.values().filter(|b| b.subcluster == id && b.up && b.duty.takes_work());
    let serving = backends.flat_map(|b| &b.gpus).filter(|gpu| slow(view, id, gpu.id).is_none()).count();
    let of_all = |gpus: f64| format!("{gpus:.1} of {serving}");
    let idle = (serving as f64 - advice.busy_gpus).max(0.0);
    (of_all(idle), advice.demand_gpus.map_or_else(|| "-".to_owned(), of_all))
}

/// The autoscaler's advice beside the present number: `3 of kind a100 (2 there, 1 on order): bad_rate`. For the reason,
/// GPUs on order count as present: with them there may be enough. Where there is a budget, what they cost and why.
pub(crate) fn advice(view: &View, id: SubclusterId, subcluster: &SubclusterView) -> String {
    let Some(advice) = &subcluster.advice else { return String::new() };
    let serving = |kind: &str| {
        let backends = view.backends.values().filter(|b| b.subcluster == id && b.up && b.duty.takes_work());
        backends.flat_map(|b| &b.gpus).filter(|gpu| gpu.kind == kind).count()
    };
    let of_kind = |wanted: &KindAdviceView| {
        let (kind, there) = (&wanted.kind, serving(&wanted.kind));
        let ordered = (wanted.target as usize).saturating_sub(there);
        let ordered = if ordered == 0 { String::new() } else { format!(", {ordered} on order") };
        let gone: Vec<_> = wanted.release.iter().map(ToString::to_string).collect();
        let gone = if gone.is_empty() { String::new() } else { format!(", without {}", gone.join(" ")) };
        let price = wanted.price_per_hour.map(|price| format!(" at {price}")).unwrap_or_default();
        format!("{} of kind {kind}{price} ({there} there{ordered}{gone})", wanted.target)
    };
    let kinds: Vec<_> = advice.kinds.iter().map(of_kind).collect();
    let fleet = advice.fleet.as_ref().map(|fleet| format!("; {fleet}")).unwrap_or_default();
    format!("{}: {}{fleet}", kinds.join(", "), advice.reason)
}

/// The advice for programs.
pub(crate) fn advice_json(advice: &AdviceView) -> Value {
    let kinds: Vec<_> = advice
        .kinds
        .iter()
        .map(|kind| {
            let release: Vec<_> = kind.release.iter().map(|gpu| gpu.get()).collect();
            let price = kind.price_per_hour;
            json!({ "kind": kind.kind, "target": kind.target, "release": release, "price_per_hour": price })
        })
        .collect();
    let fleet = advice.fleet.as_ref().map(|fleet| {
        let chosen = fleet.chosen.map(|chosen| {
            json!({ "price_per_hour": chosen.price_per_hour, "bound_rps": chosen.bound_rps,
                    "needed_rps": chosen.needed_rps, "rate_rps": chosen.rate_rps })
        });
        let refused = (!fleet.refused.is_empty()).then_some(&fleet.refused);
        json!({ "budget_per_hour": fleet.budget_per_hour, "chosen": chosen, "refused": refused })
    });
    json!({ "reason": advice.reason, "bad_rate": advice.bad_rate, "idle_fraction": advice.idle_fraction,
            "busy_gpus": advice.busy_gpus, "demand_gpus": advice.demand_gpus, "kinds": kinds, "fleet": fleet })
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{BackendView, FleetAdviceView, GpuView, NodeView, SlowGpuView};
    use symphony_types::{BackendId, BootId, GpuId, NodeId, Token};

    use super::*;

    const SUBCLUSTER: SubclusterId = SubclusterId::new(1);

    /// A sub-cluster with three GPUs, led by the first of two schedulers.
    fn view() -> View {
        let gpus = (1..=3).map(|id| GpuView {
            id: GpuId::new(id),
            kind: "a100".into(),
            memory_bytes: 0,
            binding: Token::default(),
        });
        let backend = BackendView { up: true, subcluster: SUBCLUSTER, gpus: gpus.collect(), ..BackendView::default() };
        let leader = Some((NodeId::new(1), BootId::new(1)));
        let subcluster = SubclusterView { name: "default".into(), leader, ..SubclusterView::default() };
        View {
            nodes: [1, 2].map(|id| (NodeId::new(id), NodeView { up: true, ..NodeView::default() })).into(),
            subclusters: [(SUBCLUSTER, subcluster)].into(),
            backends: [(BackendId::new(1), backend)].into(),
            ..View::default()
        }
    }

    fn advised(reason: &str) -> AdviceView {
        AdviceView {
            reason: reason.to_owned(),
            bad_rate: 0.0,
            idle_fraction: 0.0,
            busy_gpus: 0.0,
            demand_gpus: None,
            kinds: Vec::new(),
            slow: Vec::new(),
            drifts: Vec::new(),
            fleet: None,
        }
    }

    #[test]
    fn the_demand_is_shown_beside_what_idles() {
        let shown = |busy_gpus, demand_gpus, slow| {
            let mut view = view();
            let advice = AdviceView { busy_gpus, demand_gpus, slow, ..advised("enough") };
            view.subclusters.get_mut(&SUBCLUSTER).unwrap().advice = Some(advice);
            let (header, rows, json) = show(&view);
            let of = |name: &str| rows[0][header.iter().position(|head| *head == name).unwrap()].clone();
            let advice = json[0]["advice"].clone();
            (of("IDLE GPUS"), of("DEMAND"), advice["busy_gpus"].clone(), advice["demand_gpus"].clone())
        };
        // Batches that start early keep two busy; deferred ones would keep one busy for less than half of the time.
        let (idle, demand, busy_gpus, demand_gpus) = shown(2.25, Some(0.4), Vec::new());
        assert_eq!((idle.as_str(), demand.as_str()), ("0.8 of 3", "0.4 of 3"));
        assert_eq!((busy_gpus, demand_gpus), (json!(2.25), json!(0.4)));
        let aside = SlowGpuView { gpu: GpuId::new(3), slowdown: 2.0, failed: 0, quarantined_ms: Some(900) };
        let (idle, demand, _, demand_gpus) = shown(1.5, None, vec![aside]);
        assert_eq!((idle.as_str(), demand.as_str()), ("0.5 of 2", "-"), "it serves nobody");
        assert_eq!(demand_gpus, Value::Null, "a lead that does not measure it");
        let rows = show(&view()).1;
        assert_eq!(rows[0][5..], ["", "", "", "auto"], "nobody has reported");
    }

    #[test]
    fn a_policy_that_failed_is_shown_with_what_it_did_and_what_decides_now() {
        let shown = |policy| {
            let mut view = view();
            view.subclusters.get_mut(&SUBCLUSTER).unwrap().policy = policy;
            let (_, rows, json) = show(&view);
            (rows[0][8].clone(), json[0]["policy"].clone(), json[0]["policy_failed"].clone())
        };
        let named = |failed: Option<&str>| PolicyView { text: "nexus".into(), failed: failed.map(Into::into) };
        assert_eq!(shown(None), ("auto".into(), Value::Null, Value::Null));
        assert_eq!(shown(Some(named(None))), ("nexus".into(), json!("nexus"), Value::Null));
        let failed = shown(Some(named(Some("panicked on n1"))));
        assert_eq!(failed, ("auto (nexus panicked on n1)".into(), json!("nexus"), json!("panicked on n1")));
    }

    #[test]
    fn gpus_on_order_are_told_from_those_that_are_there() {
        let priced = |target, release: &[u32], reason: &str, price_per_hour, fleet| {
            let release = release.iter().map(|&id| GpuId::new(id)).collect();
            let kinds = vec![KindAdviceView { kind: "a100".into(), target, release, price_per_hour }];
            let advice = AdviceView { kinds, fleet, ..advised(reason) };
            let mut view = view();
            let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
            subcluster.advice = Some(advice);
            let subcluster = subcluster.clone();
            super::advice(&view, SUBCLUSTER, &subcluster)
        };
        let shown = |target, release: &[u32], reason: &str| priced(target, release, reason, None, None);
        assert_eq!(shown(4, &[], "enough"), "4 of kind a100 (3 there, 1 on order): enough");
        assert_eq!(shown(3, &[], "enough"), "3 of kind a100 (3 there): enough");
        assert_eq!(shown(2, &[3], "idle"), "2 of kind a100 (3 there, without g3): idle");
        let fleet = FleetAdviceView { budget_per_hour: 9.0, chosen: None, refused: "expected x".into() };
        let words = "3 of kind a100 at 2.5 (3 there): enough; no fleet is chosen: expected x";
        assert_eq!(priced(3, &[], "enough", Some(2.5), Some(fleet)), words);
    }
}
