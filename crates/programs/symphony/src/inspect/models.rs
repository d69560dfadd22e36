//! Models: whether they are served, where, and how.

use serde_json::{Value, json};
use symphony_protocol::view::{DriftView, ModelView, Readiness, View};
use symphony_types::{ModelId, SubclusterId, VersionedName};

use super::{Shown, subcluster_name};

/// All models.
pub(crate) fn show(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (id, model) in &view.models {
        let ready = model.is_ready(view);
        let failed = failure(model);
        let state = model_state(view, *id, model);
        let subcluster = subcluster_name(view, model.subcluster);
        let going = moves_to(view, model);
        let drifts = drifts(view, *id, model.subcluster);
        let drifts: Vec<_> = drifts.iter().map(|drift| json!({ "kind": drift.kind, "factor": drift.factor })).collect();
        let slo_ms = model.spec.slo.as_millis_f64();
        let (policy, decides) = (model.spec.policy.to_string(), decides(view, model));
        let shown = decides.map_or_else(|| policy.clone(), |decides| format!("{policy} ({decides} decides)"));
        rows.push(vec![
            id.to_string(),
            model.spec.name.clone(),
            subcluster.clone(),
            format!("{slo_ms} ms"),
            shown,
            model.spec.value.to_string(),
            state,
        ]);
        json.push(json!({ "id": id.get(), "name": model.spec.name, "subcluster": subcluster, "slo_ms": slo_ms,
                          "policy": policy, "decides": decides, "value": model.spec.value.number(), "ready": ready, "error": failed, "no_gpu": no_gpu(view, model),
                          "moves_to": going, "measured": drifts, "family": family(view, model) }));
    }
    (&["ID", "NAME", "SUBCLUSTER", "SLO", "POLICY", "VALUE", "STATE"], rows, Value::Array(json))
}

/// The policy that decides for its whole sub-cluster in place of its own, if one does.
pub(crate) fn decides<'a>(view: &'a View, model: &ModelView) -> Option<&'a str> {
    let policy = view.subclusters.get(&model.subcluster)?.policy.as_ref()?;
    policy.failed.is_none().then_some(&policy.text)
}

/// The trunk that it shares, and the models that share it, itself included.
fn family(view: &View, model: &ModelView) -> Option<Value> {
    let trunk = model.shared_trunk()?;
    let members = view.family_of(model).into_iter().filter_map(|id| Some(view.models.get(&id)?.spec.name.clone()));
    Some(json!({ "trunk": format!("{:032x}", trunk.get()), "models": members.collect::<Vec<_>>() }))
}

/// Why no GPU serves it, if none does.
pub(crate) fn no_gpu(view: &View, model: &ModelView) -> Option<&'static str> {
    if let Readiness::NoGpu(why) = model.readiness(view) { Some(why.words()) } else { None }
}

/// Why a backend failed to load it, if one did.
fn failure(model: &ModelView) -> Option<String> {
    model.holders.values().find_map(|holder| holder.state.clone().err())
}

/// What the version gets of the requests that name none, if they are split.
fn gets(view: &View, model: &ModelView) -> Option<String> {
    let VersionedName { name, version } = VersionedName::parse(&model.spec.name);
    let traffic = view.traffic.get(name)?;
    let total: u64 = traffic.weights.values().map(|&weight| u64::from(weight)).sum();
    let part = traffic.weights.get(&version).map(|&weight| f64::from(weight) * 100.0 / total as f64);
    let copies = traffic.shadow.filter(|shadow| shadow.version == version).map(|shadow| shadow.percent);
    match (part, copies) {
        (Some(part), None) => Some(format!("{part:.1} % of the requests without a version")),
        (None, Some(copies)) => Some(format!("copies of {copies} % of the requests")),
        (Some(part), Some(copies)) => Some(format!("{part:.1} % of the requests, and copies of {copies} %")),
        (None, None) => (!traffic.weights.is_empty()).then(|| "no request without a version".to_owned()),
    }
}

/// The target of a model's move, until it is served there.
fn moves_to(view: &View, model: &ModelView) -> Option<String> {
    model.moving.filter(|moving| moving.switched.is_none()).map(|moving| subcluster_name(view, moving.to))
}

/// Whether a model is served, whether it moves, and whether its batches match its profile.
pub(crate) fn model_state(view: &View, id: ModelId, model: &ModelView) -> String {
    let state = match (model.readiness(view), failure(model)) {
        // It is served by the backends that hold it; the other one is not used until it does.
        (Readiness::Ready, Some(reason)) => format!("ready, not everywhere: {reason}"),
        (Readiness::Ready, None) => "ready".to_owned(),
        (Readiness::Failed(reason), _) => format!("failed: {reason}"),
        (Readiness::NoGpu(why), _) => why.to_string(),
        (Readiness::Loading, _) => "loading".to_owned(),
    };
    let state = match moves_to(view, model) {
        Some(to) => format!("{state}, moves to {to}"),
        None => state,
    };
    let off = drifts(view, id, model.subcluster);
    let state = match gets(view, model) {
        Some(part) => format!("{state}, gets {part}"),
        None => state,
    };
    let off = off.iter().map(|drift| format!("takes {:.2} times its profile on {}", drift.factor, drift.kind));
    std::iter::once(state).chain(off).collect::<Vec<_>>().join(", ")
}

/// The real execution time of batches, if it differs from the profile: `1.50 × its profile on a100`.
fn drifts(view: &View, id: ModelId, subcluster: SubclusterId) -> Vec<&DriftView> {
    let advice = view.subclusters.get(&subcluster).and_then(|subcluster| subcluster.advice.as_ref());
    advice.map(|advice| advice.drifts.iter().filter(|drift| drift.model == id).collect()).unwrap_or_default()
}
