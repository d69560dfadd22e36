//! Where models of known shapes can be cut.

use symphony_onnx_graph::{CUTS_MAX, Cut, evenly, inspect};

use crate::builder::{
    BOOL, batch_of, branch, cut_names, encoded, fixed, floats, graph, info, node, proto, read, subgraph, with,
};

#[test]
fn a_chain_can_be_cut_everywhere_inside() {
    let nodes = vec![node("Relu", &["x"], &["a"]), node("Relu", &["a"], &["b"]), node("Relu", &["b"], &["y"])];
    let model = read(graph(&["x"], nodes, &["y"]));
    assert_eq!(cut_names(&model), ["a", "b"], "neither inputs nor outputs are cut points");
    assert_eq!(model.cuts().iter().map(|cut| cut.position).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_diamond_cannot_be_cut_in_its_middle() {
    let nodes = vec![
        node("Relu", &["x"], &["top"]),
        node("Sigmoid", &["top"], &["left"]),
        node("Tanh", &["top"], &["right"]),
        node("Add", &["left", "right"], &["bottom"]),
        node("Relu", &["bottom"], &["y"]),
    ];
    assert_eq!(cut_names(&read(graph(&["x"], nodes, &["y"]))), ["top", "bottom"]);
}

#[test]
fn a_residual_block_cannot_be_cut_beside_its_shortcut() {
    let nodes = vec![
        node("Conv", &["x", "w"], &["in"]),
        node("Conv", &["in", "w"], &["inner"]),
        node("Add", &["inner", "in"], &["out"]),
        node("Relu", &["out"], &["relu"]),
        node("Conv", &["relu", "w"], &["y"]),
    ];
    let mut graph = graph(&["x"], nodes, &["y"]);
    graph.initializer.push(floats("w", &[1.0, 2.0]));
    assert_eq!(cut_names(&read(graph)), ["in", "out", "relu"], "a shared weight is no path");
}

#[test]
fn inputs_and_outputs_have_to_be_on_different_sides() {
    let nodes = |last: &str| {
        vec![
            node("Relu", &["x"], &["a"]),
            node("Add", &["a", last], &["sum"]),
            node("Relu", &["sum"], &["b"]),
            node("Relu", &["b"], &["y"]),
        ]
    };
    assert_eq!(cut_names(&read(graph(&["x", "z"], nodes("z"), &["y"]))), ["sum", "b"]);
    assert_eq!(cut_names(&read(graph(&["x", "z"], nodes("x"), &["y"]))), ["sum", "b"], "`z` leads nowhere");
    let early = read(graph(&["x"], nodes("a"), &["y", "a"]));
    assert_eq!(cut_names(&early), Vec::<&str>::new(), "`a` is an output: whatever comes later is not passed");
    assert_eq!(cut_names(&read(graph(&["x"], nodes("a"), &["y", "sum"]))), ["a"]);
}

#[test]
fn what_a_subgraph_takes_from_around_it_is_a_path() {
    let choice = |captured: &str| {
        let then = branch(vec![node("Neg", &[captured], &["then_out"])], "then_out");
        let other = branch(vec![node("Abs", &["b"], &["else_out"])], "else_out");
        let choice = with(
            node("If", &["which"], &["chosen"]),
            vec![subgraph("then_branch", then), subgraph("else_branch", other)],
        );
        let nodes =
            vec![node("Relu", &["x"], &["a"]), node("Relu", &["a"], &["b"]), choice, node("Relu", &["chosen"], &["y"])];
        let mut graph = graph(&["x"], nodes, &["y"]);
        let mut which = floats("which", &[]);
        which.dims.clear();
        which.data_type = Some(BOOL);
        which.int32_data = vec![1];
        graph.initializer.push(which);
        read(graph)
    };
    assert_eq!(cut_names(&choice("b")), ["a", "b", "chosen"]);
    assert_eq!(cut_names(&choice("a")), ["a", "chosen"], "the branch reaches beyond `b`");
}

#[test]
fn a_random_operator_is_a_source_like_an_input() {
    let nodes = vec![
        node("Relu", &["x"], &["a"]),
        node("RandomNormalLike", &["a"], &["noise"]),
        node("Add", &["a", "noise"], &["b"]),
        node("Relu", &["b"], &["y"]),
    ];
    assert_eq!(cut_names(&read(graph(&["x"], nodes, &["y"]))), ["b"]);
}

#[test]
fn the_first_dimension_has_to_be_able_to_be_the_batch() {
    let nodes = || vec![node("Relu", &["x"], &["a"]), node("Relu", &["a"], &["b"]), node("Relu", &["b"], &["y"])];
    let mut typed = graph(&["x"], nodes(), &["y"]);
    typed.value_info = vec![info("a", Some(fixed(1, &[8, 4]))), info("b", Some(batch_of(&[4])))];
    let model = read(typed);
    assert_eq!(cut_names(&model), ["b"]);
    assert_eq!(model.cuts()[0].value_type, Some(batch_of(&[4])));
}

#[test]
fn sixteen_cuts_are_kept_evenly_with_both_ends() {
    let name = |number: usize| format!("v{number}");
    let nodes = (0..100).map(|number| node("Relu", &[&name(number)], &[&name(number + 1)])).collect();
    let graph = graph(&["v0"], nodes, &["v100"]);
    let model = read(graph.clone());
    assert_eq!(model.cuts().len(), 99);
    let positions = |kept: Vec<&Cut>| kept.into_iter().map(|cut| cut.position).collect::<Vec<_>>();
    let by_position = positions(evenly(model.cuts(), CUTS_MAX, |cut| cut.position as f64));
    assert_eq!((by_position.len(), by_position[0], by_position[15]), (16, 1, 99));
    assert!(by_position.windows(2).all(|pair| (6..=7).contains(&(pair[1] - pair[0]))), "{by_position:?}");
    // The last ten nodes cost as much as all others.
    let late = |cut: &Cut| if cut.position <= 90 { cut.position as f64 } else { cut.position as f64 * 10.0 - 810.0 };
    let by_cost = positions(evenly(model.cuts(), CUTS_MAX, late));
    assert!(by_cost.iter().filter(|&&position| position > 90).count() >= 7, "{by_cost:?}");
    assert!(by_cost.windows(2).all(|pair| pair[0] < pair[1]));

    let report = inspect(encoded(&proto(graph))).unwrap();
    assert_eq!((report.nodes, report.nodes_on_paths, report.values, report.cuts_found), (100, 100, 101, 99));
    assert_eq!(report.cuts.iter().map(|cut| cut.position).collect::<Vec<_>>(), by_position);
    assert_eq!((report.inputs, report.outputs), (vec!["v0".to_owned()], vec!["v100".to_owned()]));
    assert_eq!(report.operator_sets, [(String::new(), 17)]);
    assert!((report.cuts[15].depth - 0.99).abs() < 1e-9);
}
