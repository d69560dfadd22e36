//! The entries of the fuzz targets over seeds and mutations, so that every build exercises them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_tests::fuzz_entries::{self, ALL, Entry, MUTATION_BYTES_MAX};

/// Mutations of each entry: a few seconds in a development build.
const MUTATIONS: u64 = 3000;

fn check(entry: &Entry, bytes: &[u8], what: &str) {
    let end = catch_unwind(AssertUnwindSafe(|| (entry.run)(bytes)));
    assert!(end.is_ok(), "{} panicked on {what}: {bytes:02x?}", entry.name);
}

#[test]
fn no_bytes_bring_a_parser_down() {
    for entry in &ALL {
        let seeds = (entry.seeds)();
        check(entry, &[], "nothing");
        seeds.iter().for_each(|seed| check(entry, seed, "a seed"));
        for number in 0..MUTATIONS {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
            let seed = &seeds[number as usize % seeds.len()];
            check(entry, &fuzz_entries::mutate(seed, &mut random), &format!("mutation {number}"));
        }
    }
}

#[test]
fn the_seeds_are_accepted_so_that_mutations_begin_inside() {
    use symphony_cluster_state::{Backup, ClusterState, Command};
    use symphony_federation_state::FederationState;
    let seeds = |name: &str| {
        let entry = ALL.iter().find(|entry| entry.name == name).unwrap();
        (entry.seeds)()
    };
    assert!(seeds("command").iter().all(|bytes| Command::decode(bytes).is_ok()));
    assert!(seeds("snapshot").iter().all(|bytes| ClusterState::restore(bytes).is_ok()));
    assert!(seeds("backup").iter().all(|bytes| Backup::decode(bytes).is_ok_and(|backup| backup.open().is_ok())));
    assert!(seeds("federation_command").iter().all(|bytes| symphony_federation_state::Command::decode(bytes).is_ok()));
    assert!(seeds("federation_snapshot").iter().all(|bytes| FederationState::restore(bytes).is_ok()));
    assert!(seeds("federation_answer").iter().all(|bytes| symphony_federation_state::decode_outcome(bytes).is_ok()));
    assert!(seeds("raft_message").iter().all(|bytes| symphony_consensus::fuzz::raft_message(bytes)));
    assert!(seeds("raft_snapshot").iter().all(|bytes| symphony_consensus::fuzz::raft_snapshot(bytes)));
    assert!(seeds("heartbeats").iter().all(|bytes| symphony_control_plane::fuzz::heartbeats(bytes)));
    assert!(seeds("onnx_model").iter().all(|bytes| symphony_onnx_graph::Model::read(bytes.clone().into()).is_ok()));
    for entry in &ALL {
        assert!((entry.seeds)().iter().all(|seed| seed.len() <= MUTATION_BYTES_MAX), "{entry:?}");
    }
    assert!(ALL.iter().all(|entry| include_str!("fuzz/Cargo.toml").contains(&format!("name = \"{}\"", entry.name))));
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    let parts = |text: String| {
        let (problem, csv) = text.split_once('\u{1e}').unwrap_or((&text, ""));
        (problem.to_owned(), csv.to_owned())
    };
    for scenario in seeds("scenario").iter().map(text) {
        let (scenario, csv) = scenario.split_once('\u{1e}').unwrap_or((&scenario, ""));
        let parsed = symphony_workload::Scenario::parse("seed", scenario, &[], &|_| Ok(csv.to_owned()));
        assert!(parsed.is_ok(), "{parsed:?}");
    }
    for (problem, csv) in seeds("fleet").iter().map(text).map(parts) {
        symphony_fleet::FleetProblem::parse("seed", &problem, &|_| Ok(csv.clone())).unwrap();
    }
    for (problem, csv) in seeds("sessions").iter().map(text).map(parts) {
        symphony_placement::read_sessions("seed", &problem, &|_| Ok(csv.clone())).unwrap();
    }
    for pipeline in seeds("split").iter().map(text) {
        symphony_pipeline::PipelineFile::parse("seed", &pipeline, &|_, _| Err("no file".to_owned())).unwrap();
    }
    for bytes in seeds("picture") {
        let limits = symphony_images::ImageLimits::default();
        assert!(symphony_images::inspect(&bytes[1..], limits).is_ok(), "{bytes:02x?}");
    }
    for bytes in seeds("grpc_answer") {
        let answer = <symphony_protocol::inference::ModelInferResponse as prost::Message>::decode(bytes.as_slice());
        let answer = symphony_client::Answer::try_from(answer.unwrap()).unwrap();
        assert_eq!((answer.outputs.len(), answer.batch), (2, Some(5)));
    }
    for bytes in seeds("tape") {
        let replay = symphony_tape::replay(&symphony_tape::Tape::open(&bytes).unwrap()).unwrap();
        assert_eq!((replay.difference, replay.summary.steps), (None, 20));
    }
    let all = symphony_workload::Window::ALL;
    let read = |text: &str| symphony_workload::RecordedArrivals::from_azure_functions_2021(text, all);
    assert!(
        seeds("azure_functions_2021").iter().all(|trace| read(&text(trace)).is_ok_and(|read| read.rows.len() == 2))
    );
    let read = |text: &str| symphony_workload::RecordedArrivals::from_azure_llm(text, "llm", all);
    assert!(seeds("azure_llm").iter().all(|trace| read(&text(trace)).is_ok_and(|read| read.rows.len() == 2)));
    for config in seeds("model_config").iter().map(text) {
        let parsed = symphony_repository::ModelConfig::parse(std::path::Path::new("seed"), "digits", &config);
        // The last one is nested deeper than the parser's stack would bear.
        let is_nested = config.starts_with('[');
        assert!(
            parsed
                .as_ref()
                .map_or_else(|error| is_nested && error.to_string().contains("within each other"), |_| !is_nested)
        );
    }
    for transforms in seeds("transforms").iter().map(text) {
        let (path, signature) = (std::path::Path::new("seed"), fuzz_entries::digits_signature());
        assert!(!symphony_repository::parse_transforms(path, &transforms, &signature).unwrap().is_empty());
    }
    assert!(seeds("tenants").iter().all(|file| symphony_config::TenantsFile::parse(&text(file)).is_ok()));
    assert!(seeds("policy").iter().all(|policy| text(policy).parse::<symphony_policy::PolicySpec>().is_ok()));
    assert!(seeds("batch_sizes").iter().all(|sizes| symphony_executor::BatchSizes::parse(&text(sizes)).is_ok()));
    for profile in seeds("profile").iter().map(text) {
        symphony_executor::profile::ProfileFile::parse(std::path::Path::new("seed"), &profile).unwrap();
    }
}
