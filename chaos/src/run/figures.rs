//! Figures out of what was observed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_types::Token;

use crate::admin::Acked;
use crate::journal::Executions;
use crate::load::{Fate, Observation, longest_gap};
use crate::report::{AimReport, Attainment, RoundReport, Summary};
use crate::scenario::{Aim, Round};

use super::CALM;
use super::machine_clock::MachineClock;
use super::round::RoundRun;

/// A pause in good answers that ends "serving on": far above what batches and the machine cause, far below any SLO.
const PAUSE_MAX: Duration = Duration::from_millis(300);

/// What figures are made of.
pub(super) struct Figures<'a> {
    pub(super) observations: &'a [Observation],
    /// Acknowledged writes of each control group that is written to.
    pub(super) acked: &'a [&'a [Acked]],
    pub(super) models: usize,
    pub(super) executions: &'a Executions,
    pub(super) clock: MachineClock,
}

/// Each figure over all rounds.
pub(super) struct Summaries {
    pub(super) dispatch_gap: Summary,
    pub(super) commit_gap: Summary,
    pub(super) named_after: Summary,
    pub(super) gap_before: Summary,
    pub(super) commit_gap_before: Summary,
    pub(super) elsewhere_gap: Summary,
    pub(super) served_on: Summary,
    pub(super) obeyed: Summary,
    pub(super) down_after: Summary,
    pub(super) serving_after: Summary,
    pub(super) whole_after: Summary,
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Figures<'_> {
    fn good(&self, model: usize) -> impl Iterator<Item = Instant> + '_ {
        self.observations.iter().filter(move |one| one.model == model && one.fate == Fate::InTime).map(|one| one.ended)
    }

    /// The requests sent between these two times.
    fn sent(&self, from: Instant, to: Instant) -> impl Iterator<Item = &Observation> + Clone {
        self.observations.iter().filter(move |one| (from..to).contains(&one.sent))
    }

    /// The longest gap of the worst of these models.
    fn worst_gap(&self, models: &[usize], from: Instant, to: Instant) -> Option<f64> {
        models.iter().map(|&model| millis(longest_gap(self.good(model), from, to))).max_by(f64::total_cmp)
    }

    /// How long the worst of all models went on serving after `from`, at most until `to`.
    fn served_on(&self, from: Instant, to: Instant) -> f64 {
        let of = |model| {
            let mut good: Vec<_> = self.good(model).filter(|at| (from..to).contains(at)).collect();
            good.sort_unstable();
            let mut last = from;
            for at in good {
                if at - last > PAUSE_MAX {
                    return last - from;
                }
                last = at;
            }
            // Up to the end, if the last answer was not long before it.
            if to - last > PAUSE_MAX { last - from } else { to - from }
        };
        millis((0..self.models).map(of).min().unwrap_or_default())
    }

    /// How long after the first fault a GPU still took a plan of a leader that was cut off, until faults began to end.
    fn obeyed(&self, round: &RoundRun) -> Option<f64> {
        let (from, to) = (self.clock.ns(round.struck_at), self.clock.ns(round.relieved_at));
        let last = |&node: &u64| self.executions.last_order(node, from, to).map_or(0, |at| at - from);
        round.cut_off.iter().map(last).max().map(|ns| ns as f64 / 1e6)
    }

    /// From the first fault until all sub-clusters whose leader was struck had another one: by its first seal, if a GPU
    /// has it earlier than a view was read here.
    fn named_after(&self, round: &RoundRun) -> Option<f64> {
        let from = self.clock.ns(round.struck_at);
        let sealed = |&(seen, token): &(Instant, Token)| {
            let seen = self.clock.ns(seen);
            self.executions.seals.get(&token.get()).map_or(seen, |&sealed| sealed.min(seen))
        };
        let seen = round.named_at.map(|at| self.clock.ns(at));
        round.successors.iter().map(sealed).max().or(seen).map(|at| at.saturating_sub(from) as f64 / 1e6)
    }

    pub(super) fn of(&self, round: &RoundRun, shape: &Round) -> RoundReport {
        let all: Vec<_> = (0..self.models).collect();
        let elsewhere: Vec<_> = all.iter().copied().filter(|model| !round.struck.contains(model)).collect();
        let looked_at = if round.struck.is_empty() { &all } else { &round.struck };
        let watch = Duration::from_millis(shape.watch_ms);
        let (from, to) = (round.struck_at, round.struck_at + watch);
        let calm = from.checked_sub(CALM).unwrap_or(from);
        // Of the worst group; one that was lost as a whole has no gap.
        let commit_gap = |from, to| {
            let groups = self.acked.iter().enumerate().filter(|(group, _)| round.lost_group != Some(*group));
            let gaps = groups.map(|(_, acked)| millis(longest_gap(acked.iter().map(|ack| ack.at), from, to)));
            gaps.max_by(f64::total_cmp)
        };
        let bad = |one: &&Observation| {
            elsewhere.contains(&one.model) && (from..to).contains(&one.sent) && one.fate != Fate::InTime
        };
        let during = self.sent(from, round.recovered_at());
        let mut bad_after_for = BTreeMap::<_, u64>::new();
        for one in self.sent(round.healed_at, to).filter(|one| one.fate != Fate::InTime) {
            *bad_after_for.entry(one.fate.label()).or_default() += 1;
        }
        RoundReport {
            round: round.number,
            victims: round.victims.clone(),
            struck: round.struck_names.clone(),
            named_after_ms: self.named_after(round),
            dispatch_gap_ms: self.worst_gap(looked_at, from, to).unwrap_or_default(),
            elsewhere_gap_ms: self.worst_gap(&elsewhere, from, to),
            elsewhere_bad: self.observations.iter().filter(bad).count() as u64,
            gap_before_ms: self.worst_gap(&all, calm, from).unwrap_or_default(),
            commit_gap_ms: commit_gap(from, to),
            commit_gap_before_ms: commit_gap(calm, from),
            served_on_ms: self.served_on(from, round.healed_at),
            obeyed_ms: self.obeyed(round),
            down_after_ms: round.down_at.map(|at| millis(at.saturating_duration_since(from))),
            sent_during: during.clone().count() as u64,
            bad_during: during.filter(|one| one.fate != Fate::InTime).count() as u64,
            bad_after: bad_after_for.values().sum(),
            bad_after_for,
            serving_after_ms: round.serving_at.map(|at| millis(at - round.healed_at)),
            whole_after_ms: round.whole_at.map(|at| millis(at - round.healed_at)),
            missing_last: round.missing_last.clone(),
        }
    }
}

