//! Computes the rates between two samples of a cluster. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use symphony_protocol::view::{BackendView, GpuView, LoadView, SubclusterView, View};
use symphony_telemetry::buckets::{REQUEST_SECONDS, quantile};
use symphony_types::{GpuId, ModelId, SubclusterId};

use super::budgets::{self, Budget};
use super::row::{Cell, Row, Table};
use crate::inspect::gpus::gpu_state;
use crate::inspect::models::model_state;
use crate::inspect::sample::{FrontendCounts, ModelCounts, Sample};
use crate::inspect::subcluster_name;
use crate::inspect::subclusters::{advice_json, policy};

/// After this silence a lead is not shown as idle, and its queue as unknown: a lead without changes reports every four
/// seconds.
const SILENT_AFTER: Duration = Duration::from_secs(6);
/// Reports whose ages differ by less than this are the same: a lead reports at most once a second.
const SAME_REPORT: Duration = Duration::from_millis(250);

const SUBCLUSTERS: &[&str] = &[
    "SUBCLUSTER",
    "LEADER",
    "TOKEN",
    "MODELS",
    "GPUS",
    "RATE /S",
    "BAD RATE",
    "IDLE GPUS",
    "DEMAND",
    "QUEUE",
    "POLICY",
    "GPUS WANTED",
];
const MODELS: &[&str] = &[
    "MODEL",
    "SUBCLUSTER",
    "SLO",
    "P50 MS",
    "P99 MS",
    "RATE /S",
    "IN TIME /S",
    "LATE /S",
    "DROPPED /S",
    "FAILED /S",
    "REFUSED /S",
    "BATCH",
    "QUEUE",
    "STATE",
];
const GPUS: &[&str] = &["GPU", "KIND", "BACKEND", "SUBCLUSTER", "BUSY", "BATCHES /S", "STATE"];

/// The tables and the lines above them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Screen {
    cluster: String,
    epoch: u64,
    applied_index: u64,
    control_leader: Option<u64>,
    span: Duration,
    /// Missing data and the reason, for display.
    pub(super) notes: Vec<String>,
    /// What sub-clusters with a budget should have for it.
    pub(super) budgets: Vec<Budget>,
    /// Sub-clusters, models, GPUs.
    pub(super) tables: [Table; 3],
    json: [Vec<Value>; 3],
}

/// Rates of a model's outcomes, per second.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    all: f64,
    in_time: f64,
    late: f64,
    dropped: f64,
    failed: f64,
    refused: f64,
    items: f64,
    batches: f64,
}

impl Rates {
    fn between(before: &ModelCounts, now: &ModelCounts, span_s: f64) -> Self {
        let per_s = |before: u64, now: u64| now.saturating_sub(before) as f64 / span_s;
        Self {
            all: per_s(before.received, now.received),
            in_time: per_s(before.in_time, now.in_time),
            late: per_s(before.late, now.late),
            dropped: per_s(before.dropped, now.dropped),
            failed: per_s(before.failed, now.failed),
            refused: per_s(before.refused, now.refused),
            items: per_s(before.executed_items, now.executed_items),
            batches: (now.executed_batches - before.executed_batches).max(0.0) / span_s,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            in_time: self.in_time + other.in_time,
            late: self.late + other.late,
            dropped: self.dropped + other.dropped,
            failed: self.failed + other.failed,
            refused: self.refused + other.refused,
            items: self.items + other.items,
            batches: self.batches + other.batches,
        }
    }

    /// Share of requests that were late, dropped or failed; zero without requests.
    fn bad_rate(self) -> Option<f64> {
        let (bad, ended) = (self.bad(), self.bad() + self.in_time);
        (ended > 0.0).then(|| bad / ended)
    }

    fn bad(self) -> f64 {
        self.late + self.dropped + self.failed
    }

    fn mean_batch(self) -> Option<f64> {
        (self.batches > 0.0).then(|| self.items / self.batches)
    }
}

/// A GPU's counters, per second.
#[derive(Clone, Copy, Debug, Default)]
struct GpuRates {
    busy: Option<f64>,
    batches: Option<f64>,
}

/// The leads' counters, per second.
#[derive(Clone, Debug, Default)]
struct LeadRates {
    gpus: BTreeMap<GpuId, GpuRates>,
    /// GPUs that the demand keeps busy, over the leads that measure it.
    demand: BTreeMap<SubclusterId, f64>,
}

