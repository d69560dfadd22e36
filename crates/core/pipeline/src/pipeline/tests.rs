use super::*;

fn stage(name: &str) -> Stage {
    let profile = LatencyProfile::from_line(1.0, 4.0, 16).unwrap();
    Stage { name: name.to_owned(), model: name.to_owned(), profile }
}

fn edge(from: &str, to: &str) -> EdgeSpec {
    let (from, to) = (from.to_owned(), to.to_owned());
    EdgeSpec { from, to, gamma: 1.0, per_row: false, condition: None, most: None }
}

fn spec(stages: &[&str], edges: &[(&str, &str)]) -> PipelineSpec {
    PipelineSpec {
        name: "p".to_owned(),
        slo: Nanos::from_millis(100),
        value: RequestValue::ONE,
        partial: false,
        stages: stages.iter().map(|name| stage(name)).collect(),
        edges: edges.iter().map(|(from, to)| edge(from, to)).collect(),
    }
}

#[track_caller]
fn refused(spec: PipelineSpec, words: &str) {
    let refused = Pipeline::new(spec).unwrap_err().to_string();
    assert!(refused.contains(words), "{refused}");
}

#[test]
fn stages_are_in_order_and_rates_multiply_along_the_way() {
    let mut spec = spec(
        &["join", "cars", "faces", "detect"],
        &[("detect", "cars"), ("detect", "faces"), ("cars", "join"), ("faces", "join")],
    );
    spec.edges[0].gamma = 3.0;
    spec.edges[1].gamma = 0.5;
    let pipeline = Pipeline::new(spec).unwrap();
    assert_eq!(pipeline.order(), [3, 1, 2, 0]);
    assert_eq!(pipeline.requests_per_request(), [3.0, 3.0, 0.5, 1.0]);
    let edges: Vec<_> = pipeline.edges().iter().map(|edge| (edge.per_row, edge.most)).collect();
    assert_eq!(edges, [(true, FAN_OUT_USUAL), (false, 1), (false, 1), (false, 1)]);
    assert_eq!(fan_out(true, 50.0), 200);
    assert_eq!(fan_out(true, 1000.0), FAN_OUT_MAX);
}

#[test]
fn measured_fan_outs_take_the_place_of_expected_ones_within_their_bounds() {
    let mut spec = spec(&["a", "b", "c", "d"], &[("a", "b"), ("a", "c"), ("a", "d")]);
    for edge in &mut spec.edges {
        (edge.per_row, edge.most) = (true, Some(8));
    }
    let pipeline = Pipeline::new(spec).unwrap();
    let gammas = |measured: &[f64]| -> Vec<f64> {
        pipeline.with_gammas(measured).edges().iter().map(|edge| edge.gamma).collect()
    };
    assert_eq!(gammas(&[2.5, 0.0, 100.0]), [2.5, GAMMA_MIN, 8.0]);
    assert_eq!(gammas(&[f64::NAN, 3.0]), [1.0, 3.0, 1.0]);
}

#[test]
fn what_is_no_graph_of_stages_is_refused_in_words() {
    refused(spec(&[], &[]), "key `stage`: expected 1 to 32 stages, got 0");
    let many: Vec<_> = (0..33).map(|at| at.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    refused(spec(&many, &[]), "expected 1 to 32 stages, got 33");
    refused(spec(&["a", "a"], &[]), "key `stage.1.name`: expected another name for each stage, got `a` twice");
    refused(spec(&["a", ""], &[]), "key `stage.1.name`: expected a name of 1 to 63 bytes");
    refused(spec(&["a", "b"], &[("a", "c")]), "key `edge.0.to`: expected one of the stages `a`, `b`, got `c`");
    refused(spec(&["a"], &[("a", "a")]), "key `edge.0.to`: expected another stage than `from`");
    refused(spec(&["a", "b"], &[("a", "b"), ("a", "b")]), "key `edge.1`: expected at most one edge between two stages");
    refused(spec(&["a", "b"], &[]), "got 2 of them: `a`, `b`");
    refused(spec(&["a", "b", "c"], &[("a", "b"), ("b", "c"), ("c", "b")]), "`b`, `c`");
    refused(spec(&["a", "b"], &[("a", "b"), ("b", "a")]), "expected edges without a cycle");
    refused(PipelineSpec { slo: Nanos::ZERO, ..spec(&["a"], &[]) }, "key `slo_ms`: expected a number above 0");
    let bridge = [("s", "a"), ("s", "b"), ("a", "join"), ("b", "join"), ("b", "leaf")];
    refused(spec(&["s", "a", "b", "join", "leaf"], &bridge), "edges among `s`, `b`, `join` that are neither");
}

#[test]
fn numbers_of_edges_are_checked() {
    let with = |change: &dyn Fn(&mut EdgeSpec)| {
        let mut spec = spec(&["a", "b"], &[("a", "b")]);
        change(&mut spec.edges[0]);
        spec
    };
    for gamma in [0.0, -1.0, f64::NAN, f64::INFINITY, 1025.0] {
        refused(with(&|edge| edge.gamma = gamma), "key `edge.0.gamma`: expected a number above 0, at most 1024");
    }
    refused(
        with(&|edge| (edge.gamma, edge.most) = (5.0, Some(4))),
        "key `edge.0.most`: expected a whole number from gamma (5)",
    );
    refused(with(&|edge| (edge.per_row, edge.most) = (true, Some(0))), "key `edge.0.most`");
    refused(with(&|edge| edge.most = Some(2)), "key `edge.0.most`: expected 1 where a whole result is one request");
    assert!(Pipeline::new(with(&|edge| (edge.per_row, edge.most) = (true, Some(7)))).is_ok());
}
