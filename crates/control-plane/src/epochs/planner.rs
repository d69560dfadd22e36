//! Looks for a better plan while this replica leads the control group, and proposes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_cluster_state::{
    ClusterState, Command, PLAN_WORDS_BYTES_MAX, PlanProposal, PlanStatus, Reply, WantedMove,
};
use symphony_epochs::{Ended, EpochTrigger, Start, Why};
use symphony_partitioner::{Budget, Change, solve, verify};
use symphony_types::{ModelId, Time};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::problem::{Posed, pose};
use super::reported::Reported;
use super::settings::{EpochMode, EpochSettings};
use crate::host::SharedState;
use crate::metrics::Metrics;
use crate::propose::Proposer;

/// How often it is looked whether an epoch should begin.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// An operator's wish for an epoch now: whether its plan is adopted, and where the outcome goes.
pub(crate) type Ask = (bool, oneshot::Sender<Result<String, String>>);

/// The epoch loop of one replica.
#[derive(Debug)]
pub(crate) struct Planner {
    pub(crate) settings: EpochSettings,
    pub(crate) state: SharedState,
    pub(crate) proposer: Proposer,
    pub(crate) reported: Arc<Mutex<Reported>>,
    pub(crate) metrics: Metrics,
    pub(crate) asks: mpsc::Receiver<Ask>,
}

