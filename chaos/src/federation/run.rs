//! One run: clusters under a group of their own, load and admin work, rounds of faults, and what became of it all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_testkit::Workspace;

use super::models::{is_loaded, models};
use super::plans::Plans;
use super::round::Scene;
use super::scenario::FederationScenario;
use super::system::Federation;
use crate::admin::{AdminClients, Commits, Story, lost, recorder};
use crate::cluster::{CLUSTER, ClusterSetup};
use crate::journal::{self, Executions};
use crate::load::{Fate, GRACE, Observation, RunningLoad};
use crate::report::{Ledger, Report};
use crate::run::conclusion::Conclusion;
use crate::run::machine_clock::MachineClock;
use crate::run::round::RoundRun;
use crate::run::{
    CALM, CALM_RANDOM_MS, NOT_STARTED, RunPlan, Times, frontends_counts, idle, in_workspace, last_view, violations,
};
use crate::run_failure::RunFailure;
use crate::scenario::{Aim, Links};
use crate::views::Views;

/// Runs a scenario on a federation of its own.
///
/// # Errors
/// If the harness fails: the federation cannot be started, or evidence cannot be read.
pub async fn run_federation(scenario: &FederationScenario, plan: &RunPlan) -> Result<Report> {
    let mut scenario = scenario.clone();
    plan.relax(&mut scenario.promise, &mut scenario.load);
    in_workspace(&scenario.name, plan, async |workspace| Box::pin(run_in(&scenario, plan, workspace)).await).await
}

