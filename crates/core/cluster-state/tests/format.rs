//! What this release writes at a level is what every release wrote at it: committed bytes of every command, some
//! answers and a whole state, by version. To change an encoding, add a level, keep the old layout beside the new one,
//! and write a new file beside the old ones: `cargo test -p symphony-cluster-state --test integration format --
//! --ignored`.

use symphony_cluster_state::{
    Action, ClusterState, Command, HolderState, KindProfile, LeftAlone, LogEntry, ModelSource, ModelSpec, Moved,
    NewReplica, Outcome, PlanProposal, PolicyFailure, Refusal, Reply, Shadow, Traffic, decode_outcome, encode_outcome,
};
use symphony_pipeline::{CommittedSplit, DeclaredCondition, DeclaredEdge, PipelineDeclaration};
use symphony_testkit::{FormatFile, NamedBytes};
use symphony_types::{
    BackendId, BootId, Colour, Duty, Epoch, Filter, Finite, Fit, FrontendId, ImageInput, Layout, Level, Member,
    ModelId, NodeId, OperationId, SubclusterId, Token, Transforms,
};

use crate::scene;
use crate::scene::{Scene, backend, backend_down, cuts, frontend, node, node_down, operation, report, spec};

const BACKEND: Member = Member::Backend(BackendId::new(1));
const SUBCLUSTER: SubclusterId = SubclusterId::new(1);

fn with_id(id: u64, action: Action) -> Command {
    Command::Operate(operation(id, action))
}

/// A model whose input may be pictures, whose outputs have labels, and whose policy has options.
fn with_transforms(mut spec: ModelSpec) -> ModelSpec {
    let number = |number| Finite::try_from(number).unwrap();
    let image = ImageInput {
        input: "x".into(),
        width: 8,
        height: 8,
        colour: Colour::Grey,
        layout: Layout::Nhwc,
        fit: Fit::Crop,
        crop_share: number(0.875),
        filter: Filter::Lanczos,
        scale: number(1.0 / 255.0),
        mean: vec![number(0.5)],
        deviation: vec![number(0.25)],
    };
    let labels = (0..64).map(|class| format!("class {class}")).collect();
    spec.policy =
        "{ name = \"timeout\", share = 0.1, drop = { window = 0.5 }, shed = \"proportional\" }".parse().unwrap();
    *spec.transforms = Transforms { image: Some(image), labels: [("x".to_owned(), labels)].into() };
    spec
}

/// The same with an edge that says something: its second stage takes what clients send, on a condition.
fn conditional(mut pipeline: PipelineDeclaration) -> PipelineDeclaration {
    pipeline.stages[1].inputs.insert("x".into(), "in".into());
    pipeline.partial = true;
    pipeline.outputs[0].any_rows = true;
    pipeline.edges = vec![DeclaredEdge {
        from: "stage-0".into(),
        to: "stage-1".into(),
        gamma: Finite::try_from(0.5).unwrap(),
        for_each: false,
        condition: Some(DeclaredCondition {
            output: "x".into(),
            comparison: ">".into(),
            threshold: Finite::try_from(0.5).unwrap(),
        }),
        most: Some(1),
        crop: None,
    }];
    pipeline
}

/// What this release reads, and still writes as it was.
const LEVELS: [Level; 3] = [Level::OLDEST_READ, Level::OLDEST, Level::NEWEST];

