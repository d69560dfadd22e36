//! Every sample in deploy/scenarios parses and runs.

use std::fs;
use std::path::Path;

use symphony_simulator::{preflight, simulate};
use symphony_workload::Scenario;

#[test]
fn each_sample_parses_and_runs_briefly() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../deploy/scenarios");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let read_csv = |name: &str| fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
        let brief = ["duration_s=1".to_owned(), "warmup_s=0.2".to_owned()];
        let text = fs::read_to_string(&path).unwrap();
        let scenario = Scenario::parse(&path.display().to_string(), &text, &brief, &read_csv).unwrap();
        assert_eq!(preflight(&scenario), Ok(()), "{}", scenario.name);
        let run = simulate(&scenario, scenario.seeds[0], scenario.rate_rps).unwrap();
        assert!(run.good_rps > 0.0, "{}: nothing was served", scenario.name);
        names.push(scenario.name);
    }
    names.sort();
    let zoos = ["1080ti", "a100"].iter().flat_map(|gpu| ["all", "gt2", "lt2"].map(|part| format!("zoo-{gpu}-{part}")));
    let others = [
        "load-proportional",
        "pipeline-gamma-doubles",
        "pipeline-traffic",
        "rough-day",
        "straggler",
        "table4-inceptionresnetv2",
        "table4-resnet50",
        "unmerged-requests",
        "variants-resnet50",
        "zipf-20-models",
    ]
    .map(str::to_owned);
    for name in zoos.chain(others) {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
}
