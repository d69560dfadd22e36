//! The protocol as it is: within each scope, everything that can happen happens, and nothing that must not.

use symphony_model::{Scope, search};

/// Searches all of a scope. A counterexample is printed step by step.
#[track_caller]
fn holds(scope: Scope) {
    let found = search(scope, 2, None);
    println!("{found}");
    assert!(found.counterexample.is_none(), "{found}");
    assert!(found.complete && found.missed.is_empty(), "{found}");
}

/// One GPU: the smallest world in which leads change.
const ONE_GPU: Scope = Scope { backends: 1, ..Scope::CALM };

#[test]
fn a_scheduler_taken_for_dead_and_two_gpus() {
    // Two of each lead, and one more of the old one.
    holds(Scope { node_downs: 1, connections_max: 5, ..Scope::CALM });
}

#[test]
fn two_requests_a_scheduler_taken_for_dead_and_a_linearizable_read() {
    holds(Scope { requests: 2, node_downs: 1, reads: 1, ..ONE_GPU });
}

#[test]
fn a_scheduler_that_restarts_fast_and_another_taken_for_dead() {
    holds(Scope { node_downs: 1, node_restarts: 1, connections_max: 5, ..ONE_GPU });
}

#[test]
fn a_backend_that_restarts_while_leads_change() {
    holds(Scope { node_downs: 1, backend_restarts: 1, connections_max: 3, ..ONE_GPU });
}

#[test]
fn a_frontend_that_restarts_lost_results_and_a_deadline_while_leads_change() {
    holds(Scope { node_downs: 1, frontend_restarts: 1, losses: 1, deadlines: 1, ..ONE_GPU });
}

#[test]
fn a_frontend_that_restarts_and_a_result_that_comes_twice_while_leads_change() {
    holds(Scope { node_downs: 1, frontend_restarts: 1, doubles: 1, ..ONE_GPU });
}

#[test]
fn a_network_worse_than_tcp_and_a_link_that_is_cut_while_leads_change() {
    // One of each lead, one after the cut, and one more of the old lead.
    holds(Scope { node_downs: 1, cuts: 1, doubles: 1, unordered: true, connections_max: 4, ..ONE_GPU });
}
