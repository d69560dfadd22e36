//! A model of a repository whose configuration names a file of transforms: pictures in, labels out.

use std::fs;
use std::time::Duration;

use image::ImageFormat;
use symphony_client::Client;
use symphony_executor::digits;
use symphony_testkit::wait_until;
use symphony_tests::{REPOSITORY_TOKEN, Shape, TestCluster, onnxruntime_is_here, phase, tell};

use super::pictures::{SEVEN, SLO_MS, names, over_rest, pictures};

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// Writes a version's file of transforms, or that of all versions.
fn write_transforms(cluster: &TestCluster, version: Option<u64>, transforms: &str) {
    let dir = cluster.workspace.file("models/digits").join(version.map(|v| v.to_string()).unwrap_or_default());
    fs::write(dir.join("transforms.toml"), transforms).unwrap();
}

fn write_version(cluster: &TestCluster, version: u64) {
    let dir = cluster.workspace.file("models/digits").join(version.to_string());
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("model.onnx"), digits::MODEL).unwrap();
}

/// The status and the words of the frontend that is asked to load the model.
fn load(cluster: &TestCluster) -> (u16, String) {
    let url = format!("http://{}/v2/repository/models/digits/load", cluster.address("frontend", "rest"));
    let post = reqwest::Client::new().post(url).bearer_auth(REPOSITORY_TOKEN);
    cluster.block_on(async {
        let reply = post.send().await.unwrap();
        (reply.status().as_u16(), reply.text().await.unwrap())
    })
}

/// Waits until this path answers the picture with the class: a frontend may learn of a load a moment after its caller.
fn expect_class(cluster: &TestCluster, model: &str, picture: &[u8], class: &str) {
    wait_until(&format!("{model} to say {class}"), SOON, || {
        let answer = over_rest(cluster, model, picture)?;
        anyhow::ensure!(answer.ends_with(class), "{answer}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_model_of_a_repository_takes_pictures_and_gives_labels() {
    if !onnxruntime_is_here() {
        return;
    }
    tell("repository-pictures", &Shape::emulated(&["default"]).with_cpu().with_repository(), |cluster| {
        phase("a model whose configuration names its transforms is loaded through a frontend");
        write_version(cluster, 1);
        let config = format!(
            "platform: \"onnxruntime_onnx\" max_batch_size: 16 version_policy {{ all {{ }} }}\n\
             parameters [ {{ key: \"slo_ms\" value {{ string_value: \"{SLO_MS}\" }} }},\n\
             {{ key: \"policy\" value {{ string_value: \"eager\" }} }},\n\
             {{ key: \"subcluster\" value {{ string_value: \"cpu\" }} }},\n\
             {{ key: \"transforms\" value {{ string_value: \"transforms.toml\" }} }} ]\n"
        );
        cluster.workspace.write("models/digits/config.pbtxt", &config).unwrap();
        let profile = ["models/digits/1/model.onnx", "--batch-max", "16", "--out", "models/digits/profile.toml"];
        let _ = cluster.cli(&[["profile"].as_slice(), &profile].concat()).ended_with(0);
        let (status, why) = load(cluster);
        assert!(status != 200 && why.contains("transforms.toml"), "{status} {why}");
        write_transforms(cluster, None, digits::TRANSFORMS);
        let (status, why) = load(cluster);
        assert_eq!(status, 200, "{why}");

        phase("a PNG and a JPEG are recognised, over REST and over gRPC");
        let mut jpeg = std::io::Cursor::new(Vec::new());
        image::load_from_memory(SEVEN).unwrap().write_to(&mut jpeg, ImageFormat::Jpeg).unwrap();
        let jpeg = jpeg.into_inner();
        expect_class(cluster, "digits", SEVEN, ":7:seven");
        expect_class(cluster, "digits", &jpeg, ":7:seven");
        let grpc = cluster.address("frontend", "grpc");
        let client = cluster.block_on(async { Client::builder().frontend(grpc).build().unwrap() });
        let both = cluster.block_on(async { client.infer(pictures(&[SEVEN.to_vec(), jpeg])).await.unwrap() });
        assert_eq!(names(&both), ["seven", "seven"]);

        phase("a version with transforms of its own names classes as they say, beside the one without");
        write_version(cluster, 2);
        write_transforms(cluster, Some(2), &digits::TRANSFORMS.replace("\"seven\"", "\"sieben\""));
        assert_eq!(load(cluster).0, 200);
        expect_class(cluster, "digits", SEVEN, ":7:sieben");
        expect_class(cluster, "digits/versions/2", SEVEN, ":7:sieben");
        expect_class(cluster, "digits/versions/1", SEVEN, ":7:seven");

        phase("transforms that do not fit the model are refused by file, and what was served stays");
        write_version(cluster, 3);
        write_transforms(cluster, Some(3), &digits::TRANSFORMS.replace("width = 8", "width = 9"));
        let again = cluster.cli(&["model", "load", "digits", "--repository", "models"]).ended_with(2);
        let _ = again.complains(&["digits/3/transforms.toml", "9 × 8 pixels"]);
        assert_ne!(load(cluster).0, 200);
        expect_class(cluster, "digits", SEVEN, ":7:sieben");

        phase("labels may be in a file as Triton has it, beside pictures");
        let dir = cluster.workspace.file("models/named");
        fs::create_dir_all(dir.join("1")).unwrap();
        fs::write(dir.join("1/model.onnx"), digits::MODEL).unwrap();
        fs::copy(cluster.workspace.file("models/digits/profile.toml"), dir.join("profile.toml")).unwrap();
        let (image, _) = digits::TRANSFORMS.split_once("[labels]").unwrap();
        fs::write(dir.join("transforms.toml"), image).unwrap();
        fs::write(dir.join("labels.txt"), "zéro\nun\ndeux\ntrois\nquatre\ncinq\nsix\nsept\nhuit\nneuf\n").unwrap();
        let tensors = "input { name: \"pixels\" data_type: TYPE_FP32 dims: 64 } output { name: \"probabilities\" \
            data_type: TYPE_FP32 dims: 10 label_filename: \"labels.txt\" }";
        fs::write(dir.join("config.pbtxt"), format!("{config}{tensors}")).unwrap();
        let output = cluster.cli(&["model", "load", "named", "--repository", "models"]).ended_with(0);
        assert_eq!(output.out.trim(), "model named@1 is ready");
        expect_class(cluster, "named", SEVEN, ":7:sept");
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