/// A history with every command of a cluster that came to that level, and a state with something in every part.
fn history(level: Level) -> Vec<Command> {
    let mut commands = history_of_version_9();
    if level > Level::new(1) {
        commands.push(with_id(13, Action::RaiseLevel { level }));
    }
    if level >= Level::WITH_POLICIES {
        let policy =
            |subcluster: &str, policy: &str| Action::SetPolicy { subcluster: subcluster.into(), policy: policy.into() };
        let names = vec!["house".into(), "yard".into()];
        let from = |name: &str, source: fn(String) -> ModelSource| {
            let small = KindProfile { latency_ns: vec![1_000], static_memory_bytes: 10, dynamic_memory_bytes: 1 };
            let mut spec = ModelSpec { source: source(format!("{name}.onnx")), ..spec(name, "s", &["cpu", "gpu"]) };
            spec.profiles.values_mut().for_each(|profile| profile.clone_from(&small));
            spec
        };
        commands.extend([
            with_id(15, Action::LoadModel(from("alone", ModelSource::OnnxUnshared))),
            with_id(16, Action::LoadModel(from("left", ModelSource::Onnx))),
            with_id(17, Action::LoadModel(from("right", ModelSource::Onnx))),
            cuts(4, 1, 1, &[3, 1 << 100, 7]),
            cuts(5, 1, 1, &[3, 1 << 100, 8]),
            Command::KnowPolicies { node: NodeId::new(1), boot: BootId::new(10), names },
            with_id(14, policy("t", "{ name = \"house\", rooms = 3 }")),
            Command::PolicyFailed {
                subcluster: SubclusterId::new(2),
                token: Token::new(1),
                node: NodeId::new(1),
                boot: BootId::new(10),
                why: PolicyFailure::BrokeRule,
                avoid: None,
            },
        ]);
    }
    if level >= Level::WITH_PIPELINES {
        let split = CommittedSplit {
            budgets_ns: vec![60_000_000, 39_000_000],
            hop_ns: 300_000,
            gammas: vec![Finite::try_from(2.5).unwrap()],
            rate_millirps: 12_500,
        };
        let in_vain = conditional(scene::chain("p", 3, &["m", "m"]));
        let mut kept = PipelineDeclaration { version: 2, ..in_vain.clone() };
        kept.edges[0].condition = None;
        let gone = scene::chain("q", 1, &["m"]);
        let beside = PipelineDeclaration { version: 4, ..kept.clone() };
        let traffic = Traffic { weights: [(2, 9), (4, 1)].into(), shadow: None };
        commands.extend([
            with_id(18, Action::LoadPipeline(kept)),
            Command::SetSplit { pipeline: "p".into(), version: 2, split },
            with_id(19, Action::LoadPipeline(beside)),
            with_id(20, Action::SetTraffic { model: "p".into(), traffic }),
            with_id(21, Action::LoadPipeline(gone)),
            with_id(22, Action::UnloadPipeline { name: "q".into() }),
            // Its model gives no number to compare.
            with_id(23, Action::LoadPipeline(in_vain)),
        ]);
    }
    commands
}

fn history_of_version_9() -> Vec<Command> {
    let boot = BootId::new;
    let begin = |token, to: u64| Command::BeginHandover {
        subcluster: SUBCLUSTER,
        token: Token::new(token),
        to: NodeId::new(to),
        boot: boot(to * 10),
    };
    let duty = |member, duty| Action::SetDuty { member, duty };
    let add = Some(NewReplica { node: NodeId::new(5), control_addr: "node-5:7000".into() });
    vec![
        node(1, 10),
        node(2, 20),
        node(3, 30),
        node(4, 40),
        backend("a", 1, "s", &["cpu", "gpu"]).avoiding(NodeId::new(3)),
        backend("b", 2, "t", &["cpu"]),
        frontend("f", 3),
        with_id(1, Action::LoadModel(spec("m", "s", &["cpu", "gpu"]))),
        with_id(2, Action::LoadModel(with_transforms(spec("n", "t", &["cpu"])))),
        Command::ReportModel {
            model: ModelId::new(1),
            backend: BackendId::new(1),
            boot: boot(1),
            state: HolderState::Ready,
            load_ns: 250_000_000,
        },
        report(2, 2, 2, HolderState::Failed("no file".into())),
        begin(5, 2),
        Command::CompleteHandover { subcluster: SUBCLUSTER, since: 12, node: NodeId::new(2), boot: boot(20) },
        begin(13, 1),
        Command::CancelHandover { subcluster: SUBCLUSTER, since: 14 },
        begin(13, 1),
        Command::CedeLead {
            subcluster: SubclusterId::new(2),
            token: Token::new(6),
            node: NodeId::new(2),
            boot: boot(20),
            avoid: Some(NodeId::new(3)),
        },
        node_down(4, 40),
        backend_down(2, 2),
        with_id(
            11,
            Action::ChangeModel {
                name: "n".into(),
                slo_ns: Some(80_000_000),
                policy: Some("eager".parse().unwrap()),
                value: symphony_types::RequestValue::from_number(2.0),
            },
        ),
        with_id(
            10,
            Action::SetTraffic { model: "n".into(), traffic: Traffic { weights: [(1, 9)].into(), shadow: None } },
        ),
        with_id(
            12,
            Action::SetTraffic {
                model: "n".into(),
                traffic: Traffic { weights: [].into(), shadow: Some(Shadow { version: 1, percent: 5 }) },
            },
        ),
        with_id(3, Action::UnloadModel { name: "n".into() }),
        with_id(4, duty(BACKEND, Duty::Draining)),
        Command::ReportDrained { member: BACKEND, boot: boot(1) },
        Command::Leave { member: Member::Frontend(FrontendId::new(1)), boot: boot(3) },
        with_id(5, Action::ChangeReplicas { add, remove: Some(NodeId::new(4)) }),
        with_id(6, Action::UnloadModel { name: "nobody".into() }),
        with_id(7, Action::ProposePlan(proposal(false))),
        Command::ProposePlan(proposal(true)),
        with_id(8, Action::ReviewPlan { plan: 7, approve: true }),
        Command::FinishMove { model: ModelId::new(1), since: 7 },
        Command::CancelMove { what: Moved::Backend(BackendId::new(2)), since: 7, reason: "late".into() },
        frontend("g", 4),
        with_id(9, Action::RemoveFrontend { frontend: FrontendId::new(2) }),
        Command::ForgetFrontend { frontend: FrontendId::new(2), boot: boot(4) },
    ]
}

