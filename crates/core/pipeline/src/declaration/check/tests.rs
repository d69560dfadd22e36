//! Tests of declarations against models.

use std::collections::BTreeMap;

use symphony_types::{Finite, ImageInput, RequestValue};

use super::*;
use crate::declaration::{
    BoxUnit, Crop, DeclaredCondition, DeclaredEdge, DeclaredStage, PipelineInput, PipelineOutput,
};

fn tensor(name: &str, data_type: DataType, item_shape: &[u32]) -> TensorSpec {
    TensorSpec { name: name.into(), data_type, item_shape: item_shape.to_vec() }
}

fn image(input: &str, side: u32) -> Transforms {
    let (width, height, crop_share, scale) = (side, side, Finite::ONE, Finite::ONE);
    let (colour, layout, fit, filter) = Default::default();
    let (input, mean, deviation) = (input.to_owned(), vec![], vec![]);
    let image = ImageInput { input, width, height, colour, layout, fit, crop_share, filter, scale, mean, deviation };
    Transforms { image: Some(image), labels: BTreeMap::new() }
}

/// A model by itself.
struct Loaded {
    name: &'static str,
    signature: Signature,
    transforms: Transforms,
}

/// A detector with 16 boxes and their scores, a recogniser of digits, and a model that counts.
fn models() -> Vec<Loaded> {
    let signature = |inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>| Signature { inputs, outputs };
    let boxes = vec![
        tensor("boxes", DataType::Fp32, &[16, 4]),
        tensor("scores", DataType::Fp32, &[16, 1]),
        tensor("features", DataType::Fp32, &[16, 8]),
        tensor("pair", DataType::Fp32, &[2, 4]),
    ];
    vec![
        Loaded {
            name: "detect",
            signature: signature(vec![tensor("canvas", DataType::Fp32, &[1, 64, 64])], boxes),
            transforms: image("canvas", 64),
        },
        Loaded {
            name: "digits",
            signature: signature(
                vec![tensor("pixels", DataType::Fp32, &[1, 8, 8]), tensor("seen", DataType::Fp32, &[8])],
                vec![tensor("label", DataType::Int64, &[1])],
            ),
            transforms: image("pixels", 8),
        },
    ]
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(one, other)| (one.to_owned(), other.to_owned())).collect()
}

fn declaration() -> PipelineDeclaration {
    let stage = |name: &str, inputs: &[(&str, &str)], outputs: &[(&str, &str)]| DeclaredStage {
        name: name.into(),
        model: name.into(),
        inputs: map(inputs),
        outputs: map(outputs),
    };
    PipelineDeclaration {
        name: "p".into(),
        version: 1,
        slo_ns: 100_000_000,
        value: RequestValue::ONE,
        partial: false,
        items_max: 1,
        inputs: vec![PipelineInput { name: "picture".into(), data: InputData::Picture }],
        outputs: vec![PipelineOutput { tensor: tensor("label", DataType::Int64, &[]), any_rows: true }],
        stages: vec![
            stage("detect", &[("canvas", "picture")], &[("features", "f")]),
            stage("digits", &[("pixels", "picture"), ("seen", "f")], &[("label", "label")]),
        ],
        edges: vec![DeclaredEdge {
            from: "detect".into(),
            to: "digits".into(),
            gamma: Finite::ONE,
            for_each: true,
            condition: Some(DeclaredCondition {
                output: "scores".into(),
                comparison: ">".into(),
                threshold: Finite::ONE,
            }),
            most: None,
            crop: Some(Crop { boxes: "boxes".into(), unit: BoxUnit::Pixel }),
        }],
    }
}

fn checked(change: impl FnOnce(&mut PipelineDeclaration, &mut Vec<Loaded>)) -> Result<Wiring, String> {
    let (mut declaration, mut models) = (declaration(), models());
    change(&mut declaration, &mut models);
    let models: Vec<_> = models
        .iter()
        .map(|one| StageModel { loaded_as: one.name, signature: &one.signature, transforms: &one.transforms })
        .collect();
    declaration.check(&models).map_err(|refused| refused.to_string())
}

#[test]
fn rows_regions_and_conditions_that_fit_are_accepted() {
    let wiring = checked(|_, _| ()).unwrap();
    assert_eq!(wiring.edge(0, 1).unwrap().crop.as_ref().unwrap().boxes, "boxes");
    // All versions that may answer are checked, and no others.
    checked(|_, models| {
        models[1].name = "digits@2";
        let mut other = self::models().pop().unwrap();
        other.name = "else@1";
        other.signature.inputs.clear();
        models.push(other);
    })
    .unwrap();
}

#[test]
fn what_the_models_do_not_take_or_give_is_refused_in_words() {
    type Change = fn(&mut PipelineDeclaration, &mut Vec<Loaded>);
    let refused: [(&str, Change); 12] = [
        ("key `step.1.model_name`: expected a model of the cluster; load it first, got `digits`", |_, models| {
            drop(models.pop());
        }),
        ("key `step.0.output_map`: expected an output of model `detect`: boxes, scores", |p, _| {
            p.stages[0].outputs.insert("y".into(), "z".into());
        }),
        ("key `step.1.input_map`: expected all inputs of model `digits`, got none for `seen`", |p, _| {
            p.stages[1].inputs.remove("seen");
        }),
        ("takes pictures, got `pixels`, which has no image transform", |_, models| {
            models[1].transforms.image = None;
        }),
        (
            "key `step.1.input_map[\"seen\"]`: expected `seen` of model `digits`, FP64 [8], got rows of `features`",
            |_, models| {
                models[1].signature.inputs[1].data_type = DataType::Fp64;
            },
        ),
        ("`seen` of model `digits`, FP32 [9], got rows of `features` of model `detect`, FP32 [16, 8]", |_, models| {
            models[1].signature.inputs[1].item_shape = vec![9];
        }),
        ("key `output `label``: expected FP32 [], got `label` of model `digits`, INT64 [1]", |p, _| {
            p.outputs[0].tensor.data_type = DataType::Fp32;
        }),
        ("detect to digits.where`: expected an output of model `detect`", |p, _| {
            p.edges[0].condition.as_mut().unwrap().output = "score".into();
        }),
        ("detect to digits.where`: expected one number for a row, got `boxes`", |p, _| {
            p.edges[0].condition.as_mut().unwrap().output = "boxes".into();
        }),
        ("detect to digits.crop`: expected four numbers for a row, got `scores`", |p, _| {
            p.edges[0].crop.as_mut().unwrap().boxes = "scores".into();
        }),
        ("detect to digits.for_each`: expected 16 rows, as others along this edge have, got `pair`", |p, _| {
            p.edges[0].crop.as_mut().unwrap().boxes = "pair".into();
        }),
        ("expected one number for a result; for_each takes rows", |p, models| {
            p.edges[0].for_each = false;
            p.stages[1].inputs.remove("seen");
            models[1].signature.inputs.pop();
            p.stages[0].outputs = map(&[("features", "f")]);
        }),
    ];
    for (words, change) in refused {
        let message = checked(change).expect_err(words);
        assert!(message.contains(words), "`{words}` is not in {message}");
    }
}

#[test]
fn a_fan_out_needs_something_whose_rows_can_be_counted() {
    let refused = checked(|p, models| {
        p.edges[0].condition = None;
        p.edges[0].crop = None;
        p.stages[0].outputs = map(&[("features", "out")]);
        p.stages[1].inputs.remove("seen");
        models[1].signature.inputs.pop();
        p.outputs[0].any_rows = true;
    });
    let refused = refused.unwrap_err();
    assert!(refused.contains("whose rows can be counted"), "{refused}");
}
