//! How many GPUs each sub-cluster should have, from its lead's reports: the host of the autoscaler. Kept in the Raft
//! leader's memory only: advice is a level, and a new leader arrives at the same one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_cluster_state::ClusterState;
use symphony_controllers::{Advice, Autoscaler, KindWindow, Reason, Window};
use symphony_fleet::{FleetPlanner, FleetProblem, Merging, Mix};
use symphony_protocol::control as pb;
use symphony_types::{GpuId, LatencyProfile, Nanos, SubclusterId, Time, Token};

use crate::planning::fleet_advice::{FleetAdvice, RequestSizes, merging};
use crate::planning::scaling_settings::ScalingSettings;
use crate::planning::unreported::UNCHANGED_AFTER;

/// The longest distance of a lead's reports: an unchanged one waits for [`UNCHANGED_AFTER`].
const REPORT_PAUSE_MAX: Duration = UNCHANGED_AFTER.saturating_add(Duration::from_secs(2));

/// The advice for a sub-cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SubclusterAdvice {
    /// Its GPU kinds, in the order of the advice.
    pub(crate) kinds: Vec<String>,
    /// The advice per kind. Quarantined GPUs exist but do no work: the advice replaces each of them.
    pub(crate) advice: Advice,
    /// The measured use of GPUs: what the advice is based on, and what was measured beside it.
    pub(crate) gpu_use: GpuUse,
    /// Quarantined GPUs, as the lead reports them.
    pub(crate) slow: Vec<pb::GpuLoad>,
    /// Models whose batches deviate from their profiles.
    pub(crate) drifts: Vec<pb::Drift>,
    /// The fleet, if there is a budget.
    pub(crate) fleet: Option<FleetAdvice>,
}

/// GPUs in use, averaged between a lead's last two reports; without quarantined GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GpuUse {
    /// GPUs kept busy by the batches that ran.
    pub(crate) busy: f64,
    /// GPUs that deferred batches of all requests would have kept busy. None from a release that does not measure it.
    pub(crate) demand: Option<f64>,
}

/// What a lead has counted since it began.
#[derive(Debug)]
struct LeadCounts {
    token: Token,
    good: u64,
    bad: u64,
    busy_ns: BTreeMap<GpuId, u64>,
    /// None from a release that does not measure it.
    demand_ns: Option<u64>,
    sizes: RequestSizes,
}

impl LeadCounts {
    fn of(load: &pb::SubclusterLoad) -> Self {
        Self {
            token: Token::new(load.token),
            good: load.models.iter().map(|model| model.executed).sum(),
            bad: load.models.iter().map(|model| model.dropped).sum(),
            busy_ns: load.gpus.iter().map(|gpu| (GpuId::new(gpu.gpu), gpu.busy_ns)).collect(),
            demand_ns: load.demand_ns,
            sizes: RequestSizes::of(load),
        }
    }
}

/// One sub-cluster's autoscaler and its last inputs.
#[derive(Debug)]
struct Scaled {
    scaler: Autoscaler,
    /// Of the fleet, if there is a budget.
    planner: Option<FleetPlanner>,
    kinds: Vec<String>,
    reported: Instant,
    counts: LeadCounts,
    gpu_use: GpuUse,
    advice: Option<Advice>,
    /// When the autoscaler last released GPUs. A release is advised once, and again after a pause; in between the
    /// advice stands.
    released: Option<Instant>,
    /// By kind: the wanted number of GPUs, and when more were last asked for; none if none are on order.
    orders: Vec<Option<(u32, Instant)>>,
    /// Quarantined GPUs by kind.
    out: Vec<u32>,
    slow: Vec<pb::GpuLoad>,
    drifts: Vec<pb::Drift>,
}

/// The autoscalers of all sub-clusters.
#[derive(Debug)]
pub(crate) struct Scaling {
    settings: ScalingSettings,
    began: Instant,
    subclusters: BTreeMap<SubclusterId, Scaled>,
}

impl Scaling {
    pub(crate) fn new(settings: ScalingSettings) -> Self {
        Self { settings, began: Instant::now(), subclusters: BTreeMap::new() }
    }