impl Screen {
    /// The changes between two samples of the same cluster.
    pub(super) fn of(before: &Sample, now: &Sample) -> Self {
        let (view, span) = (&now.view, now.at.saturating_sub(before.at));
        let rates = model_rates(before, now, span);
        let lead_rates = lead_rates(before, now, span);
        let (subclusters, subclusters_json) =
            view.subclusters.keys().map(|&id| subcluster(view, id, rates.as_ref(), &lead_rates)).unzip();
        let latencies = latencies(before, now);
        let (models, models_json) = view.models.keys().map(|&id| model(view, id, rates.as_ref(), &latencies)).unzip();
        let gpus = view.backends.values().flat_map(|backend| backend.gpus.iter().map(move |gpu| (backend, gpu)));
        let (gpus, gpus_json) = gpus.map(|(backend, of)| gpu(view, backend, of, &lead_rates.gpus)).unzip();
        Self {
            cluster: view.cluster.clone(),
            epoch: view.epoch.get(),
            applied_index: view.applied_index,
            control_leader: view.control_leader.map(|node| node.get()),
            span,
            notes: notes(now, rates.is_some()),
            budgets: budgets::budgets(view),
            tables: [
                Table { title: "sub-clusters", header: SUBCLUSTERS, rows: subclusters },
                Table { title: "models", header: MODELS, rows: models },
                Table { title: "GPUs", header: GPUS, rows: gpus },
            ],
            json: [subclusters_json, models_json, gpus_json],
        }
    }

    /// The line above the tables.
    pub(super) fn headline(&self) -> String {
        let leader = self.control_leader.map_or_else(|| "unknown".to_owned(), |node| format!("n{node}"));
        format!(
            "{}: epoch {}, log index {}, control leader {leader}; rates of the last {:.1} s",
            self.cluster,
            self.epoch,
            self.applied_index,
            self.span.as_secs_f64()
        )
    }

    /// All data for programs; unknown values are null.
    pub(crate) fn json(&self) -> Value {
        let [subclusters, models, gpus] = &self.json;
        json!({ "cluster": self.cluster, "epoch": self.epoch, "applied_index": self.applied_index,
                "control_leader": self.control_leader, "span_s": self.span.as_secs_f64(), "notes": self.notes,
                "subclusters": subclusters, "models": models, "gpus": gpus })
    }
}

/// The frontends that answered both times in the same boot, with what they said then and now.
fn answered_twice<'a>(
    before: &'a Sample,
    now: &'a Sample,
) -> impl Iterator<Item = (&'a FrontendCounts, &'a FrontendCounts)> {
    now.frontends.iter().filter_map(|(id, counts)| {
        let (now, before) = (counts.as_ref().ok()?, before.frontends.get(id)?.as_ref().ok()?);
        (now.boot == before.boot).then_some((before, now))
    })
}

/// How many requests took how long between two samples, by model name and bucket.
fn latencies(before: &Sample, now: &Sample) -> BTreeMap<String, Vec<u64>> {
    let mut all = BTreeMap::<String, Vec<u64>>::new();
    for (before, now) in answered_twice(before, now) {
        for (model, counted) in &now.models {
            let earlier = before.models.get(model).map_or(&[][..], |counted| counted.latency_counts.as_slice());
            let sum = all.entry(model.clone()).or_default();
            sum.resize(sum.len().max(counted.latency_counts.len()), 0);
            for (at, (sum, count)) in sum.iter_mut().zip(&counted.latency_counts).enumerate() {
                *sum += count.saturating_sub(earlier.get(at).copied().unwrap_or(0));
            }
        }
    }
    all
}

/// By model name, over all frontends that answered both times in the same boot; `None` if there is none.
fn model_rates(before: &Sample, now: &Sample, span: Duration) -> Option<BTreeMap<String, Rates>> {
    if span.is_zero() {
        return None;
    }
    let both = answered_twice(before, now);
    let (mut known, mut all) = (false, BTreeMap::<String, Rates>::new());
    for (before, now) in both {
        known = true;
        for (model, counted) in &now.models {
            let nothing = ModelCounts::default();
            let rates = Rates::between(before.models.get(model).unwrap_or(&nothing), counted, span.as_secs_f64());
            let sum = all.entry(model.clone()).or_default();
            *sum = sum.and(rates);
        }
    }
    known.then_some(all)
}

