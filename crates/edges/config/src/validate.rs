//! Finds values that are valid by themselves and contradict each other. All problems are reported at once.

use std::collections::BTreeSet;
use std::str::FromStr as _;

use symphony_types::{is_name, looks_like_an_id};

use crate::{
    Address, AutoscalingConfig, BackendConfig, DeviceKind, ExecutorKind, FederationConfig, FramesConfig,
    FrontendConfig, LearningConfig, NodeConfig, PayloadTransportKind, PayloadsConfig, Problem, RepositoryConfig, Role,
    SchedulerConfig, TelemetryConfig,
};

/// The largest accepted values; each bounds a queue, a table or a wait of the configured process.
pub mod limits {
    /// Sizes of a Raft group that survive half of it but one; more than 7 only makes commits slower.
    pub const REPLICAS: [usize; 4] = [1, 3, 5, 7];
    /// Decision threads that all leads share: more than any machine has cores for.
    pub const DECISION_THREADS_MAX: u32 = 256;
    /// Model threads: the same.
    pub const MODEL_THREADS_MAX: u32 = 256;
    /// One tape, in MB: what `symphony replay` reads.
    pub const TAPE_MB_MAX: u64 = 1024;
    /// Any one delay, in microseconds: a second is beyond every SLO that batches are deferred for.
    pub const DELAY_US_MAX: u64 = 1_000_000;
    /// GPUs of one kind that a sub-cluster may be advised to have: what one rank thread may hold.
    pub const SCALED_GPUS_MAX: u32 = symphony_controllers::SCALED_GPUS_MAX;
    /// Largest reserve of idle GPUs, in per cent: more is another half of a cluster.
    pub const RESERVE_PERCENT_MAX: u32 = 50;
    /// How long GPUs on order count, in seconds: an hour.
    pub const SCALING_S_MAX: u64 = 3600;
    /// Largest share of GPUs that are set aside, in per cent: that of the simulator.
    pub const QUARANTINED_PERCENT_MAX: u32 = symphony_workload::QUARANTINED_PERCENT_MAX;
    /// The first pause of a GPU that is set aside, in seconds: later ones are no longer.
    pub const QUARANTINE_S_MAX: u64 = symphony_controllers::QUARANTINE_MAX.get() / 1_000_000_000;
    /// Faster than this, most windows would be shorter than the second between load reports.
    pub const LOOP_SPEEDUP_MAX: u32 = 20;
    /// Bytes of one request: 63 MiB, what a frame can carry to a backend (`PAYLOAD_BYTES_MAX` of the protocol).
    pub const REQUEST_BYTES_MAX: u64 = 63 << 20;
    /// Requests in flight at one frontend.
    pub const REQUESTS_IN_FLIGHT_MAX: u32 = 1 << 20;
    /// As many connections as an address of this host has ports.
    pub const CONNECTIONS_MAX: u64 = 1 << 16;
    /// Grace after a deadline, in milliseconds.
    pub const ANSWER_GRACE_MS_MAX: u64 = 60_000;
    /// GPUs of one backend, over all kinds.
    pub const GPUS_MAX: u32 = 64;
    /// Memory of one GPU in MB: 4 TiB.
    pub const GPU_MEMORY_MB_MAX: u64 = 4 << 20;
    /// Largest noise of emulated GPUs: that of the simulator, which uses the same law.
    pub const NOISE_MAX: f64 = symphony_workload::LOGNORMAL_SIGMA_MAX;
    /// Threads of one batch.
    pub const INTRA_OP_THREADS_MAX: u32 = 256;
    /// One journal of a backend, in MB: what a checker reads.
    pub const JOURNAL_MB_MAX: u64 = 4096;
    /// Shared memory of one process, or of one pair for results, in MB: 64 GiB.
    pub const POOL_MB_MAX: u64 = 64 << 10;
    /// How long a reader of frames may look before it sleeps, in microseconds: longer than the pauses of a busy link by
    /// far.
    pub const FRAMES_SPIN_US_MAX: u64 = 10_000;
    /// Pictures that are decoded at once: more than any machine has cores for.
    pub const IMAGE_THREADS_MAX: u64 = 1024;
    /// Pictures that wait to be decoded: as many as requests may be in flight in all.
    pub const IMAGES_WAITING_MAX: u64 = 1 << 20;
    /// Pixels of one picture: 16 384 along each side.
    pub const IMAGE_PIXELS_MAX: u64 = 1 << 28;
    /// Tensors that pictures have become, in MB: 1 TiB.
    pub const IMAGES_DECODED_MB_MAX: u64 = 1 << 20;
    /// Clusters of a federation.
    pub const CLUSTERS_MAX: usize = 64;
    /// Control addresses of one cluster.
    pub const CONTROLS_MAX: usize = 64;
    /// Shortest and longest time until a silent cluster counts as lost, in milliseconds.
    pub const UNREACHABLE_MS: [u64; 2] = [500, 3_600_000];
    /// Addresses that are dialled elsewhere.
    pub const ROUTES_MAX: usize = 1024;
    /// Origins that browsers may call from.
    pub const CORS_ORIGINS_MAX: usize = 64;
    /// Bytes of a log filter.
    pub const LOG_LEVEL_BYTES_MAX: usize = 1024;
}