    /// Takes reports of leads. Nothing is known of the time before a lead's first report, and it does not count.
    pub(crate) fn take(&mut self, now: Instant, state: &ClusterState, loads: &[pb::SubclusterLoad]) {
        let mut serving = gpus(state);
        for load in loads {
            let serving = serving.remove(&SubclusterId::new(load.subcluster)).unwrap_or_default();
            self.take_one(now, state, load, serving);
        }
    }

    fn take_one<'a>(
        &mut self,
        now: Instant,
        state: &'a ClusterState,
        load: &pb::SubclusterLoad,
        mut serving: ByKind<'a>,
    ) {
        let id = SubclusterId::new(load.subcluster);
        if serving.is_empty() {
            self.subclusters.remove(&id);
            return;
        }
        // Kinds that are not there yet are advised as well.
        for kind in self.settings.fleet.iter().flat_map(|fleet| fleet.rentable(state, id)) {
            serving.entry(kind).or_default();
        }
        let slow: Vec<_> = load.gpus.iter().filter(|gpu| gpu.slowdown > 0.0).cloned().collect();
        let kinds: Vec<String> = serving.keys().map(|kind| (*kind).to_owned()).collect();
        // Quarantined GPUs are no capacity, and do not count as idle either.
        let out = serving.values_mut().map(|gpus| {
            let before = gpus.len();
            gpus.retain(|gpu| !slow.iter().any(|slow| slow.gpu == gpu.get()));
            (before - gpus.len()) as u32
        });
        let (out, drifts): (Vec<_>, _) = (out.collect(), load.drifts.clone());
        let (reported, counts) = (now, LeadCounts::of(load));
        let known = self.subclusters.get_mut(&id).filter(|scaled| scaled.kinds == kinds);
        let Some(scaled) = known else {
            let settings = self.settings.of_kinds(kinds.iter().map(|kind| capacity(state, id, kind)));
            let scaler = match Autoscaler::new(settings) {
                Ok(scaler) => scaler,
                Err(error) => return tracing::warn!(subcluster = %id, %error, "not scaled"),
            };
            let orders = vec![None; kinds.len()];
            let fresh = Scaled {
                scaler,
                planner: self.settings.fleet.as_ref().map(|_| FleetPlanner::new()),
                kinds,
                reported,
                counts,
                gpu_use: GpuUse::default(),
                advice: None,
                released: None,
                orders,
                out,
                slow,
                drifts,
            };
            self.subclusters.insert(id, fresh);
            return;
        };
        if counts.token < scaled.counts.token {
            return;
        }
        if counts.token == scaled.counts.token && now > scaled.reported {
            let since = now.saturating_duration_since(self.began).as_nanos();
            let time = Time::from_nanos(u64::try_from(since).unwrap_or(u64::MAX));
            let settings = &self.settings;
            let pose = |mix: &Mix| match &settings.fleet {
                Some(fleet) => fleet.pose(state, id, (&kinds[..], settings.gpus_max), mix),
                None => Err("expected a budget".to_owned()),
            };
            let merging = merging(state, id);
            scaled.observe((now, time), &counts, &serving, settings.order_stands, merging, pose);
        }
        (scaled.out, scaled.slow, scaled.drifts) = (out, slow, drifts);
        (scaled.reported, scaled.counts) = (reported, counts);
    }

    /// The current advice; none before a lead's second report.
    pub(crate) fn advice(&self, subcluster: SubclusterId) -> Option<SubclusterAdvice> {
        let scaled = self.subclusters.get(&subcluster)?;
        let mut advice = scaled.advice.clone()?;
        for (kind, out) in advice.kinds.iter_mut().zip(&scaled.out) {
            kind.target += out;
        }
        let (gpu_use, slow, drifts) = (scaled.gpu_use, scaled.slow.clone(), scaled.drifts.clone());
        let chosen = self.settings.fleet.as_ref().zip(scaled.planner.as_ref());
        let fleet = chosen.map(|(settings, planner)| settings.advice(&scaled.kinds, planner));
        Some(SubclusterAdvice { kinds: scaled.kinds.clone(), advice, gpu_use, slow, drifts, fleet })
    }

    /// All current advice, by name of the sub-cluster, with the GPUs of each kind that take plans.
    pub(crate) fn all<'a>(&self, state: &'a ClusterState) -> Vec<(&'a str, SubclusterAdvice, Vec<usize>)> {
        let serving = gpus(state);
        let advised = state.subclusters().iter().filter_map(|(id, subcluster)| {
            let advice = self.advice(*id)?;
            let there = |kind: &String| serving.get(id).and_then(|kinds| kinds.get(kind.as_str())).map_or(0, Vec::len);
            let there = advice.kinds.iter().map(there).collect();
            Some((subcluster.name.as_str(), advice, there))
        });
        advised.collect()
    }

    /// Forgets all: another replica leads the group.
    pub(crate) fn clear(&mut self) {
        self.subclusters.clear();
    }
}