/// Shares of requests answered in time before, during and after the faults of all rounds.
pub(super) fn attainment(observations: &[Observation], rounds: &[RoundRun]) -> Attainment {
    let share = |windows: Vec<(Instant, Instant)>| {
        let inside = |at: Instant| windows.iter().any(|(from, to)| (*from..*to).contains(&at));
        let sent: Vec<_> = observations.iter().filter(|one| inside(one.sent)).collect();
        let good = sent.iter().filter(|one| one.fate == Fate::InTime).count();
        (!sent.is_empty()).then(|| good as f64 / sent.len() as f64)
    };
    Attainment {
        before: share(rounds.iter().filter_map(|r| Some((r.struck_at.checked_sub(CALM)?, r.struck_at))).collect()),
        during: share(rounds.iter().map(|r| (r.struck_at, r.recovered_at())).collect()),
        after: share(rounds.iter().map(|r| (r.recovered_at(), r.recovered_at() + CALM)).collect()),
    }
}

pub(super) fn summaries(rounds: &[RoundReport]) -> Summaries {
    let of = |value: fn(&RoundReport) -> Option<f64>| Summary::of(rounds.iter().filter_map(value));
    Summaries {
        dispatch_gap: of(|round| Some(round.dispatch_gap_ms)),
        commit_gap: of(|round| round.commit_gap_ms),
        named_after: of(|round| round.named_after_ms),
        gap_before: of(|round| Some(round.gap_before_ms)),
        commit_gap_before: of(|round| round.commit_gap_before_ms),
        elsewhere_gap: of(|round| round.elsewhere_gap_ms),
        served_on: of(|round| Some(round.served_on_ms)),
        obeyed: of(|round| round.obeyed_ms),
        down_after: of(|round| round.down_after_ms),
        serving_after: of(|round| round.serving_after_ms),
        whole_after: of(|round| round.whole_after_ms),
    }
}

