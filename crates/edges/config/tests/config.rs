//! How configurations are read, layered and refused.

use std::path::Path;

use proptest::prelude::*;
use symphony_config::{
    DEFAULTS, Error, ExecutorKind, Idle, LogFormat, NodeConfig, REMOVED_KEYS, RemovedKey, Role, Timing,
};

const DEV: &str = include_str!("../../../../deploy/config/dev.toml");
const PRODUCTION: &str = include_str!("../../../../deploy/config/production.toml");
const ROLES: [Role; 4] = [Role::Scheduler, Role::Frontend, Role::Backend, Role::Up];

fn parse(role: Role, text: &str, env: &[(&str, &str)], overrides: &[&str]) -> Result<NodeConfig, Error> {
    let env = env.iter().map(|&(k, v)| (k.to_owned(), v.to_owned()));
    let overrides: Vec<_> = overrides.iter().map(|&o| o.to_owned()).collect();
    NodeConfig::from_layers(role, Some((Path::new("node.toml"), text)), env, &overrides)
}

fn refusal(role: Role, text: &str, overrides: &[&str]) -> String {
    parse(role, text, &[], overrides).unwrap_err().to_string()
}

#[test]
fn the_sample_files_work_for_every_role_and_survive_a_dump() {
    // Certificates are for nodes; `up` makes its own, and a node of a development cluster says that it has none.
    let dev = ROLES.map(|role| ("dev", DEV, role, (role != Role::Up).then_some("security.insecure_dev=true")));
    const ONE_GPU: &str = include_str!("../../../../deploy/cuda/one-gpu.toml");
    let gpu = [("one-gpu", ONE_GPU, Role::Up, None)];
    let production = ROLES[..3].iter().map(|&role| ("production", PRODUCTION, role, None));
    for (name, text, role, setting) in dev.into_iter().chain(production).chain(gpu) {
        let config = parse(role, text, &[], setting.as_slice()).unwrap_or_else(|e| panic!("{name} as {role}: {e}"));
        assert_eq!(parse(role, &config.to_toml(), &[], &[]).unwrap(), config, "{name} as {role}");
    }
}

#[test]
fn the_sample_files_of_a_federation_work_and_survive_a_dump() {
    let replica = include_str!("../../../../deploy/config/federation.toml");
    let frontend = include_str!("../../../../deploy/config/federated-frontend.toml");
    for (role, text) in [(Role::Federation, replica), (Role::Frontend, frontend)] {
        let config = parse(role, text, &[], &[]).unwrap_or_else(|error| panic!("{role}: {error}"));
        assert_eq!(parse(role, &config.to_toml(), &[], &[]).unwrap(), config, "{role}");
    }
    assert!(refusal(Role::Scheduler, replica, &[]).contains("only `symphony federation` and frontends"));
    let refused = refusal(Role::Federation, replica, &["federation.unreachable_ms=9", "federation.id=9"]);
    assert!(refused.contains("500 to 3600000") && refused.contains("9 is not among the ids"), "{refused}");
    let silent = refusal(Role::Frontend, &frontend.replace("data = \"10.0.0.9:7202\"\n", ""), &[]);
    assert!(silent.contains("federation.clusters.1.data"), "{silent}");
    let same = refusal(Role::Frontend, &frontend.replace("10.0.0.9:7202", "10.0.0.9:7201"), &[]);
    assert!(same.contains("is taken by"), "{same}");
    let plain = refusal(Role::Federation, &replica.replace("ca = \"/etc/symphony/west/ca.pem\"\n", ""), &[]);
    assert!(plain.contains("federation.clusters.1.ca"), "{plain}");
}

