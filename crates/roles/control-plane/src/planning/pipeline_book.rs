//! What frontends report of pipelines to the Raft leader: rates, fan-outs, hops, and how requests end. Not in the log:
//! a new Raft leader gets it again within seconds, and counts ends anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_cluster_state::ClusterState;
use symphony_pipeline::EDGES_MAX;
use symphony_protocol::view::{PipelineCounts, PipelineLoadView};
use symphony_types::{FrontendId, Nanos, VersionedName};

/// A frontend without a report for this long does not count.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// The least that counts: fewer results give no reliable γ, and fewer hops no reliable time.
const COUNTED_MIN: f64 = 50.0;

/// Counts that older reports weigh less and less in.
#[derive(Clone, Debug, Default)]
struct Faded {
    seconds: f64,
    items: f64,
    edges: Vec<(f64, f64)>,
    hops_ns: f64,
    hops: f64,
}

impl Faded {
    fn take(&mut self, counts: &PipelineCounts, over: Duration) {
        let within_s = counts.within.as_secs_f64();
        let keep = (-within_s / over.as_secs_f64()).exp();
        self.edges.resize(counts.edges.len(), (0.0, 0.0));
        for number in [&mut self.seconds, &mut self.items, &mut self.hops_ns, &mut self.hops] {
            *number *= keep;
        }
        self.seconds += within_s;
        self.items += counts.items as f64;
        self.hops_ns += counts.hops.get() as f64;
        self.hops += counts.hop_count as f64;
        for (faded, &(results, led_to)) in self.edges.iter_mut().zip(&counts.edges) {
            *faded = (faded.0 * keep + results as f64, faded.1 * keep + led_to as f64);
        }
    }
}

/// One frontend's reports on one version of a pipeline.
#[derive(Clone, Debug)]
struct Counted {
    reported: Instant,
    faded: Faded,
}

/// How the requests for a version have ended at one frontend, as it said last.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    begun_unix_ns: u64,
    ended: u64,
    bad: u64,
}

impl Said {
    /// Takes what the frontend says now; returns what has come since. A report that is repeated, or overtaken by the
    /// next one, brings nothing.
    fn take(&mut self, counts: &PipelineCounts) -> (u64, u64) {
        if self.begun_unix_ns != counts.begun_unix_ns {
            *self = Self { begun_unix_ns: counts.begun_unix_ns, ended: 0, bad: 0 };
        }
        let (ended, bad) = (counts.ended.max(self.ended), counts.bad.min(counts.ended).max(self.bad));
        let new = (ended - self.ended, bad - self.bad);
        (self.ended, self.bad) = (ended, bad);
        new
    }
}

/// What is measured of a version of a pipeline, over all frontends.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeasuredPipeline {
    /// Items per second; none before a frontend has reported.
    pub(crate) rate_rps: Option<f64>,
    /// γ by edge; not a number where too little is known.
    pub(crate) gammas: Vec<f64>,
    /// The mean time of a hop; none where too little is known.
    pub(crate) hop: Option<Nanos>,
}

/// The reports of all frontends.
#[derive(Clone, Debug)]
pub(crate) struct PipelineBook {
    over: Duration,
    /// By the names of versions.
    counted: BTreeMap<String, BTreeMap<FrontendId, Counted>>,
    /// The log index as of which this replica counts ends; none before it leads the group.
    since: Option<u64>,
    /// How requests have ended since then, requests and bad ones, by the names of versions.
    ends: BTreeMap<String, (u64, u64)>,
    /// What each frontend said last of its versions. The next reports are counted from its first one since then.
    said: BTreeMap<FrontendId, BTreeMap<String, Said>>,
}

impl PipelineBook {
    /// Counts are averages over about `over`.
    pub(crate) const fn new(over: Duration) -> Self {
        Self { over, counted: BTreeMap::new(), since: None, ends: BTreeMap::new(), said: BTreeMap::new() }
    }

