//! Files that people write: scenarios, configurations, profiles, models, their batch sizes, pictures and labels.

use std::path::Path;

use symphony_config::{KeyHash, NodeConfig, Role, TenantsFile};
use symphony_executor::profile::ProfileFile;
use symphony_executor::{BatchSizes, digits};
use symphony_policy::{ModelPolicy, PolicySpec};
use symphony_repository::{ModelConfig, parse_labels, parse_pipeline, parse_transforms};
use symphony_types::{
    DataType, LABEL_BYTES_MAX, LABELS_BYTES_MAX, LatencyProfile, Nanos, PROFILE_BATCH_MAX, Signature, TENANTS_MAX,
    TensorSpec, is_name,
};
use symphony_workload::Scenario;

use super::MUTATION_BYTES_MAX;

/// A scenario's text, and a CSV for whatever file it names.
pub fn scenario(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (text, csv) = text.split_once('\u{1e}').unwrap_or((&text, "gpu_kind,batch,latency_ms\ng,1,1.0\n"));
    if let Err(error) = Scenario::parse("fuzz.toml", text, &[], &|_| Ok(csv.to_owned())) {
        assert!(error.to_string().contains("fuzz.toml") || !error.to_string().is_empty());
    }
}

/// A policy as text, as in commands, repositories and views.
pub fn policy(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(policy) = text.parse::<PolicySpec>() {
        assert_eq!(policy.to_string().parse(), Ok(policy), "what is shown is read again");
    }
    if let Ok(policy) = text.parse::<ModelPolicy>() {
        assert_eq!(policy.check(), Ok(()));
        assert_eq!(
            text.parse(),
            Ok(PolicySpec::Queues(policy.into())),
            "a model's policy means the same in a scenario"
        );
    }
}

pub(super) fn policy_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "auto",
        "{ name = \"timeout\", share = 0.1 }",
        "{ name = 'timeout', trigger = { timeout_ms = 2.5 }, drop = \"window\" }",
        "{ name = \"symphony\", trigger = \"latest\", drop = { window = 0.75 }, ready_order = \"start\", \
         gpu_choice = \"earliest_free\", shed = \"proportional\" }",
        "{ name = \"clockwork\", commit_ms = 3, early_ms = 1 }",
        "{ name = \"shepherd\", preempt_factor = 2 }",
        "{ name = \"drs\", threshold = 300 }",
        "{ name = \"kairos\", learn = true }",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// A node's configuration, for every role.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for role in [Role::Scheduler, Role::Frontend, Role::Backend, Role::Up] {
        let path = Path::new("fuzz.toml");
        if let Ok(config) = NodeConfig::from_layers(role, Some((path, &text)), [], &[]) {
            let again = NodeConfig::from_layers(role, Some((path, &config.to_toml())), [], &[]);
            assert_eq!(again.ok(), Some(config), "what --dump-config prints is read again");
        }
    }
}

