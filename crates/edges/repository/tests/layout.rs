//! Repositories on disk: folders, versions, profiles, and what is missing in them.

mod pipelines;

use std::fs;
use std::path::Path;

use symphony_executor::profile::{GpuProfile, ProfileFile};
use symphony_protocol::view::ModelSource;
use symphony_repository::{Repository, RepositoryModel};
use symphony_types::{DataType, LatencyProfile, Nanos, Signature, TensorSpec};

fn tensor(name: &str, item_shape: &[u32]) -> TensorSpec {
    TensorSpec { name: name.into(), data_type: DataType::Fp32, item_shape: item_shape.to_vec() }
}

fn profile(alpha_ms: f64) -> ProfileFile {
    let latency = LatencyProfile::from_line(alpha_ms, 5.0, 16).unwrap();
    let (machine, raised_batches) = ("here".into(), Vec::new());
    let gpu = GpuProfile { latency, static_memory_bytes: 7, dynamic_memory_bytes: 3, machine, raised_batches };
    let signature =
        Signature { inputs: vec![tensor("a", &[4]), tensor("b", &[2, 3])], outputs: vec![tensor("y", &[2])] };
    ProfileFile { model: "m".into(), signature, gpus: [("cpu".to_owned(), gpu)].into() }
}

const CONFIG: &str =
    "platform: \"onnxruntime_onnx\" max_batch_size: 8 parameters { key: \"slo_ms\" value { string_value: \"50\" } }";

/// A model with these versions in a repository.
fn write_model(repository: &Path, name: &str, config: &str, versions: &[&str]) {
    let dir = repository.join(name);
    for version in versions {
        fs::create_dir_all(dir.join(version)).unwrap();
        fs::write(dir.join(version).join("model.onnx"), "weights").unwrap();
    }
    fs::write(dir.join("config.pbtxt"), config).unwrap();
    profile(1.0).write(&dir.join("profile.toml")).unwrap();
}

fn model(dir: &Path, name: &str) -> Result<RepositoryModel, String> {
    Repository::open(dir).unwrap().model(name).map_err(|error| error.to_string())
}

#[test]
fn the_latest_version_is_what_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), "m", CONFIG, &["1", "2", "10", "03", "x", "0"]);
    let model = model(dir.path(), "m").unwrap();
    let [(&version, spec)] = model.versions.iter().collect::<Vec<_>>()[..] else { panic!("{model:?}") };
    assert_eq!((version, spec.name.as_str()), (10, "m@10"), "in the order of numbers, and no folder of another name");
    assert_eq!(spec.source, ModelSource::Onnx("m/10/model.onnx".into()), "as it is called within the repository");
    assert_eq!((spec.slo, spec.signature.clone()), (Nanos::from_millis(50), profile(1.0).signature));
    let kind = &spec.profiles["cpu"];
    assert_eq!((kind.latency.batch_max(), kind.static_memory_bytes), (8, 7), "max_batch_size ends the profile");
    assert_eq!(kind.latency.latency(8), Nanos::from_millis(13));
}

#[test]
fn a_version_may_have_a_profile_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), "m", &format!("{CONFIG} version_policy {{ all {{}} }}"), &["1", "2"]);
    profile(2.0).write(&dir.path().join("m/2/profile.toml")).unwrap();
    let model = model(dir.path(), "m").unwrap();
    let alone = |version: u64| model.versions[&version].profiles["cpu"].latency.latency(1);
    assert_eq!((alone(1), alone(2)), (Nanos::from_millis(6), Nanos::from_millis(7)));
}

