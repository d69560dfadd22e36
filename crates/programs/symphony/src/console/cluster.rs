//! The whole cluster: models, sub-clusters, GPUs, processes, events. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use symphony_protocol::view::View;
use symphony_telemetry::history::{Counts, Overview};
use symphony_types::Level;

use super::ProcessInfo;
use crate::inspect::models::{model_state, no_gpu};
use crate::inspect::{events, members, subcluster_name};

/// Events that are shown, the newest: a screen or two. `symphony get events` has all that are kept.
const EVENTS_MAX: usize = 128;

/// The answer to `/api/console`. `load` is what `top` shows of queues and GPUs, `histories` what each frontend counted.
pub(super) fn json(
    view: &View,
    load: &Value,
    histories: BTreeMap<String, Overview>,
    me: &ProcessInfo,
    notes: &[String],
    now_unix_ms: u64,
) -> Value {
    let versions: BTreeMap<_, _> =
        histories.iter().map(|(frontend, history)| (frontend.clone(), history.version.clone())).collect();
    let mut all = Overview::default();
    for history in histories.into_values() {
        all.add(history);
    }
    let mut notes = notes.to_vec();
    if all.left_out > 0 {
        notes.push(format!("{} requests of models beyond those that a frontend remembers are not shown", all.left_out));
    }
    notes.extend(view.subclusters.values().filter_map(|own| {
        let policy = own.policy.as_ref()?;
        let failed = policy.failed.as_ref()?;
        Some(format!(
            "policy {} of sub-cluster {} {failed}: each model has its own policy until one is set again",
            policy.text, own.name
        ))
    }));
    let unread = all.models.get("").map(|unread| unread.recent.reasons.clone()).unwrap_or_default();
    json!({
        "cluster": view.cluster, "epoch": view.epoch.get(), "applied_index": view.applied_index,
        "control_leader": view.control_leader.map(|node| node.get()), "role": me.role, "name": me.name,
        "version": env!("CARGO_PKG_VERSION"), "now_unix_ms": now_unix_ms, "over_s": all.over_s, "notes": notes,
        "models": models(view, load, &all), "refused_unread": unread, "subclusters": load["subclusters"],
        "gpus": load["gpus"], "processes": processes(view, &versions, me), "events": last_events(view),
    })
}

/// A single reading shows what waits, and not what GPUs did between two.
pub(super) fn forget_gpu_times(load: &mut Value) {
    for (table, keys) in [("gpus", ["busy", "batches_per_s"]), ("subclusters", ["idle_fraction", "demand_gpus"])] {
        for row in load[table].as_array_mut().into_iter().flatten() {
            for key in keys {
                row[key] = Value::Null;
            }
        }
    }
}

/// What was counted, without the buckets, and the rates of it.
pub(super) fn counts_json(counts: &Counts, over_s: f64) -> Value {
    let per_s = |count: u64| (over_s > 0.0).then(|| count as f64 / over_s);
    let ended = counts.in_time + counts.bad();
    json!({
        "rate_rps": per_s(counts.ended()), "in_time_rps": per_s(counts.in_time), "late_rps": per_s(counts.late),
        "dropped_rps": per_s(counts.dropped), "failed_rps": per_s(counts.failed),
        "cancelled_rps": per_s(counts.cancelled), "refused_rps": per_s(counts.refused),
        "bad_rate": (ended > 0).then(|| counts.bad() as f64 / ended as f64),
        "p50_ms": counts.quantile_ms(0.5), "p99_ms": counts.quantile_ms(0.99), "batch": counts.mean_batch(),
        "waiting": (over_s > 0.0).then(|| counts.waited_s / over_s), "reasons": counts.reasons,
    })
}

