//! What this release writes is what releases of the same format version wrote before it: committed bytes of every
//! command, some answers and a whole state. To change an encoding, raise the version and write a new file beside the
//! old ones: `cargo test -p symphony-federation-state --test integration format -- --ignored`.

use symphony_federation_state::{
    Action, Cause, Command, FederationState, LogEntry, Outcome, Progress, Refusal, Reply, decode_outcome,
    encode_outcome,
};
use symphony_testkit::{FormatFile, NamedBytes};
use symphony_types::OperationId;

use crate::scene::{Scene, load, operate, see, unload};

/// A history with every command, that leads to a state with something in every part.
fn history() -> Vec<Command> {
    let mut scene = Scene::default();
    let mut commands = Vec::new();
    let mut add = |scene: &mut Scene, command: Command| {
        let _ = scene.apply(&command);
        commands.push(command);
    };
    for command in [see("a"), see("b"), see("c"), load(1, "m"), load(2, "n"), load(3, "o")] {
        add(&mut scene, command);
    }
    let begin = |scene: &Scene, model: &str, to: &str, cause| Command::BeginMoves {
        moves: vec![scene.wanted(model, to)],
        cause,
    };
    let first = begin(&scene, "m", "a", Cause::Place);
    add(&mut scene, first);
    add(&mut scene, Command::Loaded { model: "m".into(), since: 7 });
    let second = begin(&scene, "n", "a", Cause::Balance);
    add(&mut scene, second);
    add(&mut scene, Command::GiveUp { model: "n".into(), since: 9, reason: "no memory".into() });
    add(&mut scene, Command::CopyGone { model: "n".into(), cluster: "a".into(), since: 10 });
    let moves = vec![scene.wanted("m", "b")];
    add(&mut scene, operate(4, Action::Move { moves, cause: Cause::Operator }));
    add(&mut scene, Command::Loaded { model: "m".into(), since: 12 });
    add(&mut scene, Command::ClusterLost { name: "c".into(), since: 3 });
    add(&mut scene, Command::ClusterBack { name: "c".into(), since: 14 });
    add(&mut scene, Command::ClusterLost { name: "c".into(), since: 15 });
    add(&mut scene, Command::Unplaced { model: "o".into(), loaded_at: 6, reason: "no room".into() });
    let third = begin(&scene, "n", "b", Cause::Loss);
    add(&mut scene, third);
    add(&mut scene, unload(5, "nobody"));
    add(&mut scene, Command::SeeReplica { replica: 2 });
    commands
}

fn answers() -> Vec<Outcome> {
    vec![
        Ok(Reply { plan: 7 }),
        Err(Refusal::OperationReused { id: OperationId::new(1 << 100), index: 9 }),
        Err(Refusal::Limit { what: "models".into(), max: 4096 }),
    ]
}

fn state() -> FederationState {
    let mut scene = Scene::default();
    for command in history() {
        let _ = scene.apply(&command);
    }
    scene.state
}

fn entry() -> LogEntry {
    LogEntry { at_unix_ms: 1_700_000_000_000, command: unload(1, "m") }
}

/// Everything that is written, by name.
fn written() -> NamedBytes {
    let commands = history().into_iter().enumerate().map(|(at, command)| {
        let bytes = command.encode().unwrap();
        assert_eq!(Command::decode(&bytes), Ok(command.clone()));
        (format!("command {at:02} {}", command.label()), bytes)
    });
    let answers =
        answers().into_iter().enumerate().map(|(at, answer)| (format!("answer {at}"), encode_outcome(&answer)));
    let snapshot = ("state".to_owned(), state().snapshot());
    let hash = ("state hash".to_owned(), state().state_hash().to_be_bytes().to_vec());
    let entry = ("entry".to_owned(), entry().encode().unwrap());
    commands.chain(answers).chain([entry, snapshot, hash]).collect()
}

/// The file of the version that is in the header of everything.
fn file() -> FormatFile {
    let bytes = unload(1, "m").encode().unwrap();
    assert_eq!(&bytes[..4], b"SYFS");
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    FormatFile::new(format!("{}/tests/format/version-{version}.txt", env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn what_is_written_has_not_changed_within_a_version() {
    file().check(&written(), "raise VERSION in src/snapshot.rs");
    let committed = file().read();
    assert_eq!(LogEntry::decode(&committed["entry"]), Ok(entry()));
    let restored = FederationState::restore(&committed["state"]).unwrap();
    assert_eq!(restored, state());
    // Written when `symphony` was the default, which it no longer is: models keep what they were loaded with.
    assert!(restored.models().values().all(|model| model.spec.policy.to_string() == "symphony"));
    for (at, answer) in answers().into_iter().enumerate() {
        assert_eq!(decode_outcome(&committed[&format!("answer {at}")]), Ok(answer));
    }
}

#[test]
fn every_command_and_every_part_of_the_state_is_there() {
    let there: Vec<_> = history().iter().map(Command::label).collect();
    // A new command needs a place in the history.
    for label in [
        "see_cluster",
        "cluster_lost",
        "cluster_back",
        "begin_moves",
        "unplaced",
        "loaded",
        "give_up",
        "copy_gone",
        "see_replica",
        "load_model",
        "unload_model",
        "move",
    ] {
        assert!(there.contains(&label), "{label}");
    }
    let state = state();
    assert!(state.clusters().values().any(|cluster| !cluster.reachable));
    assert!(state.models().values().any(|model| model.home.is_some() && !model.leftovers.is_empty()));
    assert!(state.models().values().any(|model| !model.unplaced.is_empty()));
    assert_eq!(state.replicas().len(), 1);
    assert!(state.moves_under_way() == 1 && !state.events().is_empty());
    assert!(state.operations().iter().any(|kept| kept.outcome.is_err()));
    let progress: Vec<_> = state.plans().iter().flat_map(|plan| &plan.moves).map(|planned| &planned.progress).collect();
    assert!(progress.contains(&&Progress::UnderWay));
    assert!(progress.iter().any(|progress| matches!(progress, Progress::Done(_))));
    assert!(progress.iter().any(|progress| matches!(progress, Progress::GivenUp(_))));
}

/// Writes the file of a version that has none; never changes one.
#[test]
#[ignore = "writes the file of a new version"]
fn write_the_file_of_a_new_version() {
    assert!(file().write_if_missing(&written()), "{:?} is there and stays as it is", file());
}