#[test]
fn the_signature_is_the_configurations_where_it_speaks_of_the_same_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let with = |tensors: &str| {
        write_model(dir.path(), "m", &format!("{CONFIG} {tensors}"), &["1"]);
        model(dir.path(), "m").map(|model| model.versions[&1].signature.clone())
    };
    let output = "output { name: \"y\" data_type: TYPE_FP32 dims: [ 2 ] }";
    let other_order = format!(
        "input {{ name: \"b\" data_type: TYPE_FP32 dims: [ 6 ] reshape {{ shape: [ 2, 3 ] }} }}
         input {{ name: \"a\" data_type: TYPE_FP32 dims: [ 4 ] }} {output}"
    );
    assert_eq!(with(&other_order).unwrap().inputs, [tensor("b", &[6]), tensor("a", &[4])]);
    for (tensors, words) in [
        (format!("input {{ name: \"a\" data_type: TYPE_FP32 dims: [ 4 ] }} {output}"), "has an input `b`, which"),
        (other_order.replace("\"y\"", "\"z\""), "has no output `z`, which config.pbtxt names, but y"),
        (other_order.replace("dims: [ 4 ]", "dims: [ 5 ]"), "has input `a` as FP32 [4], config.pbtxt as FP32 [5]"),
        (other_order.replace("TYPE_FP32 dims: [ 2 ]", "TYPE_INT32 dims: [ 2 ]"), "config.pbtxt as INT32 [2]"),
    ] {
        let error = with(&tensors).unwrap_err();
        assert!(error.contains(words) && error.contains("profile.toml"), "{tensors}: {error}");
    }
}

#[test]
fn what_frontends_do_for_its_clients_is_in_a_file_beside_the_profile() {
    let dir = tempfile::tempdir().unwrap();
    let named = "parameters { key: \"transforms\" value { string_value: \"t.toml\" } } version_policy { all {} }";
    write_model(dir.path(), "m", &format!("{CONFIG} {named}"), &["1", "2"]);
    let missing = model(dir.path(), "m").unwrap_err();
    assert!(missing.contains("m/t.toml cannot be read"), "{missing}");
    let write = |at: &str, text: &str| fs::write(dir.path().join(at), text).unwrap();
    write("m/t.toml", "[labels]\ny = [\"no\", \"yes\"]\n");
    write(
        "m/2/t.toml",
        "[labels]\ny = [\"cat\", \"dog\"]\n[image]\ninput = \"a\"\nwidth = 2\nheight = 2\ncolour = \"grey\"\n",
    );
    let both = model(dir.path(), "m").unwrap();
    let [all, own] = [1, 2].map(|version| &both.versions[&version].transforms);
    assert_eq!((&all.labels["y"][..], all.image.is_none()), (&["no".to_owned(), "yes".to_owned()][..], true));
    assert_eq!((own.labels["y"][1].as_str(), own.image.as_ref().unwrap().width), ("dog", 2));
    for (text, words) in [
        ("[labels]\nsecret-of-another-file", "m/t.toml, line 2: "),
        ("[lables]", "m/t.toml, line 1: unknown field `lables`"),
        ("[labels]\ny = [\"one\"]", "m/t.toml: labels.y: 1 labels; expected one for each of 2 elements"),
        ("[labels]\nz = []", "labels.z: there is no such output; expected one of y"),
    ] {
        write("m/t.toml", text);
        let error = model(dir.path(), "m").unwrap_err();
        assert!(error.contains(words) && !error.contains("secret"), "{text}: {error}");
    }
    write_model(dir.path(), "m", CONFIG, &["1"]);
    assert!(model(dir.path(), "m").unwrap().versions[&2].transforms.is_empty(), "a file that is not named is not read");
}

#[test]
fn labels_of_an_output_may_be_in_a_file_with_one_in_each_line() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = "input [ { name: \"a\" data_type: TYPE_FP32 dims: 4 }, { name: \"b\" data_type: TYPE_FP32 dims: [ 2, 3 ] } ] \
        output { name: \"y\" data_type: TYPE_FP32 dims: 2 label_filename: \"names.txt\" }";
    let named = "parameters { key: \"transforms\" value { string_value: \"t.toml\" } }";
    let write_config = |more: &str| {
        write_model(dir.path(), "m", &format!("{CONFIG} {tensors} version_policy {{ all {{}} }} {more}"), &["1", "2"]);
    };
    let write = |at: &str, text: &str| fs::write(dir.path().join(at), text).unwrap();
    let refusal = || model(dir.path(), "m").unwrap_err();
    write_config("");
    assert!(refusal().contains("m/names.txt cannot be read: No such file"), "{}", refusal());
    write("m/names.txt", "no\nyes\n");
    write("m/2/names.txt", "cat\ndog\n");
    let labels = |version: u64| model(dir.path(), "m").unwrap().versions[&version].transforms.labels["y"].clone();
    assert_eq!(labels(1), ["no", "yes"]);
    assert_eq!(labels(2), ["cat", "dog"], "a version may have its own, as with the profile");

    write_config(named);
    write("m/t.toml", "[image]\ninput = \"a\"\nwidth = 2\nheight = 2\ncolour = \"grey\"\n");
    assert_eq!(labels(1), ["no", "yes"], "beside what else frontends do");
    write("m/t.toml", "[labels]\ny = [\"no\", \"yes\"]\n");
    let twice = "m/config.pbtxt, field `output.label_filename`: of `y` is `names.txt`, and its transforms have labels of it too";
    assert!(refusal().contains(twice), "{}", refusal());

    write_config("");
    write("m/names.txt", "one\ntwo\nthree\n");
    assert!(
        refusal().contains("m/names.txt: labels.y: 3 labels; expected one for each of 2 elements"),
        "{}",
        refusal()
    );
    write("m/names.txt", "no\nsecret\tpart\n");
    assert!(
        refusal().contains("m/names.txt, line 2: expected a label") && !refusal().contains("secret"),
        "{}",
        refusal()
    );
    fs::remove_file(dir.path().join("m/names.txt")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("m/names.txt")).unwrap();
    assert!(refusal().contains("names.txt") && refusal().contains("expected a file within"), "{}", refusal());
}