/// Of a model and a backend.
fn proposal(adopt: bool) -> PlanProposal {
    let (cause, summary) = ("rates changed".into(), "imbalance 0.4 to 0.1".into());
    let moves = vec![scene::model_move(1, 1, 2), scene::backend_move(2, 2, 1)];
    let left_alone = vec![LeftAlone { model: ModelId::new(2), reason: "too slow".into() }];
    PlanProposal { epoch: Epoch::default(), cause, summary, moves, left_alone, load_bytes_per_s: 1 << 30, adopt }
}

fn answers() -> Vec<Outcome> {
    vec![
        Ok(Reply::Done),
        Ok(Reply::Backend {
            backend: BackendId::new(1),
            subcluster: SUBCLUSTER,
            gpus: vec![symphony_types::GpuId::new(7)],
            token: Token::new(5),
        }),
        Ok(Reply::Frontend { frontend: FrontendId::new(1) }),
        Ok(Reply::Model { model: ModelId::new(1), epoch: Epoch::new(2) }),
        Ok(Reply::Unloaded { epoch: Epoch::new(3) }),
        Ok(Reply::Plan { plan: 9 }),
        Err(Refusal::OperationReused { id: OperationId::new(1 << 100), index: 9 }),
        Err(Refusal::Limit { what: "models".into(), max: 4096 }),
    ]
}

fn state(level: Level) -> ClusterState {
    let mut scene = Scene::default();
    // As old as a log can be that is read.
    scene.state.found_at(Level::new(1));
    for command in history(level) {
        let _ = scene.apply(&command);
    }
    scene.state
}

fn entry() -> LogEntry {
    LogEntry { at_unix_ms: 1_700_000_000_000, command: node(1, 11) }
}

/// Everything that is written at a level, by name.
fn written(level: Level) -> NamedBytes {
    let commands = history(level).into_iter().enumerate().map(|(at, command)| {
        let bytes = command.encode_at(level).unwrap();
        assert_eq!(Command::decode(&bytes), Ok(command.clone()));
        (format!("command {at:02} {}", command.label()), bytes)
    });
    let answers =
        answers().into_iter().enumerate().map(|(at, answer)| (format!("answer {at}"), encode_outcome(&answer, level)));
    let snapshot = ("state".to_owned(), state(level).snapshot());
    let hash = ("state hash".to_owned(), state(level).state_hash().to_be_bytes().to_vec());
    let entry = ("entry".to_owned(), entry().encode_in(level.formats().state).unwrap());
    commands.chain(answers).chain([entry, snapshot, hash]).collect()
}

