//! Whatever a pipeline file contains, the answer is a pipeline or an error; and of every pipeline a split can be asked.

use proptest::prelude::*;
use symphony_pipeline::{Cost, PipelineFile, split};
use symphony_types::LatencyProfile;

const VALID: &str = include_str!("../../../../deploy/pipelines/traffic.toml");

fn try_it(text: &str) {
    let read = |_: &str, _: Option<&str>| LatencyProfile::from_line(1.0, 1.0, 8).map_err(|error| error.to_string());
    match PipelineFile::parse("f", text, &read) {
        Ok(file) => {
            for cost in [Cost::Execution, Cost::Waiting, Cost::Deferred] {
                if let Ok(split) = split(&file.pipeline, file.rate_rps, cost, file.step, file.hop) {
                    assert!(split.gpus.is_finite() && split.gpus >= 0.0, "{split:?}");
                }
            }
        }
        Err(error) => assert!(error.to_string().starts_with("f: "), "{error}"),
    }
}

proptest! {
    #[test]
    fn random_text(text in ".{0,200}") {
        try_it(&text);
    }

    #[test]
    fn a_valid_pipeline_with_bytes_replaced(edits in prop::collection::vec((0..VALID.len(), any::<u8>()), 1..6)) {
        let mut bytes = VALID.as_bytes().to_vec();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        try_it(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn other_numbers(
        key in prop::sample::select(vec!["slo_ms", "rate_rps", "alpha_ms", "beta_ms", "batch_max", "gamma", "most"]),
        value in prop_oneof![
            any::<f64>().prop_map(|x| format!("{x:e}")), any::<i64>().prop_map(|x| x.to_string()),
            Just("nan".to_owned()), Just("inf".to_owned()), Just("1e-300".to_owned()), Just("[]".to_owned()),
        ],
    ) {
        let line = VALID.lines().find(|line| line.starts_with(key)).unwrap();
        try_it(&VALID.replacen(line, &format!("{key} = {value}"), 1));
    }
}

#[test]
fn the_sample_is_valid() {
    let read = |_: &str, _: Option<&str>| Err("no file".to_owned());
    assert_eq!(PipelineFile::parse("f", VALID, &read).unwrap().pipeline.stages().len(), 3);
}
