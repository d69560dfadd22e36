//! One round: faults begin and end on time, and the federation is given time to settle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rand::Rng as _;
use rand::seq::IteratorRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_protocol::federation::FederationView;
use symphony_testkit::wait_until_async;

use super::fault::{FederationFault, How, TopTarget, TopTrouble};
use super::federation_mover::FederationMover;
use super::models::{in_place, is_loaded, rehomed, settled};
use super::plans::Plans;
use super::scenario::FederationScenario;
use super::system::{Federation, FederationProcess, READY_WITHIN, VIEW_WITHIN};
use crate::cluster::Process;
use crate::load::Observations;
use crate::report::{Fault, FaultState};
use crate::run::round::RoundRun;
use crate::run_failure::RunFailure;

/// How long every model with load may take to answer a request after the last fault has ended.
const SERVING_WITHIN: Duration = Duration::from_secs(30);
/// How long a fault waits for a model that is on its way, and how often it is looked.
const MOVE_WITHIN: Duration = Duration::from_secs(10);
const MOVE_POLL: Duration = Duration::from_millis(2);

/// What rounds work with.
pub(super) struct Scene<'a> {
    pub(super) federation: Federation,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) plans: &'a Plans,
    pub(super) observations: Observations,
    /// Names of the models with load, by their numbers.
    pub(super) loaded: Vec<String>,
}

/// A fault that was to happen, and what is in force of it.
struct ActiveFault {
    fault: Fault,
    in_force: InForce,
}

enum InForce {
    Nothing,
    Cluster { group: usize, how: How, processes: Vec<Process>, models: Vec<usize>, struck_at: Instant },
    Top(Vec<FederationProcess>, How),
    Travel(FederationMover),
}

/// What happens next in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    End(usize),
    Begin(usize),
}

fn schedule(faults: &[FederationFault]) -> Vec<(Duration, Step)> {
    let mut steps = Vec::new();
    for (number, fault) in faults.iter().enumerate() {
        let (at_ms, _) = fault.times_ms();
        steps.push((Duration::from_millis(at_ms), Step::Begin(number)));
        steps.push((Duration::from_millis(fault.ends_ms()), Step::End(number)));
    }
    steps.sort_unstable();
    steps
}