    /// Takes a frontend's report. Reports on pipelines or versions that are not loaded are ignored.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        state: &ClusterState,
        from: FrontendId,
        reported: impl IntoIterator<Item = (String, PipelineCounts)>,
    ) {
        let is_loaded = |loaded_as: &String| state.pipelines().contains_key(loaded_as);
        self.counted.retain(|loaded_as, _| is_loaded(loaded_as));
        self.ends.retain(|loaded_as, _| is_loaded(loaded_as));
        self.said.retain(|frontend, _| state.frontends().contains_key(frontend));
        self.since.get_or_insert(state.applied_index());
        let is_first = !self.said.contains_key(&from);
        let said = self.said.entry(from).or_default();
        said.retain(|loaded_as, _| is_loaded(loaded_as));
        for (name, counts) in reported {
            let loaded_as = VersionedName { name: &name, version: counts.version }.loaded_as();
            if !is_loaded(&loaded_as) || counts.within == Nanos::ZERO || counts.edges.len() > EDGES_MAX {
                continue;
            }
            let (ended, bad) = said.entry(loaded_as.clone()).or_default().take(&counts);
            if !is_first {
                let ends = self.ends.entry(loaded_as.clone()).or_default();
                *ends = (ends.0.saturating_add(ended), ends.1.saturating_add(bad));
            }
            let by_frontend = self.counted.entry(loaded_as).or_default();
            by_frontend.retain(|_, counted| now.saturating_duration_since(counted.reported) < SILENT_AFTER);
            let fresh = || Counted { reported: now, faded: Faded::default() };
            let counted = by_frontend.entry(from).or_insert_with(fresh);
            counted.reported = now;
            counted.faded.take(&counts, self.over);
        }
    }

    /// What is measured of a version of a pipeline.
    pub(crate) fn measured(&self, now: Instant, loaded_as: &str, edges: usize) -> MeasuredPipeline {
        let counts = |counted: &&Counted| now.saturating_duration_since(counted.reported) < SILENT_AFTER;
        let counted = self.counted.get(loaded_as).into_iter().flat_map(BTreeMap::values);
        let counted: Vec<&Faded> = counted.filter(counts).map(|counted| &counted.faded).collect();
        let rates = counted.iter().filter(|faded| faded.seconds > 0.0).map(|faded| faded.items / faded.seconds);
        let gamma = |edge: usize| {
            let pairs = counted.iter().filter_map(|faded| faded.edges.get(edge));
            let (results, led_to) = pairs.fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
            if results >= COUNTED_MIN { led_to / results } else { f64::NAN }
        };
        let (hops, hops_ns) = counted.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.hops, sum.1 + one.hops_ns));
        MeasuredPipeline {
            rate_rps: rates.reduce(|one, other| one + other),
            gammas: (0..edges).map(gamma).collect(),
            hop: (hops >= COUNTED_MIN).then(|| Nanos::new((hops_ns / hops) as u64)),
        }
    }

    /// How the requests of a version have ended since this replica leads the group. All versions are counted from the
    /// same index, which is `applied_index` if nothing was counted before.
    pub(crate) fn load_of(&mut self, applied_index: u64, loaded_as: &str) -> PipelineLoadView {
        let since = *self.since.get_or_insert(applied_index);
        let (ended, bad) = self.ends.get(loaded_as).copied().unwrap_or_default();
        PipelineLoadView { since, ended, bad: bad.min(ended) }
    }

    /// Forgets all: another replica leads the group.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.over);
    }
}

#[cfg(test)]
mod tests {
    use symphony_cluster_state::{Command, FrontendRegistration};
    use symphony_types::BootId;

    use super::*;
    use crate::planning::splits::tests::{load, with_pipeline};

    fn counts(items: u64, led_to: u64) -> PipelineCounts {
        PipelineCounts {
            version: 1,
            begun_unix_ns: 5,
            within: Nanos::from_millis(1000),
            items,
            edges: vec![(items, led_to)],
            hops: Nanos::from_millis(items),
            hop_count: items,
            ..PipelineCounts::default()
        }
    }

    fn ends(version: u64, begun_unix_ns: u64, ended: u64, bad: u64) -> (String, PipelineCounts) {
        ("p".to_owned(), PipelineCounts { version, begun_unix_ns, ended, bad, ..counts(1, 1) })
    }

    /// The pipeline in two versions, and two frontends.
    fn with_frontends() -> ClusterState {
        let mut state = with_pipeline();
        load(&mut state, 2);
        register(&mut state, "f");
        register(&mut state, "g");
        state
    }

    fn register(state: &mut ClusterState, name: &str) {
        let (data_addr, console_addr) = ("f:1".to_owned(), "f:2".to_owned());
        let registration = FrontendRegistration { name: name.into(), boot: BootId::new(1), data_addr, console_addr };
        apply(state, &Command::RegisterFrontend(registration));
    }

    fn apply(state: &mut ClusterState, command: &Command) {
        let outcome = state.apply(state.applied_index() + 1, command).outcome;
        assert!(outcome.is_ok(), "{outcome:?}");
    }