/// GPUs on order: asked for, not there yet, and not overdue.
fn ordered(now: Instant, order_stands: Duration, order: Option<(u32, Instant)>, serving: usize) -> u32 {
    let standing = order.filter(|&(_, at)| now.saturating_duration_since(at) <= order_stands);
    standing.map_or(0, |(target, _)| target.saturating_sub(u32::try_from(serving).unwrap_or(u32::MAX)))
}

impl Scaled {
    /// Shows the autoscaler what was counted since the last report, of the same lead.
    fn observe(
        &mut self,
        (now, time): (Instant, Time),
        counts: &LeadCounts,
        serving: &ByKind<'_>,
        order_stands: Duration,
        merging: Merging,
        pose: impl FnOnce(&Mix) -> Result<FleetProblem, String>,
    ) {
        let span = now.saturating_duration_since(self.reported);
        let length = Nanos::new(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        // Early batches keep more GPUs busy than are needed. The need is the demand, shared equally by the GPUs.
        let there = serving.values().map(Vec::len).sum::<usize>().max(1) as u64;
        let before = &self.counts;
        let demand = counts.demand_ns.zip(before.demand_ns).map(|(now, before)| now.saturating_sub(before));
        let spent = |gpu: &GpuId| {
            let (now, before) = (counts.busy_ns.get(gpu).copied(), before.busy_ns.get(gpu).copied());
            now.unwrap_or(0).saturating_sub(before.unwrap_or(now.unwrap_or(0))).min(length.get())
        };
        let kinds = serving.values().zip(&self.orders).map(|(gpus, order)| KindWindow {
            serving: gpus.clone(),
            ordered: ordered(now, order_stands, *order, gpus.len()),
            gpu_time: length.saturating_mul(gpus.len() as u64),
            busy_time: match demand {
                Some(demand) => Nanos::new((demand / there).saturating_mul(gpus.len() as u64)),
                None => Nanos::new(gpus.iter().map(spent).sum()),
            },
        });
        let window = Window {
            length,
            good: counts.good.saturating_sub(before.good),
            bad: counts.bad.saturating_sub(before.bad),
            kinds: kinds.collect(),
        };
        let gpus = |time_ns: u64| time_ns as f64 / length.get() as f64;
        let busy = gpus(serving.values().flatten().map(spent).sum());
        self.gpu_use = GpuUse { busy, demand: demand.map(gpus) };
        let next = match &mut self.planner {
            None => self.scaler.observe(time, &window),
            Some(planner) => {
                let arrived = counts.sizes.since(&before.sizes);
                planner.observe(time, &mut self.scaler, &window, &arrived, merging, pose)
            }
        };
        self.record_order(now, &next, serving);
        self.hold_advice(now, next, serving);
    }

    /// Remembers what was asked for, so that it is neither taken back nor asked for again while it arrives.
    fn record_order(&mut self, now: Instant, next: &Advice, serving: &ByKind<'_>) {
        for ((order, kind), gpus) in self.orders.iter_mut().zip(&next.kinds).zip(serving.values()) {
            let since = order.map_or(now, |(_, since)| if kind.add > 0 { now } else { since });
            *order = (kind.target as usize > gpus.len()).then_some((kind.target, since));
        }
    }

    /// To its readers advice is a level: GPUs may go until the advice changes, they are gone, or the autoscaler has
    /// had its next chance to repeat it.
    fn hold_advice(&mut self, now: Instant, next: Advice, serving: &ByKind<'_>) {
        if next.releases() {
            self.released = Some(now);
            self.advice = Some(next);
            return;
        }
        let repeats_within = Duration::from(self.scaler.settings().down_period) + REPORT_PAUSE_MAX;
        let stands = self.released.is_some_and(|at| now.saturating_duration_since(at) <= repeats_within);
        let there = |gpu: &GpuId| serving.values().flatten().any(|serving| serving == gpu);
        let kept = self.advice.take().filter(|last| {
            let named = last.kinds.iter().flat_map(|kind| &kind.release);
            stands && next.reason == Reason::Enough && named.clone().next().is_some() && named.clone().all(there)
        });
        self.advice = Some(match kept {
            Some(last) => Advice { bad_rate: next.bad_rate, idle_fraction: next.idle_fraction, ..last },
            None => next,
        });
    }
}

type ByKind<'a> = BTreeMap<&'a str, Vec<GpuId>>;

/// The GPUs that take plans, by sub-cluster.
fn gpus(state: &ClusterState) -> BTreeMap<SubclusterId, ByKind<'_>> {
    let mut all: BTreeMap<SubclusterId, ByKind<'_>> = BTreeMap::new();
    for backend in state.backends().values().filter(|b| b.up() && b.duty().takes_work()) {
        let by_kind = all.entry(backend.subcluster).or_default();
        for gpu in &backend.gpus {
            by_kind.entry(&gpu.kind).or_default().push(gpu.id);
        }
    }
    all
}