/// What was aimed at, and what became of it.
pub(super) fn aims(aim: &Aim, summaries: &Summaries, rounds: &[RoundReport]) -> Vec<AimReport> {
    let bad: u64 = rounds.iter().map(|round| round.elsewhere_bad).sum();
    let bad = (!rounds.is_empty()).then_some(bad as f64);
    [
        ("dispatch_gap_p99_ms", aim.dispatch_gap_p99_ms, summaries.dispatch_gap.p99),
        ("dispatch_gap_max_ms", aim.dispatch_gap_max_ms, summaries.dispatch_gap.max),
        ("commit_gap_p99_ms", aim.commit_gap_p99_ms, summaries.commit_gap.p99),
        ("commit_gap_max_ms", aim.commit_gap_max_ms, summaries.commit_gap.max),
        ("elsewhere_bad", aim.elsewhere_bad, bad),
    ]
    .into_iter()
    .filter_map(|(what, aim, measured)| {
        let aim = aim?;
        Some(AimReport { what, aim, measured, met: measured.is_some_and(|measured| measured <= aim) })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use symphony_types::FailReason;

    use super::*;

    #[test]
    fn a_successor_is_named_by_its_first_seal_or_by_a_view_that_came_before_it() {
        let clock = MachineClock::read().unwrap();
        let struck_at = Instant::now();
        let at = |ms| struck_at + Duration::from_millis(ms);
        let seals = [(7, 40), (8, 90)].map(|(token, ms)| (token, clock.ns(at(ms)))).into();
        let executions = Executions { seals, ..Executions::default() };
        let figures = Figures { observations: &[], acked: &[], models: 0, executions: &executions, clock };
        let after = |named_at: Option<u64>, successors: &[(u64, u64)]| {
            let successors = successors.iter().map(|&(ms, token)| (at(ms), Token::new(token))).collect();
            figures.named_after(&RoundRun { named_at: named_at.map(at), successors, ..RoundRun::new(1, struck_at) })
        };
        assert_eq!(after(None, &[]), None);
        assert_eq!(after(Some(60), &[]), Some(60.0), "by the view where no successor is known");
        assert_eq!(after(Some(60), &[(60, 7)]), Some(40.0), "a GPU had it before the view was read");
        assert_eq!(after(Some(60), &[(60, 8)]), Some(60.0), "the view shows it before it seals");
        assert_eq!(after(Some(60), &[(60, 9)]), Some(60.0), "it has not sealed anything");
        assert_eq!(after(Some(60), &[(50, 7), (60, 8)]), Some(60.0), "the last one counts");
    }

    #[test]
    fn what_was_sent_until_all_was_well_is_told_from_what_was_sent_after_the_faults() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let sent = |(ms, fate)| Observation { model: 0, sent: at(ms), ended: at(ms), asked_again: false, fate };
        let observations = [
            (999, Fate::Late),
            (1000, Fate::InTime),
            (1299, Fate::Dropped),
            (1300, Fate::Failed(Some(FailReason::PayloadLost))),
            (1499, Fate::Late),
            (1500, Fate::Failed(None)),
            (2499, Fate::Late),
            (2500, Fate::Open),
        ]
        .map(sent);
        let executions = Executions::default();
        let clock = MachineClock::read().unwrap();
        let figures = Figures { observations: &observations, acked: &[], models: 1, executions: &executions, clock };
        let round = |whole_at| RoundRun {
            healed_at: at(1300),
            serving_at: Some(at(1400)),
            whole_at,
            missing_last: Some("n2 is not up".into()),
            ..RoundRun::new(1, at(1000))
        };
        let shape = Round { watch_ms: 1500, ..Round::default() };
        let report = figures.of(&round(Some(at(1500))), &shape);
        assert_eq!((report.sent_during, report.bad_during), (4, 3), "from the first fault until it is whole");
        assert_eq!(report.bad_after_for, [("by the client", 1), ("late", 2), ("payload_lost", 1)].into());
        assert_eq!((report.bad_after, report.missing_last.as_deref()), (4, Some("n2 is not up")));
        let report = figures.of(&round(None), &shape);
        assert_eq!((report.sent_during, report.bad_during), (3, 2), "until it served, where it never was whole");
    }
}
