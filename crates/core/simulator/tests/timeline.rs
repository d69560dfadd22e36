//! A timeline shows what happened: every batch once, GPUs one batch at a time, queues that add up.

use std::collections::BTreeMap;

use serde_json::Value;
use symphony_simulator::{Timeline, TimelineRange, simulate, simulate_timeline};
use symphony_types::Time;
use symphony_workload::Scenario;

const TEXT: &str = "
    name = 'shown <here> & \"there\"'
    duration_s = 2
    warmup_s = 0.5
    seeds = [1]
    gpu = [{ kind = 'x', count = 3 }]
    model = [{ name = 'm', count = 2, alpha_ms = 1, beta_ms = 5, slo_ms = 25 }]
    execution = { noise = { lognormal_sigma = 0.1 } }
    failure = [{ gpu = 1, at_s = 1.1, for_s = 0.2 }]
    workload = { rate_rps = 1200, arrival = 'poisson' }";

fn timeline(from_s: f64, until_s: f64) -> Timeline {
    let scenario = Scenario::parse("t.toml", TEXT, &[], &|_| Err("no files".to_owned())).unwrap();
    let at = |seconds: f64| Time::from_nanos((seconds * 1e9) as u64);
    let range = TimelineRange { from: at(from_s), until: at(until_s) };
    let (run, timeline) = simulate_timeline(&scenario, 1, scenario.rate_rps, range).unwrap();
    assert_eq!(run, simulate(&scenario, 1, scenario.rate_rps).unwrap(), "looking changes nothing");
    assert!(!timeline.is_cut());
    timeline
}

#[test]
fn a_trace_holds_batches_queues_and_failures_of_its_range() {
    let trace: Value = serde_json::from_str(&timeline(1.0, 1.5).to_trace_json()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
    assert_eq!(of("M").filter(|event| event["name"] == "thread_name").count(), 3);
    let mut last_end: BTreeMap<u64, f64> = BTreeMap::new();
    let (mut items, mut failed) = (0, 0);
    for event in of("X") {
        let (start, took) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        let gpu = event["tid"].as_u64().unwrap();
        assert!(start <= 1.5e6 && start + took >= 1.0e6, "{event}");
        if event["name"] == "failed" {
            failed += 1;
            assert_eq!((gpu, start, took), (1, 1.1e6, 0.2e6));
            continue;
        }
        let end = last_end.insert(gpu, start + took).unwrap_or(0.0);
        assert!(start >= end - 1e-3, "GPU {gpu} runs two batches at {start}");
        assert!(event["name"].as_str().unwrap().starts_with("m-"), "{event}");
        let window = event["args"]["window_ms"].as_array().unwrap();
        assert!(window[0].as_f64() <= window[1].as_f64(), "{event}");
        items += event["args"]["items"].as_u64().unwrap();
    }
    assert_eq!(failed, 1);
    assert!((500..700).contains(&items), "{items} items ran in half a second at 1200 per second");
    assert!(of("C").count() > 600 && of("C").all(|event| event["args"]["waiting"].as_u64().unwrap() < 100));
}

#[test]
fn a_picture_has_a_row_for_each_gpu_and_a_box_for_each_batch() {
    let picture = timeline(1.0, 1.5).to_svg();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    assert!(picture.contains("shown &lt;here&gt; &amp; &quot;there&quot;"), "names are text, not markup");
    let batches = picture.matches("<g><title>m-").count();
    assert!((80..200).contains(&batches), "{batches}");
    assert_eq!(picture.matches("<title>failed</title>").count(), 1);
    for (opens, closes) in [("<g", "</g>"), ("<title>", "</title>"), ("<text", "</text>")] {
        assert_eq!(picture.matches(opens).count(), picture.matches(closes).count(), "{opens}");
    }
    assert!(!picture.contains("NaN") && !picture.contains("inf"));
}

#[test]
fn an_empty_range_is_an_empty_picture() {
    for (from_s, until_s) in [(1.0, 1.0), (100.0, 200.0)] {
        let picture = timeline(from_s, until_s).to_svg();
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }
}
