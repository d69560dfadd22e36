//! Any commands in any order: the invariants hold (they are asserted after every command), and equal commands give
//! equal bytes.

use proptest::prelude::*;
use symphony_federation_state::{Action, Cause, Command, FederationState, check, check_step};

use crate::scene::{Scene, load, operate, see, unload};

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const MODELS: [&str; 3] = ["m", "n", "o"];

/// What is done next, with names that exist more often than not; indexes are taken from the state, or are wrong.
#[derive(Clone, Debug)]
enum Next {
    See(usize),
    Lose(usize),
    Back(usize),
    Load(usize),
    Unload(usize),
    Begin(usize, usize, bool),
    Loaded(usize, bool),
    GiveUp(usize),
    Gone(usize, usize),
    HomeGone(usize),
    Unplaced(usize),
    Operator(usize, usize),
    Replica(u64),
}

fn next() -> impl Strategy<Value = Next> {
    let (cluster, model) = (0..CLUSTERS.len(), 0..MODELS.len());
    prop_oneof![
        1 => cluster.clone().prop_map(Next::See),
        1 => cluster.clone().prop_map(Next::Lose),
        1 => cluster.clone().prop_map(Next::Back),
        1 => model.clone().prop_map(Next::Load),
        1 => model.clone().prop_map(Next::Unload),
        4 => (model.clone(), cluster.clone(), any::<bool>()).prop_map(|(m, c, loss)| Next::Begin(m, c, loss)),
        4 => (model.clone(), prop::bool::weighted(0.9)).prop_map(|(m, right)| Next::Loaded(m, right)),
        1 => model.clone().prop_map(Next::GiveUp),
        4 => (model.clone(), cluster.clone()).prop_map(|(m, c)| Next::Gone(m, c)),
        1 => model.clone().prop_map(Next::HomeGone),
        1 => model.clone().prop_map(Next::Unplaced),
        1 => (model, cluster).prop_map(|(m, c)| Next::Operator(m, c)),
        1 => (0..5_u64).prop_map(Next::Replica),
    ]
}

fn command(scene: &Scene, next: &Next, id: u128) -> Command {
    let (state, name) = (&scene.state, |model: usize| MODELS[model].to_owned());
    let moving = |model: usize| {
        let model = state.models().get(MODELS[model]);
        model.and_then(|model| model.moving.as_ref()).map_or(0, |moving| moving.since)
    };
    match *next {
        Next::See(cluster) => see(CLUSTERS[cluster]),
        Next::Lose(c) => Command::ClusterLost { name: CLUSTERS[c].into(), since: scene.since(CLUSTERS[c]) },
        Next::Back(c) => Command::ClusterBack { name: CLUSTERS[c].into(), since: scene.since(CLUSTERS[c]) },
        Next::Load(model) => load(id, MODELS[model]),
        Next::Unload(model) => unload(id, MODELS[model]),
        Next::Begin(model, cluster, loss) => {
            let moves = vec![scene.wanted(MODELS[model], CLUSTERS[cluster])];
            Command::BeginMoves { moves, cause: if loss { Cause::Loss } else { Cause::Place } }
        }
        Next::Loaded(model, right) => Command::Loaded { model: name(model), since: moving(model) + u64::from(!right) },
        Next::GiveUp(model) => Command::GiveUp { model: name(model), since: moving(model), reason: "late".into() },
        Next::Gone(model, cluster) => {
            let copy = scene.leftovers(MODELS[model]).into_iter().find(|(left, _)| *left == CLUSTERS[cluster]);
            let since = copy.map_or(0, |(_, since)| since);
            Command::CopyGone { model: name(model), cluster: CLUSTERS[cluster].into(), since }
        }
        Next::HomeGone(model) => {
            let home = state.models().get(MODELS[model]).and_then(|model| model.home.clone());
            let (cluster, since) = home.map_or(("a".into(), 0), |home| (home.cluster, home.since));
            Command::CopyGone { model: name(model), cluster, since }
        }
        Next::Unplaced(model) => {
            let loaded_at = state.models().get(MODELS[model]).map_or(0, |model| model.loaded_at);
            Command::Unplaced { model: name(model), loaded_at, reason: "no room".into() }
        }
        Next::Operator(model, cluster) => {
            let moves = vec![scene.wanted(MODELS[model], CLUSTERS[cluster])];
            operate(id, Action::Move { moves, cause: Cause::Operator })
        }
        Next::Replica(replica) => Command::SeeReplica { replica },
    }
}

proptest! {
    #[test]
    fn invariants_hold_and_replicas_agree(steps in prop::collection::vec(next(), 1..120)) {
        let mut scene = Scene::with_a_model();
        let mut log = Vec::new();
        let begun = scene.state.clone();
        for (step, id) in steps.iter().zip(1_000_u128..) {
            let before = scene.state.clone();
            let command = command(&scene, step, id);
            let _ = scene.apply(&command);
            prop_assert_eq!(check(&scene.state).and(check_step(&before, &scene.state)), Ok(()));
            log.push((scene.state.applied_index(), command.encode().unwrap()));
        }
        // Another replica reads the log, and takes over from a snapshot in the middle.
        let mut other = begun;
        for (at, (index, bytes)) in log.iter().enumerate() {
            let _ = other.apply(*index, &Command::decode(bytes).unwrap());
            if at == log.len() / 2 {
                other = FederationState::restore(&other.snapshot()).unwrap();
            }
        }
        prop_assert_eq!(other.snapshot(), scene.state.snapshot());
        prop_assert_eq!(other.state_hash(), scene.state.state_hash());
    }

    #[test]
    fn bytes_from_elsewhere_are_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..4096) {
        let _ = Command::decode(&bytes);
        let _ = symphony_federation_state::decode_outcome(&bytes);
        prop_assert!(FederationState::restore(&bytes).is_err());
        let mut damaged = Scene::with_a_model().state.snapshot();
        let at = at % damaged.len();
        damaged[at] ^= 0x40;
        prop_assert!(FederationState::restore(&damaged).is_err(), "a changed byte is found");
    }
}