/// The changes of leads' counters between their reports.
fn lead_rates(before: &Sample, now: &Sample, span: Duration) -> LeadRates {
    let mut all = LeadRates::default();
    for (id, subcluster) in &now.view.subclusters {
        let earlier = before.view.subclusters.get(id).and_then(|subcluster| subcluster.load.as_ref());
        let (Some(later), Some(earlier)) = (recent_load(subcluster), earlier) else { continue };
        let (gpus, demand) = rates_of_lead(earlier, later, span);
        all.gpus.extend(gpus);
        all.demand.extend(demand.map(|demand| (*id, demand)));
    }
    all
}

/// The last report of a sub-cluster's lead, if recent.
fn recent_load(subcluster: &SubclusterView) -> Option<&LoadView> {
    subcluster.load.as_ref().filter(|load| Duration::from(load.age) <= SILENT_AFTER)
}

/// The work of its GPUs, and the number that the demand keeps busy.
fn rates_of_lead(earlier: &LoadView, later: &LoadView, span: Duration) -> (BTreeMap<GpuId, GpuRates>, Option<f64>) {
    // Counters restart under another token.
    if earlier.token != later.token {
        return (BTreeMap::new(), None);
    }
    // Between reports, which are not at the times of the samples.
    let apart = (span + Duration::from(earlier.age)).saturating_sub(later.age.into());
    let same = apart < SAME_REPORT;
    // A lead without changes does not report for a while.
    let per_s = |count: f64| if same { 0.0 } else { count / apart.as_secs_f64() };
    let rates = later.gpus.iter().filter_map(|(gpu, counted)| {
        let before = earlier.gpus.get(gpu)?;
        let busy = per_s((counted.busy - before.busy).as_secs_f64()).min(1.0);
        let batches = per_s(counted.plans.saturating_sub(before.plans) as f64);
        Some((*gpu, GpuRates { busy: Some(busy), batches: Some(batches) }))
    });
    // Under overload this exceeds the number of GPUs.
    let demand = later.demand.zip(earlier.demand).map(|(later, earlier)| per_s((later - earlier).as_secs_f64()));
    (rates.collect(), demand)
}

fn subcluster(
    view: &View,
    id: SubclusterId,
    rates: Option<&BTreeMap<String, Rates>>,
    lead_rates: &LeadRates,
) -> (Row, Value) {
    let subcluster = &view.subclusters[&id];
    let models: Vec<_> = view.models.values().filter(|model| model.subcluster == id).collect();
    let sum = rates.map(|rates| {
        let of = models.iter().filter_map(|model| rates.get(&model.spec.name).copied());
        of.fold(Rates::default(), Rates::and)
    });
    let serving = view.backends.values().filter(|b| b.subcluster == id && b.up && b.duty.takes_work());
    let gpus: Vec<_> = serving.flat_map(|backend| &backend.gpus).map(|gpu| gpu.id).collect();
    let busy: Option<Vec<f64>> = gpus.iter().map(|gpu| lead_rates.gpus.get(gpu).and_then(|rates| rates.busy)).collect();
    let idle = busy.filter(|busy| !busy.is_empty()).map(|busy| 1.0 - busy.iter().sum::<f64>() / busy.len() as f64);
    let demand = lead_rates.demand.get(&id).copied();
    let queued = recent_load(subcluster).map(|load| load.models.values().map(|model| model.queued).sum());
    let leader = subcluster.leader.map(|(node, _)| node);
    let (rate, bad_rate) = (sum.map(|sum| sum.all), sum.and_then(Rates::bad_rate));
    let policy_failed = subcluster.policy.as_ref().and_then(|policy| policy.failed.as_ref());
    let row = Row {
        key: subcluster.name.clone(),
        subcluster: subcluster.name.clone(),
        cells: vec![
            Cell::Text(subcluster.name.clone()),
            Cell::Text(leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string())),
            Cell::Count(Some(subcluster.token.get())),
            Cell::Count(Some(models.len() as u64)),
            Cell::Count(Some(gpus.len() as u64)),
            Cell::Rate(rate),
            Cell::Share(bad_rate),
            Cell::Share(idle),
            Cell::GpusOf(demand, gpus.len()),
            Cell::Count(queued),
            Cell::Text(policy(subcluster)),
            Cell::Text(budgets::in_short(subcluster.advice.as_ref())),
        ],
        alarming: leader.is_none() || policy_failed.is_some() || bad_rate.is_some_and(|bad| bad > 0.0),
    };
    let json = json!({ "name": subcluster.name, "leader": leader.map(|node| node.get()), "token": subcluster.token.get(),
                       "models": models.len(), "gpus": gpus.len(), "rate_rps": rate, "bad_rate": bad_rate,
                       "idle_fraction": idle, "demand_gpus": demand, "queued": queued,
                       "policy": subcluster.policy.as_ref().map(|policy| &policy.text), "policy_failed": policy_failed,
                       "advice": subcluster.advice.as_ref().map(advice_json) });
    (row, json)
}