#[test]
fn defaults_are_toml_and_a_role_takes_only_its_own_section_from_them() {
    assert!(DEFAULTS.parse::<toml::Table>().is_ok());
    let cluster = DEV.split("[scheduler]").next().unwrap();
    let text = format!("{cluster}\n[frontend]\nname = \"f\"\n[security]\ninsecure_dev = true\n");
    let config = parse(Role::Frontend, &text, &[], &[]).unwrap();
    assert!(config.scheduler.is_none() && config.backend.is_none());
    let frontend = config.frontend.unwrap();
    assert_eq!(
        (frontend.grpc.port(), frontend.rest.port(), frontend.metrics.port()),
        (8001, 8000, 8002),
        "the ports clients expect"
    );
    assert!(frontend.grpc.is_loopback());
}

#[test]
fn public_ports_beyond_loopback_take_tenants_or_a_word() {
    let ports = ["frontend.grpc=0.0.0.0:8001", "frontend.rest=0.0.0.0:8000", "frontend.metrics=0.0.0.0:8002"];
    let with = |more: &str| parse(Role::Up, DEV, &[], &[&ports[..], &[more]].concat());
    assert!(with("log.level=info").is_err());
    let tenants = with("frontend.tenants=tenants.toml").unwrap().frontend.unwrap().tenants;
    assert_eq!(tenants, Some("tenants.toml".into()));
    assert!(with("security.insecure_public=true").unwrap().security.insecure_public);
}

#[test]
fn env_lies_over_the_file_and_flags_over_env() {
    let env = [
        ("SYMPHONY__FRONTEND__GRPC", "127.0.0.1:9001"),
        ("SYMPHONY__FRONTEND__REST", "127.0.0.1:9000"),
        ("SYMPHONY__SCHEDULER__DELAYS__CONTROL_US", "77"),
        ("SYMPHONY__SCHEDULER__PIN_CORES", "true"),
        ("SYMPHONY__BACKEND__GPUS", "[{ kind = \"cpu-big\", count = 2, memory_mb = 5 }]"),
        ("PATH", "/bin"),
    ];
    let flags = ["frontend.rest=127.0.0.1:9999", "scheduler.idle=spin", "cluster.timing=lan", "log.format = json"];
    let config = parse(Role::Up, DEV, &env, &flags).unwrap();
    let (scheduler, frontend, backend) = (config.scheduler.unwrap(), config.frontend.unwrap(), config.backend.unwrap());
    assert_eq!(frontend.grpc.port(), 9001, "env over default");
    assert_eq!(frontend.rest.port(), 9999, "flag over env");
    assert_eq!(scheduler.delays.control_us, 77);
    assert!(scheduler.pin_cores);
    assert_eq!((scheduler.idle, config.cluster.timing), (Idle::Spin, Timing::Lan));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!((backend.gpus[0].kind.as_str(), backend.gpus[0].count), ("cpu-big", 2));
    assert_eq!((backend.executor, backend.onnxruntime), (ExecutorKind::OrtCpu, None));
}

#[test]
fn noise_is_off_and_is_a_number_within_the_simulators_limit() {
    let emulated = "backend.executor=emulated";
    let noise =
        |env: &[(&str, &str)], flags: &[&str]| parse(Role::Up, DEV, env, flags).map(|c| c.backend.unwrap().noise);
    assert_eq!(noise(&[], &[]).unwrap(), 0.0);
    assert_eq!(noise(&[("SYMPHONY__BACKEND__NOISE", "0.05")], &[emulated]).unwrap(), 0.05);
    assert_eq!(noise(&[], &[emulated, "backend.noise=1"]).unwrap(), 1.0, "a whole number is a number");
    for wrong in ["-0.05", "2.5", "nan", "inf"] {
        let message = refusal(Role::Up, DEV, &[emulated, &format!("backend.noise={wrong}")]);
        assert!(message.contains("backend.noise: ") && message.contains("expected 0 to 2"), "{message}");
    }
    assert!(refusal(Role::Up, DEV, &[emulated, "backend.noise=much"]).contains("`much` is not a number"));
    let real = refusal(Role::Up, DEV, &["backend.noise=0.1"]);
    assert!(real.contains("backend.noise: only executor = \"emulated\" uses it"), "{real}");
}