/// The golden file that holds what was written in that version.
fn file(version: u16) -> FormatFile {
    FormatFile::new(format!("{}/tests/format/version-{version}.txt", env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn what_is_written_at_a_level_has_not_changed() {
    for level in LEVELS {
        file(level.formats().state).check(&written(level), "keep its layout at that level, and add another one");
    }
}

#[test]
fn what_was_written_at_any_level_is_read_as_the_same() {
    for level in LEVELS {
        let committed = file(level.formats().state).read();
        for (at, command) in history(level).into_iter().enumerate() {
            assert_eq!(Command::decode(&committed[&format!("command {at:02} {}", command.label())]), Ok(command));
        }
        for (at, answer) in answers().into_iter().enumerate() {
            assert_eq!(decode_outcome(&committed[&format!("answer {at}")]), Ok(answer));
        }
        assert_eq!(LogEntry::decode(&committed["entry"]), Ok(entry()));
        let restored = ClusterState::restore(&committed["state"]).unwrap();
        assert_eq!((restored.level(), &restored), (level, &state(level)));
        assert_eq!(restored.state_hash().to_be_bytes().to_vec(), committed["state hash"]);
        // Written when `symphony` was the default, which it no longer is: a model keeps what it was loaded with.
        let policies: Vec<_> = restored.models().values().map(|model| model.spec.policy.to_string()).collect();
        assert!(!policies.is_empty() && policies.iter().all(|policy| policy == "symphony"), "{policies:?}");
    }
}

#[test]
fn what_no_neighbour_wrote_is_refused_with_both_versions() {
    let (oldest, newest) = (Level::OLDEST_READ.formats().state, Level::NEWEST.formats().state);
    let before = file(oldest - 1).read();
    let refusals = [
        ClusterState::restore(&before["state"]).unwrap_err().to_string(),
        Command::decode(&before["command 07 load_model"]).unwrap_err().to_string(),
    ];
    for (refusal, what) in refusals.into_iter().zip(["snapshot", "command"]) {
        let expected = format!("{what} of version {}; this release reads versions {oldest} to {newest}", oldest - 1);
        assert!(refusal.starts_with(&expected), "{refusal}");
    }
    // And so does the release before with what it does not know.
    let oldest = Level::OLDEST.formats().state;
    let (newer, raise) = (file(newest).read(), with_id(13, Action::RaiseLevel { level: Level::NEWEST }));
    let refusals = [
        ClusterState::restore_to(&newer["state"], Level::OLDEST).unwrap_err().to_string(),
        LogEntry::decode_to(&newer["entry"], oldest).unwrap_err().to_string(),
        LogEntry::decode_to(&entry_of(raise, Level::OLDEST), oldest).unwrap_err().to_string(),
    ];
    for (refusal, what) in refusals.into_iter().zip(["snapshot", "log entry", "log entry"]) {
        assert!(
            refusal.starts_with(&format!("{what} of version {newest}; this release reads versions 9 to {oldest}")),
            "{refusal}"
        );
    }
}

fn entry_of(command: Command, level: Level) -> Vec<u8> {
    let version = command.version_at(level);
    LogEntry { at_unix_ms: 0, command }.encode_in(version).unwrap()
}

#[test]
fn one_command_raises_the_level_once_and_nothing_lowers_it() {
    let mut scene = Scene::with_three_nodes();
    let raise = |level| scene::operate(Action::RaiseLevel { level });
    let version = |state: &ClusterState| u16::from_le_bytes(*state.snapshot()[4..].first_chunk().unwrap());
    assert_eq!((scene.state.level(), version(&scene.state)), (Level::OLDEST, Level::OLDEST.formats().state));
    let effects: Vec<_> = scene.done(&raise(Level::NEWEST)).iter().map(ToString::to_string).collect();
    assert!(effects.len() == 1 && effects[0].contains("the upgrade is finished"), "{effects:?}");
    assert_eq!((scene.state.level(), version(&scene.state)), (Level::NEWEST, Level::NEWEST.formats().state));
    assert_eq!(scene.done(&raise(Level::NEWEST)), [], "it is there already");
    assert_eq!(scene.done(&raise(Level::OLDEST)), [], "and stays");
    assert_eq!(scene.state.level(), Level::NEWEST);
    for unknown in [0, Level::NEWEST.get() + 1] {
        let refused = scene.refused(&raise(Level::new(unknown))).to_string();
        assert!(refused.contains(&format!("level: {unknown}; this release knows")), "{refused}");
    }
    let mut state = ClusterState::default();
    state.found_at(Level::NEWEST);
    assert_eq!(state.level(), Level::NEWEST, "nobody has written anything yet");
    scene.state.found_at(Level::OLDEST);
    assert_eq!(scene.state.level(), Level::NEWEST);
}

#[test]
fn transforms_that_do_not_fit_the_signature_are_refused_by_key() {
    let mut wrong = with_transforms(spec("m", "s", &["cpu"]));
    assert_eq!(wrong.validate(), Ok(()));
    wrong.transforms.image.as_mut().unwrap().width = 9;
    let refused = wrong.validate().unwrap_err().to_string();
    assert!(refused.contains("spec.transforms") && refused.contains("9 × 8 pixels"), "{refused}");
}

#[test]
fn every_command_and_every_part_of_the_state_is_there() {
    let there: Vec<_> = history(Level::NEWEST).iter().map(scene::label).collect();
    for name in scene::LABELS {
        assert!(there.contains(&name), "{name}");
    }
    let state = state(Level::NEWEST);
    let part = |what: &str, there: bool| assert!(there, "{what}");
    part("nodes", state.nodes().len() == 3 && !state.removed_nodes().is_empty());
    part("moves", state.moves_under_way() == 2 && state.plans().len() == 2);
    part("hand-overs", state.handovers() == 1);
    part(
        "backends",
        state.backends().values().any(|b| !b.up()) && state.backends().values().any(|b| b.standing.drained),
    );
    part("frontends", state.frontends().values().all(|f| f.standing.leaving));
    part("models", state.models().values().any(|m| !m.holders.is_empty()));
    part("policies", !state.policies().is_empty());
    part("pipelines", state.pipelines().len() == 2 && state.pipelines().values().any(|known| known.split.is_some()));
    part("trunks", state.trunks().values().filter(|trunk| trunk.shared.is_some()).count() == 2);
    part("events", !state.events().is_empty());
    part("operations", state.operations().iter().any(|kept| kept.outcome.is_err()));
}

/// Writes the file of a version that has none; never changes one.
#[test]
#[ignore = "writes the file of a new version"]
fn write_the_file_of_a_new_version() {
    let file = file(Level::NEWEST.formats().state);
    assert!(file.write_if_missing(&written(Level::NEWEST)), "{file:?} is there and stays as it is");
}
