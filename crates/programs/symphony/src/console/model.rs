//! One model over the last hour. Pure.

use serde_json::{Value, json};
use symphony_protocol::view::View;
use symphony_telemetry::history::{Counts, SLOT_S, SLOTS_MAX, Series};

use super::cluster::{counts_json, model_json};

/// The answer to `/api/console/model`, of a model that the view has.
pub(super) fn json(view: &View, name: &str, series: &Series, notes: &[String], now_unix_ms: u64) -> Value {
    let mut all = Counts::default();
    for counts in series.slots.values() {
        all.add(counts);
    }
    let now_s = now_unix_ms / 1000;
    let slots = series.slots.iter().map(|(&at, counts)| {
        // The present slot is not over.
        let over_s = now_s.saturating_sub(at).clamp(1, SLOT_S);
        let mut slot = counts_json(counts, over_s as f64);
        slot["at"] = at.into();
        slot
    });
    let mut shown = model_json(view, name).unwrap_or_else(|| json!({ "name": name }));
    shown["slots"] = slots.collect();
    shown["slot_s"] = SLOT_S.into();
    shown["hour_s"] = (SLOTS_MAX * SLOT_S).into();
    shown["began_s"] = (series.began_unix_ms / 1000).into();
    shown["now_s"] = now_s.into();
    shown["reasons"] = json!(all.reasons);
    shown["slowest"] = json!(series.slowest);
    shown["unserved"] = json!(series.unserved);
    shown["notes"] = json!(notes);
    shown
}

#[cfg(test)]
mod tests {
    use super::super::scene::{self, NOW_MS};
    use super::*;

    #[test]
    fn a_model_has_its_slots_and_the_requests_to_look_at() {
        let series = scene::history(30).of_model("m").series(NOW_MS);
        let shown = json(&scene::view(), "m", &series, &[], NOW_MS);
        let slot = &shown["slots"][0];
        assert_eq!((&slot["at"], &shown["slot_s"]), (&(NOW_MS / 1000 - 20).into(), &10.into()));
        assert_eq!((&slot["rate_rps"], &slot["bad_rate"]), (&3.0.into(), &0.1.into()));
        assert!(slot["p50_ms"].as_f64().unwrap() > 0.0 && slot["waiting"].as_f64().unwrap() > 0.0, "{slot}");
        assert_eq!((&shown["unserved"][0]["reason"], &shown["slo_ms"]), (&"queue_full".into(), &25.0.into()));
        assert!(shown["slowest"][0]["request"].as_str().unwrap().starts_with("f1/"), "{shown}");
        assert_eq!(shown["reasons"]["dropped queue_full"], 3);
    }
}