impl Scene<'_> {
    /// # Errors
    /// If the federation is not settled before the round, does not find new homes after a loss, or the harness fails.
    pub(super) async fn round(&mut self, scenario: &FederationScenario, number: u32) -> Result<RoundRun> {
        let before = self.until_settled("a settled federation before the round").await?;
        let faults = &scenario.fault;
        let mut active: Vec<Option<ActiveFault>> = faults.iter().map(|_| None).collect();
        let (struck_at, mut relieved_at) = (Instant::now(), None);
        let mut round = RoundRun::new(number, struck_at);
        for (at, step) in schedule(faults) {
            tokio::time::sleep_until((struck_at + at).into()).await;
            match step {
                Step::Begin(n) => {
                    let struck = self.strike(&faults[n], &before, number).await?;
                    if let InForce::Cluster { group, models, .. } = &struck.in_force {
                        round.lost_group = Some(*group);
                        round.struck.clone_from(models);
                        round.struck_names = vec![self.federation.clusters[*group].0.clone()];
                    }
                    round.victims.extend(struck.fault.who.iter().cloned());
                    active[n] = Some(struck);
                }
                Step::End(n) => {
                    if let Some(struck) = &mut active[n] {
                        round.named_at = self.end(struck).await?.or(round.named_at);
                    }
                    relieved_at.get_or_insert_with(Instant::now);
                }
            }
        }
        round.healed_at = Instant::now();
        round.relieved_at = relieved_at.unwrap_or(round.healed_at);
        round.faults = active.into_iter().flatten().map(|struck| struck.fault).collect();
        self.heal(&mut round).await;
        tokio::time::sleep_until((struck_at + Duration::from_millis(scenario.round.watch_ms)).into()).await;
        Ok(round)
    }

    async fn strike(&mut self, fault: &FederationFault, before: &FederationView, round: u32) -> Result<ActiveFault> {
        let (in_force, who, how);
        let (mut state, mut why) = (FaultState::Installed, None);
        match fault {
            FederationFault::LoseCluster(f) => {
                let home_of_some = |name: &&String| {
                    before.models.iter().any(|(model, seen)| is_loaded(model) && seen.home.as_ref() == Some(*name))
                };
                let lost = before.clusters.keys().filter(home_of_some).choose(&mut self.random);
                let lost = lost.context("no cluster is home to a model with load")?;
                let group = self.federation.clusters.iter().position(|(name, _)| name == lost);
                let group = group.with_context(|| format!("{lost} is no cluster of this run"))?;
                let here = |name: &String| before.models.get(name).is_some_and(|m| m.home.as_ref() == Some(lost));
                let models = (0..self.loaded.len()).filter(|&number| here(&self.loaded[number])).collect();
                let processes = self.federation.strike_cluster(group, f.how)?;
                who = processes.iter().map(|process| format!("{lost}/{process}")).collect();
                how = Some(f.how.words().to_owned());
                in_force = InForce::Cluster { group, how: f.how, processes, models, struck_at: Instant::now() };
            }
            FederationFault::Top(f) => {
                let (victims, in_time) = self.victims(f).await?;
                victims.iter().try_for_each(|own| self.federation.strike(*own, f.how))?;
                who = victims.iter().map(ToString::to_string).collect();
                how = Some(f.how.words().to_owned());
                in_force = InForce::Top(victims, f.how);
                if !in_time {
                    (state, why) = (FaultState::Indeterminate, Some("no model was on its way".to_owned()));
                }
            }
            FederationFault::Travel(_) => {
                (who, how) = (self.loaded.clone(), None);
                let seed = self.random.random();
                in_force = InForce::Travel(FederationMover::start(self.federation.client.clone(), seed));
            }
        }
        Ok(ActiveFault { fault: Fault { kind: fault.kind(), state, who, round, how, why }, in_force })
    }

    /// Which replicas a fault of the federation's group hits, and whether that is when it should.
    async fn victims(&mut self, trouble: &TopTrouble) -> Result<(Vec<FederationProcess>, bool)> {
        let give_up = Instant::now() + MOVE_WITHIN;
        let moves = || self.plans.seen().newest.models.values().any(|model| model.moves_to.is_some());
        let mut leader = None;
        if trouble.who == TopTarget::Leader {
            let led = |view: &FederationView| view.leader.map(drop).ok_or_else(|| "nobody leads".to_owned());
            leader = self.federation.until("a leader of the federation", led).await?.leader;
        }
        while trouble.in_a_move && !moves() && Instant::now() < give_up {
            tokio::time::sleep(MOVE_POLL).await;
        }
        let in_time = !trouble.in_a_move || moves();
        let victims = match trouble.who {
            TopTarget::Leader => leader.map(FederationProcess::Top).into_iter().collect(),
            TopTarget::All => self.federation.top(),
        };
        Ok((victims, in_time))
    }

    /// Ends a fault. If a cluster was lost, not before its models are served elsewhere; returns when that was.
    async fn end(&mut self, active: &mut ActiveFault) -> Result<Option<Instant>> {
        let mut named_at = None;
        match std::mem::replace(&mut active.in_force, InForce::Nothing) {
            InForce::Nothing => {}
            InForce::Top(victims, how) => {
                victims.iter().try_for_each(|own| self.federation.relieve(*own, how))?;
            }
            InForce::Travel(mover) => {
                let agreed = mover.agreed();
                active.fault.how = Some(format!("{agreed} moves"));
                if agreed == 0 {
                    active.fault.state = FaultState::Indeterminate;
                    active.fault.why = Some("no move was agreed on".into());
                }
            }
            InForce::Cluster { group, how, processes, models, struck_at } => {
                let lost = self.federation.clusters[group].0.clone();
                let placed = self.federation.until("new homes", |view| rehomed(view, &lost)).await;
                placed.with_context(|| format!("{lost} was {}", how.words()))?;
                named_at = Some(Instant::now());
                self.until_answered(&models, struck_at, "an answer from each new home").await?;
                self.federation.relieve_cluster(group, how, &processes)?;
            }
        }
        Ok(named_at)
    }

    /// Waits until each of the models has answered in time something that was sent since.
    async fn until_answered(&self, models: &[usize], since: Instant, what: &str) -> Result<Instant> {
        let observations = &self.observations;
        wait_until_async(what, SERVING_WITHIN, || async {
            let mut last = since;
            for &model in models {
                let first = observations.first_good(model, since);
                last = last.max(first.with_context(|| format!("{} answers nothing in time", self.loaded[model]))?);
            }
            Ok(last)
        })
        .await
    }

    /// Waits until everything is as it should be.
    async fn heal(&mut self, round: &mut RoundRun) {
        let all: Vec<_> = (0..self.loaded.len()).collect();
        let number = round.number;
        match self.until_answered(&all, round.healed_at, "an answer of every model").await {
            Ok(at) => round.serving_at = Some(at),
            Err(error) => round.run_failure = Some(RunFailure::of(format_args!("round {number}"), &error)),
        }
        match self.until_settled("a settled federation after the faults").await {
            Ok(_) => round.whole_at = Some(Instant::now()),
            Err(error) => round.run_failure = Some(RunFailure::of(format_args!("round {number}"), &error)),
        }
    }

    /// Waits until each cluster is whole, every model is at home somewhere and served there, and nothing is on its way.
    pub(super) async fn until_settled(&mut self, what: &str) -> Result<FederationView> {
        for (name, cluster) in &mut self.federation.clusters {
            cluster.until_whole(what).await.with_context(|| name.clone())?;
        }
        self.federation.check()?;
        let client = self.federation.client.clone();
        let clusters: Vec<_> =
            self.federation.clusters.iter().map(|(name, cluster)| (name.clone(), cluster.control.clone())).collect();
        let every_replica = self.federation.replicas.clone();
        wait_until_async(what, READY_WITHIN, || async {
            let view = client.get(true, VIEW_WITHIN).await?;
            settled(&view).map_err(anyhow::Error::msg)?;
            let mut views = Vec::new();
            for (name, control) in &clusters {
                views.push((name.clone(), Arc::new(control.get(true, VIEW_WITHIN).await?)));
            }
            in_place(&view, &views).map_err(anyhow::Error::msg)?;
            for (replica, client) in &every_replica {
                let seen = client.get(false, VIEW_WITHIN).await?;
                ensure!(seen.plan == view.plan, "replica {replica} has plan {}, not {}", seen.plan, view.plan);
            }
            Ok(view)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_begin_and_end_in_the_order_of_their_times() {
        let text = "[[fault]]\nkind = 'travel'\nfor_ms = 9\n[[fault]]\nkind = 'top'\nwho = 'leader'\nhow = 'kill'\nat_ms = 3\nfor_ms = 4\n";
        #[derive(serde::Deserialize)]
        struct Faults {
            fault: Vec<FederationFault>,
        }
        let faults: Faults = toml::from_str(text).unwrap();
        let steps: Vec<_> = schedule(&faults.fault).into_iter().map(|(at, step)| (at.as_millis(), step)).collect();
        assert_eq!(steps, [(0, Step::Begin(0)), (3, Step::Begin(1)), (7, Step::End(1)), (9, Step::End(0))]);
    }
}