#[test]
fn tapes_are_off_and_are_kept_apart_from_the_log() {
    let scheduler = parse(Role::Up, DEV, &[], &[]).unwrap().scheduler.unwrap();
    assert_eq!((scheduler.tape_dir, scheduler.tape_mb_max), (None, 256));
    let given = parse(Role::Up, DEV, &[], &["scheduler.tape_dir=/tapes", "scheduler.tape_mb_max=8"]).unwrap();
    let scheduler = given.scheduler.unwrap();
    assert_eq!((scheduler.tape_dir, scheduler.tape_mb_max), (Some("/tapes".into()), 8));
    let same = format!("scheduler.tape_dir={}", scheduler.data_dir.display());
    let message = refusal(Role::Up, DEV, &[&same, "scheduler.tape_mb_max=0"]);
    assert!(message.contains("scheduler.tape_mb_max: 0 is out of range; expected 1 to 1024"), "{message}");
    assert!(message.contains("scheduler.tape_dir") && message.contains("is scheduler.data_dir"), "{message}");
}

#[test]
fn unknown_keys_and_wrong_types_are_refused_wherever_they_come_from() {
    let message = refusal(Role::Up, &DEV.replace("[frontend]", "[frontend]\ngprc = \"x\""), &[]);
    assert!(message.starts_with("node.toml: frontend.gprc: unknown key; expected one of"), "{message}");
    assert!(message.contains("`grpc`"), "{message}");
    let message = refusal(Role::Up, &DEV.replace("[frontend]", "[frontend]\nrequest_bytes_max = \"1\""), &[]);
    assert!(
        message.contains("frontend.request_bytes_max: the value is a string; expected a whole number"),
        "{message}"
    );
    let message = refusal(Role::Up, "[cluster\n", &[]);
    assert!(message.contains("node.toml is not TOML") && message.contains("line 1"), "{message}");

    for (flag, expected) in [
        ("frontend.gprc=x", "override `frontend.gprc=x`: frontend.gprc: unknown key"),
        ("frontend.grpc.x=x", "frontend.grpc.x: unknown key; expected nothing below it"),
        ("fronted.grpc=x", "fronted: unknown key; expected one of `backend`"),
        ("frontend=x", "this is a section"),
        ("frontend.grpc", "there is no `=`"),
        ("scheduler.pin_cores=yes", "`yes` is not true or false"),
        ("scheduler.model_threads=many", "`many` is not a whole number"),
        ("scheduler.model_threads=1\nx = 2", "is not a whole number"),
        ("scheduler.model_threads=-1", "scheduler.model_threads: invalid value: integer `-1`, expected u32"),
        ("scheduler.log_engine=rocks", "scheduler.log_engine: unknown variant `rocks`, expected `sled` or `redb`"),
        ("scheduler.idle=sleep", "scheduler.idle: unknown variant `sleep`, expected `park` or `spin`"),
        ("frontend.grpc=8001", "frontend.grpc: `8001` is not an address: there is no colon"),
        ("backend.gpus=[{ kind = \"cpu\" }]", "missing field `count`"),
        ("cluster.scheduler=[{ id = 1, port = 2 }]", "unknown field `port`, expected one of `id`, `control`"),
    ] {
        let message = refusal(Role::Up, DEV, &[flag]);
        assert!(message.contains(expected), "{flag}: {message}");
    }
    let message = parse(Role::Up, DEV, &[("SYMPHONY__FRONTEND__GPRC", "x")], &[]).unwrap_err().to_string();
    assert!(message.starts_with("environment variable SYMPHONY__FRONTEND__GPRC: frontend.gprc"), "{message}");
    assert!(matches!(parse(Role::Up, &"#".repeat(2 << 20), &[], &[]), Err(Error::TooLong { .. })));
}

