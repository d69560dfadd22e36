//! Twenty heads that were trained on one trunk come from a model repository, and answer questions about digits through
//! one queue: each is right as often as when it was made.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use symphony_executor::digits::{self, Digit};
use symphony_testkit::wait_until;
use symphony_tests::{RestClient, Shape, TestCluster, onnxruntime_is_here, phase, tell};
use tokio::task::JoinSet;

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const HEADS: usize = 20;
/// Images in one request: two requests fill a batch.
const ROWS: usize = 8;
const CONFIG: &str = r#"
platform: "onnxruntime_onnx"
max_batch_size: 16
input [ { name: "pixels" data_type: TYPE_FP32 dims: [ 64 ] } ]
output [ { name: "probabilities" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "label" data_type: TYPE_INT64 dims: [ ] } ]
parameters { key: "slo_ms" value { string_value: "1000" } }
parameters { key: "subcluster" value { string_value: "cpu" } }
"#;

/// A head as its maker left it.
#[derive(Clone, Debug)]
struct Head {
    name: String,
    /// The digits that it recognises.
    digits: Vec<i64>,
    /// The held-out images that it got right.
    right: i64,
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/models/heads")
}

fn heads() -> Vec<Head> {
    let text = fs::read_to_string(kept().join("heads.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let head = |head: &toml::Value| Head {
        name: head["name"].as_str().unwrap().to_owned(),
        digits: head["digits"].as_array().unwrap().iter().map(|digit| digit.as_integer().unwrap()).collect(),
        right: head["right"].as_integer().unwrap(),
    };
    table["head"].as_array().unwrap().iter().map(head).collect()
}

/// Puts them into the cluster's repository, with one profile for all, and loads them.
fn load(cluster: &TestCluster, heads: &[Head]) {
    let models = cluster.workspace.file("models");
    for head in heads {
        fs::create_dir_all(models.join(&head.name).join("1")).unwrap();
        let file = kept().join(format!("{}.onnx", head.name));
        fs::copy(file, models.join(&head.name).join("1/model.onnx")).unwrap();
        fs::write(models.join(&head.name).join("config.pbtxt"), CONFIG).unwrap();
    }
    let first = format!("models/{}/1/model.onnx", heads[0].name);
    let _ = cluster.cli(&["profile", &first, "--batch-max", "16", "--out", "heads.profile.toml"]).ended_with(0);
    for Head { name, .. } in heads {
        fs::copy(cluster.workspace.file("heads.profile.toml"), models.join(name).join("profile.toml")).unwrap();
        let output = cluster.cli(&["model", "load", name, "--repository", "models"]).ended_with(0);
        assert_eq!(output.out.trim(), format!("model {name}@1 is ready"));
    }
}

/// The question about some images, for any head.
fn question(images: &[Digit<'_>]) -> Value {
    let pixels: Vec<_> = images.iter().flat_map(|digit| digit.pixels.iter().map(|&pixel| f32::from(pixel))).collect();
    let input = serde_json::json!({ "name": "pixels", "datatype": "FP32", "shape": [images.len(), digits::PIXELS], "data": pixels });
    serde_json::json!({ "inputs": [input], "parameters": { "symphony_accept_late": true } })
}

/// A head's answer for each image: 1 is yes.
async fn answer(rest: RestClient, name: String, body: Value) -> anyhow::Result<Vec<i64>> {
    let reply = rest.infer_in_any_time(&name, &body).await?;
    anyhow::ensure!(reply.status == 200, "{name}: {reply:?}");
    let answer: Value = serde_json::from_str(&reply.body)?;
    let outputs = answer["outputs"].as_array().context("no outputs")?;
    let labels = outputs.iter().find(|output| output["name"] == "label").context("no labels")?;
    labels["data"].as_array().context("no data")?.iter().map(|label| label.as_i64().context("no number")).collect()
}

/// All heads are asked about the same images at once; each one's answers.
fn ask_all(cluster: &TestCluster, heads: &[Head], images: &[Digit<'_>]) -> anyhow::Result<Vec<Vec<i64>>> {
    let (rest, body) = (cluster.rest(), question(images));
    cluster.block_on(async {
        let mut calls = JoinSet::new();
        for (place, head) in heads.iter().enumerate() {
            let call = answer(rest.clone(), head.name.clone(), body.clone());
            calls.spawn(async move { call.await.map(|labels| (place, labels)) });
        }
        let mut all = vec![Vec::new(); heads.len()];
        while let Some(ended) = calls.join_next().await {
            let (place, labels) = ended??;
            all[place] = labels;
        }
        anyhow::Ok(all)
    })
}

#[test]
fn twenty_heads_on_one_trunk_are_each_right_as_often_as_when_they_were_made() {
    if !onnxruntime_is_here() {
        return;
    }
    tell("heads", &Shape::emulated(&["default"]).with_cpu().with_repository(), |cluster| {
        let (heads, images) = (heads(), digits::test_set());
        assert_eq!(heads.len(), HEADS);
        phase("they come from a repository, and are one family");
        load(cluster, &heads);
        let first = format!("{}@1", heads[0].name);
        let family = cluster.wait_for_view("a family of all", |view| {
            let (_, model) = view.model_named(&first)?;
            (view.family_of(model).len() == HEADS).then_some(())
        });
        family.unwrap();
        // A frontend may learn of a load a moment after its caller.
        wait_until("answers of all", SOON, || ask_all(cluster, &heads, &images[..1])).unwrap();
        cluster.wait_for_metric("backend-cpu", "symphony_backend_model_memory_bytes{model=\"trunk ").unwrap();

        wait_until("a batch of several heads", SOON, || {
            let _ = ask_all(cluster, &heads, &images[..ROWS])?;
            let scraped = cluster.metrics_of("backend-cpu")?;
            let mixed = scraped.lines().find_map(|line| line.strip_prefix("symphony_backend_mixed_batches_total "));
            anyhow::ensure!(mixed.and_then(|mixed| mixed.trim().parse().ok()) > Some(0.0_f64), "{mixed:?}");
            Ok(())
        })
        .unwrap();

        phase("all are asked at once about each image that none was trained on");
        let mut right = vec![0_i64; heads.len()];
        for images in images.chunks(ROWS) {
            for ((head, right), labels) in heads.iter().zip(&mut right).zip(ask_all(cluster, &heads, images).unwrap()) {
                assert_eq!(labels.len(), images.len(), "{}", head.name);
                let is_right =
                    |(digit, label): &(&Digit<'_>, i64)| head.digits.contains(&digit.label.into()) == (*label == 1);
                *right += images.iter().zip(labels).filter(is_right).count() as i64;
            }
        }
        for (head, right) in heads.iter().zip(right) {
            // Where the two answers are equally likely, another order of additions may tip the scales.
            assert!((right - head.right).abs() <= 1, "{}: {right} right, {} when it was made", head.name, head.right);
        }
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