/// Everything about `config` that cannot work for `role`.
pub(crate) fn problems(config: &NodeConfig, role: Role) -> Vec<Problem> {
    let mut check = Check { problems: Vec::new() };
    check.sections(config, role);
    check.cluster(config, role);
    if let Some(scheduler) = &config.scheduler {
        check.scheduler(config, scheduler);
    }
    if let Some(frontend) = &config.frontend {
        check.frontend(frontend);
        check.door(config, frontend);
        check.repository(config, &frontend.repository, role);
    }
    if let Some(backend) = &config.backend {
        check.backend(backend);
    }
    if let Some(federation) = &config.federation {
        check.federation(config, federation, role);
    }
    check.network(config);
    check.frames(&config.frames);
    check.log(config);
    check.telemetry(&config.telemetry);
    check.ports(config);
    check.reach(config);
    check.security(config, role);
    check.rdma(config);
    check.problems
}

/// An address, its key, and its user.
struct Spoken<'a> {
    key: String,
    address: &'a Address,
    /// Other nodes dial it, so it must mean the same everywhere.
    dialled: bool,
}

/// Every address the configuration speaks of.
fn addresses(config: &NodeConfig) -> Vec<Spoken<'_>> {
    let mut all = Vec::new();
    for (index, replica) in config.cluster.scheduler.iter().enumerate() {
        for (name, address) in replica.addresses() {
            all.push(Spoken { key: format!("cluster.scheduler.{index}.{name}"), address, dialled: true });
        }
    }
    let mut own = |key: &str, address, dialled| all.push(Spoken { key: key.to_owned(), address, dialled });
    if let Some(scheduler) = &config.scheduler {
        own("scheduler.metrics", &scheduler.metrics, false);
    }
    if let Some(frontend) = &config.frontend {
        own("frontend.grpc", &frontend.grpc, false);
        own("frontend.rest", &frontend.rest, false);
        own("frontend.metrics", &frontend.metrics, false);
        if config.federation.is_none() {
            own("frontend.data", &frontend.data, true);
        }
    }
    if let Some(backend) = &config.backend {
        own("backend.exec", &backend.exec, true);
        own("backend.metrics", &backend.metrics, false);
    }
    if let Some(federation) = &config.federation {
        if config.frontend.is_none() {
            own("federation.metrics", &federation.metrics, false);
        }
        for (index, replica) in federation.replica.iter().enumerate() {
            let key = format!("federation.replica.{index}.control");
            all.push(Spoken { key, address: &replica.control, dialled: true });
        }
        for (index, cluster) in federation.clusters.iter().enumerate() {
            let key = |name: &str| format!("federation.clusters.{index}.{name}");
            let control = cluster.control.iter().map(|address| Spoken { key: key("control"), address, dialled: true });
            let data = cluster.data.iter().map(|address| Spoken { key: key("data"), address, dialled: true });
            all.extend(control.chain(data));
        }
    }
    all
}

struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn say(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(key, message));
    }

    fn name(&mut self, key: impl Into<String>, name: &str) {
        if !is_name(name) {
            let max = symphony_types::NAME_BYTES_MAX;
            self.say(key, format!("`{name}` is not a name; expected 1 to {max} of a–z, 0–9 and -, no leading -"));
        }
    }

    /// The name of a process, by which commands find it, as they do by its id.
    fn process_name(&mut self, key: &str, name: &str) {
        self.name(key, name);
        if looks_like_an_id(name) {
            let words = format!(
                "`{name}` looks like the id of a process, which commands would take it for; expected a name that is not one of n, b, f \
                 and a number"
            );
            self.say(key, words);
        }
    }

    fn range(&mut self, key: impl Into<String>, value: u64, min: u64, max: u64) {
        if !(min..=max).contains(&value) {
            self.say(key, format!("{value} is out of range; expected {min} to {max}"));
        }
    }

    fn sections(&mut self, config: &NodeConfig, role: Role) {
        let present = [
            ("scheduler", config.scheduler.is_some()),
            ("frontend", config.frontend.is_some()),
            ("backend", config.backend.is_some()),
            ("federation", config.federation.is_some()),
        ];
        for (section, there) in present {
            if !there && role.sections().contains(&section) {
                self.say(section, format!("the section is missing; `symphony {role}` needs it"));
            }
        }
    }

    fn cluster(&mut self, config: &NodeConfig, role: Role) {
        let cluster = &config.cluster;
        self.name("cluster.name", &cluster.name);
        if config.federation.is_some()
            && config.frontend.as_ref().is_some_and(|f| f.payloads.must_share() || f.payloads.must_use_rdma())
        {
            let why = "a frontend of a federation shares no memory, so that requests can go to another cluster";
            self.say("frontend.payloads.required", format!("{why}; leave it out"));
        }
        if config.federation.is_some() {
            if !cluster.scheduler.is_empty() {
                let advice = "give them as the control of one of federation.clusters";
                self.say("cluster.scheduler", format!("a node of a federation belongs to no single cluster; {advice}"));
            }
            return;
        }
        let replicas = cluster.scheduler.len();
        let is_even = replicas.is_multiple_of(2) && replicas < 8;
        // Between two odd numbers there is an even one; and a joining replica founds nothing.
        let is_passed = is_even && config.scheduler.as_ref().is_some_and(|scheduler| scheduler.join);
        if replicas == 0 {
            self.say(
                "cluster.scheduler",
                format!("no scheduler replica is given, so a {role} has nobody to talk to; add [[cluster.scheduler]]"),
            );
        } else if !limits::REPLICAS.contains(&replicas) && !is_passed {
            let advice = if is_even {
                format!("{replicas} replicas survive no more failures than {}", replicas - 1)
            } else {
                "more replicas only make every commit slower".to_owned()
            };
            self.say("cluster.scheduler", format!("{replicas} replicas; expected 1, 3, 5 or 7: {advice}"));
        }
        let mut seen = BTreeSet::new();
        for (index, replica) in cluster.scheduler.iter().enumerate() {
            let key = format!("cluster.scheduler.{index}.id");
            if replica.id.get() == 0 {
                self.say(key, "0 is no id; expected a number from 1 that no other replica ever had");
            } else if !seen.insert(replica.id) {
                self.say(key, format!("{} is given to two replicas; ids are unique", replica.id.get()));
            }
        }
    }

    fn scheduler(&mut self, config: &NodeConfig, scheduler: &SchedulerConfig) {
        let ids = || {
            let ids: Vec<_> = config.cluster.scheduler.iter().map(|r| r.id.get().to_string()).collect();
            if ids.is_empty() { "none".to_owned() } else { ids.join(", ") }
        };
        if config.cluster.replica(scheduler.id).is_none() {
            let id = scheduler.id.get();
            self.say("scheduler.id", format!("{id} is not among the ids of cluster.scheduler ({})", ids()));
        }
        if scheduler.data_dir.as_os_str().is_empty() {
            self.say(
                "scheduler.data_dir",
                "no directory is given; name one that survives restarts: a replica must not forget its votes",
            );
        }
        let threads = u64::from(scheduler.decision_threads);
        self.range("scheduler.decision_threads", threads, 0, limits::DECISION_THREADS_MAX.into());
        let threads = u64::from(scheduler.model_threads);
        self.range("scheduler.model_threads", threads, 0, limits::MODEL_THREADS_MAX.into());
        self.range("scheduler.tape_mb_max", scheduler.tape_mb_max, 1, limits::TAPE_MB_MAX);
        self.range("scheduler.loop_speedup", scheduler.loop_speedup.into(), 1, limits::LOOP_SPEEDUP_MAX.into());
        if let Some(dir) = scheduler.tape_dir.as_ref().filter(|dir| **dir == scheduler.data_dir) {
            let dir = dir.display();
            self.say(
                "scheduler.tape_dir",
                format!("`{dir}` is scheduler.data_dir; give tapes a directory, and better a disk, of their own"),
            );
        }
        for (name, delay_us) in scheduler.delays.each() {
            self.range(format!("scheduler.delays.{name}"), delay_us, 0, limits::DELAY_US_MAX);
        }
        let (min, max) = (scheduler.delays.data_us_min, scheduler.delays.data_us_max);
        if min > max {
            self.say("scheduler.delays.data_us_min", format!("{min} is more than scheduler.delays.data_us_max, {max}"));
        }
        self.autoscaling(&scheduler.autoscaling);
        self.learning(&scheduler.learning);
    }

    fn learning(&mut self, learning: &LearningConfig) {
        let key = |name: &str| format!("scheduler.learning.{name}");
        let percent = u64::from(learning.quarantined_percent_max);
        self.range(key("quarantined_percent_max"), percent, 0, limits::QUARANTINED_PERCENT_MAX.into());
        self.range(key("quarantine_s"), learning.quarantine_s, 1, limits::QUARANTINE_S_MAX);
    }

    fn autoscaling(&mut self, scaling: &AutoscalingConfig) {
        let key = |name: &str| format!("scheduler.autoscaling.{name}");
        self.range(key("gpus_max"), scaling.gpus_max.into(), 1, limits::SCALED_GPUS_MAX.into());
        self.range(key("gpus_min"), scaling.gpus_min.into(), 0, scaling.gpus_max.into());
        self.range(key("reserve_percent"), scaling.reserve_percent.into(), 0, limits::RESERVE_PERCENT_MAX.into());
        self.range(key("order_stands_s"), scaling.order_stands_s, 0, limits::SCALING_S_MAX);
    }

    fn frontend(&mut self, frontend: &FrontendConfig) {
        self.process_name("frontend.name", &frontend.name);
        self.range("frontend.request_bytes_max", frontend.request_bytes_max, 1, limits::REQUEST_BYTES_MAX);
        let in_flight = u64::from(frontend.requests_in_flight_max);
        self.range("frontend.requests_in_flight_max", in_flight, 2, limits::REQUESTS_IN_FLIGHT_MAX.into());
        for (key, connections) in [
            ("frontend.connections_max", frontend.connections_max),
            ("frontend.connections_per_address_max", frontend.connections_per_address_max),
        ] {
            self.range(key, connections.into(), 1, limits::CONNECTIONS_MAX);
        }
        self.range("frontend.answer_grace_ms", frontend.answer_grace_ms, 0, limits::ANSWER_GRACE_MS_MAX);
        self.payloads("frontend.payloads", &frontend.payloads);
        let images = &frontend.images;
        self.range("frontend.images.threads", images.threads.into(), 0, limits::IMAGE_THREADS_MAX);
        self.range("frontend.images.waiting_max", images.waiting_max.into(), 1, limits::IMAGES_WAITING_MAX);
        self.range("frontend.images.pixels_max", images.pixels_max, 1, limits::IMAGE_PIXELS_MAX);
        let key = "frontend.images.decoded_mb_max";
        self.range(key, images.decoded_mb_max, 1, limits::IMAGES_DECODED_MB_MAX);
        if images.decoded_bytes_max() < frontend.request_bytes_max {
            let (mb, bytes) = (images.decoded_mb_max, frontend.request_bytes_max);
            self.say(key, format!("{mb} MB are less than one request may have; frontend.request_bytes_max is {bytes}"));
        }
    }

    /// Who may call the public ports. That everybody may has to be said.
    fn door(&mut self, config: &NodeConfig, frontend: &FrontendConfig) {
        let tls = &frontend.tls;
        match (&tls.cert, &tls.key) {
            (Some(_), None) => self.say("frontend.tls.key", "must be given with frontend.tls.cert"),
            (None, Some(_)) => self.say("frontend.tls.cert", "must be given with frontend.tls.key"),
            (None, None) if tls.client_ca.is_some() => {
                self.say(
                    "frontend.tls.client_ca",
                    "clients show certificates over TLS only; give frontend.tls.cert and key",
                );
            }
            _ => {}
        }
        if tls.client_ca.is_some() && frontend.tenants.is_none() {
            self.say(
                "frontend.tls.client_ca",
                "frontend.tenants says whose certificates are whose; give it, or leave this out",
            );
        }
        if frontend.metrics_need_key && frontend.tenants.is_none() {
            self.say(
                "frontend.metrics_need_key",
                "there are no keys without frontend.tenants; give it, or leave this out",
            );
        }
        if frontend.tenants.is_some() && frontend.repository.token_file.is_some() {
            self.say(
                "frontend.repository.token_file",
                "with frontend.tenants, keys with the right \"repository\" load and unload models; leave it out",
            );
        }
        let origins = &frontend.cors_origins;
        if origins.len() > limits::CORS_ORIGINS_MAX {
            let (got, max) = (origins.len(), limits::CORS_ORIGINS_MAX);
            self.say("frontend.cors_origins", format!("{got} origins; expected at most {max}"));
        }
        for (index, origin) in origins.iter().enumerate().filter(|(_, origin)| !is_origin(origin)) {
            let expected = "expected scheme://host or scheme://host:port as browsers write it, in lower case and without the \
                            scheme's own port: https://console.example";
            self.say(format!("frontend.cors_origins.{index}"), format!("`{origin}` is no origin; {expected}"));
        }
        // Plaintext between processes has a rule of its own, `reach`, which allows loopback only.
        if frontend.tenants.is_some() || config.security.insecure_public || config.security.insecure_dev {
            return;
        }
        for (key, address) in frontend.public_ports() {
            if !address.is_loopback() {
                self.say(
                    key,
                    format!(
                        "{address} is not a loopback address, and without frontend.tenants it serves everybody; give the file of \
                         tenants (`symphony keys make`), use loopback, or say security.insecure_public (--insecure-public)"
                    ),
                );
            }
        }
    }

    fn repository(&mut self, config: &NodeConfig, repository: &RepositoryConfig, role: Role) {
        let dir = "frontend.repository.dir";
        if repository.dir.is_some() && config.federation.is_some() {
            self.say(
                dir,
                "a frontend of a federation loads no models; leave it out, and load them with `symphony model load NAME --onnx FILE \
                 --profile FILE --federation HOST:PORT,…`",
            );
        }
        if repository.dir.is_none() {
            for (key, file) in repository.files() {
                if let Some(file) = file {
                    self.say(key, format!("`{}` is set, but {dir} is not; set both or none", file.display()));
                }
            }
            return;
        }
        let secured = repository.token_file.is_some() && !config.security.insecure_dev && role != Role::Up;
        for (key, file) in &repository.files()[1..] {
            match file {
                None if secured => self.say(
                    *key,
                    "must be given with frontend.repository.token_file: an operator's (`symphony certs issue --role operator`)",
                ),
                Some(file) if config.security.insecure_dev => {
                    let file = file.display();
                    self.say(*key, format!("{file} with security.insecure_dev, which uses none; drop one of the two"));
                }
                Some(_) if role == Role::Up => self.say(*key, "`up` makes certificates by itself; leave it out"),
                _ => {}
            }
        }
    }

    fn payloads(&mut self, section: &str, payloads: &PayloadsConfig) {
        self.range(format!("{section}.pool_mb"), payloads.pool_mb, 1, limits::POOL_MB_MAX);
        if !payloads.rdma_device.is_empty() && !payloads.wants_rdma() {
            let device = &payloads.rdma_device;
            self.say(format!("{section}.rdma_device"), format!("`{device}` is only used with transport = \"rdma\""));
        }
        if payloads.required && payloads.transport == PayloadTransportKind::Auto {
            self.say(
                format!("{section}.required"),
                "with transport = \"auto\" everything is allowed; name the transport that is required",
            );
        }
    }

    fn backend(&mut self, backend: &BackendConfig) {
        self.process_name("backend.name", &backend.name);
        self.name("backend.subcluster", &backend.subcluster);
        let threads = u64::from(backend.intra_op_threads);
        self.range("backend.intra_op_threads", threads, 1, limits::INTRA_OP_THREADS_MAX.into());
        self.range("backend.journal_mb_max", backend.journal_mb_max, 1, limits::JOURNAL_MB_MAX);
        self.payloads("backend.payloads", &backend.payloads);
        self.backend_gpus(backend);
        self.backend_device(backend);
    }

    fn backend_gpus(&mut self, backend: &BackendConfig) {
        if backend.gpus.is_empty() {
            self.say("backend.gpus", "no GPU is given; add { kind = \"cpu\", count = 1, memory_mb = 1024 } or such");
        }
        let mut kinds = BTreeSet::new();
        for (index, gpu) in backend.gpus.iter().enumerate() {
            let key = |name: &str| format!("backend.gpus.{index}.{name}");
            self.name(key("kind"), &gpu.kind);
            self.range(key("count"), gpu.count.into(), 1, limits::GPUS_MAX.into());
            self.range(key("memory_mb"), gpu.memory_mb, 1, limits::GPU_MEMORY_MB_MAX);
            if !kinds.insert(&gpu.kind) {
                self.say(key("kind"), format!("`{}` is given twice; add the counts up", gpu.kind));
            }
            let is_cpu = gpu.kind == "cpu" || gpu.kind.starts_with("cpu-");
            let on_cuda = backend.executor == ExecutorKind::CudaGemm || backend.device == DeviceKind::Cuda;
            if backend.executor == ExecutorKind::OrtCpu && !on_cuda && !is_cpu {
                let kind = &gpu.kind;
                self.say(
                    key("kind"),
                    format!(
                        "executor ort-cpu runs on the CPU, which is not a `{kind}`; expected `cpu` or `cpu-…`, or device = \"cuda\""
                    ),
                );
            }
            if on_cuda && is_cpu {
                let kind = &gpu.kind;
                self.say(key("kind"), format!("a CUDA device is no `{kind}`; expected its own kind, such as `h100`"));
            }
        }
        let count: u64 = backend.gpus.iter().map(|g| u64::from(g.count)).sum();
        if count > limits::GPUS_MAX.into() && backend.gpus.len() > 1 {
            self.say("backend.gpus", format!("{count} GPUs; one backend has at most {}", limits::GPUS_MAX));
        }
    }

    /// What does not go with the device or the executor.
    fn backend_device(&mut self, backend: &BackendConfig) {
        if backend.device_required && backend.device == DeviceKind::Auto {
            self.say(
                "backend.device_required",
                "with device = \"auto\" everything is allowed; name the device that is required",
            );
        }
        if backend.executor == ExecutorKind::Emulated && backend.device != DeviceKind::Auto {
            self.say("backend.device", "executor = \"emulated\" has no device; leave it out");
        }
        if backend.executor == ExecutorKind::CudaGemm && backend.device == DeviceKind::Cpu {
            self.say("backend.device", "executor = \"cuda-gemm\" runs on CUDA devices only; leave it out");
        }
        // NaN is in no range.
        if !(0.0..=limits::NOISE_MAX).contains(&backend.noise) {
            self.say(
                "backend.noise",
                format!("{} is out of range; expected 0 to {}", backend.noise, limits::NOISE_MAX),
            );
        }
        match (backend.executor, &backend.onnxruntime) {
            (ExecutorKind::Emulated, Some(path)) => self.say(
                "backend.onnxruntime",
                format!("`{}` is set but executor = \"emulated\" never loads it; remove one of them", path.display()),
            ),
            (ExecutorKind::CudaGemm, Some(path)) => self.say(
                "backend.onnxruntime",
                format!("`{}` is set but executor = \"cuda-gemm\" never loads it; remove one of them", path.display()),
            ),
            (ExecutorKind::OrtCpu | ExecutorKind::CudaGemm, _) if backend.pace_file.is_some() => {
                self.say("backend.pace_file", "only executor = \"emulated\" reads it; remove one of them");
            }
            (ExecutorKind::OrtCpu | ExecutorKind::CudaGemm, _) if backend.noise != 0.0 => {
                self.say("backend.noise", "only executor = \"emulated\" heeds it; remove one of them");
            }
            (ExecutorKind::OrtCpu | ExecutorKind::CudaGemm, _) if backend.emulated_load_mb_per_s > 0 => {
                self.say("backend.emulated_load_mb_per_s", "only executor = \"emulated\" heeds it; remove one of them");
            }
            (ExecutorKind::OrtCpu, _) if backend.model_dir.as_os_str().is_empty() => {
                self.say("backend.model_dir", "no directory is given, but executor = \"ort-cpu\" loads models from it");
            }
            _ => {}
        }
    }

    fn federation(&mut self, config: &NodeConfig, federation: &FederationConfig, role: Role) {
        if !matches!(role, Role::Federation | Role::Frontend) {
            let who = "only `symphony federation` and frontends have this section";
            self.say("federation", format!("a {role} belongs to one cluster; {who}"));
            return;
        }
        let replicas = federation.replica.len();
        if !limits::REPLICAS.contains(&replicas) {
            self.say("federation.replica", format!("{replicas} replicas; expected 1, 3, 5 or 7"));
        }
        let mut ids = BTreeSet::new();
        for (index, replica) in federation.replica.iter().enumerate() {
            if replica.id.get() == 0 || !ids.insert(replica.id) {
                let got = replica.id.get();
                self.say(
                    format!("federation.replica.{index}.id"),
                    format!("{got}; expected a number from 1, each once"),
                );
            }
        }
        if role == Role::Federation {
            if federation.replica(federation.id).is_none() {
                let id = federation.id.get();
                self.say("federation.id", format!("{id} is not among the ids of federation.replica"));
            }
            if federation.data_dir.as_os_str().is_empty() {
                self.say("federation.data_dir", "no directory is given; name one that survives restarts");
            }
            let [min, max] = limits::UNREACHABLE_MS;
            self.range("federation.unreachable_ms", federation.unreachable_ms, min, max);
        }
        self.federated_clusters(config, federation, role);
    }

    fn federated_clusters(&mut self, config: &NodeConfig, federation: &FederationConfig, role: Role) {
        let clusters = &federation.clusters;
        if clusters.is_empty() || clusters.len() > limits::CLUSTERS_MAX {
            let (got, max) = (clusters.len(), limits::CLUSTERS_MAX);
            self.say("federation.clusters", format!("{got} clusters; expected 1 to {max}"));
        }
        let mut names = BTreeSet::new();
        for (index, cluster) in clusters.iter().enumerate() {
            let key = |name: &str| format!("federation.clusters.{index}.{name}");
            self.name(key("name"), &cluster.name);
            if !names.insert(&cluster.name) {
                self.say(key("name"), format!("`{}` is given twice; names are unique", cluster.name));
            }
            if cluster.control.is_empty() || cluster.control.len() > limits::CONTROLS_MAX {
                let (got, max) = (cluster.control.len(), limits::CONTROLS_MAX);
                self.say(key("control"), format!("{got} addresses; expected 1 to {max}"));
            }
            match (&cluster.data, role) {
                (None, Role::Frontend) => self.say(
                    key("data"),
                    "must be given: where the cluster's backends reach this frontend, a port of its own per cluster",
                ),
                (Some(data), Role::Federation) => {
                    self.say(key("data"), format!("{data}: only frontends serve backends; leave it out"));
                }
                _ => {}
            }
            for (name, file) in [("ca", &cluster.ca), ("cert", &cluster.cert), ("key", &cluster.key)] {
                match (file, config.security.insecure_dev) {
                    (None, false) => self.say(key(name), "must be given: every cluster has an authority of its own"),
                    (Some(file), true) => {
                        let file = file.display();
                        self.say(key(name), format!("{file} with security.insecure_dev, which uses none"));
                    }
                    _ => {}
                }
            }
        }
    }

    fn network(&mut self, config: &NodeConfig) {
        let routes = &config.network.routes;
        if routes.len() > limits::ROUTES_MAX {
            self.say("network.routes", format!("{} routes; expected at most {}", routes.len(), limits::ROUTES_MAX));
        }
        let mut known = BTreeSet::new();
        for (index, route) in routes.iter().enumerate() {
            let key = format!("network.routes.{index}");
            if !known.insert(&route.to) {
                self.say(format!("{key}.to"), format!("{} is routed twice; keep one of them", route.to));
            }
            if route.via.port() == 0 || route.via.is_wildcard() {
                self.say(format!("{key}.via"), format!("{} cannot be dialled; give a host and a port", route.via));
            }
        }
    }

    fn frames(&mut self, frames: &FramesConfig) {
        self.range("frames.spin_us", frames.spin_us.into(), 0, limits::FRAMES_SPIN_US_MAX);
        if frames.required && !frames.expects_other_than_tcp() {
            self.say(
                "frames.required",
                "only another way than TCP can be required; say transport = \"shared-memory\" or \"rdma\", or leave it out",
            );
        }
        if !frames.rdma_device.is_empty() && !frames.wants_rdma() {
            let device = &frames.rdma_device;
            self.say("frames.rdma_device", format!("`{device}` is only used with transport = \"rdma\""));
        }
        if frames.spin_us > 0 && !frames.shares() {
            self.say("frames.spin_us", "nobody reads shared memory with transport = \"tcp\"; leave it out");
        }
    }

    fn log(&mut self, config: &NodeConfig) {
        let bytes = config.log.level.len();
        if bytes == 0 || bytes > limits::LOG_LEVEL_BYTES_MAX {
            let max = limits::LOG_LEVEL_BYTES_MAX;
            self.say("log.level", format!("a filter of {bytes} bytes; expected 1 to {max}, such as info"));
        }
    }

    fn telemetry(&mut self, telemetry: &TelemetryConfig) {
        let TelemetryConfig { otlp_endpoint, sample_ratio } = telemetry;
        if let Some(collector) = telemetry.collector() {
            let address = collector.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
            if !address.is_some_and(|address| Address::from_str(address).is_ok_and(|address| address.port() != 0)) {
                self.say(
                    "telemetry.otlp_endpoint",
                    format!("`{otlp_endpoint}`; expected http://host:port of a collector that speaks OTLP over gRPC"),
                );
            }
        }
        if !(0.0..=1.0).contains(sample_ratio) {
            self.say("telemetry.sample_ratio", format!("{sample_ratio}; expected 0 to 1, such as 0.01"));
        }
    }

    fn ports(&mut self, config: &NodeConfig) {
        let all = addresses(config);
        for (index, one) in all.iter().enumerate() {
            let port = one.address.port();
            if port == 0 {
                if one.dialled && (one.key.starts_with("cluster.") || one.key.starts_with("federation.")) {
                    self.say(&one.key, "port 0 is chosen at start, so nobody could dial it; give a fixed port");
                }
                continue;
            }
            // A wildcard takes the port on every address of this machine, but replicas may live on others.
            let same_host = |other: &Spoken<'_>| {
                let elsewhere = ["cluster.", "federation.replica.", "federation.clusters."];
                let local = |s: &Spoken<'_>| !elsewhere.iter().any(|section| s.key.starts_with(section));
                one.address.host() == other.address.host()
                    || (one.address.is_loopback() && other.address.is_loopback())
                    || (local(one) && local(other) && (one.address.is_wildcard() || other.address.is_wildcard()))
            };
            for other in all[..index].iter().filter(|o| o.address.port() == port) {
                if same_host(other) {
                    self.say(&one.key, format!("{} is taken by {} = {}", one.address, other.key, other.address));
                }
            }
        }
    }

    fn reach(&mut self, config: &NodeConfig) {
        for Spoken { key, address, dialled } in addresses(config) {
            if dialled && address.is_wildcard() {
                let advice = "give the address by which other nodes reach this one";
                self.say(&key, format!("{address} means every address of a machine and cannot be dialled; {advice}"));
            }
            if !address.is_loopback() && config.security.insecure_dev {
                self.say(
                    &key,
                    format!(
                        "{address} is not a loopback address, and with security.insecure_dev whoever reaches it \
                         commands the cluster; use loopback, or certificates (`symphony certs`)"
                    ),
                );
            }
        }
    }

    /// Memory keys are sent only over links with mutual authentication.
    fn rdma(&mut self, config: &NodeConfig) {
        let frontend = config.frontend.as_ref().map(|frontend| ("frontend", &frontend.payloads));
        let backend = config.backend.as_ref().map(|backend| ("backend", &backend.payloads));
        for (section, payloads) in frontend.into_iter().chain(backend) {
            if config.security.insecure_dev && payloads.must_use_rdma() {
                let why = "keys to memory are handed out over mutual TLS only, and security.insecure_dev has none";
                self.say(format!("{section}.payloads.transport"), format!("\"rdma\" is required, but {why}"));
            }
        }
    }

    fn security(&mut self, config: &NodeConfig, role: Role) {
        let security = &config.security;
        for (key, file) in security.files() {
            match (file, security.insecure_dev) {
                (Some(file), true) => self.say(
                    key,
                    format!("{} with security.insecure_dev, which uses none; drop one of the two", file.display()),
                ),
                // `up` makes certificates for its processes by itself.
                (None, false) if role != Role::Up => {
                    self.say(
                        key,
                        "must be given; make certificates with `symphony certs`, or set security.insecure_dev",
                    );
                }
                (Some(_), false) if role == Role::Up => {
                    self.say(key, "`up` makes certificates by itself; leave it out");
                }
                _ => {}
            }
        }
    }
}

