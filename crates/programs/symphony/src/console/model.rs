//! One model over the last hour. Pure.

use serde_json::{Value, json};
use symphony_protocol::view::View;
use symphony_telemetry::history::{Counts, SLOT_S, SLOTS_MAX, Series};

use super::cluster::{counts_json, model_json};

/// A slot that has been counted for less than this means little, and is not shown before it has more.
const YOUNG_MS: u64 = 2_000;

/// The answer to `/api/console/model`, of a model that the view has.
pub(super) fn json(view: &View, name: &str, series: &Series, notes: &[String], now_unix_ms: u64) -> Value {
    let mut all = Counts::default();
    for counts in series.slots.values() {
        all.add(counts);
    }
    let now_s = now_unix_ms / 1000;
    let slots = series.slots.iter().filter_map(|(&at, counts)| {
        // The present slot is not over, and the first one may have begun before counting did.
        let (begin, end) = (at.saturating_mul(1000), at.saturating_add(SLOT_S).saturating_mul(1000));
        let counted_ms = end.min(now_unix_ms).saturating_sub(begin.max(series.began_unix_ms));
        if end > now_unix_ms && counted_ms < YOUNG_MS {
            return None;
        }
        let mut slot = counts_json(counts, counted_ms as f64 / 1e3);
        slot["at"] = at.into();
        Some(slot)
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

    #[test]
    fn the_rates_of_the_first_and_the_present_slot_are_of_the_time_that_was_counted() {
        // The first slot ends 4 s after the process has begun; counts are of its end and of the second slot's begin.
        let began = NOW_MS + 6_000;
        let mut series = scene::history(0).of_model("m").series(began);
        series.began_unix_ms = began;
        for (at, in_time) in [(NOW_MS / 1000, 8), (NOW_MS / 1000 + 10, 5)] {
            series.slots.insert(at, Counts { in_time, ..Counts::default() });
        }
        let rates = |now_ms| {
            let shown = json(&scene::view(), "m", &series, &[], now_ms);
            let slots = shown["slots"].as_array().unwrap().iter();
            slots.map(|slot| slot["rate_rps"].as_f64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(rates(NOW_MS + 12_500), [2.0, 2.0]);
        assert_eq!(rates(NOW_MS + 11_900), [2.0], "it has just begun");
        // The clocks of the processes that counted are ahead.
        assert_eq!(rates(NOW_MS + 9_000), [8.0 / 3.0]);
    }
}
