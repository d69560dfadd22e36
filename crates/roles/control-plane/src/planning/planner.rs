//! Looks for a better partition plan while this replica leads the control group, and proposes it.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_cluster_state::{
    Action, ClusterState, Command, LeftAlone, Moved, Operation, PLAN_WORDS_BYTES_MAX, PlanProposal, PlanStatus, Reply,
    WantedMove,
};
use symphony_controllers::{Ended, EpochTrigger, Holds, Start, Why};
use symphony_types::{ModelId, Nanos, Time};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::api::operations::OperationOrigin;
use crate::error::CallError;
use crate::group::propose::Proposer;
use crate::group::state_machine::SharedState;
use crate::metrics::Metrics;
use crate::planning::problem::{EpochResult, pose};
use crate::planning::reported::{Measured, Reported};
use crate::planning::settings::{EpochMode, EpochSettings};
use crate::planning::solver::Solver;
use crate::planning::splits::Splitter;

/// How often to check whether an epoch should begin.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// An operator's request for an epoch now.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Whether to adopt its plan.
    pub(crate) adopt: bool,
    /// The operator that asks.
    pub(crate) origin: OperationOrigin,
    /// The receiver of the outcome.
    pub(crate) answer: oneshot::Sender<Result<String, String>>,
}

/// The epoch loop of one replica.
#[derive(Debug)]
pub(crate) struct Planner {
    pub(crate) settings: EpochSettings,
    /// Of every request besides its batch.
    pub(crate) request_delays: Nanos,
    pub(crate) state: SharedState,
    pub(crate) proposer: Proposer,
    pub(crate) reported: Arc<Mutex<Reported>>,
    pub(crate) metrics: Metrics,
    pub(crate) asks: mpsc::Receiver<Ask>,
    pub(crate) solver: Solver,
}