fn model(
    view: &View,
    id: ModelId,
    rates: Option<&BTreeMap<String, Rates>>,
    latencies: &BTreeMap<String, Vec<u64>>,
) -> (Row, Value) {
    let model = &view.models[&id];
    let (name, subcluster) = (model.spec.name.clone(), subcluster_name(view, model.subcluster));
    let latency = latencies.get(&name).map_or(&[][..], Vec::as_slice);
    let millis = |share| quantile(&REQUEST_SECONDS, latency, share).map(|seconds| seconds * 1e3);
    let (p50_ms, p99_ms) = (millis(0.5), millis(0.99));
    let rates = rates.map(|rates| rates.get(&name).copied().unwrap_or_default());
    let of = |rate: fn(&Rates) -> f64| rates.as_ref().map(rate);
    let batch = rates.and_then(Rates::mean_batch);
    let load = view.subclusters.get(&model.subcluster).and_then(recent_load);
    let queued = load.and_then(|load| load.models.get(&id)).map(|load| load.queued);
    let slo_ms = model.spec.slo.as_millis_f64();
    let row = Row {
        key: name.clone(),
        subcluster: subcluster.clone(),
        cells: vec![
            Cell::Text(name.clone()),
            Cell::Text(subcluster.clone()),
            Cell::Text(format!("{slo_ms} ms")),
            Cell::Millis(p50_ms),
            Cell::Millis(p99_ms),
            Cell::Rate(of(|rates| rates.all)),
            Cell::Rate(of(|rates| rates.in_time)),
            Cell::Rate(of(|rates| rates.late)),
            Cell::Rate(of(|rates| rates.dropped)),
            Cell::Rate(of(|rates| rates.failed)),
            Cell::Rate(of(|rates| rates.refused)),
            Cell::Mean(batch),
            Cell::Count(queued),
            Cell::Text(model_state(view, id, model)),
        ],
        alarming: !model.is_ready(view) || rates.is_some_and(|rates| rates.bad() + rates.refused > 0.0),
    };
    let json = json!({ "name": name, "subcluster": subcluster, "slo_ms": slo_ms, "ready": model.is_ready(view),
                       "rate_rps": of(|rates| rates.all), "in_time_rps": of(|rates| rates.in_time),
                       "late_rps": of(|rates| rates.late), "dropped_rps": of(|rates| rates.dropped),
                       "failed_rps": of(|rates| rates.failed), "refused_rps": of(|rates| rates.refused),
                       "p50_ms": p50_ms, "p99_ms": p99_ms, "bad_rate": rates.and_then(Rates::bad_rate),
                       "mean_batch": batch, "queued": queued });
    (row, json)
}

fn gpu(view: &View, backend: &BackendView, gpu: &GpuView, rates: &BTreeMap<GpuId, GpuRates>) -> (Row, Value) {
    let (subcluster, state) = (subcluster_name(view, backend.subcluster), gpu_state(view, backend, gpu));
    // The state of GPUs of a dead backend is unknown.
    let rates = rates.get(&gpu.id).copied().filter(|_| backend.up).unwrap_or_default();
    let row = Row {
        key: gpu.id.to_string(),
        subcluster: subcluster.clone(),
        cells: vec![
            Cell::Text(gpu.id.to_string()),
            Cell::Text(gpu.kind.clone()),
            Cell::Text(backend.name.clone()),
            Cell::Text(subcluster.clone()),
            Cell::Share(rates.busy),
            Cell::Rate(rates.batches),
            Cell::Text(state.clone()),
        ],
        alarming: state != "up",
    };
    let json = json!({ "id": gpu.id.get(), "kind": gpu.kind, "backend": backend.name, "subcluster": subcluster,
                       "up": backend.up, "state": state, "busy": rates.busy, "batches_per_s": rates.batches });
    (row, json)
}

