//! The recent load of the leads, as they report it to the Raft leader. Not in the log: a new Raft leader gets it again
//! within seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_cluster_state::ClusterState;
use symphony_protocol::control as pb;
use symphony_types::{ModelId, SubclusterId, Token};

/// A lead without a report for this long does not count.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// A counter, and its average rate.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    count: u64,
    per_second: Option<f64>,
}

impl Meter {
    /// Takes a new count; `weight` of the newest span, from 0 to 1.
    fn take(&mut self, count: u64, span_s: f64, weight: f64) {
        let rate = count.saturating_sub(self.count) as f64 / span_s;
        self.per_second = Some(self.per_second.map_or(rate, |before| before + weight * (rate - before)));
        self.count = count;
    }
}

/// One lead's reports.
#[derive(Clone, Debug)]
struct Lead {
    token: Token,
    /// When it began to report.
    since: Instant,
    reported: Instant,
    arrived: BTreeMap<ModelId, Meter>,
}

/// The reports of all leads.
#[derive(Clone, Debug)]
pub(crate) struct LoadBook {
    over: Duration,
    leads: BTreeMap<SubclusterId, Lead>,
}

impl LoadBook {
    /// Rates are averages over about `over`.
    pub(crate) const fn new(over: Duration) -> Self {
        Self { over, leads: BTreeMap::new() }
    }

    /// Takes a replica's report on its lead. False, and without effect, for a lead before the last one.
    pub(crate) fn take(&mut self, now: Instant, load: &pb::SubclusterLoad) -> bool {
        let (id, token) = (SubclusterId::new(load.subcluster), Token::new(load.token));
        if self.leads.get(&id).is_some_and(|lead| lead.token > token) {
            return false;
        }
        let fresh = || Lead { token, since: now, reported: now, arrived: BTreeMap::new() };
        let lead = self.leads.entry(id).or_insert_with(fresh);
        // A new lead counts from zero; the known rates stay.
        let anew = std::mem::replace(&mut lead.token, token) != token;
        let span = now.saturating_duration_since(lead.reported);
        let known: BTreeMap<_, _> = load.models.iter().map(|m| (ModelId::new(m.model), m.arrived_items)).collect();
        lead.arrived.retain(|model, _| known.contains_key(model));
        for (model, count) in known {
            let meter = lead.arrived.entry(model).or_insert(Meter { count, per_second: None });
            if anew {
                meter.count = count;
            } else if !span.is_zero() {
                let weight = 1.0 - (-span.as_secs_f64() / self.over.as_secs_f64()).exp();
                meter.take(count, span.as_secs_f64(), weight);
            }
        }
        lead.reported = now;
        true
    }

    /// Items per second of every model, where it is served; none until every lead with models has reported for about
    /// the averaging time.
    pub(crate) fn rates(&self, now: Instant, state: &ClusterState) -> Option<BTreeMap<ModelId, f64>> {
        let rate = |(&id, model): (&ModelId, &symphony_cluster_state::Model)| {
            let lead = self.leads.get(&model.subcluster)?;
            let (silent, known) =
                (now.saturating_duration_since(lead.reported), lead.reported.duration_since(lead.since));
            let counts = silent < SILENT_AFTER && known >= self.over;
            // A model that is new there has no rate yet.
            counts.then(|| (id, lead.arrived.get(&id).and_then(|meter| meter.per_second).unwrap_or(0.0)))
        };
        state.models().iter().map(rate).collect()
    }

    /// Forgets all: another replica leads the group.
    pub(crate) fn clear(&mut self) {
        self.leads.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::problem::tests::{cluster, loaded};

    const LEFT: u32 = 1;

    fn report(subcluster: u32, token: u64, arrived: &[(u32, u64)]) -> pb::SubclusterLoad {
        let models = arrived.iter().map(|&(model, arrived)| pb::ModelLoad {
            model,
            arrived_items: arrived,
            ..Default::default()
        });
        pb::SubclusterLoad { subcluster, token, models: models.collect(), ..Default::default() }
    }

    /// Reports every second with these rates.
    fn reports(book: &mut LoadBook, start: Instant, seconds: std::ops::Range<u64>, token: u64, rates: &[(u32, u64)]) {
        for second in seconds.clone() {
            let counts: Vec<_> = rates.iter().map(|&(m, rate)| (m, rate * (second - seconds.start))).collect();
            assert!(book.take(start + Duration::from_secs(second), &report(LEFT, token, &counts)));
        }
    }

    #[test]
    fn rates_are_known_after_a_while_and_outlive_a_change_of_leader() {
        let mut state = cluster(&["left"]);
        loaded(&mut state, "m", "left");
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut book = LoadBook::new(Duration::from_secs(5));
        assert_eq!(book.rates(start, &state), None);
        reports(&mut book, start, 0..5, 9, &[(1, 100)]);
        assert_eq!(book.rates(at(4), &state), None, "not known for long enough");
        reports(&mut book, start, 5..6, 9, &[(1, 0)]);
        let rate = |book: &LoadBook, second| book.rates(at(second), &state).map(|rates| rates[&ModelId::new(1)]);
        assert!(rate(&book, 5).is_some());

        let mut book = LoadBook::new(Duration::from_secs(5));
        reports(&mut book, start, 0..20, 9, &[(1, 100)]);
        assert_eq!(rate(&book, 20), Some(100.0));
        // The next leader counts from zero.
        reports(&mut book, start, 20..22, 12, &[(1, 100)]);
        assert_eq!(rate(&book, 22), Some(100.0));
        assert!(!book.take(at(22), &report(LEFT, 9, &[(1, 50)])));
        assert_eq!(rate(&book, 22), Some(100.0), "the old one's last word comes late");
        assert_eq!(rate(&book, 32), None, "nobody reports any more");
        book.clear();
        assert_eq!(rate(&book, 22), None);
    }

    #[test]
    fn an_average_follows_in_about_its_time() {
        let mut state = cluster(&["left"]);
        loaded(&mut state, "m", "left");
        let start = Instant::now();
        let mut book = LoadBook::new(Duration::from_secs(5));
        let mut arrived = 0;
        for second in 0..40 {
            assert!(book.take(start + Duration::from_secs(second), &report(LEFT, 9, &[(1, arrived)])));
            arrived += if second < 30 { 100 } else { 200 };
        }
        let rates = book.rates(start + Duration::from_secs(40), &state).unwrap();
        let rate = rates[&ModelId::new(1)];
        assert!((170.0..200.0).contains(&rate), "nine seconds after the step it is {rate}");
    }
}