/// What is configured of a model, and how it is.
pub(super) fn model_json(view: &View, name: &str) -> Option<Value> {
    let (id, model) = view.model_named(name)?;
    let failed = model.holders.values().find_map(|holder| holder.state.clone().err());
    // A report by a backend that is gone does not concern the present ones.
    let reason = no_gpu(view, model).map(str::to_owned).or(failed);
    Some(json!({
        "name": model.spec.name, "subcluster": subcluster_name(view, model.subcluster),
        "slo_ms": model.spec.slo.as_millis_f64(), "policy": model.spec.policy.to_string(),
        "ready": model.is_ready(view), "state": model_state(view, id, model), "reason": reason,
        "backends": model.holders.values().filter(|holder| holder.state.is_ok()).count(),
    }))
}

fn models(view: &View, load: &Value, all: &Overview) -> Vec<Value> {
    let queued: BTreeMap<_, _> = load["models"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|model| Some((model["name"].as_str()?, &model["queued"])))
        .collect();
    let one = |name: &str| {
        let mut shown = model_json(view, name)?;
        let summary = all.models.get(name);
        // Of a model that frontends do not remember it is unknown whether it had requests.
        let over_s = if summary.is_none() && all.left_out > 0 { 0.0 } else { all.over_s };
        let summary = summary.cloned().unwrap_or_default();
        shown["now"] = counts_json(&summary.recent, over_s);
        shown["trend"] = json!(summary.trend);
        shown["queued"] = queued.get(name).map_or(Value::Null, |&queued| queued.clone());
        Some(shown)
    };
    view.models.values().filter_map(|model| one(&model.spec.name)).collect()
}

fn last_events(view: &View) -> Value {
    let mut events = events::named_json(view);
    if let Some(events) = events.as_array_mut() {
        events.drain(..events.len().saturating_sub(EVENTS_MAX));
    }
    events
}

fn processes(view: &View, versions: &BTreeMap<String, String>, me: &ProcessInfo) -> Value {
    let mut processes = members::show(view).2;
    for process in processes.as_array_mut().into_iter().flatten() {
        let version = match (process["role"].as_str(), process["name"].as_str(), process["id"].as_str()) {
            (Some("frontend"), Some(name), _) => versions.get(name).cloned(),
            (Some(role), name, id) if role == me.role && [name, id].contains(&Some(me.name.as_str())) => {
                Some(env!("CARGO_PKG_VERSION").to_owned())
            }
            _ => None,
        };
        process["version"] = json!(version.or_else(|| minor_release(&process["level"])));
        let leads = process["role"] == "scheduler"
            && view.control_leader.is_some_and(|leader| process["id"] == leader.to_string());
        process["control_leader"] = leads.into();
    }
    processes
}

