//! `kairos` against the distributor of the paper's artifact (github.com/boringlee24/hpdc23-kairos) on its own
//! latencies: as good on every configuration that was run. Its data are not part of this repository: `SYMPHONY_DATA`
//! names their folder.
//!
//! The artifact sends sizes by its sampler, rounded up to tens, and counts a request that ends after its target as a
//! violation; the rates in the table are the highest with at most one violation in a hundred.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use symphony_simulator::find_goodput;
use symphony_workload::{ItemLaw, Scenario, item_shares};

/// Columns of the table and the kinds that they count.
const KINDS: [(&str, &str); 4] = [
    ("n_g4dn_xlarge", "g4dn.xlarge"),
    ("n_c5n_2xlarge", "c5n.2xlarge"),
    ("n_r5n_large", "r5n.large"),
    ("n_t3_xlarge", "t3.xlarge"),
];
/// Of what the artifact reaches with the better of its two seeds.
const SHARE_MIN: f64 = 0.97;
/// Requests of a run at the upper bound.
const REQUESTS: f64 = 8_000.0;

/// Rows by column; no field of these files is quoted.
fn rows(folder: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| -> BTreeMap<String, String> {
        columns.iter().map(ToString::to_string).zip(line.split(',').map(str::to_owned)).collect()
    };
    lines.map(row).collect()
}

/// Of 99 requests 8 are even below 100, 22 from 200 to 599, 5 from 600 to 999; the others are lognormal from 100 to
/// 200, or 190 to 199 where that fails.
fn sizes() -> String {
    let mut shares: BTreeMap<u32, f64> = BTreeMap::new();
    let mut add = |items: u32, share: f64| *shares.entry(items.div_ceil(10) * 10).or_default() += share;
    for (range, share) in [(1..100_u32, 8.0), (200..600, 22.0), (600..1000, 5.0)] {
        let count = f64::from(range.end - range.start);
        range.for_each(|items| add(items, share / 99.0 / count));
    }
    let law = ItemLaw::Lognormal { mean: 5.1, sigma: 0.2 }.within(1000).unwrap();
    for (items, share) in item_shares(&law) {
        add(if (100..=200).contains(&items) { items } else { 195 }, share * 64.0 / 99.0);
    }
    shares.iter().fold("items,share\n".to_owned(), |text, (items, share)| text + &format!("{items},{share:?}\n"))
}

/// Latencies that do not fall with size, as a scenario wants them.
fn profile(latencies: &[BTreeMap<String, String>], model: &str) -> String {
    let mut text = "gpu_kind,batch,latency_ms\n".to_owned();
    let (mut kind, mut most) = (String::new(), 0.0_f64);
    for row in latencies.iter().filter(|row| row["model"] == model) {
        if row["instance"] != kind {
            (kind, most) = (row["instance"].clone(), 0.0);
        }
        most = most.max(row["total_mean_ms"].parse().unwrap());
        text += &format!("{kind},{},{most:?}\n", row["batch"]);
    }
    text
}

#[test]
fn kairos_serves_what_the_papers_artifact_serves_on_its_own_latencies() {
    let Some(folder) = std::env::var_os("SYMPHONY_DATA").map(PathBuf::from) else {
        eprintln!("skipped: SYMPHONY_DATA does not name the folder with kairos_latency.csv");
        return;
    };
    let latencies = rows(&folder, "kairos_latency.csv");
    let mut least = f64::INFINITY;
    for row in rows(&folder, "kairos_reference_throughput.csv") {
        let number = |column: &str| row[column].parse::<f64>().unwrap();
        let theirs_rps = number("kairos_qps_seed1").max(number("kairos_qps_seed2"));
        let gpus: String = KINDS
            .iter()
            .filter(|(column, _)| number(column) > 0.0)
            .map(|(column, kind)| format!("[[gpu]]\nkind = '{kind}'\ncount = {}\n", row[*column]))
            .collect();
        let text = format!(
            "name = 'artifact'\npolicy = 'kairos'\nduration_s = {:?}\nwarmup_s = 0.0\nseeds = [1]\n{gpus}[[model]]\nname = '{}'\n\
             profile_csv = 'profile'\nslo_ms = {}\nitems = {{ csv = 'items' }}\n[workload]\nrate_rps = 1.0\n\
             arrival = 'poisson'\n",
            REQUESTS / theirs_rps,
            row["model"],
            row["qos_ms"],
        );
        let read_csv = |name: &str| Ok(if name == "items" { sizes() } else { profile(&latencies, &row["model"]) });
        let scenario = Scenario::parse("artifact.toml", &text, &[], &read_csv).unwrap();
        let ours_rps = find_goodput(&scenario).unwrap();
        let share = ours_rps / theirs_rps;
        eprintln!("{} {}: {ours_rps:.1} of {theirs_rps} requests/s, {share:.3}", row["model"], gpus.replace('\n', " "));
        assert!(share >= SHARE_MIN, "{} on {gpus}: {ours_rps:.1} of {theirs_rps} requests/s", row["model"]);
        least = least.min(share);
    }
    eprintln!("the least: {least:.3}");
}
