//! `[[pipeline]]`: what is understood, and what is refused.

use symphony_types::{Nanos, Time};
use symphony_workload::{Scenario, SplitRule, pipeline_streams};

const TEXT: &str = "
    name = 'p'
    gpu = [{ kind = 'x', count = 1 }, { kind = 'y', count = 1 }]
    workload = { rate_rps = 100, arrival = 'poisson', rate_profile = [[0, 2.0]] }
    network = { ctrl_us = 100, data_us_per_item = 20, reply_us = 30 }
    split_epoch_s = 30
    [[model]]
    name = 'cars'
    alpha_ms = { x = 1, y = 2 }
    beta_ms = 5
    slo_ms = 100
    [[model]]
    name = 'other'
    alpha_ms = 1
    beta_ms = 5
    slo_ms = 100
    [[pipeline]]
    slo_ms = 200
    weight = 3
    value = 2
    hop_ms = 0.5
    [[pipeline.stage]]
    name = 'detect'
    alpha_ms = 2
    beta_ms = 10
    pre_ms = 1
    post_ms = 0.25
    [[pipeline.stage]]
    name = 'recognise'
    model = 'cars'
    pre_ms = 0.5
    post_ms = 2
    [[pipeline.edge]]
    from = 'detect'
    to = 'recognise'
    gamma = 2.5
    gamma_profile = [[0, 1.0], [10, 2.0]]
    where = 'scores > 0.5'";

fn parse(overrides: &[&str]) -> Result<Scenario, String> {
    let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
    Scenario::parse("p.toml", TEXT, &overrides, &|_| Ok("time_s\n1\n2\n".to_owned())).map_err(|error| error.to_string())
}

fn ms(millis: f64) -> Nanos {
    Nanos::from_millis_f64(millis)
}

#[test]
fn a_pipeline_is_read_with_its_costs_and_its_models() {
    let scenario = parse(&[]).unwrap();
    let [load] = &scenario.pipelines[..] else { panic!("one pipeline") };
    assert_eq!((load.pipeline.name(), load.slo, load.before, load.after), ("pipeline", ms(200.0), ms(1.0), ms(2.0)));
    // What the stages have: without what comes before and after.
    assert_eq!((load.pipeline.slo(), load.pipeline.value().to_string().as_str()), (ms(197.0), "2"));
    assert_eq!((&load.waits[..], load.hop), (&[ms(1.25), ms(0.0)][..], ms(1.25)));
    assert_eq!((load.split, load.resplit, scenario.split_epoch), (SplitRule::Deferred, true, Some(ms(30_000.0))));
    // Stages with a profile are models behind the others.
    let names: Vec<_> = scenario.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!((names, &load.models[..]), (vec!["cars", "other", "detect"], &[2, 0][..]));
    // The slowest kind, and the network.
    let planned = |stage: usize, batch| load.pipeline.stages()[stage].profile.latency(batch);
    assert_eq!((planned(1, 1), planned(1, 3)), (ms(7.0 + 0.15), ms(11.0 + 0.19)));
    let at = |s: u64| load.fan_outs[0].mean_at(Time::ZERO + Nanos::from_millis(1000 * s));
    assert_eq!((at(0), at(10)), (2.5, 5.0));
}

#[test]
fn what_stages_ask_has_no_clients_unless_it_is_given_a_weight() {
    let shares = |overrides: &[&str]| {
        let scenario = parse(overrides).unwrap();
        let models = scenario.models.iter().map(|model| model.share);
        models.chain(scenario.pipelines.iter().map(|load| load.share)).collect::<Vec<_>>()
    };
    assert_eq!(shares(&[]), [0.0, 0.25, 0.0, 0.75]);
    assert_eq!(shares(&["model.0.weight=4"]), [0.5, 0.125, 0.0, 0.375]);
    assert_eq!(shares(&["workload.popularity=uniform"]), [0.0, 0.5, 0.0, 0.5]);
    let arrivals = |rate_rps| {
        let mut streams = pipeline_streams(&parse(&[]).unwrap(), 1, rate_rps);
        let until = Time::ZERO + Nanos::from_millis(20_000);
        std::iter::from_fn(|| streams[0].next_arrival()).take_while(|&at| at < until).count() as f64
    };
    // Three quarters of the rate, twice as fast by the profile.
    assert!((arrivals(100.0) / 3000.0 - 1.0).abs() < 0.1, "{}", arrivals(100.0));
}

#[test]
fn mistakes_are_named_by_the_key_that_was_written() {
    for (set, words) in [
        ("pipeline.0.stage.1.model=bikes", "key `pipeline.0.stage.1.model`: expected a model of the scenario, or"),
        ("pipeline.0.stage.0.alpha_ms=-1", "key `pipeline.0.stage.0.alpha_ms`: expected a number from 0"),
        ("pipeline.0.stage.0.batch_max=0", "key `pipeline.0.stage.0.batch_max`: expected 1 to"),
        ("pipeline.0.stage.1.batch_max=4", "key `pipeline.0.stage.1`: expected alpha_ms and beta_ms, or"),
        ("pipeline.0.stage.0.pre_ms=300", "key `pipeline.0.stage.0.pre_ms`: expected a number from 0 to 200"),
        ("pipeline.0.slo_ms=3", "key `pipeline.0.slo_ms`: expected more than pre_ms of the first stage"),
        ("pipeline.0.slo_ms=-3", "key `pipeline.0.slo_ms`: expected a number above 0"),
        ("pipeline.0.hop_ms=-1", "key `pipeline.0.hop_ms`"),
        ("pipeline.0.value=0", "key `pipeline.0.value`"),
        ("pipeline.0.split=best", "unknown variant `best`, expected one of `deferred`, `waiting`"),
        ("pipeline.0.edge.0.to=bikes", "key `pipeline.0.edge.0.to`: expected one of the stages"),
        ("pipeline.0.edge.0.gamma=0", "key `pipeline.0.edge.0.gamma`: expected a number above 0"),
        ("pipeline.0.edge.0.where=scores", "key `pipeline.0.edge.0.where`: expected an output"),
        ("pipeline.0.edge.0.for_each=item", "key `pipeline.0.edge.0.for_each`: expected \"row\""),
        ("pipeline.0.edge.0.fan_out=normal", "expected `poisson` or `fixed`"),
        ("pipeline.0.edge.0.gamma_profile=[[1, 2]]", "key `pipeline.0.edge.0.gamma_profile.0`: expected a first step"),
        ("pipeline.0.rate_profile=[]", "key `pipeline.0.rate_profile`"),
        ("pipeline.0.edges=3", "unknown field `edges`"),
        ("split_epoch_s=0", "key `split_epoch_s`: expected a number from 0.001"),
        ("pipeline=[]", "key `split_epoch_s`: expected a [[pipeline]]"),
        ("autoscale={}", "key `autoscale`: expected a fixed number of GPUs"),
    ] {
        let refused = parse(&[set]).unwrap_err();
        assert!(refused.starts_with("--set ") && refused.contains(words), "{set}: {refused}");
    }
    let trace = parse(&["workload={ arrival = { trace_csv = 't' } }"]).unwrap_err();
    assert!(trace.contains("expected another arrival process with [[pipeline]]"), "{trace}");
}
