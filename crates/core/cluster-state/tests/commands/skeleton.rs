//! The smallest story of a command, to copy from. It is about `SetSplit`, the newest one: a command for tests alone
//! cannot be, since every variant of `Command` is a part of the log's format. The steps of an addition are in
//! docs/internals/recipes/command.md.

use symphony_cluster_state::Command;
use symphony_pipeline::CommittedSplit;
use symphony_types::{Finite, Level};

use super::contract::keeps_the_contract;
use crate::scene::{Scene, backend, load, node, pipeline};

fn command(version: u64) -> Command {
    let split = CommittedSplit { budgets_ns: vec![3, 4], hop_ns: 7, gammas: vec![Finite::ONE], rate_millirps: 1000 };
    Command::SetSplit { pipeline: "p".into(), version, split }
}

/// The state that the command applies to.
fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.state.found_at(Level::WITH_PIPELINES);
    scene.done(&node(1, 10));
    scene.done(&backend("a", 1, "s", &["cpu"]));
    scene.done(&load("m", "s", &["cpu"]));
    scene.done(&load("n", "s", &["cpu"]));
    scene.done(&pipeline("p", 2, &["m", "n"]));
    scene
}

#[test]
fn it_keeps_the_contract() {
    keeps_the_contract(&mut scene(), &command(2), &command(1));
}

#[test]
fn below_its_level_it_is_refused() {
    let mut scene = Scene::default();
    scene.state.found_at(Level::OLDEST_READ);
    let refused = scene.refused(&command(2)).to_string();
    assert!(refused.contains(&format!("expected level {}", Level::WITH_PIPELINES.get())), "{refused}");
}