async fn run_in(scenario: &FederationScenario, plan: &RunPlan, workspace: &Workspace) -> Result<Report> {
    let dir = &workspace.path().canonicalize()?;
    let timing = plan.timing.unwrap_or(scenario.federation.timing);
    let noise = plan.noise.unwrap_or(scenario.federation.noise);
    let links = Links::Direct;
    let place = ClusterSetup { name: CLUSTER, binary: &plan.binary, dir, timing, links, noise, interpose: false };
    let federation = Federation::start(&scenario.federation, place).await.context(NOT_STARTED)?;
    let names: Vec<_> = federation.clusters.iter().map(|(name, _)| name.clone()).collect();
    let models = models(scenario, &names)?;
    for model in &models {
        model.load(&federation.client).await.with_context(|| model.spec.name.clone()).context(NOT_STARTED)?;
    }
    let specs: Vec<_> = models.iter().map(|model| model.spec.clone()).filter(|spec| is_loaded(&spec.name)).collect();
    let loaded: Vec<_> = specs.iter().map(|spec| spec.name.clone()).collect();

    let watched = |(name, cluster): &(String, crate::cluster::Cluster)| {
        (name.clone(), Arc::new(Views::watch(&cluster.replicas.all())))
    };
    let views: Vec<_> = federation.clusters.iter().map(watched).collect();
    let plans = Plans::watch(&federation.replicas, &views);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let own = Xoshiro256PlusPlus::seed_from_u64(random.random());
    let frontends = federation.frontends.clone();
    let mut scene =
        Scene { federation, random: own, plans: &plans, observations: Default::default(), loaded: loaded.clone() };
    scene.until_settled("every model to be served").await.context(NOT_STARTED)?;

    let (began, clock) = (Instant::now(), MachineClock::read()?);
    let load = RunningLoad::start(&scenario.load, &specs, &frontends, plan.seed).await?;
    scene.observations = load.observations.clone();
    let mut work = Vec::new();
    for (group, (name, cluster)) in (0_u64..).zip(&scene.federation.clusters) {
        let (recorder, mut model) = (recorder(began), specs.first().context("there is a model with load")?.clone());
        model.subcluster = cluster.processes.subclusters().first().context("a cluster has a sub-cluster")?.clone();
        let commits = Commits::start(cluster.writers.clone(), scenario.load.writes_rps);
        let (count, seed) = (scenario.load.admin_clients, plan.seed ^ (group << 48));
        let admin = AdminClients::start(&cluster.replicas, &model, count, seed, &recorder);
        work.push((name.clone(), commits, admin, recorder));
    }

    let rounds = plan.repeat.unwrap_or(scenario.repeat);
    let (mut ran, mut run_failure) = (Vec::new(), None);
    for number in 1..=rounds {
        let calm = CALM + Duration::from_millis(random.random_range(0..CALM_RANDOM_MS));
        tokio::time::sleep(calm).await;
        match scene.round(scenario, number).await {
            Ok(round) => {
                eprintln!("{}: round {number} of {rounds}: {}", scenario.name, round.words());
                run_failure = round.run_failure.clone();
                ran.push(round);
                if run_failure.is_some() {
                    break;
                }
            }
            Err(error) => {
                run_failure = Some(RunFailure::of(format_args!("round {number}"), &error));
                break;
            }
        }
    }
    tokio::time::sleep(CALM).await;

    let federation = scene.federation;
    let (mut written, mut stories) = (Vec::new(), Vec::new());
    for (name, commits, admin, recorder) in work {
        written.push(commits.finish().await);
        admin.finish().await;
        stories.push(Story::judge(&recorder, &dir.join(format!("{name}-admin-history")))?);
    }
    let observations = load.observations.clone();
    let load = load.finish().await?;
    let observations = observations.all();
    // Frontends live through everything: what they say counts.
    let counted = tokio::time::timeout(2 * GRACE, frontends_counts(&federation.frontend_pages())).await;
    let counted = counted.context("the frontends do not say how requests ended")??;
    let ledger = Ledger { lost: load.total.lost, answered_twice: load.total.answered_twice, ..counted };
    let mut findings = Vec::new();
    let (mut writes_lost, mut compared, mut fullest) = (Vec::new(), plans.seen().compared, 0);
    for ((name, cluster), written) in federation.clusters.iter().zip(&written) {
        match last_view(cluster).await {
            Some(view) => writes_lost.extend(lost(written, &view)),
            None => {
                let why = anyhow!("{name} gives no linearizable view");
                run_failure.get_or_insert_with(|| RunFailure::of("the end", &why));
            }
        }
    }
    for (name, views) in &views {
        let seen = views.seen();
        findings.extend(seen.findings.iter().map(|finding| format!("{finding} (in {name})")));
        compared += seen.compared;
        fullest = fullest.max(seen.fullest_permille);
    }
    findings.extend(plans.seen().findings.iter().cloned());
    if plan.times == Times::Judged {
        let watch = Duration::from_millis(scenario.round.watch_ms);
        findings.extend(lost_without_a_fault(&plans.seen().lost, &ran, watch));
    }
    let invariant_violations = violations(federation.pages().into_iter()).await;
    let journals: Vec<Vec<_>> =
        federation.clusters.iter().map(|(_, cluster)| cluster.journals.values().cloned().collect()).collect();
    if let Err(error) = federation.stop_all().await {
        run_failure.get_or_insert_with(|| RunFailure::of("the end", &error));
    }
    let judged = |paths: &Vec<_>| {
        let journals = paths.iter().map(|path: &std::path::PathBuf| journal::read(path)).collect::<Result<Vec<_>>>()?;
        Ok(journal::judge(&journals))
    };
    let executions = Executions::together(journals.iter().map(judged).collect::<Result<_>>()?);
    findings.extend(executed_twice(&executions, ledger.accepted));
    findings.extend(failed_elsewhere(&observations, &ran, &loaded, plan.times));
    let mut idle_work: Vec<_> = written.iter().zip(&stories).flat_map(|(w, s)| idle(&scenario.load, w, s)).collect();
    idle_work.dedup();
    let story = Story::together(stories);
    let acked: Vec<_> = written.iter().map(|written| &written.acked[..]).collect();
    let acked = if scenario.load.writes_rps > 0.0 { &acked[..] } else { &[] };
    let conclusion = Conclusion {
        scenario: &scenario.name,
        shape: &scenario.round,
        promise: &scenario.promise,
        aim: &Aim::default(),
        seed: plan.seed,
        timing,
        noise,
        times: plan.times,
        network: "direct",
        rounds: &ran,
        // Frontends live through everything.
        frontends_struck: &[],
        load: &load,
        observations: &observations,
        models: loaded.len(),
        clock,
        ledger,
        ledger_by: "frontends",
        executions: &executions,
        acked,
        writes_lost: &writes_lost,
        story: &story,
        idle: idle_work,
        findings: &findings,
        views_compared: compared,
        fullest_permille: fullest,
        invariant_violations: &invariant_violations,
        run_failure: run_failure.as_ref(),
    };
    Ok(conclusion.report())
}

/// A request that goes to another cluster has another name there. If more names were executed than there were requests,
/// one was executed in two clusters (F1).
fn executed_twice(executions: &Executions, accepted: u64) -> Option<String> {
    let names = executions.requests - executions.again;
    (executions.missing == 0 && names > accepted)
        .then(|| format!("F1: {names} requests were executed in all clusters, of {accepted} that were accepted"))
}

/// Only a cluster that a fault has struck counts as lost, whatever becomes of the group above. Judged where times are:
/// a busy machine may keep any cluster from answering for that long.
fn lost_without_a_fault(lost: &[(Instant, String)], rounds: &[RoundRun], watch: Duration) -> Vec<String> {
    let of_round = |round: &RoundRun| {
        let until = round.whole_at.unwrap_or(round.healed_at).max(round.struck_at + watch);
        let within = lost.iter().filter(|(at, _)| (round.struck_at..=until).contains(at));
        let others = within.filter(|(_, name)| !round.struck_names.contains(name));
        let words = others.map(|(at, name)| {
            let after = at.saturating_duration_since(round.struck_at).as_millis();
            format!("I8: {name} counted as lost {after} ms after round {} began, and no fault struck it", round.number)
        });
        words.collect::<Vec<_>>()
    };
    rounds.iter().flat_map(of_round).collect()
}