/// Average requests per second of a GPU of this kind over the models of the sub-cluster, each alone with batches that
/// leave half the SLO for gathering. One if none has a profile for it.
fn capacity(state: &ClusterState, subcluster: SubclusterId, kind: &str) -> f64 {
    let rates: Vec<f64> = state
        .models_of(subcluster)
        .filter_map(|model| {
            let profile = model.spec.profiles.get(kind)?;
            let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
            let profile = LatencyProfile::from_table(&table).ok()?;
            let fits = |&b: &u32| 2 * profile.latency(b).get() <= model.spec.slo_ns;
            let batch = (1..=profile.batch_max()).take_while(fits).last().unwrap_or(1);
            Some(f64::from(batch) * 1e9 / profile.latency(batch).get() as f64)
        })
        .collect();
    if rates.is_empty() { 1.0 } else { rates.iter().sum::<f64>() / rates.len() as f64 }
}

#[cfg(test)]
mod tests {
    use symphony_controllers::KindAdvice;

    use super::*;
    use crate::planning::problem::tests::{cluster, loaded};

    const POOL: SubclusterId = SubclusterId::new(1);

    struct Scene {
        state: ClusterState,
        scaling: Scaling,
        start: Instant,
        load: pb::SubclusterLoad,
        seconds: u64,
    }

    impl Scene {
        /// One sub-cluster with two GPUs and a model.
        fn new() -> Self {
            let mut state = cluster(&["pool"]);
            loaded(&mut state, "m", "pool");
            let model = pb::ModelLoad { model: 1, ..Default::default() };
            let gpu = |gpu| pb::GpuLoad { gpu, ..Default::default() };
            let gpus = vec![gpu(1), gpu(2)];
            let load = pb::SubclusterLoad { subcluster: 1, token: 5, models: vec![model], gpus, ..Default::default() };
            let scaling = Scaling::new(ScalingSettings::default());
            Self { state, scaling, start: Instant::now(), load, seconds: 0 }
        }

        /// Seconds with these numbers of completed and lost requests, and each GPU busy for this share.
        fn pass(&mut self, seconds: u64, good: u64, bad: u64, busy: [f64; 2]) {
            for _ in 0..seconds {
                self.seconds += 1;
                self.load.models[0].executed += good;
                self.load.models[0].dropped += bad;
                for (gpu, share) in self.load.gpus.iter_mut().zip(busy) {
                    gpu.busy_ns += (share * 1e9) as u64;
                }
                let now = self.start + Duration::from_secs(self.seconds);
                self.scaling.take(now, &self.state, std::slice::from_ref(&self.load));
            }
        }

        fn advice(&self) -> Advice {
            self.scaling.advice(POOL).unwrap().advice
        }
    }

    #[test]
    fn gpus_that_early_batches_keep_busy_count_by_the_demand() {
        let advised = |demand: Option<u64>| {
            let mut scene = Scene::new();
            for second in 0..20 {
                // Both GPUs are busy all the time; deferred batches would need half of one.
                scene.load.demand_ns = demand.map(|per_second| second * per_second);
                scene.pass(1, 100, 0, [1.0, 1.0]);
            }
            scene.scaling.advice(POOL).unwrap()
        };
        let known = advised(Some(500_000_000));
        assert!((known.advice.idle_fraction - 0.75).abs() < 0.01, "{known:?}");
        assert_eq!(known.gpu_use, GpuUse { busy: 2.0, demand: Some(0.5) }, "both are shown");
        let unknown = advised(None);
        assert!(unknown.advice.idle_fraction < 0.01, "a release that does not measure it: {unknown:?}");
        assert_eq!(unknown.gpu_use, GpuUse { busy: 2.0, demand: None });
    }