/// The file of tenants.
pub fn tenants(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match TenantsFile::parse(&text) {
        Ok(file) => {
            assert!((1..=TENANTS_MAX).contains(&file.tenants.len()));
            for tenant in &file.tenants {
                assert!(is_name(&tenant.name) && tenant.weight().number() > 0.0, "{tenant:?}");
                assert!(tenant.keys.iter().all(|key| key.to_string().parse::<KeyHash>() == Ok(*key)), "{tenant:?}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn tenants_seeds() -> Vec<Vec<u8>> {
    let [hash, other] = ["0123456789abcdef", "FEDCBA9876543210"].map(|digits| format!("sha256:{}", digits.repeat(4)));
    let all = format!(
        "# Teams.\n[[tenant]]\nname = \"search\"\nkeys = [\"{hash}\", \"{other}\"]\ncertificates = [\"search.example\"]\n\
         items_per_s = 2000\ngpu_seconds_per_s = 1.5\nweight = 4\nrequests_in_flight_max = 4096\n\
         rights = [\"infer\", \"status\", \"repository\", \"console\"]\n[[tenant]]\nname = \"b-2\"\ncertificates = [\"é\"]\n"
    );
    let least = format!("tenant = [{{ name = 'a', keys = ['{hash}'], weight = 1e-3 }}]");
    [all, least].map(String::into_bytes).into()
}

/// A profile file.
pub fn profile(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(profile) = ProfileFile::parse(Path::new("fuzz.profile.toml"), &text) {
        assert!(profile.gpus.values().all(|gpu| gpu.latency.table().is_sorted()), "a profile is monotone");
    }
}

/// The batch sizes that an ONNX model names in its own metadata.
pub fn batch_sizes(bytes: &[u8]) {
    const ERROR_BYTES_MAX: usize = 2048;
    let text = String::from_utf8_lossy(bytes);
    match BatchSizes::parse(&text) {
        Ok(sizes) => {
            let largest = sizes.largest();
            assert!((1..=PROFILE_BATCH_MAX).contains(&largest));
            for items in 1..=largest {
                let filled = sizes.filled(items);
                assert!(filled.is_some_and(|filled| filled >= items && filled <= largest), "{items} into {filled:?}");
            }
            assert_eq!(sizes.filled(largest + 1), None);
            let flat = LatencyProfile::from_line(0.0, 1.0, largest).unwrap();
            assert_eq!(
                sizes.check(&flat),
                Ok(()),
                "a batch that takes as long as every other accounts for what is filled up"
            );
        }
        Err(error) => assert!(error.contains("expected") && error.len() <= ERROR_BYTES_MAX, "{} bytes", error.len()),
    }
}

pub(super) fn batch_sizes_seeds() -> Vec<Vec<u8>> {
    let most: Vec<_> = (4033..=PROFILE_BATCH_MAX).map(|size| size.to_string()).collect();
    ["1".to_owned(), "1, 4,16 ".to_owned(), most.join(", ")].map(String::into_bytes).into()
}

/// A model's configuration in a repository.
pub fn model_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match ModelConfig::parse(Path::new("fuzz.pbtxt"), "digits", &text) {
        Ok(config) => assert!(config.batch_max > 0 && config.slo > Nanos::ZERO),
        Err(error) => assert!(error.to_string().starts_with("fuzz.pbtxt")),
    }
}

/// A pipeline's configuration in a repository, and what is beside it.
pub fn pipeline(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (config, extras) = text.split_once('\u{1e}').unwrap_or((&text, "slo_ms = 50.0"));
    let (path, beside) = (Path::new("fuzz.pbtxt"), Path::new("fuzz.toml"));
    match parse_pipeline("canvas", (path, config), (beside, extras), &[1].into()) {
        Ok(read) => assert!(read.declaration.validate().is_ok()),
        Err(error) => assert!(error.to_string().contains("fuzz.") || error.to_string().contains("`canvas`")),
    }
}

/// What frontends do for a model's clients: pictures and labels, or labels alone, one in each line.
pub fn transforms(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match parse_labels(Path::new("fuzz.txt"), &text) {
        Ok(labels) => assert!(labels.iter().all(|label| label.len() <= LABEL_BYTES_MAX && !label.contains('\r'))),
        Err(error) => assert!(error.to_string().starts_with("fuzz.txt, line ")),
    }
    match parse_transforms(Path::new("fuzz.toml"), &text, &digits_signature()) {
        Ok(transforms) => {
            let labels = transforms.labels.values().flatten().map(String::len).sum::<usize>();
            assert!(labels <= LABELS_BYTES_MAX && transforms.labels.values().all(|labels| labels.len() == 10));
            assert!(transforms.image.is_none_or(|image| image.elements() == 64));
        }
        Err(error) => assert!(error.to_string().starts_with("fuzz.toml")),
    }
}

/// The signature of the classifier whose transforms are the seed.
pub fn digits_signature() -> Signature {
    let tensor =
        |name: &str, elements| TensorSpec { name: name.into(), data_type: DataType::Fp32, item_shape: vec![elements] };
    Signature { inputs: vec![tensor("pixels", 64)], outputs: vec![tensor("probabilities", 10)] }
}

pub(super) fn transforms_seeds() -> Vec<Vec<u8>> {
    let labels = "[labels]\nprobabilities = [\"0\", \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\", \"8\", \"9\"]\n";
    [digits::TRANSFORMS, labels].map(|text| text.as_bytes().to_vec()).into()
}

pub(super) fn model_config_seeds() -> Vec<Vec<u8>> {
    let sample = include_str!("../../../deploy/models/repository/digits/config.pbtxt");
    let batching =
        "dynamic_batching { default_queue_policy { timeout_action: REJECT } } instance_group { kind: KIND_CPU }";
    let reshape = "input { name: 'x' data_type: TYPE_INT8 dims: 4 reshape: < shape: [2, 2]; > } output { name: \"y\" data_type: 11 }";
    let least = "backend: \"emulated\" max_batch_size: 0x8 parameters { key: \"slo_ms\" value { string_value: \"5\" \"0\" } } \
         parameters { key: \"policy\" value { string_value: '{ name = \"timeout\", share = 0.1 }' } }";
    let nested = "[a/repository.ModelConfig]{".repeat(MUTATION_BYTES_MAX / 32);
    [sample.to_owned(), format!("{sample} {batching}"), format!("{least} {reshape}"), nested]
        .map(String::into_bytes)
        .into()
}

pub(super) fn pipeline_seeds() -> Vec<Vec<u8>> {
    let config = "platform: \"ensemble\" max_batch_size: 1 input { name: \"P\" data_type: TYPE_STRING dims: 1 } \
         output { name: \"L\" data_type: TYPE_INT64 dims: -1 } ensemble_scheduling { step [ \
         { model_name: \"detect\" input_map { key: \"canvas\" value: \"P\" } }, \
         { model_name: \"digits\" model_version: -1 input_map { key: \"x\" value: \"P\" } output_map { key: \"y\" value: \"L\" } } ] }";
    let extras = "slo_ms = 200.0\npartial = true\n[[edge]]\nfrom = \"detect\"\nto = \"digits\"\nfor_each = \"row\"\n\
                  where = \"scores > 0.5\"\ncrop = \"boxes\"\nmost = 8\ngamma = 3.0\n";
    vec![config.to_owned().into_bytes(), format!("{config}\u{1e}{extras}").into_bytes()]
}

pub(super) fn scenario_seeds() -> Vec<Vec<u8>> {
    let texts = [
        include_str!("../../../deploy/scenarios/table4-resnet50.toml").to_owned(),
        include_str!("../../../deploy/scenarios/zipf-20-models.toml").to_owned(),
        include_str!("../../../deploy/scenarios/rough-day.toml").to_owned(),
        "name = \"x\"\npolicy = { name = \"symphony\", trigger = \"eager\" }\nduration_s = 1\nwarmup_s = 0\nseeds = [1]\n\
         [[gpu]]\nkind = \"g\"\ncount = 1\n[[model]]\nname = \"m\"\nprofile_csv = \"p.csv\"\nslo_ms = 25.0\n\
         [workload]\nrate_rps = 5.0\narrival = { gamma = 0.5 }\n\u{1e}gpu_kind,batch,latency_ms\ng,1,1.0\ng,2,2.0\n"
            .to_owned(),
        "name = \"t\"\n[[gpu]]\nkind = \"g\"\ncount = 1\n[[model]]\nname = \"m\"\nalpha_ms = 1.0\nbeta_ms = 5.0\nslo_ms = 25.0\n\
         [workload]\narrival = { trace_csv = \"t.csv\" }\n\u{1e}time_s,model,items,slo_ms\n0.5,m,2,30.0\n0.7,,,\n"
            .to_owned(),
    ];
    texts.map(String::into_bytes).into()
}

pub(super) fn config_seeds() -> Vec<Vec<u8>> {
    let texts = [
        include_str!("../../../deploy/config/dev.toml"),
        include_str!("../../../deploy/config/production.toml"),
        include_str!("../../../deploy/config/federation.toml"),
        include_str!("../../../deploy/config/federated-frontend.toml"),
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

pub(super) fn profile_seeds() -> Vec<Vec<u8>> {
    let text = "format = 1\nmodel = \"m\"\n[[inputs]]\nname = \"x\"\ndata_type = \"FP32\"\nitem_shape = [2, 2]\n\
                [[outputs]]\nname = \"y\"\ndata_type = \"INT64\"\nitem_shape = []\n[gpu.cpu]\nmachine = \"here\"\n\
                static_memory_bytes = 100\ndynamic_memory_bytes = 50\nlatency_ms = [1.0, 2.0, 2.5]\n";
    vec![text.as_bytes().to_vec()]
}
