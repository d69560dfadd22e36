//! Models that share a trunk (Nexus, section 6.3).

use symphony_onnx_graph::onnx::GraphProto;
use symphony_onnx_graph::{Model, common_cut, families};

use crate::builder::{batch_of, floats, graph, info, node, read};

/// Layers of a trunk with these weights, then a head with its own, by names with this prefix.
fn classifier(prefix: &str, trunk: &[f32], head: &[f32]) -> GraphProto {
    let name = |what: &str, number: usize| format!("{prefix}{what}{number}");
    let (mut nodes, mut weights) = (Vec::new(), Vec::new());
    let mut last = "x".to_owned();
    for (number, &weight) in trunk.iter().chain(head).enumerate() {
        let (product, next) = (name("p", number), name("v", number));
        weights.push(floats(&name("w", number), &[weight]));
        nodes.push(node("MatMul", &[&last, &name("w", number)], &[&product]));
        nodes.push(node("Relu", &[&product], &[&next]));
        last = next;
    }
    let mut graph = graph(&["x"], nodes, &[&last]);
    graph.initializer = weights;
    graph
}

#[test]
fn twenty_heads_on_one_trunk_are_a_family() {
    let heads: Vec<Model> = (0..20_u8)
        .map(|number| read(classifier(&format!("m{number}_"), &[1.0, 2.0, 3.0], &[10.0 + f32::from(number)])))
        .collect();
    let models: Vec<&Model> = heads.iter().collect();
    let found = families(&models);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].variants.len(), 20);
    for (index, variant) in found[0].variants.iter().enumerate() {
        assert_eq!((variant.model, variant.cut.hash), (index, found[0].trunk));
        assert_eq!(variant.cut.value, format!("m{index}_v2"), "the last value before the heads");
        assert_eq!(variant.cut.position, 6);
    }
    let common = common_cut(&models).unwrap();
    assert!(common.iter().zip(&found[0].variants).all(|(&cut, variant)| *cut == variant.cut));
}

#[test]
fn those_that_share_most_go_together_and_strangers_stay_alone() {
    let models = [
        read(classifier("a", &[1.0, 2.0, 3.0], &[4.0])),
        read(classifier("b", &[1.0, 2.0, 3.0], &[5.0, 6.0])),
        read(classifier("c", &[1.0, 7.0], &[8.0])),
        read(classifier("d", &[9.0], &[2.0])),
        read(classifier("e", &[1.0, 7.0], &[3.0])),
    ];
    let models: Vec<&Model> = models.iter().collect();
    let found = families(&models);
    let members: Vec<Vec<_>> =
        found.iter().map(|family| family.variants.iter().map(|variant| variant.model).collect()).collect();
    assert_eq!(members, [vec![0, 1], vec![2, 4]]);
    let all_but_the_stranger = [models[0], models[1], models[2], models[4]];
    let shared: Vec<_> = common_cut(&all_but_the_stranger).unwrap().iter().map(|cut| cut.value.as_str()).collect();
    assert_eq!(shared, ["av0", "bv0", "cv0", "ev0"]);
    assert_eq!(common_cut(&models), None);
    assert_eq!(common_cut(&[]), None);
    assert!(families(&models[3..4]).is_empty());
}

#[test]
fn variants_take_the_same_inputs_even_those_that_nothing_uses() {
    let model = |unused: &[&str], head: f32| {
        let mut model = classifier("m", &[1.0, 2.0], &[head]);
        model.input.extend(unused.iter().map(|name| info(name, Some(batch_of(&[4])))));
        read(model)
    };
    let (one, alike, more) = (model(&["z"], 3.0), model(&["other"], 4.0), model(&["z", "more"], 5.0));
    assert_eq!(families(&[&one, &alike]).len(), 1);
    assert!(families(&[&one, &more]).is_empty(), "a trunk of three inputs is no trunk for clients who give two");
}

#[test]
fn a_trunk_that_differs_in_one_weight_is_none() {
    let (one, other) = (read(classifier("a", &[1.0, 2.0], &[3.0])), read(classifier("b", &[1.5, 2.0], &[4.0])));
    assert!(families(&[&one, &other]).is_empty());
}