impl Planner {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let leadership = self.proposer.group().leadership();
        let began = Instant::now();
        let mut trigger = EpochTrigger::new(self.settings.trigger.clone());
        let mut members: Option<(u64, Instant)> = None;
        loop {
            let asked = tokio::select! {
                () = stop.cancelled() => return,
                Some(asked) = self.asks.recv() => Some(asked),
                () = tokio::time::sleep(LOOK_EVERY) => None,
            };
            if !leadership.borrow().is_leader {
                trigger = EpochTrigger::new(self.settings.trigger.clone());
                self.reported.lock().unwrap_or_else(PoisonError::into_inner).clear();
                if let Some((_, answer)) = asked {
                    let _ = answer.send(Err("this replica does not lead the control group any more".into()));
                }
                continue;
            }
            let now = Instant::now();
            let time = |now: Instant| Time::from_nanos(u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX));
            let (rates, busy, membership) = {
                let state = self.state.read();
                let reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
                (reported.book.rates(now, &state), busy(&state), membership(&state))
            };
            if let Some((adopt, answer)) = asked {
                let outcome = match (rates, busy) {
                    (_, true) => Err("moves of an earlier plan are under way; see `symphony plan show`".to_owned()),
                    (None, _) => Err(format!(
                        "rates are not known yet: leads have to report for {} s",
                        self.settings.rate_over.as_secs()
                    )),
                    (Some(rates), false) => self.epoch(&Why::Operator, adopt, rates).await,
                };
                let _ = answer.send(outcome);
                continue;
            }
            // Who restarts is back in a moment: only a change that holds is one.
            if members.is_none_or(|(known, _)| known != membership) {
                members = Some((membership, now));
            }
            let held = members.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since));
            let (Some(rates), false, true) = (rates, busy, self.settings.mode != EpochMode::Off) else { continue };
            if held < Duration::from(self.settings.trigger.change_holds) {
                continue;
            }
            if let Some(Start { why, .. }) = trigger.observe(time(now), &rates, membership) {
                let outcome = self.epoch(&why, self.settings.mode == EpochMode::Adopt, rates).await;
                match &outcome {
                    Ok(words) => tracing::info!(why = why.label(), "epoch: {words}"),
                    Err(words) => tracing::warn!(why = why.label(), "no plan: {words}"),
                }
                let ended = if outcome.is_ok() { Ended::Done } else { Ended::Failed };
                trigger.ended(time(Instant::now()), ended);
            }
        }
    }

    /// Solves and proposes. Whatever goes wrong, the plan in force stays.
    async fn epoch(&self, why: &Why, adopt: bool, rates: BTreeMap<ModelId, f64>) -> Result<String, String> {
        let (epoch, posed) = {
            let state = self.state.read();
            (state.epoch(), pose(&state, &rates, &self.settings))
        };
        let Some(posed) = posed else { return Ok("there is nothing to divide among sub-clusters".to_owned()) };
        let solve_within = self.settings.solve_within;
        let solved = tokio::task::spawn_blocking(move || found(posed, solve_within)).await;
        let solved = solved.map_err(|error| format!("the solver ended early: {error}")).and_then(|found| found);
        self.metrics.epochs.inc();
        let (change, moves) = solved.inspect_err(|_| {
            self.metrics.epochs_failed.inc();
        })?;
        self.metrics.rate_imbalance.set(change.before.unwrap_or(change.after).rate_imbalance);
        self.metrics.memory_imbalance.set(change.before.unwrap_or(change.after).memory_imbalance);
        if moves.is_empty() {
            return Ok("the plan in force is good enough".to_owned());
        }
        if !adopt && self.waits_already(&moves) {
            return Ok("the same plan waits for approval".to_owned());
        }
        let proposal = PlanProposal { epoch, cause: cause(why), summary: summary(&change), moves, adopt };
        let command = Command::ProposePlan(proposal);
        match self.proposer.propose(&command).await {
            Ok(accepted) => match accepted.reply {
                Reply::Plan { plan } if adopt => Ok(format!("plan {plan} runs")),
                Reply::Plan { plan } => Ok(format!("plan {plan} waits for approval")),
                other => Err(format!("the cluster answered {other:?} to a plan")),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    fn waits_already(&self, moves: &[WantedMove]) -> bool {
        let state = self.state.read();
        let last = state.plans().last().filter(|plan| plan.status == PlanStatus::Proposed);
        last.is_some_and(|plan| plan.moves.iter().map(|planned| &planned.wanted).eq(moves))
    }
}

fn found(posed: Posed, within: Duration) -> Result<(Change, Vec<WantedMove>), String> {
    let give_up = Instant::now() + within;
    let should_stop = move || Instant::now() >= give_up;
    let budget = Budget { should_stop: Some(&should_stop), ..Budget::for_models(posed.problem.models.len()) };
    let plan = solve(&posed.problem, Some(&posed.in_force), &budget).map_err(|error| error.to_string())?;
    let violations = verify(&posed.problem, Some(&posed.in_force), &plan);
    if let Some(violation) = violations.first() {
        return Err(format!("the solver's plan breaks a limit, which is a defect: {violation:?}"));
    }
    Ok(posed.moves(&plan))
}

/// Whether moves of an earlier plan are not over.
fn busy(state: &ClusterState) -> bool {
    state.moves_under_way() > 0 || state.plans().iter().any(|plan| plan.status == PlanStatus::Running)
}

/// A number that changes when models, sub-clusters or backends that take work come or go.
fn membership(state: &ClusterState) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.models().keys().for_each(|id| id.get().hash(&mut hasher));
    for (id, backend) in state.backends() {
        (id.get(), backend.up(), backend.duty().takes_work(), backend.gpus.len()).hash(&mut hasher);
    }
    hasher.finish()
}

fn cause(why: &Why) -> String {
    match why {
        Why::Operator => "an operator asked for an epoch".to_owned(),
        Why::Membership => "models or backends came or went".to_owned(),
        Why::Rates(share) => format!("rates changed by {:.0} %", 100.0 * share),
        Why::Period => "the period is over".to_owned(),
    }
}

fn summary(change: &Change) -> String {
    let mut words = String::new();
    if let Some(before) = change.before {
        let _ = write!(
            words,
            "imbalance of rate {:.3} to {:.3}, of memory {:.3} to {:.3}; ",
            before.rate_imbalance, change.after.rate_imbalance, before.memory_imbalance, change.after.memory_imbalance
        );
    }
    let _ = write!(words, "{:.1} MB of models move", change.cost / f64::from(1 << 20));
    words.truncate(words.floor_char_boundary(PLAN_WORDS_BYTES_MAX));
    words
}

#[cfg(test)]
mod tests {
    use super::super::problem::tests::{cluster, loaded};
    use super::*;

    #[test]
    fn the_words_of_a_plan_fit_and_its_membership_is_noticed() {
        let mut state = cluster(&["left", "right"]);
        let before = membership(&state);
        loaded(&mut state, "a", "left");
        let with_model = membership(&state);
        assert_ne!(before, with_model);
        assert!(!busy(&state));
        for why in [Why::Operator, Why::Membership, Why::Rates(0.25), Why::Period] {
            assert!(cause(&why).len() < PLAN_WORDS_BYTES_MAX);
        }
        assert_eq!(cause(&Why::Rates(0.25)), "rates changed by 25 %");
    }

    #[test]
    fn a_search_that_is_cut_short_still_gives_a_plan_that_holds() {
        let mut state = cluster(&["left", "right"]);
        for name in ["a", "b", "c", "d"] {
            loaded(&mut state, name, "left");
        }
        let rates = (1..=4).map(|id| (ModelId::new(id), 100.0)).collect();
        let posed = pose(&state, &rates, &EpochSettings::default()).unwrap();
        assert!(found(posed, Duration::ZERO).is_ok());
    }
}
