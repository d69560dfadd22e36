//! Models that share a trunk: as a family, separately, and what is refused; and pipelines.

use symphony_types::{Nanos, Time};
use symphony_workload::{Scenario, request_streams};

const TEXT: &str = "
    name = 'v'
    policy = 'auto'
    gpu = [{ kind = 'x', count = 1 }, { kind = 'y', count = 1 }, { kind = 'z', count = 1 }]
    workload = { rate_rps = 1000, arrival = 'poisson' }
    [[model]]
    name = 'm'
    weight = 3
    alpha_ms = 1
    beta_ms = 5
    slo_ms = 25
    variants = { count = 4, suffix_alpha_ms = 0.5, suffix_beta_ms = { x = 1, y = 2, z = 1 } }
    [[model]]
    name = 'other'
    alpha_ms = 1
    beta_ms = 5
    slo_ms = 25";

fn parse(overrides: &[&str]) -> Result<Scenario, String> {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse("v.toml", TEXT, &overrides, &|_| Err("no files".to_owned())).map_err(|error| error.to_string())
}

fn ms(millis: f64) -> Nanos {
    Nanos::from_millis_f64(millis)
}

#[test]
fn a_family_is_one_model_planned_at_worst() {
    let scenario = parse(&[]).unwrap();
    let [family, other] = &scenario.models[..] else { panic!("{} models", scenario.models.len()) };
    assert_eq!((family.name.as_str(), family.share), ("m", 0.75));
    // Kinds whose suffixes differ are two classes, although the trunk is the same on both.
    assert_eq!(scenario.class_count(), 2);
    let of_six: Vec<_> = family.profiles.iter().map(|profile| profile.latency(6)).collect();
    assert_eq!(of_six, [ms(11.0 + 3.0 + 4.0), ms(11.0 + 3.0 + 8.0)]);
    let variants = family.variants.as_ref().unwrap();
    assert_eq!(variants.profiles.iter().map(|of| of.variants()).collect::<Vec<_>>(), [4, 4]);
    // Batches of one variant in the SLO: 1.5·12 + 5 + 2 = 25 ms.
    assert_eq!(family.profiles[1].batch_max(), 12);
    assert_eq!(other.variants, None);
    let slowest = parse(&["profiles=slowest_kind"]).unwrap();
    assert_eq!(slowest.models[0].profiles[0].latency(6), of_six[1]);
    assert_eq!(slowest.models[0].variants.as_ref().unwrap().profiles[0].worst(), &slowest.models[0].profiles[0]);
}

#[test]
fn each_by_itself_takes_trunk_and_suffix_and_has_its_share() {
    let zipf = "model.0.variants.popularity={ zipf = 1.0 }";
    let scenario = parse(&["model.0.variants.shared=false", "model.0.count=2", zipf]).unwrap();
    let names: Vec<_> = scenario.models.iter().map(|model| model.name.as_str()).collect();
    let expected = ["m-0-0", "m-0-1", "m-0-2", "m-0-3", "m-1-0", "m-1-1", "m-1-2", "m-1-3", "other"];
    assert_eq!(names, expected);
    assert_eq!(scenario.models[0].profiles[0].latency(2), ms(2.0 + 5.0 + 1.0 + 1.0));
    assert!((scenario.models[0].share / scenario.models[1].share - 2.0).abs() < 1e-9);
    let total: f64 = scenario.models.iter().map(|model| model.share).sum();
    assert!((total - 1.0).abs() < 1e-9);
    // A rate profile of the table is that of all its models.
    let steps = "model.0.rate_profile=[[0, 2.0]]";
    let scenario = parse(&["model.0.variants.shared=false", steps]).unwrap();
    let changing: Vec<_> = scenario.models.iter().map(|model| model.rate_profile.is_some()).collect();
    assert_eq!(changing, [true, true, true, true, false]);
}

#[test]
fn requests_call_variants_by_popularity_and_nothing_else_changes() {
    let requests = |overrides: &[&str]| {
        let scenario = parse(overrides).unwrap();
        let mut stream = request_streams(&scenario, 1, 2000.0).swap_remove(0);
        let until = Time::from_nanos(20_000_000_000);
        std::iter::from_fn(move || stream.next_request()).take_while(|request| request.at < until).collect::<Vec<_>>()
    };
    let (uniform, zipf) = (requests(&[]), requests(&["model.0.variants.popularity={ zipf = 1.0 }"]));
    assert!(uniform.iter().zip(&zipf).all(|(a, b)| a.at == b.at));
    for (requests, shares) in [(uniform, [0.25; 4]), (zipf, [0.48, 0.24, 0.16, 0.12])] {
        for (variant, share) in (0..).zip(shares) {
            let calls = requests.iter().filter(|request| request.variant == variant).count();
            assert!((calls as f64 / requests.len() as f64 - share).abs() < 0.02, "{variant}: {calls}");
        }
    }
}

#[test]
fn what_is_no_family_is_refused_with_its_key() {
    for (set, words) in [
        ("model.0.variants.count=0", "`model.0.variants.count`: expected 1 to 1024"),
        ("model.0.variants.count=1025", "`model.0.variants.count`: expected 1 to 1024"),
        ("model.0.variants.popularity=weights", "`model.0.variants.popularity`"),
        ("model.0.variants.suffix_beta_ms={ x = 1, y = 2 }", "a number for the scenario's GPU kind `z`"),
        ("model.0.variants.suffix_alpha_ms=-1", "`model.0.variants.suffix_alpha_ms`"),
        ("model.0.variants.head=1", "head"),
        ("policy=clockwork", "`model.0.variants`: expected a policy whose plans know variants"),
        ("learning={}", "`model.0.variants`: expected no [learning]"),
    ] {
        let error = parse(&[set]).expect_err(set);
        assert!(error.contains(words), "{set}: {error}");
        let apart = parse(&[set, "model.0.variants.shared=false"]);
        assert_eq!(apart.is_ok(), set.starts_with("policy") || set.starts_with("learning"), "{set}: {apart:?}");
    }
}