/// What is missing in the tables.
fn notes(now: &Sample, rates_known: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let silent: Vec<_> = now.frontends.iter().filter_map(|(id, counts)| Some((id, counts.as_ref().err()?))).collect();
    if let Some((id, error)) = silent.first() {
        let (name, addr) = now.view.frontends.get(id).map_or(("", ""), |f| (f.name.as_str(), f.console_addr.as_str()));
        let (out, all) = (silent.len(), now.frontends.len());
        notes.push(format!(
            "{out} of {all} frontends do not answer, their requests are not in the rates: {name} at {addr}: {error}"
        ));
    } else if now.frontends.is_empty() {
        notes.push("there is no frontend: requests are not counted".to_owned());
    } else if !rates_known {
        notes.push("no frontend has answered twice: the rates of requests are not known".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::PolicyView;
    use symphony_types::{BootId, Nanos, Token};

    use super::*;
    use crate::inspect::scene::{self, GPU, counted, sample};

    fn second_later() -> (Sample, Sample) {
        let mut now = sample(3);
        let load = now.view.subclusters.values_mut().next().unwrap().load.as_mut().unwrap();
        load.age = Nanos::from_millis(500);
        load.gpus.get_mut(&GPU).unwrap().busy += Nanos::from_millis(1250);
        load.gpus.get_mut(&GPU).unwrap().plans += 50;
        *load.demand.as_mut().unwrap() += Nanos::from_millis(750);
        load.models.values_mut().for_each(|model| model.queued = 4);
        let frontend = now.frontends.values_mut().next().unwrap().as_mut().unwrap();
        frontend.models.insert("m".into(), counted(1000 + 300, 900 + 240, 50 + 30, 40 + 24, 10 + 6));
        (sample(1), now)
    }

    #[test]
    fn rates_are_what_was_counted_between_over_the_time_between() {
        let (before, now) = second_later();
        let screen = Screen::of(&before, &now).json();
        assert_eq!(screen["span_s"], 2.0);
        let model = &screen["models"][0];
        let shown =
            ["rate_rps", "in_time_rps", "late_rps", "dropped_rps", "failed_rps", "bad_rate", "mean_batch", "queued"];
        let shown = shown.map(|key| model[key].as_f64().unwrap());
        assert_eq!(shown, [150.0, 120.0, 15.0, 12.0, 3.0, 0.2, 4.0, 4.0]);
        // 240 took 15 to 20 ms and 60 took 30 to 40 ms; a tenth as many were refused.
        let shown = ["p50_ms", "p99_ms", "refused_rps"].map(|key| model[key].as_f64().unwrap());
        assert_eq!(shown.map(|value| (value * 10.0).round() / 10.0), [18.1, 39.5, 15.0]);
        // The first report was a second old and this one is half a second: they are 2.5 s apart.
        let gpu = &screen["gpus"][0];
        assert_eq!((&gpu["busy"], &gpu["batches_per_s"]), (&json!(0.5), &json!(20.0)));
        let pool = &screen["subclusters"][0];
        assert_eq!(
            (&pool["rate_rps"], &pool["bad_rate"], &pool["idle_fraction"]),
            (&json!(150.0), &json!(0.2), &json!(0.5))
        );
        // Batches that start early keep it busy for half of the time; deferred ones would for 0.3 of it.
        assert_eq!(pool["demand_gpus"], 0.3);
        assert_eq!((&pool["queued"], &pool["leader"], &pool["token"]), (&json!(4), &json!(1), &json!(9)));
        assert_eq!(screen["notes"], json!([]));
    }

    #[test]
    fn a_lead_that_says_nothing_new_idles_until_it_is_silent() {
        let rates = |age_s: u64| {
            let (before, mut now) = (sample(1), sample(3));
            let load = now.view.subclusters.values_mut().next().unwrap().load.as_mut().unwrap();
            load.age = Nanos::from_millis(age_s * 1000);
            let json = Screen::of(&before, &now).json();
            (
                json["gpus"][0]["busy"].clone(),
                json["subclusters"][0]["demand_gpus"].clone(),
                json["subclusters"][0]["queued"].clone(),
                json["models"][0]["queued"].clone(),
            )
        };
        // Three seconds old after two: it is the report that was a second old.
        assert_eq!((rates(3).0, rates(3).1), (json!(0.0), json!(0.0)));
        assert!(rates(3).2.is_u64() && rates(3).3.is_u64());
        assert_eq!(rates(7), (Value::Null, Value::Null, Value::Null, Value::Null));
    }

    #[test]
    fn what_is_counted_anew_is_not_known() {
        let (before, mut now) = second_later();
        now.view.subclusters.values_mut().filter_map(|s| s.load.as_mut()).for_each(|load| load.token = Token::new(12));
        let frontend = now.frontends.values_mut().next().unwrap().as_mut().unwrap();
        frontend.boot = BootId::new(99);
        let screen = Screen::of(&before, &now);
        let json = screen.json();
        for (table, key) in [
            ("gpus", "busy"),
            ("models", "rate_rps"),
            ("models", "p99_ms"),
            ("subclusters", "idle_fraction"),
            ("subclusters", "demand_gpus"),
            ("subclusters", "bad_rate"),
        ] {
            assert_eq!(json[table][0][key], Value::Null, "{table} {key}");
        }
        assert!(screen.notes[0].contains("answered twice"), "{:?}", screen.notes);
        now.frontends.values_mut().for_each(|frontend| *frontend = Err("refused".into()));
        let notes = Screen::of(&before, &now).notes;
        assert!(
            notes[0].starts_with("1 of 1 frontends do not answer") && notes[0].ends_with("front at f:1: refused"),
            "{notes:?}"
        );
    }

    #[test]
    fn the_demand_may_be_more_gpus_than_there_are_and_is_unknown_of_leads_that_do_not_measure_it() {
        let (before, mut now) = second_later();
        let demand = |now: &Sample| Screen::of(&before, now).json()["subclusters"][0]["demand_gpus"].clone();
        let load = now.view.subclusters.values_mut().next().unwrap().load.as_mut().unwrap();
        *load.demand.as_mut().unwrap() += Nanos::from_millis(3000);
        assert_eq!(demand(&now), 1.5, "of one GPU");
        now.view.subclusters.values_mut().filter_map(|s| s.load.as_mut()).for_each(|load| load.demand = None);
        assert_eq!(demand(&now), Value::Null);
    }

    #[test]
    fn a_sub_cluster_has_its_policy_and_what_it_should_have_by_kind() {
        let (before, mut now) = second_later();
        let pool = now.view.subclusters.values_mut().next().unwrap();
        pool.policy = Some(PolicyView { text: "nexus".to_owned(), failed: None });
        pool.advice = Some(scene::advice(Some(12.0)));
        let shown = |now: &Sample| {
            let screen = Screen::of(&before, now);
            let cells: Vec<_> = screen.tables[0].rows[0].cells[10..].iter().map(ToString::to_string).collect();
            (cells, screen.json()["subclusters"].clone(), screen.budgets.len())
        };
        let (cells, json, budgets) = shown(&now);
        assert_eq!((cells, budgets), (vec!["nexus".to_owned(), "2 a100, 9 t4: fleet".to_owned()], 1));
        assert_eq!((&json[0]["policy"], &json[0]["policy_failed"]), (&json!("nexus"), &Value::Null));
        let kinds = &json[0]["advice"]["kinds"];
        assert_eq!((&kinds[1]["target"], &kinds[1]["price_per_hour"]), (&json!(9), &json!(0.35)));
        assert_eq!(json[0]["advice"]["fleet"]["budget_per_hour"], 12.0);
        assert_eq!((&json[1]["policy"], &json[1]["advice"]), (&Value::Null, &Value::Null));
        let pool = now.view.subclusters.values_mut().next().unwrap();
        pool.policy.as_mut().unwrap().failed = Some("panicked on n1".to_owned());
        let (cells, json, _) = shown(&now);
        assert_eq!(
            (cells[0].as_str(), &json[0]["policy_failed"]),
            ("auto (nexus panicked on n1)", &json!("panicked on n1"))
        );
        assert!(Screen::of(&before, &now).tables[0].rows[0].alarming);
    }

    #[test]
    fn no_time_between_makes_no_rates() {
        let screen = Screen::of(&sample(3), &sample(3)).json();
        assert_eq!(
            (&screen["models"][0]["rate_rps"], &screen["models"][0]["mean_batch"]),
            (&Value::Null, &Value::Null)
        );
    }

    #[test]
    fn rows_are_as_wide_as_their_headers() {
        let (before, now) = second_later();
        for table in Screen::of(&before, &now).tables {
            assert!(table.rows.iter().all(|row| row.cells.len() == table.header.len()), "{}", table.title);
            assert!(!table.rows.is_empty(), "{}", table.title);
        }
    }
}
