//! The clients' demand, as frontends report it. In the leader's memory only: a new leader gets it again within a
//! second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::frontends::Frontends;

/// A frontend without a report for this long is silent: it has gone, or it serves its clients but cannot reach the
/// leader.
const SILENT_AFTER: Duration = Duration::from_secs(10);
/// After this long it counts as gone. Until then its last report is the best estimate of its clients' demand.
const GONE_AFTER: Duration = Duration::from_secs(600);
/// The most frontends that report.
const FRONTENDS_MAX: usize = 4096;
/// The most models in one report.
const MODELS_MAX: usize = symphony_federation_state::MODELS_MAX;

/// The largest rate of one model that counts, in requests per second; a larger one is invalid, and must not spoil the
/// sums.
pub(crate) const WANTED_RPS_MAX: f64 = symphony_federation_state::WANTED_MRPS_MAX as f64 / 1000.0;

/// The last report of a frontend.
#[derive(Debug)]
struct Reported {
    at: Instant,
    rates: BTreeMap<String, f64>,
}

/// The clients' demand, and the frontends whose report is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Demand {
    /// Requests per second by model; for silent frontends, their last report.
    pub(crate) rates: BTreeMap<String, f64>,
    /// Frontends that may be serving, but do not report: the known rates may be outdated or incomplete.
    pub(crate) silent: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<BTreeMap<String, Reported>>);

impl Rates {
    pub(crate) fn report(&self, frontend: String, rates: impl Iterator<Item = (String, f64)>, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |reported: &Reported, within| now.saturating_duration_since(reported.at) < within;
        all.retain(|_, reported| is_recent(reported, GONE_AFTER));
        if all.len() >= FRONTENDS_MAX {
            all.retain(|_, reported| is_recent(reported, SILENT_AFTER));
        }
        if all.len() < FRONTENDS_MAX || all.contains_key(&frontend) {
            let sane = |(_, rps): &(String, f64)| rps.is_finite() && *rps >= 0.0;
            all.insert(frontend, Reported { at: now, rates: rates.filter(sane).take(MODELS_MAX).collect() });
        }
    }

    /// Requests per second by model, over all frontends that report.
    pub(crate) fn all(&self, now: Instant) -> BTreeMap<String, f64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sums(all.values().filter(|reported| now.saturating_duration_since(reported.at) < SILENT_AFTER))
    }

    /// The demand as far as it was ever reported, for a leader that has led for this long. A silent frontend may have
    /// clients: its last report counts, unless it has left. A frontend that clusters know and that has never reported
    /// counts as silent too, until the leader has led for so long that it must have gone.
    pub(crate) fn demand(&self, now: Instant, frontends: &Frontends, leads: Duration) -> Demand {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let silence = |reported: &Reported| now.saturating_duration_since(reported.at);
        let counts = |name: &str, reported: &Reported| {
            let silence = silence(reported);
            silence < SILENT_AFTER || (silence < GONE_AFTER && !frontends.left.contains(name))
        };
        let counted = || all.iter().filter(|(name, reported)| counts(name, reported));
        let fell_silent = counted().filter(|(_, reported)| silence(reported) >= SILENT_AFTER).map(|(name, _)| name);
        let unheard = frontends.serving.iter().filter(|name| leads < GONE_AFTER && !all.contains_key(*name));
        Demand {
            silent: fell_silent.chain(unheard).cloned().collect(),
            rates: sums(counted().map(|(_, reported)| reported)),
        }
    }
}

fn sums<'a>(reports: impl Iterator<Item = &'a Reported>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (model, rps) in reports.flat_map(|reported| &reported.rates) {
        let sum: &mut f64 = sums.entry(model.clone()).or_default();
        *sum = (*sum + rps).min(WANTED_RPS_MAX);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_frontends_add_up_and_a_silent_one_does_not_count() {
        let (rates, now) = (Rates::default(), Instant::now());
        let later = now + SILENT_AFTER / 2;
        rates.report("a".into(), [("m".to_owned(), 2.0), ("n".to_owned(), f64::NAN)].into_iter(), now);
        rates.report("b".into(), [("m".to_owned(), 3.0)].into_iter(), now);
        assert_eq!(rates.all(now), BTreeMap::from([("m".to_owned(), 5.0)]));
        rates.report("b".into(), [("m".to_owned(), 4.0)].into_iter(), later);
        assert_eq!(rates.all(later + SILENT_AFTER / 2), BTreeMap::from([("m".to_owned(), 4.0)]));
        for frontend in ["a", "b"] {
            rates.report(frontend.into(), [("m".to_owned(), 1e300)].into_iter(), later);
        }
        assert_eq!(rates.all(later), BTreeMap::from([("m".to_owned(), WANTED_RPS_MAX)]), "nonsense is cut");
    }
    #[test]
    fn what_a_silent_frontend_said_last_is_known_until_it_has_gone() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let (rates, start) = (Rates::default(), Instant::now());
        let rate = |rps| [("m".to_owned(), rps)].into_iter();
        rates.report("a".into(), rate(2.0), start);
        rates.report("b".into(), rate(3.0), start);
        let known = |at: Duration, frontends: &Frontends, leads| {
            let Demand { rates, silent } = rates.demand(start + at, frontends, leads);
            (rates.get("m").copied().unwrap_or(0.0), silent)
        };
        let none = Frontends::default();
        assert_eq!(known(Duration::ZERO, &none, GONE_AFTER), (5.0, names(&[])));
        rates.report("b".into(), rate(4.0), start + SILENT_AFTER);
        assert_eq!(rates.all(start + SILENT_AFTER)["m"], 4.0, "the planted fault: silence is no demand");
        assert_eq!(known(SILENT_AFTER, &none, GONE_AFTER), (6.0, names(&["a"])));
        let left = Frontends { left: names(&["a"]), ..Frontends::default() };
        assert_eq!(known(SILENT_AFTER, &left, GONE_AFTER), (4.0, names(&[])), "it said that it leaves");
        assert_eq!(known(GONE_AFTER, &none, GONE_AFTER), (4.0, names(&["b"])), "a has gone");

        // A new leader learns of c from clusters first.
        let serving = Frontends { serving: names(&["b", "c"]), ..Frontends::default() };
        assert_eq!(known(SILENT_AFTER, &serving, Duration::ZERO).1, names(&["a", "c"]));
        assert_eq!(known(SILENT_AFTER, &serving, GONE_AFTER).1, names(&["a"]), "c must have gone");
    }
}