#[test]
fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    assert!(Repository::open(&at.join("nowhere")).unwrap_err().to_string().contains("nowhere cannot be read"));
    fs::write(at.join("file"), "").unwrap();
    assert!(Repository::open(&at.join("file")).unwrap_err().to_string().contains("expected a folder"));

    for name in ["", "../m", "m@1", ".git", "nope"] {
        assert!(model(at, name).unwrap_err().contains("has no model"), "{name}");
    }
    let refusal = || model(at, "m").unwrap_err();
    fs::create_dir(at.join("m")).unwrap();
    assert!(refusal().contains("m/config.pbtxt cannot be read: No such file"), "{}", refusal());
    write_model(at, "m", CONFIG, &[]);
    assert!(refusal().contains("it has no version; expected folders named by numbers"), "{}", refusal());
    write_model(at, "m", &format!("{CONFIG} version_policy {{ specific {{ versions: 4 }} }}"), &["1"]);
    assert!(refusal().contains("names version 4, and there are only 1"), "{}", refusal());
    write_model(at, "m", CONFIG, &["1"]);
    fs::remove_file(at.join("m/1/model.onnx")).unwrap();
    assert!(refusal().contains("m/1/model.onnx cannot be read"), "{}", refusal());
    write_model(at, "m", CONFIG, &["1"]);
    fs::remove_file(at.join("m/profile.toml")).unwrap();
    assert!(refusal().contains("m/profile.toml` cannot be read"), "{}", refusal());
    write_model(at, "m", &CONFIG.replace("50", "2"), &["1"]);
    assert!(refusal().contains("one item alone takes 6 ms; expected less than the slo_ms"), "{}", refusal());
    write_model(at, "m", &"#".repeat(2 << 20), &["1"]);
    assert!(refusal().contains("expected at most 1048576"), "{}", refusal());
    for file in ["m/config.pbtxt", "m/profile.toml", "m/1/model.onnx"] {
        write_model(at, "m", CONFIG, &["1"]);
        fs::remove_file(at.join(file)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at.join(file)).unwrap();
        assert!(refusal().contains(file) && refusal().contains("expected a file within"), "{}", refusal());
        fs::remove_file(at.join(file)).unwrap();
    }
}

#[test]
fn links_within_the_repository_are_followed_and_those_out_of_it_are_not() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let link = |to: &Path, at: &str| std::os::unix::fs::symlink(to, dir.path().join(at)).unwrap();
    // As Kubernetes lays out what it mounts.
    write_model(&dir.path().join("..2026_1"), "m", CONFIG, &["1"]);
    link(Path::new("..2026_1"), "..data");
    link(Path::new("..data/m"), "m");
    model(dir.path(), "m").unwrap();

    write_model(elsewhere.path(), "m", CONFIG, &["1"]);
    link(&elsewhere.path().join("m"), "foreign");
    let refused = model(dir.path(), "foreign").unwrap_err();
    assert!(refused.contains("foreign/config.pbtxt") && refused.contains("expected a file within"), "{refused}");
    let file = dir.path().join("m/1/model.onnx");
    fs::remove_file(&file).unwrap();
    link(&elsewhere.path().join("m/1/model.onnx"), "m/1/model.onnx");
    let refused = model(dir.path(), "m").unwrap_err();
    assert!(refused.contains("m/1/model.onnx") && refused.contains("expected a file within"), "{refused}");
}

#[test]
fn every_folder_that_is_not_hidden_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b", "a", ".git", "x@2"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("README"), "").unwrap();
    assert_eq!(Repository::open(dir.path()).unwrap().names().unwrap(), ["a", "b"]);
}