/// Requests fail in a cluster that is lost, and nowhere else, and each for a reason of the closed set. Where times are
/// not judged, failures for which a busy machine is enough are not, either.
fn failed_elsewhere(observations: &[Observation], rounds: &[RoundRun], loaded: &[String], times: Times) -> Vec<String> {
    let lost = |one: &Observation| {
        rounds.iter().any(|round| {
            // Requests sent before the loss were under way when it came.
            let until = round.whole_at.unwrap_or(round.healed_at);
            round.struck.contains(&one.model) && one.sent <= until && one.ended >= round.struck_at
        })
    };
    let mut by_reason: BTreeMap<&str, Vec<&Observation>> = BTreeMap::new();
    let mut findings = Vec::new();
    for one in observations {
        if one.fate == Fate::Failed(None) && findings.is_empty() {
            findings.push("I3: a request failed at a frontend for what no process gives as a reason".to_owned());
        }
        match one.fate {
            Fate::Failed(Some(reason)) if times.excuse(reason) => {}
            Fate::Failed(Some(reason)) if !lost(one) => by_reason.entry(reason.label()).or_default().push(one),
            _ => {}
        }
    }
    for (reason, all) in by_reason {
        let (first, count) = (all[0], all.len());
        let name = loaded.get(first.model).map_or("?", String::as_str);
        let since = rounds.iter().rev().find(|round| round.struck_at <= first.ended);
        let since = since.map_or_else(String::new, |round| {
            let after = |at: Instant| at.saturating_duration_since(round.struck_at).as_millis();
            let (sent, ended, healed) = (after(first.sent), after(first.ended), after(round.healed_at));
            format!(
                ", sent {sent} ms and ended {ended} ms after round {} began, which healed after {healed} ms",
                round.number
            )
        });
        findings.push(format!(
            "I3: {count} requests failed with {reason} outside of a lost cluster, the first one for {name}{since}"
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use symphony_types::FailReason;

    use super::*;
    use crate::run::OF_A_BUSY_MACHINE;

    #[test]
    fn more_executed_names_than_requests_are_found() {
        let of = |requests, again| Executions { requests, again, ran: 5, ..Executions::default() };
        assert_eq!(executed_twice(&of(10, 0), 10), None);
        assert_eq!(executed_twice(&of(12, 2), 10), None, "again in the same cluster, under the same name");
        assert!(executed_twice(&of(12, 1), 10).is_some_and(|why| why.starts_with("F1: 11")));
        assert_eq!(executed_twice(&Executions { missing: 1, ..of(12, 1) }, 10), None, "nothing is proved then");
    }

    #[test]
    fn a_cluster_that_counts_as_lost_without_a_fault_is_found_as_long_as_the_round_is_watched() {
        let (zero, ms) = (Instant::now(), Duration::from_millis(1));
        let round = RoundRun {
            struck_names: vec!["a".into()],
            healed_at: zero + 200 * ms,
            whole_at: Some(zero + 300 * ms),
            ..RoundRun::new(1, zero + 100 * ms)
        };
        let found = |name: &str, at: u32, watch: u32| {
            let lost = [(zero + at * ms, name.to_owned())];
            lost_without_a_fault(&lost, std::slice::from_ref(&round), watch * ms).len()
        };
        assert_eq!([found("a", 150, 0), found("b", 150, 0), found("b", 300, 0)], [0, 1, 1]);
        assert_eq!([found("b", 90, 0), found("b", 301, 0), found("b", 301, 300)], [0, 0, 1]);
    }

    #[test]
    fn requests_may_fail_in_a_lost_cluster_and_nowhere_else() {
        let (zero, ms) = (Instant::now(), Duration::from_millis(1));
        let round = RoundRun {
            lost_group: Some(0),
            struck: vec![1],
            relieved_at: zero + 200 * ms,
            healed_at: zero + 200 * ms,
            whole_at: Some(zero + 300 * ms),
            ..RoundRun::new(1, zero + 100 * ms)
        };
        let judged = |reason, times, model, sent: u32, ended: u32| {
            let (fate, sent, ended) = (Fate::Failed(reason), zero + sent * ms, zero + ended * ms);
            let one = Observation { model, sent, ended, asked_again: false, fate };
            let loaded = ["a".into(), "b".into()];
            failed_elsewhere(&[one], std::slice::from_ref(&round), &loaded, times).len() == 1
        };
        let found = |model, sent, ended| {
            let by_times = [Times::Reported, Times::Judged]
                .map(|times| judged(Some(FailReason::ModelNotReady), times, model, sent, ended));
            assert_eq!(by_times[0], by_times[1]);
            by_times[0]
        };
        assert!(!found(1, 90, 110) && !found(1, 150, 400));
        assert!(found(0, 150, 160), "another model");
        assert!(found(1, 10, 90), "before");
        assert!(found(1, 301, 310), "after");
        assert!(judged(None, Times::Reported, 1, 150, 160), "in the lost cluster, for no reason");
        for reason in OF_A_BUSY_MACHINE {
            assert!(!judged(Some(reason), Times::Reported, 0, 150, 160), "the machine had no time");
            assert!(judged(Some(reason), Times::Judged, 0, 150, 160));
        }
    }
}
