//! The last batches of all GPUs, from what their leaders remember. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use symphony_protocol::view::View;
use symphony_types::ModelId;

/// Batches that are asked for in all: a row of each of some ten GPUs is full of them, and an answer has 2 MB at most.
const BATCHES_MAX: usize = 1536;
/// Models that are asked about; those beyond did least.
const MODELS_MAX: usize = 96;

/// The models that leaders are asked about, by the control address of the leader: those that did most come first.
pub(super) fn models_by_leader(view: &View) -> BTreeMap<String, Vec<ModelId>> {
    let executed = |(id, of): &(ModelId, &str)| {
        let subcluster = view.models.get(id).and_then(|model| view.subclusters.get(&model.subcluster));
        let load = subcluster.and_then(|subcluster| subcluster.load.as_ref()).and_then(|load| load.models.get(id));
        (std::cmp::Reverse(load.map_or(0, |load| load.executed)), (*of).to_owned(), *id)
    };
    let leader = |id: &ModelId| {
        let (leader, _) = view.subclusters.get(&view.models.get(id)?.subcluster)?.leader?;
        let node = view.nodes.get(&leader).filter(|node| node.up && !node.control_addr.is_empty())?;
        Some(node.control_addr.as_str())
    };
    let mut models: Vec<_> = view.models.keys().filter_map(|id| Some((*id, leader(id)?))).collect();
    models.sort_by_cached_key(executed);
    let mut by_leader = BTreeMap::<String, Vec<ModelId>>::new();
    for (id, addr) in models.into_iter().take(MODELS_MAX) {
        by_leader.entry(addr.to_owned()).or_default().push(id);
    }
    by_leader
}

/// The batches to ask for of each of this many models.
pub(super) fn batches_of_each(models: usize) -> u32 {
    (BATCHES_MAX / models.max(1)).min(512) as u32
}

/// The answer to `/api/console/gpus`. `load` is what `top` shows of GPUs, `explanations` are those of batches.
pub(super) fn json(load: &Value, explanations: &[String], notes: &[String], now_unix_ms: u64) -> Value {
    let parsed = explanations.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let mut batches: Vec<_> = parsed.filter_map(|explained| batch(&explained)).collect();
    batches.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let batches: Vec<_> = batches.into_iter().map(|(_, batch)| batch).collect();
    json!({ "gpus": load["gpus"], "batches": batches, "notes": notes, "now_unix_ms": now_unix_ms })
}

/// How long ago a batch began, and what the page shows of it; none if no GPU took it. One whose end was not reported
/// stands where it was planned: that it began before, if it did, is known from its report.
fn batch(explained: &Value) -> Option<(f64, Value)> {
    let outcome = explained["outcome"].as_str()?;
    if matches!(outcome, "refused" | "lost") {
        return None;
    }
    let (batch, ago_ms) = (&explained["batch"], explained["decided_ago_ms"].as_f64()?);
    // `g4 of backend-1`, or the id alone of a GPU that is gone.
    let gpu = batch["gpu"]["name"].as_str()?.split(' ').next()?.strip_prefix('g')?.parse::<u32>().ok()?;
    let (planned, actual) = (&batch["planned"], &batch["actual"]);
    let late_ms = actual["start_late_ms"].as_f64().unwrap_or(0.0);
    let began_ago_ms = ago_ms - planned["start_ms"].as_f64()? - late_ms;
    let planned_ms = planned["execution_ms"].as_f64()?;
    let shown = json!({
        "gpu": gpu, "model": explained["model"], "number": batch["number"], "items": batch["items"],
        "began_ago_ms": began_ago_ms, "ms": actual["execution_ms"].as_f64().unwrap_or(planned_ms),
        "planned_ms": planned_ms, "outcome": outcome,
    });
    Some((began_ago_ms, shown))
}

#[cfg(test)]
mod tests {
    use super::super::scene;
    use super::*;

    fn explained(gpu: &str, outcome: &str, ago_ms: f64, actual: Value) -> String {
        json!({ "model": "m", "outcome": outcome, "decided_ago_ms": ago_ms,
                "batch": { "number": 3, "items": 8, "gpu": { "name": gpu },
                           "planned": { "start_ms": 2.0, "execution_ms": 10.0 }, "actual": actual } })
        .to_string()
    }

    #[test]
    fn batches_stand_at_their_gpus_and_times() {
        let actual = json!({ "start_late_ms": 0.5, "execution_ms": 12.0, "end_ms": 14.5 });
        let answers = [
            explained("g4 of b-1", "in_time", 100.0, actual.clone()),
            explained("g5", "running", 1.0, Value::Null),
            explained("g4 of b-1", "late", 200.0, actual.clone()),
            explained("g4 of b-1", "refused", 50.0, Value::Null),
            explained("a former one", "in_time", 50.0, actual),
            "{".to_owned(),
        ];
        let shown = json(&json!({ "gpus": [{ "id": 4 }] }), &answers, &[], scene::NOW_MS);
        let batches = shown["batches"].as_array().unwrap();
        let times: Vec<_> =
            batches.iter().map(|b| (b["gpu"].as_u64().unwrap(), b["began_ago_ms"].as_f64().unwrap())).collect();
        assert_eq!(times, [(4, 197.5), (4, 97.5), (5, -1.0)], "a batch that is planned begins later");
        assert_eq!((&batches[1]["ms"], &batches[2]["ms"]), (&12.0.into(), &10.0.into()), "or as planned");
        assert_eq!((&batches[2]["outcome"], &batches[0]["items"]), (&"running".into(), &8.into()));
        assert_eq!(shown["gpus"][0]["id"], 4);
    }

    #[test]
    fn leaders_that_are_up_are_asked_about_their_models() {
        let view = scene::view();
        // The sub-cluster of the other model has no leader.
        assert_eq!(models_by_leader(&view), [("n:1".to_owned(), vec![ModelId::new(1)])].into());
        assert_eq!((batches_of_each(0), batches_of_each(4), batches_of_each(96)), (512, 384, 16));
    }
}
