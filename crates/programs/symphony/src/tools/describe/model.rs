//! A model: its versions, what they get, where they are, and how they do.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use symphony_protocol::view::{ModelView, View};
use symphony_repository::versions;
use symphony_types::{ModelId, Nanos, TensorSpec, VersionedName};

use super::{Description, elements, requests, value};
use crate::cli::What;
use crate::inspect::models::{decides, model_state};
use crate::inspect::sample::Sample;
use crate::inspect::subcluster_name;
use crate::suggestions::unknown;
use crate::tools::get::show;
use crate::tools::wide::{source, trunk};

/// A model of this name with all its versions, or one version; or else a model by its id.
pub(super) fn describe(sample: &Sample, name: &str) -> Result<Description, String> {
    let view = &sample.view;
    // A model may be called as another one's id is.
    let is_name = versions(view, name).next().is_some();
    let by_id = view.models.iter().find(|(id, _)| !is_name && id.to_string() == name);
    let name = by_id.map_or(name, |(_, model)| model.spec.name.as_str());
    let called: Vec<_> = versions(view, name).map(|(loaded_as, _)| loaded_as.to_owned()).collect();
    let models: Vec<_> = view.models.iter().filter(|(_, model)| called.contains(&model.spec.name)).collect();
    if models.is_empty() {
        let known = view.models.values().map(|model| model.spec.name.as_str());
        return Err(unknown("model", name, known, "symphony get models"));
    }
    let base = VersionedName::parse(name).name;
    let traffic = view.traffic.get(base).cloned().unwrap_or_default();
    let state = |(id, model): &(&ModelId, &ModelView)| {
        format!("{} ({id}): {}", model.spec.name, model_state(view, **id, model))
    };
    let mut facts = vec![("traffic", traffic.to_string())];
    for (id, model) in &models {
        facts.extend(facts_of(view, **id, model, models.len() > 1));
    }
    let counts: BTreeMap<_, _> = called.iter().map(|name| (name, requests::of_model(sample, name))).collect();
    let by_model = counts.iter().map(|(name, counts)| format!("{name}: {}", requests::words(counts)));
    let lists = vec![
        ("versions", models.iter().map(state).collect()),
        ("backends", models.iter().flat_map(|(_, model)| backends(view, model)).collect()),
        ("requests", by_model.chain(requests::unknown(sample)).collect()),
    ];
    let is_of = |one: &Value| one["name"].as_str().is_some_and(|own| called.iter().any(|name| name == own));
    let mut json = value("model", name, &elements(show(view, What::Models).2, is_of));
    json["traffic"] = json!({ "weights": traffic.weights, "shadow": traffic.shadow.map(|shadow| {
        json!({ "version": shadow.version, "percent": shadow.percent })
    }) });
    json["requests"] = counts.iter().map(|(name, counts)| ((*name).clone(), requests::value(counts))).collect();
    let waiting = models.iter().map(|(id, model)| {
        let queued = queued(view, **id, model).map(|(queued, _)| queued);
        (model.spec.name.clone(), json!(queued))
    });
    json["queued"] = waiting.collect();
    let ids: Vec<_> = models.iter().map(|(id, _)| id.to_string()).collect();
    let names = called.iter().chain(&ids).map(String::as_str).chain([base]).collect::<Vec<_>>();
    Ok(Description { title: format!("model {name}"), facts, lists, json }.with_events(view, &names))
}

/// What is set of a version, and where it waits to run.
fn facts_of(view: &View, id: ModelId, model: &ModelView, is_one_of_many: bool) -> Vec<(&'static str, String)> {
    let spec = &model.spec;
    let home = view.subclusters.get(&model.subcluster);
    let leader = home.and_then(|home| home.leader).map_or_else(|| "none".to_owned(), |(node, _)| node.to_string());
    let subcluster = subcluster_name(view, model.subcluster);
    let place = format!("on {subcluster} ({}), led by {leader}", model.subcluster);
    let kinds = spec.profiles.iter().map(|(kind, profile)| {
        let (one, most) = (profile.latency.latency(1), profile.latency.batch_max());
        let (one, all) = (one.as_millis_f64(), profile.latency.latency(most).as_millis_f64());
        format!("{kind}: {one:.2} ms for one, {all:.2} ms for {most}")
    });
    let tensors = |tensors: &[TensorSpec]| {
        let one = |spec: &TensorSpec| format!("{} {} {:?}", spec.name, spec.data_type, spec.item_shape);
        tensors.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let queue = queued(view, id, model)
        .map(|(queued, age)| format!("{queued} waited {:.1} s ago, as its leader reported", age.as_secs_f64()));
    let version = if is_one_of_many { spec.name.clone() } else { String::new() };
    let policy = match decides(view, model) {
        Some(decides) => format!("{} ({decides} decides for its sub-cluster)", spec.policy),
        None => spec.policy.to_string(),
    };
    vec![
        ("version", version),
        ("served", place),
        ("SLO", format!("{} ms", spec.slo.as_millis_f64())),
        ("policy", policy),
        ("value", spec.value.to_string()),
        ("source", source(&spec.source)),
        ("trunk", trunk(view, model).map(|shared| format!("{shared} models")).unwrap_or_default()),
        ("inputs", tensors(&spec.signature.inputs)),
        ("outputs", tensors(&spec.signature.outputs)),
        ("profile", kinds.collect::<Vec<_>>().join("; ")),
        ("queue", queue.unwrap_or_default()),
    ]
}

/// How many requests waited, and how long ago.
fn queued(view: &View, id: ModelId, model: &ModelView) -> Option<(u64, Nanos)> {
    let load = view.subclusters.get(&model.subcluster)?.load.as_ref()?;
    Some((load.models.get(&id)?.queued, load.age))
}

/// Whether each backend of its sub-cluster has it.
fn backends(view: &View, model: &ModelView) -> Vec<String> {
    let state = |(id, backend): (&symphony_types::BackendId, &symphony_protocol::view::BackendView)| {
        let holder = model.holders.get(id).filter(|holder| holder.boot == backend.boot);
        let state = match holder.map(|holder| &holder.state) {
            _ if !backend.up => "the backend is down".to_owned(),
            Some(Ok(())) if backend.duty.takes_work() => "ready".to_owned(),
            Some(Ok(())) => format!("loaded; the backend is {}", backend.duty),
            Some(Err(reason)) => format!("failed: {reason}"),
            None => "loading".to_owned(),
        };
        format!("{} on {}: {state}", model.spec.name, backend.name)
    };
    view.backends.iter().filter(|(_, backend)| backend.is_to_hold(model)).map(state).collect()
}
