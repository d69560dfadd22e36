//! P1 to P3 are violated on purpose in what runs want, and must end the simulation under their names.

use symphony_pipeline::Action;
use symphony_types::{Invariant, Nanos};
use symphony_workload::Scenario;

use crate::error::Error;
use crate::policy_facts::PolicyFacts;
use crate::queues_and_ranker::QueuesAndRanker;
use crate::tap::Open;
use crate::world::World;

/// Four rows for each result, and twice what one GPU can do: requests end while others of theirs are open.
const TEXT: &str = "
    name = 'planted'
    policy = 'eager'
    duration_s = 1
    warmup_s = 0.1
    seeds = [9]
    gpu = [{ kind = 'x', count = 1 }]
    workload = { rate_rps = 400, arrival = 'poisson' }
    [[pipeline]]
    slo_ms = 60
    stage = [{ name = 'a', alpha_ms = 1, beta_ms = 2 }, { name = 'b', alpha_ms = 1, beta_ms = 2 }]
    edge = [{ from = 'a', to = 'b', gamma = 4, fan_out = 'fixed' }]";

fn run(fault: fn(&mut Vec<Action>)) -> Result<(), Error> {
    let scenario = Scenario::parse("planted.toml", TEXT, &[], &|_| Err("no files".to_owned())).unwrap();
    let facts = PolicyFacts::new(&scenario, 9, scenario.rate_rps);
    let policy = QueuesAndRanker::new(&facts, scenario.policy.queues().unwrap(), Open);
    let mut world = World::new(&scenario, 9, scenario.rate_rps, policy);
    world.plant(fault);
    world.run()
}

#[track_caller]
fn found(invariant: Invariant, words: &str, fault: fn(&mut Vec<Action>)) {
    let error = run(fault).expect_err("the fault should be found");
    let Error::Violation { violation, seed, command, .. } = &error else { panic!("another error: {error}") };
    assert_eq!((violation.invariant, *seed), (invariant, 9), "{error}");
    assert!(violation.detail.contains(words), "`{words}` is not in: {error}");
    assert!(command.starts_with("symphony sim planted.toml --set 'seeds=[9]'"), "{command}");
}

#[test]
fn without_a_fault_the_run_ends_well() {
    run(|_| {}).unwrap();
}

#[test]
fn p1_a_stage_request_that_outlives_its_request() {
    found(Invariant::P1, "are open at the end", |actions| {
        actions.retain(|action| !matches!(action, Action::Withdraw(_)));
    });
}

#[test]
fn p2_a_stage_that_leaves_no_time_to_those_behind_it() {
    found(Invariant::P2, "is asked by", |actions| {
        for action in actions {
            if let Action::Ask(ask) = action {
                ask.deadline += Nanos::from_millis(60);
            }
        }
    });
}

#[test]
fn p3_a_row_that_is_used_twice() {
    found(Invariant::P3, "is asked twice", |actions| {
        if let Some(&again @ Action::Ask(_)) = actions.first() {
            actions.push(again);
        }
    });
}
