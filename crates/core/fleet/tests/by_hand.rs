//! A fleet worked out by hand, from the file to the choice, and every mistake in a file by its words.

use symphony_fleet::{Bound, FleetError, FleetProblem, RankedFleet, rank};

const FLEET: &str = r#"
budget_per_hour = 2.0
slo_ms = 250.0
items_csv = "items.csv"
latency_csv = "latency.csv"
kind = [ { name = "base", price_per_hour = 1.0 }, { name = "small", price_per_hour = 0.4, count_max = 4 } ]
"#;

fn read_csv(name: &str) -> Result<String, String> {
    match name {
        "items.csv" => Ok("items,share\n1,3\n10,2\n".to_owned()),
        "large.csv" => Ok("items,share\n11,3\n".to_owned()),
        // At most 4 items take the small kind 250 ms.
        "latency.csv" => {
            Ok("kind,items,latency_ms\nbase,1,100\nbase,10,200\nsmall,1,125\nsmall,10,500\nother,1,1\n".to_owned())
        }
        "short.csv" => Ok("kind,items,latency_ms\nbase,1,100\nbase,10,200\nsmall,1,125\nsmall,2,130\n".to_owned()),
        "zero.csv" => Ok("kind,items,latency_ms\nbase,1,0\nsmall,1,125\n".to_owned()),
        _ => Err("no such file".to_owned()),
    }
}

fn parse(text: &str) -> Result<FleetProblem, FleetError> {
    FleetProblem::parse("f.toml", text, &read_csv)
}

fn ranked(problem: &FleetProblem, bound: Bound) -> Vec<(Vec<u32>, f64)> {
    let rounded = |fleet: RankedFleet| (fleet.counts, (fleet.bound_rps * 1e6).round() / 1e6);
    rank(problem, bound).unwrap().fleets.into_iter().map(rounded).collect()
}

#[test]
fn the_bounds_by_hand() {
    let problem = parse(FLEET).unwrap();
    // The base serves 1 / (0.6 · 0.1 + 0.4 · 0.2) = 7.142857 r/s; large ones alone 5 r/s, which are 0.4 of 12.5. The
    // small kind serves 8 small ones a second; 8 · 0.4 / 0.6 = 5.33 large ones come beside them, more than one base
    // serves.
    let expected = [(vec![2, 0], 14.285_714), (vec![1, 1], 12.5), (vec![1, 2], 12.5), (vec![1, 0], 7.142_857)];
    assert_eq!(ranked(&problem, Bound::Kairos), expected);
    assert_eq!(ranked(&problem, Bound::Alone), expected);
    // Merged, an item takes the base 20 ms, of whatever request it is: 0.6 · 0.02 + 0.4 · 0.2 = 0.092 s.
    let together = ranked(&problem, Bound::Together);
    assert_eq!(together.last(), Some(&(vec![1, 0], 10.869_565)));
}

#[test]
fn the_choice_in_one_shot_is_the_most_central_fleet_where_the_first_three_differ() {
    let ranking = rank(&parse(FLEET).unwrap(), Bound::Kairos).unwrap();
    assert_eq!(ranking.base, Some(0));
    let chosen = ranking.chosen();
    assert_eq!(chosen.counts, [1, 1]);
    assert!((chosen.bound_rps - 12.5).abs() < 1e-9 && (chosen.price_per_hour - 1.4).abs() < 1e-12);
}

#[test]
fn several_models_share_one_fleet() {
    let model = |name: &str| {
        format!("{{ name = '{name}', share = 2, slo_ms = 250, items_csv = 'items.csv', latency_csv = 'latency.csv' }}")
    };
    let head = "budget_per_hour = 2.0\nkind = [{ name = 'base', price_per_hour = 1 }, { name = 'small', price_per_hour = 0.4 }]\n";
    let two = parse(&format!("{head}model = [{}, {}]", model("a"), model("b"))).unwrap();
    assert_eq!(two.models.iter().map(|model| model.share).collect::<Vec<_>>(), [0.5, 0.5]);
    // Two equal models are like one.
    assert_eq!(ranked(&two, Bound::Alone), ranked(&parse(FLEET).unwrap(), Bound::Alone));
    let error = rank(&two, Bound::Kairos).unwrap_err().to_string();
    assert!(error.contains("one model"), "{error}");
    let error = parse(&format!("{head}slo_ms = 250\nmodel = [{}]", model("a"))).unwrap_err().to_string();
    assert!(error.contains("key `model`: expected either `model`, or slo_ms"), "{error}");
}

#[test]
fn mistakes_are_named_by_file_key_and_expectation() {
    let refused = |from: &str, to: &str, words: &str| {
        let error = parse(&FLEET.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with("f.toml: ") && error.contains(words), "{error}");
    };
    refused("0.4,", "0,", "key `kind.1.price_per_hour`: expected a number above 0, at most 1000000000, got 0");
    refused("2.0", "0.3", "key `budget_per_hour`: expected at least 0.4, the price of the cheapest kind, got 0.3");
    refused("2.0", "-1", "key `budget_per_hour`: expected a number above 0");
    refused(
        "\"small\"",
        "\"h100\"",
        "key `latency_csv`: latency.csv: has no rows for kind `h100`; it knows: base, other, small",
    );
    refused("latency.csv", "gone.csv", "key `latency_csv`: gone.csv: no such file");
    refused("latency.csv", "zero.csv", "kind `base`: 1 items: expected a latency_ms above 0, got 0");
    refused(
        "latency.csv",
        "short.csv",
        "kind `small`: expected latencies up to 10 items, or up to one above the SLO of 250 ms; got them up to 2 items",
    );
    refused("latency.csv", "items.csv", "expected columns kind,items,latency_ms");
    refused("items.csv", "large.csv", "large.csv: row 1: expected 1 to 10 items");
    refused("items_csv = \"items.csv\"", "items = 12", "key `items`: expected 1 to 10 items");
    refused(
        "items_csv = \"items.csv\"",
        "items = { gaussian = { mean = 30, sigma = 1 } }",
        "key `items.gaussian.mean`",
    );
    refused("items_csv", "item_csv", "unknown field `item_csv`");
    refused(
        "slo_ms = 250.0",
        "slo_ms = 90.0",
        "key `slo_ms`: expected at least 100 ms, the least that one item takes on any kind, got 90",
    );
    refused("slo_ms = 250.0", "", "key `slo_ms`: expected the SLO in milliseconds, got nothing");
    refused("name = \"small\"", "name = \"base\"", "key `kind.1.name`: expected names that differ");
    // A budget that buys small ones only answers no large request.
    let poor = parse(&FLEET.replace("2.0", "0.8")).unwrap();
    let error = rank(&poor, Bound::Kairos).unwrap_err().to_string();
    assert!(error.contains("at least 1, the price of the cheapest kind that answers every request"), "{error}");
}
