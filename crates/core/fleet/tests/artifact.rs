//! The bounds of the artifact of Kairos (github.com/boringlee24/hpdc23-kairos), from its own profile: equal to the last
//! digit of the table. Its data are not part of this repository: `SYMPHONY_DATA` names their folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use symphony_fleet::{Auxiliary, FleetModel, FleetProblem, KairosBound, Kind, LatencyTable, candidates};

const KINDS: [&str; 4] = ["g4dn.xlarge", "c5n.2xlarge", "r5n.large", "t3.xlarge"];
/// The paper, Table 4.
const PRICES: [f64; 4] = [0.526, 0.432, 0.149, 0.1664];
/// The artifact's largest counts.
const COUNTS_MAX: [u32; 4] = [5, 6, 17, 15];
const BUDGET_PER_HOUR: f64 = 2.5;

fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("SYMPHONY_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: SYMPHONY_DATA does not name the folder with kairos_allocator_profile.csv");
    }
    folder
}

fn rows(folder: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    let path = folder.join(name);
    let mut reader = csv::Reader::from_path(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    reader.deserialize().collect::<Result<_, _>>().unwrap()
}

/// The bound of each model, by its name.
fn bounds(folder: &Path) -> BTreeMap<String, KairosBound> {
    let mut bounds = BTreeMap::new();
    for row in rows(folder, "kairos_allocator_profile.csv") {
        let number = |column: &str| row[column].parse::<f64>().unwrap();
        let bound = bounds.entry(row["model"].clone()).or_insert_with(|| KairosBound {
            base: 0,
            base_rps: 0.0,
            auxiliaries: vec![None; KINDS.len()],
        });
        if row["instance"] == KINDS[0] {
            bound.base_rps = number("qps");
            continue;
        }
        let kind = KINDS.iter().position(|kind| *kind == row["instance"]).unwrap();
        let rate = |text: &str| {
            let (cutoff, rps) = text.split_once(':').unwrap();
            (cutoff.parse().unwrap(), rps.parse().unwrap())
        };
        bound.auxiliaries[kind] = Some(Auxiliary {
            cutoff: row["vio_batch"].parse().unwrap(),
            small_share: number("small_ratio"),
            base_time_share: number("time_ratio"),
            rates: row["qps_at_other_cutoffs"].split(';').map(rate).collect(),
        });
    }
    bounds
}

#[test]
fn all_331_bounds_of_each_model_are_the_artifacts() {
    let Some(folder) = data() else { return };
    let bounds = bounds(&folder);
    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
    let mut largest = 0.0_f64;
    for row in rows(&folder, "kairos_upper_bounds_reference.csv") {
        let counts = KINDS.map(|kind| row[&format!("n_{}", kind.replace('.', "_"))].parse::<u32>().unwrap());
        let expected: f64 = row["upper_bound_qps"].parse().unwrap();
        let found = bounds[&row["model"]].rps(&counts);
        largest = largest.max((found - expected).abs());
        // The table has four decimals.
        assert!((found - expected).abs() <= 0.5e-4 + 1e-9, "{} {counts:?}: {found}, expected {expected}", row["model"]);
        *compared.entry(row["model"].clone()).or_default() += 1;
    }
    eprintln!("the largest difference: {largest:.6} queries/s");
    assert_eq!(compared.into_iter().collect::<Vec<_>>(), ["ncf", "rm2", "wnd"].map(|model| (model.to_owned(), 331)));
}

#[test]
fn the_artifacts_331_fleets_are_those_within_the_budget() {
    let kinds = KINDS.iter().zip(PRICES).zip(COUNTS_MAX);
    let kind = |((name, price_per_hour), count_max): ((&&str, f64), u32)| Kind {
        name: (*name).to_owned(),
        price_per_hour,
        count_max,
    };
    // Only the base answers the largest requests.
    let latency = |kind: usize| LatencyTable::from_points(&[(1, if kind == 0 { 1.0 } else { 3.0 })]).unwrap();
    let model = FleetModel {
        name: "m".to_owned(),
        slo_ms: 2.0,
        share: 1.0,
        sizes: vec![(1, 1.0)],
        latencies: (0..KINDS.len()).map(latency).collect(),
    };
    let problem =
        FleetProblem { budget_per_hour: BUDGET_PER_HOUR, kinds: kinds.map(kind).collect(), models: vec![model] };
    assert_eq!(candidates(&problem, &[true; 4]).unwrap().len(), 331);
}