#[test]
fn keys_that_are_constants_now_are_refused_with_the_value_wherever_they_come_from() {
    let defaults: toml::Table = DEFAULTS.parse().unwrap();
    for RemovedKey { key, now } in REMOVED_KEYS {
        let (section, name) = key.rsplit_once('.').unwrap();
        let known = section.split('.').try_fold(&defaults, |table, part| table.get(part)?.as_table());
        assert!(!known.unwrap_or_else(|| panic!("{key} has no section")).contains_key(name), "{key} is a key");

        let expected = format!("{key}: this is a constant now ({now}); leave it out");
        let text = format!("[{section}]\n{name} = 1\n");
        assert_eq!(refusal(Role::Up, &text, &[]), format!("node.toml: {expected}"));
        let flag = format!("{key}=1");
        assert_eq!(refusal(Role::Up, "", &[&flag]), format!("override `{flag}`: {expected}"));
        let variable = format!("SYMPHONY__{}", key.replace('.', "__").to_ascii_uppercase());
        let message = parse(Role::Up, "", &[(&variable, "1")], &[]).unwrap_err().to_string();
        assert_eq!(message, format!("environment variable {variable}: {expected}"));
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let message = NodeConfig::load(Role::Up, Some(Path::new("no/such.toml")), [], &[]).unwrap_err().to_string();
    assert!(message.contains("cannot read the configuration no/such.toml"), "{message}");
}

#[test]
fn what_cannot_work_is_explained_with_key_and_values() {
    let replica = |id: u32| {
        format!(
            "{{ id = {id}, control = \"127.0.0.1:{id}1\", dispatch = \"127.0.0.1:{id}2\", beat = \"127.0.0.1:{id}3\" }}"
        )
    };
    let replicas = |ids: &[u32]| {
        format!("cluster.scheduler=[{}]", ids.iter().map(|&id| replica(id)).collect::<Vec<_>>().join(", "))
    };
    let zero_port = replicas(&[1]).replace("127.0.0.1:11", "127.0.0.1:0");
    let wildcard = replicas(&[1]).replace("127.0.0.1:11", "0.0.0.0:11");
    // A replica that joins may be the fourth.
    let four = [replicas(&[1, 2, 3, 4]), "scheduler.id=4".to_owned(), "scheduler.join=true".to_owned()];
    parse(Role::Up, DEV, &[], &[&four[0], &four[1], &four[2]]).unwrap();
    assert!(parse(Role::Up, DEV, &[], &[&four[0], &four[1]]).is_err());
    let cases: &[(&[&str], &str)] = &[
        (&["scheduler.id=9"], "scheduler.id: 9 is not among the ids of cluster.scheduler (1, 2, 3)"),
        (&["scheduler.data_dir="], "scheduler.data_dir: no directory is given"),
        (&["scheduler.decision_threads=257"], "scheduler.decision_threads: 257 is out of range; expected 0 to 256"),
        (&["scheduler.model_threads=257"], "scheduler.model_threads: 257 is out of range; expected 0 to 256"),
        (&["scheduler.delays.guard_us=1000001"], "scheduler.delays.guard_us: 1000001 is out of range"),
        (
            &["scheduler.delays.data_us_min=5001"],
            "scheduler.delays.data_us_min: 5001 is more than scheduler.delays.data_us_max",
        ),
        (
            &["frontend.images.decoded_mb_max=15"],
            "frontend.images.decoded_mb_max: 15 MB are less than one request may have",
        ),
        (&["cluster.name=Big Cluster"], "cluster.name: `Big Cluster` is not a name"),
        (&[&replicas(&[])], "cluster.scheduler: no scheduler replica is given"),
        (&[&replicas(&[1, 2])], "2 replicas; expected 1, 3, 5 or 7: 2 replicas survive no more failures than 1"),
        (&[&replicas(&[1, 2, 3, 4, 5, 6, 7, 8, 9])], "9 replicas; expected 1, 3, 5 or 7: more replicas only make"),
        (&[&replicas(&[1, 2, 2])], "cluster.scheduler.2.id: 2 is given to two replicas"),
        (&[&replicas(&[1, 1, 2])], "cluster.scheduler.1.control: 127.0.0.1:11 is taken by cluster.scheduler.0.control"),
        (&[&replicas(&[0])], "cluster.scheduler.0.id: 0 is no id"),
        (&[&zero_port], "cluster.scheduler.0.control: port 0 is chosen at start"),
        (&[&wildcard, "security.insecure_dev=true"], "cluster.scheduler.0.control: 0.0.0.0:11 means every address"),
        (&["frontend.name="], "frontend.name: `` is not a name"),
        (&["frontend.name=f1"], "frontend.name: `f1` looks like the id of a process"),
        (&["backend.name=n2"], "backend.name: `n2` looks like the id of a process"),
        (&["frontend.rest=127.0.0.1:8001"], "frontend.rest: 127.0.0.1:8001 is taken by frontend.grpc"),
        (&["frontend.rest=localhost:8001"], "frontend.rest: localhost:8001 is taken by frontend.grpc"),
        (
            &["frontend.rest=0.0.0.0:8001", "security.insecure_dev=true"],
            "frontend.rest: 0.0.0.0:8001 is taken by frontend.grpc = 127.0.0.1:8001",
        ),
        (&["frontend.request_bytes_max=0"], "frontend.request_bytes_max: 0 is out of range; expected 1 to 66060288"),
        (&["frontend.requests_in_flight_max=1"], "frontend.requests_in_flight_max: 1 is out of range"),
        (&["frontend.connections_max=0"], "frontend.connections_max: 0 is out of range; expected 1 to 65536"),
        (
            &["frontend.connections_per_address_max=65537"],
            "frontend.connections_per_address_max: 65537 is out of range",
        ),
        (&["frontend.payloads.pool_mb=0"], "frontend.payloads.pool_mb: 0 is out of range; expected 1 to 65536"),
        (
            &["backend.payloads.required=true"],
            "backend.payloads.required: with transport = \"auto\" everything is allowed",
        ),
        (
            &["backend.payloads.transport=rdma", "backend.payloads.required=true", "security.insecure_dev=true"],
            "backend.payloads.transport: \"rdma\" is required, but keys to memory are handed out over mutual TLS only",
        ),
        (
            &["frontend.payloads.rdma_device=mlx5_0"],
            "frontend.payloads.rdma_device: `mlx5_0` is only used with transport = \"rdma\"",
        ),
        (&["frames.required=true"], "frames.required: only another way than TCP can be required"),
        (&["frames.rdma_device=mlx5_0"], "frames.rdma_device: `mlx5_0` is only used with transport = \"rdma\""),
        (&["frames.spin_us=10001"], "frames.spin_us: 10001 is out of range; expected 0 to 10000"),
        (&["frames.transport=tcp", "frames.spin_us=10"], "frames.spin_us: shared memory is not used with transport"),
        (&["frontend.answer_grace_ms=60001"], "frontend.answer_grace_ms: 60001 is out of range"),
        (
            &["frontend.grpc=10.0.0.1:8001", "security.insecure_dev=true"],
            "10.0.0.1:8001 is not a loopback address, and with security.insecure_dev anything",
        ),
        (
            &["frontend.rest=10.0.0.1:8000"],
            "frontend.rest: 10.0.0.1:8000 is not a loopback address, and without frontend.tenants it serves every client; give the file",
        ),
        (&["frontend.metrics=0.0.0.0:8002"], "frontend.metrics: 0.0.0.0:8002 is not a loopback address, and without"),
        (&["frontend.tls.cert=a.pem"], "frontend.tls.key: must be given with frontend.tls.cert"),
        (&["frontend.tls.key=a.key"], "frontend.tls.cert: must be given with frontend.tls.key"),
        (&["frontend.tls.client_ca=ca.pem"], "frontend.tls.client_ca: clients show certificates over TLS only"),
        (
            &["frontend.tls.client_ca=ca.pem", "frontend.tls.cert=a.pem", "frontend.tls.key=a.key"],
            "frontend.tls.client_ca: frontend.tenants says whose certificates are whose",
        ),
        (&["frontend.metrics_need_key=true"], "frontend.metrics_need_key: there are no keys without frontend.tenants"),
        (
            &["frontend.tenants=t.toml", "frontend.repository.dir=m", "frontend.repository.token_file=t"],
            "frontend.repository.token_file: with frontend.tenants, keys with the right \"repository\"",
        ),
        (
            &["frontend.cors_origins=[\"https://a.example\", \"a.example\"]"],
            "frontend.cors_origins.1: `a.example` is no origin; expected scheme://host",
        ),
        (
            &["security.page_hosts=[\"console.example\", \"a.example:80\"]"],
            "security.page_hosts.1: `a.example:80` is no name of a host; expected one without a port",
        ),
        (&["frontend.data=scheduler:1", "security.insecure_dev=true"], "frontend.data: scheduler:1 is not a loopback"),
        (&["security.ca=ca.pem"], "security.ca: `up` makes certificates by itself"),
        (&["security.key=a.key", "security.insecure_dev=true"], "security.key: a.key with security.insecure_dev"),
        (
            &["backend.exec=0.0.0.0:7101", "security.insecure_dev=true"],
            "backend.exec: 0.0.0.0:7101 means every address",
        ),
        (&["backend.gpus=[]"], "backend.gpus: no GPU is given"),
        (
            &["backend.gpus=[{ kind = \"a100\", count = 1, memory_mb = 1 }]"],
            "backend.gpus.0.kind: executor ort-cpu runs on the CPU, which is not a `a100`",
        ),
        (&["backend.gpus=[{ kind = \"cpu\", count = 0, memory_mb = 1 }]"], "backend.gpus.0.count: 0 is out of range"),
        (
            &["backend.gpus=[{ kind = \"cpu\", count = 1, memory_mb = 0 }]"],
            "backend.gpus.0.memory_mb: 0 is out of range",
        ),
        (
            &[
                "backend.gpus=[{ kind = \"cpu\", count = 1, memory_mb = 1 }, { kind = \"cpu\", count = 1, memory_mb = 2 }]",
            ],
            "backend.gpus.1.kind: `cpu` is given twice",
        ),
        (
            &[
                "backend.gpus=[{ kind = \"cpu\", count = 60, memory_mb = 1 }, { kind = \"cpu-b\", count = 9, memory_mb = 2 }]",
            ],
            "backend.gpus: 69 GPUs; one backend has at most 64",
        ),
        (
            &["backend.executor=emulated", "backend.onnxruntime=libonnxruntime.so"],
            "backend.onnxruntime: `libonnxruntime.so` is set but executor = \"emulated\" never loads it",
        ),
        (&["backend.model_dir="], "backend.model_dir: no directory is given"),
        (&["backend.intra_op_threads=0"], "backend.intra_op_threads: 0 is out of range; expected 1 to 256"),
        (
            &["network.routes=[{ to = \"a:1\", via = \"b:1\" }, { to = \"a:1\", via = \"0.0.0.0:1\" }]"],
            "network.routes.1.to: a:1 is routed twice",
        ),
        (&["backend.journal_mb_max=0"], "backend.journal_mb_max: 0 is out of range; expected 1 to 4096"),
        (&["scheduler.autoscaling.budget_per_hour=-1"], "scheduler.autoscaling.budget_per_hour: -1 is out of range"),
        (&["scheduler.autoscaling.budget_per_hour=1"], "scheduler.autoscaling.prices: there is a budget and no price"),
        (
            &["scheduler.autoscaling.prices=[{ kind = \"a\", per_hour = 1 }]"],
            "scheduler.autoscaling.prices: there are prices and no budget",
        ),
        (
            &[
                "scheduler.autoscaling.prices=[{ kind = \"a\", per_hour = 2.5 }, { kind = \"a\", per_hour = 0 }]",
                "scheduler.autoscaling.budget_per_hour=3",
            ],
            "scheduler.autoscaling.prices.1.kind: `a` has a price already",
        ),
        (
            &[
                "scheduler.autoscaling.prices=[{ kind = \"a\", per_hour = 0 }]",
                "scheduler.autoscaling.budget_per_hour=3",
            ],
            "scheduler.autoscaling.prices.0.per_hour: 0 is out of range; expected a number above 0",
        ),
        (
            &[
                "scheduler.autoscaling.prices=[{ kind = \"a\", per_hour = 2.5 }, { kind = \"b\", per_hour = 3 }]",
                "scheduler.autoscaling.budget_per_hour=2",
            ],
            "scheduler.autoscaling.budget_per_hour: 2 buys no GPU; expected at least 2.5",
        ),
        (&["scheduler.loop_speedup=21"], "scheduler.loop_speedup: 21 is out of range; expected 1 to 20"),
        (
            &["scheduler.learning.quarantine_s=3601"],
            "scheduler.learning.quarantine_s: 3601 is out of range; expected 1 to 3600",
        ),
        (&["backend.subcluster=_"], "backend.subcluster: `_` is not a name"),
        (&["log.level="], "log.level: a filter of 0 bytes"),
    ];
    for (overrides, expected) in cases {
        let message = refusal(Role::Up, DEV, overrides);
        assert!(message.starts_with("node.toml cannot work for `symphony up`:"), "{overrides:?}: {message}");
        assert!(message.contains(expected), "{overrides:?}: {message}");
    }
}

#[test]
fn all_problems_are_told_at_once_and_emulated_gpus_have_any_kind() {
    let Err(Error::Invalid { problems, .. }) =
        parse(Role::Up, DEV, &[], &["frontend.name=", "scheduler.id=9", "log.level="])
    else {
        panic!("three problems were accepted");
    };
    assert_eq!(
        problems.iter().map(|p| p.key.as_str()).collect::<Vec<_>>(),
        ["scheduler.id", "frontend.name", "log.level"]
    );
    let gpus = "backend.gpus=[{ kind = \"a100\", count = 60, memory_mb = 40960 }]";
    parse(Role::Up, DEV, &[], &["backend.executor=emulated", gpus]).unwrap();
}

#[test]
fn a_config_made_by_hand_lacks_what_its_role_needs() {
    let mut config = parse(Role::Up, DEV, &[], &[]).unwrap();
    config.frontend = None;
    config.security.insecure_dev = true;
    let problems = config.validate(Role::Frontend);
    assert_eq!(problems[0].to_string(), "frontend: the section is missing; `symphony frontend` needs it");
    assert!(config.validate(Role::Backend).is_empty());
}

proptest! {
    #[test]
    fn random_text_never_panics(text in "\\PC{0,200}|[a-z\\[\\]={}\".0-9\n ]{0,200}", flag in "\\PC{0,40}|[a-z._]{0,20}=\\PC{0,20}") {
        for role in ROLES {
            let _ = parse(role, &text, &[], &[]);
            let _ = parse(role, DEV, &[("SYMPHONY__LOG__LEVEL", &text)], &[&flag]);
            let _ = parse(role, DEV, &[(&format!("SYMPHONY__{flag}"), "1")], &[]);
        }
    }

    #[test]
    fn damaged_files_are_refused_or_dump_to_themselves(at in 0_usize..2000, with in "[a-z0-9\"=\\[\\]\n.]{1,6}") {
        let mut text = PRODUCTION.to_owned();
        let at = (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap();
        text.insert_str(at, &with);
        if let Ok(config) = parse(Role::Up, &text, &[], &[]) {
            prop_assert_eq!(parse(Role::Up, &config.to_toml(), &[], &[]).unwrap(), config);
        }
    }
}