    #[test]
    fn frontends_add_up_averages_follow_and_who_is_silent_does_not_count() {
        let state = with_pipeline();
        let mut book = PipelineBook::new(Duration::from_secs(5));
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let nothing = book.measured(start, "p@1", 1);
        assert!(nothing.rate_rps.is_none() && nothing.hop.is_none() && nothing.gammas[0].is_nan());
        for second in 0..20 {
            for frontend in [1, 2] {
                let reports = [("p".to_owned(), counts(100, 150)), ("other".to_owned(), counts(1, 1))];
                book.take(at(second), &state, FrontendId::new(frontend), reports);
            }
        }
        let measured = book.measured(at(20), "p@1", 1);
        let near = |got: f64, expected: f64| (got / expected - 1.0).abs() < 1e-5;
        let hop_ns = measured.hop.unwrap().get() as f64;
        assert!(near(measured.rate_rps.unwrap(), 200.0) && near(hop_ns, 1e6), "{measured:?}");
        assert!(near(measured.gammas[0], 1.5), "{measured:?}");
        assert_eq!(book.counted.len(), 1, "nobody serves the other one");
        // One is silent; the other finds twice as much.
        for second in 20..40 {
            book.take(at(second), &state, FrontendId::new(1), [("p".to_owned(), counts(100, 300))]);
        }
        let measured = book.measured(at(40), "p@1", 1);
        assert!((99.0..101.0).contains(&measured.rate_rps.unwrap()), "{measured:?}");
        assert!((2.9..=3.0).contains(&measured.gammas[0]), "{measured:?}");
        let absurd = PipelineCounts { version: 2, ..counts(9, 9) };
        book.take(at(40), &state, FrontendId::new(3), [("p".to_owned(), absurd)]);
        assert_eq!(book.measured(at(40), "p@1", 1), measured, "that version is not loaded");
        assert!(book.measured(at(60), "p@1", 1).rate_rps.is_none());
    }

    #[test]
    fn ends_are_counted_once_whatever_reports_are_lost_repeated_or_late() {
        let (mut state, now) = (with_frontends(), Instant::now());
        let [one, other] = [1, 2].map(FrontendId::new);
        let mut book = PipelineBook::new(Duration::from_secs(5));
        let since = state.applied_index();
        let counted = |ended, bad| PipelineLoadView { since, ended, bad };
        // What ended before this replica led the group is not in its counts.
        book.take(now, &state, one, [ends(1, 5, 1000, 100)]);
        book.take(now, &state, other, []);
        assert_eq!(book.load_of(since, "p@1"), counted(0, 0));
        book.take(now, &state, one, [ends(1, 5, 1050, 110)]);
        book.take(now, &state, one, [ends(1, 5, 1050, 110)]);
        book.take(now, &state, one, [ends(1, 5, 1020, 105)]);
        assert_eq!(book.load_of(since, "p@1"), counted(50, 10), "repeated, and one that was overtaken");
        book.take(now, &state, one, [ends(1, 5, 1090, 110)]);
        // It was asked for the first time after this replica led the group.
        book.take(now, &state, other, [ends(1, 6, 7, 9)]);
        assert_eq!(book.load_of(since, "p@1"), counted(97, 17), "more bad ones than there are do not count");
        // A frontend that begins again counts from nothing.
        book.take(now, &state, one, [ends(1, 8, 3, 0)]);
        assert_eq!(book.load_of(since, "p@1"), counted(100, 17));
        book.take(now + 2 * SILENT_AFTER, &state, one, [ends(2, 8, u64::MAX, 0)]);
        book.take(now + 2 * SILENT_AFTER, &state, other, [ends(2, 8, 1, 0), ends(9, 8, 1, 0)]);
        assert_eq!(book.load_of(since, "p@2"), counted(u64::MAX, 0));
        assert_eq!(book.load_of(since, "p@1"), counted(100, 17), "who is silent has counted");
        assert_eq!(book.load_of(since, "p@9"), counted(0, 0));

        apply(&mut state, &Command::ForgetFrontend { frontend: one, boot: BootId::new(1) });
        book.take(now, &state, other, []);
        assert_eq!(book.said.keys().collect::<Vec<_>>(), [&other]);
        book.clear();
        assert_eq!(book.load_of(7, "p@1"), PipelineLoadView { since: 7, ended: 0, bad: 0 });
    }

    #[test]
    fn all_versions_are_counted_from_the_same_index() {
        let (mut state, now) = (with_frontends(), Instant::now());
        let mut book = PipelineBook::new(Duration::from_secs(5));
        let since = state.applied_index();
        book.take(now, &state, FrontendId::new(1), [ends(1, 5, 1, 0)]);
        register(&mut state, "h");
        // The first report on the second one: a canary that compares both would begin its step again.
        book.take(now, &state, FrontendId::new(1), [ends(2, 5, 1, 0)]);
        assert_eq!(["p@1", "p@2", "p@3"].map(|one| book.load_of(since + 1, one).since), [since; 3]);
    }
}