impl Planner {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let leadership = self.proposer.group().leadership();
        let began = Instant::now();
        let mut trigger = EpochTrigger::new(self.settings.trigger.clone());
        let mut members = Holds::default();
        let mut splitter = Splitter::default();
        loop {
            let ask = tokio::select! {
                () = stop.cancelled() => return,
                Some(ask) = self.asks.recv() => Some(ask),
                () = tokio::time::sleep(POLL_EVERY) => None,
            };
            if !leadership.borrow().is_leader {
                trigger = EpochTrigger::new(self.settings.trigger.clone());
                splitter.clear();
                self.reported.lock().unwrap_or_else(PoisonError::into_inner).clear();
                if let Some(Ask { answer, .. }) = ask {
                    let _ = answer.send(Err("this replica does not lead the control group any more".into()));
                }
                continue;
            }
            let now = Instant::now();
            self.split(now, &mut splitter).await;
            let time = |now: Instant| Time::from_nanos(u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX));
            let (measured, busy, membership) = {
                let state = self.state.read();
                let reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
                (reported.measured(now, &state), busy(&state), membership(&state))
            };
            if let Some(Ask { adopt, origin, answer }) = ask {
                let outcome = match (measured, busy) {
                    (_, true) => Err("moves of an earlier plan are under way; see `symphony plan show`".to_owned()),
                    (None, _) => Err(format!(
                        "rates are not known yet: leads have to report for {} s",
                        self.settings.rate_over.as_secs()
                    )),
                    (Some(measured), false) => self.epoch(&Why::Operator, adopt, &measured, Some(origin)).await,
                };
                let _ = answer.send(outcome);
                continue;
            }
            // A restarting process is back soon: only a lasting change counts.
            let unchanged_for = members.observe(time(now), membership);
            let (Some(measured), false, true) = (measured, busy, self.settings.mode != EpochMode::Off) else {
                continue;
            };
            if unchanged_for < self.settings.trigger.change_holds {
                continue;
            }
            if let Some(Start { why, .. }) = trigger.observe(time(now), &measured.work(), membership) {
                let outcome = self.epoch(&why, self.settings.mode == EpochMode::Adopt, &measured, None).await;
                match &outcome {
                    Ok(words) => tracing::info!(why = why.label(), "epoch: {words}"),
                    Err(words) => tracing::warn!(why = why.label(), "no plan: {words}"),
                }
                let ended = if outcome.is_ok() { Ended::Done } else { Ended::Failed };
                trigger.ended(time(Instant::now()), ended);
            }
        }
    }

    /// Splits the budgets of pipelines, and makes the cluster agree to those that have changed. The next round makes up
    /// for what is not agreed on.
    async fn split(&mut self, now: Instant, splitter: &mut Splitter) {
        let ask = || {
            let state = self.state.read();
            let reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
            reported.questions(now, &state, self.request_delays)
        };
        for command in splitter.turn(now, ask).await {
            if let Err(error) = self.proposer.propose(&command).await {
                tracing::debug!(%error, "the budget of a pipeline is not split anew");
                if !matches!(error, CallError::Refused(_)) {
                    // The others would wait for a leader as long, one after the other.
                    return;
                }
            }
        }
    }

    /// Solves and proposes, under an operator's name if one asked. On any failure the plan in force stays.
    async fn epoch(
        &mut self,
        why: &Why,
        adopt: bool,
        measured: &Measured,
        origin: Option<OperationOrigin>,
    ) -> Result<String, String> {
        let (epoch, posed) = {
            let state = self.state.read();
            (state.epoch(), pose(&state, measured, &self.settings))
        };
        let Some(posed) = posed else { return Ok("there is nothing to divide among sub-clusters".to_owned()) };
        let solved = self.solver.run(posed, self.settings.solve_within).await;
        let found = solved.and_then(|(posed, arranged)| posed.found(&arranged));
        self.metrics.epochs.inc();
        let found = found.inspect_err(|_| {
            self.metrics.epochs_failed.inc();
        })?;
        let in_force = found.change.before.unwrap_or(found.change.after);
        self.metrics.rate_imbalance.set(in_force.rate_imbalance);
        self.metrics.memory_imbalance.set(in_force.memory_imbalance);
        let (names, nothing) = (named(&self.state.read(), &found.left_alone), found.moves.is_empty());
        if nothing && (found.left_alone.is_empty() || self.names_already(&found.left_alone)) {
            return Ok(format!("the plan in force is good enough{names}"));
        }
        if !adopt
            && !nothing
            && let Some(plan) = self.waits_already(&found.moves)
        {
            return Ok(format!("plan {plan} is the same and {}{names}", waits(plan)));
        }
        // A plan without moves needs no approval.
        let adopt = adopt || nothing;
        let proposal = PlanProposal {
            epoch,
            cause: cause(why),
            summary: summary(&found, measured.profiles.count()),
            moves: found.moves,
            left_alone: found.left_alone,
            load_bytes_per_s: self.settings.load_bytes_per_s,
            adopt,
        };
        let command = match origin {
            None => Command::ProposePlan(proposal),
            Some(OperationOrigin { id, actor, at_unix_ms }) => {
                let action = Action::ProposePlan(proposal);
                Command::Operate(Operation { id, actor, at_unix_ms, avoid: None, action })
            }
        };
        match self.proposer.propose(&command).await {
            Ok(accepted) => match accepted.reply {
                Reply::Plan { .. } if nothing => Ok(format!("the plan in force is good enough{names}")),
                Reply::Plan { plan } if adopt => Ok(format!("plan {plan} runs{names}")),
                Reply::Plan { plan } => Ok(format!("plan {plan} {}{names}", waits(plan))),
                other => Err(format!("the cluster answered {other:?} to a plan")),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    /// The waiting plan with the same moves.
    fn waits_already(&self, moves: &[WantedMove]) -> Option<u64> {
        let state = self.state.read();
        let last = state.plans().last().filter(|plan| plan.status == PlanStatus::Proposed)?;
        last.moves.iter().map(|planned| &planned.wanted).eq(moves).then_some(last.id)
    }

    /// Whether the last plan names the same models already.
    fn names_already(&self, left_alone: &[LeftAlone]) -> bool {
        let state = self.state.read();
        let models = |left: &[LeftAlone]| left.iter().map(|left| left.model).collect::<Vec<_>>();
        state.plans().last().is_some_and(|plan| models(&plan.left_alone) == models(left_alone))
    }
}

/// The answer for a plan that waits for approval.
fn waits(plan: u64) -> String {
    format!("waits for approval: `symphony plan approve {plan}`")
}

/// The part of an answer about models that fit nowhere.
fn named(state: &ClusterState, left_alone: &[LeftAlone]) -> String {
    let name = |id: ModelId| state.models().get(&id).map_or_else(|| id.to_string(), |model| model.spec.name.clone());
    let each: Vec<_> = left_alone.iter().map(|left| format!("{} stays: {}", name(left.model), left.reason)).collect();
    if each.is_empty() { String::new() } else { format!("; {}", each.join("; ")) }
}

/// Whether moves of an earlier plan are still in progress.
fn busy(state: &ClusterState) -> bool {
    state.moves_under_way() > 0 || state.plans().iter().any(|plan| plan.status == PlanStatus::Running)
}

/// A fingerprint of the models, sub-clusters and backends that take work.
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
        Why::Rates(share) => format!("the load changed by {:.0} %", 100.0 * share),
        Why::Period => "the period is over".to_owned(),
    }
}

fn summary(found: &EpochResult, corrected: usize) -> String {
    let mut words = String::new();
    if let Some(before) = found.change.before {
        let after = found.change.after;
        let _ = write!(
            words,
            "imbalance of rate {} to {}, of memory {} to {}; ",
            percent(before.rate_imbalance),
            percent(after.rate_imbalance),
            percent(before.memory_imbalance),
            percent(after.memory_imbalance)
        );
    }
    let backends = found.moves.iter().filter(|wanted| matches!(wanted.what, Moved::Backend(_))).count();
    let _ = write!(words, "{} models and {backends} backends move", found.moves.len() - backends);
    if corrected > 0 {
        let _ = write!(words, "; {corrected} profiles as they were measured");
    }
    words.truncate(words.floor_char_boundary(PLAN_WORDS_BYTES_MAX));
    words
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::problem::tests::{cluster, loaded};

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
        assert_eq!(cause(&Why::Rates(0.25)), "the load changed by 25 %");
    }
}