    #[test]
    fn losses_ask_for_gpus_by_the_law_and_idleness_names_those_that_may_go() {
        let mut scene = Scene::new();
        assert_eq!(scene.scaling.advice(POOL), None);
        scene.pass(10, 100, 100, [1.0, 1.0]);
        let advice = scene.advice();
        assert_eq!(advice.reason, Reason::BadRate);
        // N·r/(1−r) with half of the requests lost: as many again, and the reserve.
        assert!((4..=5).contains(&advice.kinds[0].target), "{advice:?}");

        scene.pass(200, 50, 0, [0.3, 0.0]);
        for second in 0..30 {
            scene.pass(1, 50, 0, [0.3, 0.0]);
            let advice = scene.advice();
            assert_eq!(advice.kinds[0].target, 1, "{second}: {advice:?}");
            assert_eq!(advice.kinds[0].release, [GpuId::new(2)], "the highest id");
        }
        scene.pass(30, 150, 0, [0.8, 0.7]);
        assert_eq!(scene.advice().kinds[0], KindAdvice { target: 2, ..KindAdvice::default() }, "both have work again");
    }

    #[test]
    fn gpus_that_were_asked_for_stay_asked_for_while_they_come_and_not_for_ever() {
        let mut scene = Scene::new();
        scene.pass(10, 1000, 1000, [1.0, 1.0]);
        let target = scene.advice().kinds[0].target;
        assert!(target > 2);
        // A lull: nothing is lost, and a tenth of the capacity idles. GPUs on order must not be cancelled.
        scene.pass(20, 1000, 0, [0.9, 0.9]);
        assert_eq!(scene.advice().kinds[0].target, target);
        scene.pass(60, 1000, 0, [0.9, 0.9]);
        assert_eq!(scene.advice().kinds[0].target, 2, "nobody brought them");
    }

    #[test]
    fn a_gpu_that_is_set_aside_is_no_capacity_and_is_wanted_on_top() {
        let mut scene = Scene::new();
        scene.pass(10, 90, 0, [0.9, 0.9]);
        assert_eq!(scene.advice().kinds[0].target, 2);
        scene.load.gpus[1].slowdown = 2.0;
        // One GPU does all the work: half of it is lost.
        scene.pass(10, 50, 50, [1.0, 0.0]);
        let advised = scene.scaling.advice(POOL).unwrap();
        assert_eq!(advised.advice.reason, Reason::BadRate, "the one that is set aside does not idle");
        assert_eq!(advised.slow.iter().map(|slow| slow.gpu).collect::<Vec<_>>(), [2]);
        assert_eq!(advised.gpu_use.busy, 1.0, "of one that serves");
        assert!(advised.advice.kinds[0].target >= 3, "{advised:?}");
        scene.load.gpus[1].slowdown = 0.0;
        scene.pass(3, 100, 0, [0.9, 0.9]);
        assert_eq!(scene.scaling.advice(POOL).unwrap().slow, []);
    }

    #[test]
    fn a_new_lead_counts_anew_and_an_old_ones_last_word_is_not_heard() {
        let mut scene = Scene::new();
        scene.pass(5, 100, 0, [0.9, 0.9]);
        let before = scene.advice();
        let old = scene.load.clone();
        scene.load.token = 9;
        scene.load.models[0].executed = 0;
        scene.load.gpus.iter_mut().for_each(|gpu| gpu.busy_ns = 0);
        scene.pass(1, 100, 0, [0.9, 0.9]);
        assert_eq!(scene.advice(), before, "nothing is known of the span in which leaders changed");
        let now = scene.start + Duration::from_secs(20);
        scene.scaling.take(now, &scene.state, std::slice::from_ref(&old));
        assert_eq!(scene.advice(), before);
        scene.scaling.clear();
        assert_eq!(scene.scaling.advice(POOL), None);
    }
}