/// The release of a process whose own version is not known, to the minor one: each has a level of its own, the newest
/// that it knows.
fn minor_release(level: &Value) -> Option<String> {
    let level = Level::new(u16::try_from(level.as_u64()?).ok()?);
    let since = level.is_read().then(|| level.formats().since)?;
    Some(since.rsplit_once('.')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::EventView;

    use super::super::scene::{self, NOW_MS};
    use super::*;
    use crate::inspect::sample::Sample;
    use crate::top::Window;

    #[test]
    fn a_cluster_has_the_requests_of_all_frontends_beside_its_models() {
        let view = scene::view();
        let load = json!({ "models": [{ "name": "m", "queued": 7 }], "gpus": [{ "id": 4 }], "subclusters": [] });
        let histories = [("front", 30), ("other", 10)];
        let histories = histories.map(|(name, requests)| (name.to_owned(), scene::history(requests).overview(NOW_MS)));
        let shown = json(&view, &load, histories.into(), &scene::me(), &["a note".into()], NOW_MS);

        let model = &shown["models"][0];
        assert_eq!((&model["name"], &model["slo_ms"], &model["queued"]), (&"m".into(), &25.0.into(), &7.into()));
        // 40 in the minute that the frontends have been there, of which 4 were dropped.
        let now = &model["now"];
        let seconds = shown["over_s"].as_f64().unwrap();
        assert!((now["rate_rps"].as_f64().unwrap() * seconds - 40.0).abs() < 1e-9, "{shown}");
        assert_eq!((&now["bad_rate"], &now["reasons"]["dropped queue_full"]), (&0.1.into(), &4.into()));
        assert!(now["p99_ms"].is_f64() && now["latency"].is_null(), "buckets are not for the page");
        let quiet = &shown["models"][1];
        assert_eq!((&quiet["now"]["rate_rps"], &quiet["now"]["p99_ms"]), (&0.0.into(), &Value::Null));
        assert_eq!((&quiet["queued"], &quiet["trend"]), (&Value::Null, &json!([])));
        assert_eq!((&shown["gpus"][0]["id"], &shown["notes"]), (&4.into(), &json!(["a note"])));
        assert_eq!(shown["events"][0]["at_unix_ms"], NOW_MS);
        let of = |role: &str| {
            let found = shown["processes"].as_array().unwrap().iter().find(|process| process["role"] == role);
            found.unwrap().clone()
        };
        assert_eq!(of("frontend")["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!((&of("scheduler")["control_leader"], &of("backend")["version"]), (&true.into(), &Value::Null));
    }

    #[test]
    fn processes_that_do_not_say_their_version_have_the_release_of_their_level() {
        let mut view = scene::view();
        for backend in view.backends.values_mut() {
            backend.level = Some(Level::NEWEST);
        }
        let shown = processes(&view, &BTreeMap::new(), &scene::me());
        let version = |role: &str| {
            let found = shown.as_array().unwrap().iter().find(|process| process["role"] == role);
            found.unwrap()["version"].clone()
        };
        let (minor, _) = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap();
        assert_eq!((version("backend"), version("scheduler")), (minor.into(), Value::Null), "{shown}");
        assert_eq!(minor_release(&json!(Level::NEWEST.get() + 1)), None, "a release of which this one knows nothing");
    }

    #[test]
    fn gpu_times_are_unknown_after_one_look() {
        let at = std::time::Duration::from_secs(1);
        let mut load = Window::new(at).take(Sample::of_view(at, scene::view())).json();
        forget_gpu_times(&mut load);
        assert_eq!((&load["span_s"], &load["gpus"][0]["id"]), (&0.0.into(), &4.into()));
        assert!(load["gpus"][0]["busy"].is_null() && load["subclusters"][0]["idle_fraction"].is_null(), "{load}");
        assert_eq!(load["models"][0]["queued"], 2);
    }

    #[test]
    fn the_newest_events_are_shown() {
        let mut view = scene::view();
        let event = |index| EventView { index, at_unix_ms: NOW_MS, what: "scheduler n1 is up".into() };
        view.events = (0..2 * EVENTS_MAX as u64).map(event).collect();
        let events = last_events(&view);
        let events = events.as_array().unwrap();
        assert_eq!((events.len(), &events[0]["index"]), (EVENTS_MAX, &(EVENTS_MAX as u64).into()));
    }

    #[test]
    fn a_model_that_is_not_remembered_has_no_numbers() {
        let mut history = scene::history(30).overview(NOW_MS);
        history.left_out = 1;
        let shown = json(&scene::view(), &json!({}), [("front".into(), history)].into(), &scene::me(), &[], NOW_MS);
        assert!(shown["models"][0]["now"]["rate_rps"].is_f64(), "{shown}");
        assert!(shown["models"][1]["now"]["rate_rps"].is_null(), "{shown}");
    }

    #[test]
    fn nobody_has_counted_and_that_is_not_zero() {
        let shown = json(&scene::view(), &json!({}), BTreeMap::new(), &scene::me(), &[], NOW_MS);
        let now = &shown["models"][0]["now"];
        assert!(now["rate_rps"].is_null() && now["p99_ms"].is_null() && now["bad_rate"].is_null(), "{now}");
    }
}