/// Whether a text is the origin of a page, as browsers write it: another spelling would never be that of a page.
fn is_origin(text: &str) -> bool {
    let Some((scheme, place)) = text.split_once("://") else { return false };
    let own_port: u16 = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return false,
    };
    let (host, port) = match place.rsplit_once(':') {
        // Not a colon of an IPv6 address.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let is_port =
        |text: &str| text.parse().is_ok_and(|port: u16| port != 0 && port != own_port && port.to_string() == text);
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => host.parse().is_ok_and(|address: std::net::Ipv6Addr| address.to_string() == host),
        None => {
            let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
            !host.is_empty() && host.bytes().all(allowed)
        }
    };
    is_host && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_spelled_as_browsers_spell_it() {
        for origin in [
            "https://a.example",
            "http://a.example:8080",
            "http://localhost:8080",
            "https://10.0.0.1:8443",
            "https://[::1]",
            "http://[fe80::1]:8080",
        ] {
            assert!(is_origin(origin), "{origin}");
        }
        for other in [
            "a.example",
            "ftp://a.example",
            "https://",
            "https://A.Example",
            "HTTPS://a.example",
            "https://a.example/",
            "https://a.example:443",
            "http://a.example:80",
            "https://a.example:",
            "https://a.example:08443",
            "https://a.example:65536",
            "https://a:b:c[",
            "https://[::1",
            "https://[0:0:0:0:0:0:0:1]",
            "https://::1",
            "https://ann@a.example",
            "null",
            "*",
        ] {
            assert!(!is_origin(other), "{other}");
        }
    }
}
