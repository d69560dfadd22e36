//! Two clusters of real processes under a top-level group, with one frontend for both.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use symphony_config::{
    Address, BackendConfig, ClusterConfig, FederatedClusterConfig, FederationBalanceConfig, FederationConfig,
    FederationReplicaConfig, FrontendConfig, GpuConfig, LogEngine, NodeConfig, ReplicaConfig, SchedulerConfig,
    SecurityConfig,
};
use symphony_net::{Authority, CredentialFiles, Identity, Role};
use symphony_testkit::{Child, ChildSpec, Workspace, free_ports, wait_until};
use symphony_types::NodeId;
use tokio::runtime::Runtime;

use crate::binary::{self, ProgramOutput};
use crate::cluster::Shape;
use crate::load_report::LoadReport;
use crate::node_files;
use crate::rest_client::{RestClient, emulated};

/// The clusters.
pub const CLUSTERS: [&str; 2] = ["east", "west"];
/// The federation.
const FEDERATION: &str = "world";
/// Replicas of the top-level group.
const REPLICAS: u64 = 3;
/// How long a cluster is silent until it is lost: longer than the pauses of a busy machine, shorter than a test's
/// patience.
const UNREACHABLE_MS: u64 = 6_000;
/// How long things may take on a machine that does other things as well.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long a load run may take beyond its own duration.
const LOAD_ENDS_WITHIN: Duration = Duration::from_secs(120);
/// Longer than any test.
const CERTIFICATE_DAYS: u32 = 2;

/// A running federation. Dropping it kills its processes; no other cluster of this program runs meanwhile.
#[derive(Debug)]
pub struct TestFederation {
    /// The test's folder.
    pub workspace: Workspace,
    runtime: Runtime,
    children: BTreeMap<String, Child>,
    not_running: BTreeMap<String, ChildSpec>,
    replicas: Vec<FederationReplicaConfig>,
    /// By cluster, the control addresses of its replicas, as `--cluster` takes them.
    controls: BTreeMap<&'static str, String>,
    frontend: FrontendConfig,
    _alone: MutexGuard<'static, ()>,
}

/// Makes certificates of one authority.
struct Issuer(Authority, String);

impl Issuer {
    fn new(workspace: &Workspace, cluster: &str) -> Result<Self> {
        Ok(Self(Authority::create(&workspace.file(&format!("{cluster}-pki")), cluster)?, cluster.to_owned()))
    }

    fn issue(&self, role: Role, name: &str) -> Result<CredentialFiles> {
        Ok(self.0.issue(&Identity::new(&self.1, role, name)?, CERTIFICATE_DAYS)?.files)
    }

    fn security(&self, role: Role, name: &str) -> Result<SecurityConfig> {
        let CredentialFiles { ca, cert, key } = self.issue(role, name)?;
        Ok(SecurityConfig { ca: Some(ca), cert: Some(cert), key: Some(key), ..SecurityConfig::default() })
    }
}

impl TestFederation {
    /// Starts two clusters of one scheduler and one emulated backend with two GPUs each, three replicas of the
    /// top-level group, and a frontend, and waits until the frontend is ready and both clusters are known.
    ///
    /// # Errors
    /// If a process ends, or that takes too long.
    pub fn start(test: &str) -> Result<Self> {
        Self::start_with(test, [1, 1])
    }

    /// The same with this many schedulers, named `east-scheduler-1` and so on, in each of the [`CLUSTERS`].
    ///
    /// # Errors
    /// If a process ends, or that takes too long.
    pub fn start_with(test: &str, schedulers: [u64; 2]) -> Result<Self> {
        let alone = crate::alone();
        let workspace = Workspace::new(test)?;
        let program = binary::symphony()?;
        let mut ports = free_ports(40)?.into_iter().map(Address::loopback);
        let mut next = || ports.next().context("as many ports as were asked for");
        let base = node_files::base(&Shape::emulated(&[]))?;
        let (Some(scheduler), Some(frontend), Some(backend)) = (&base.scheduler, &base.frontend, &base.backend) else {
            anyhow::bail!("the defaults of `up` hold every section");
        };
        let bare = NodeConfig { scheduler: None, frontend: None, backend: None, federation: None, ..base.clone() };
        let mut not_running = BTreeMap::new();
        let mut add = |name: String, role: &str, config: &NodeConfig| {
            let path = workspace.write(&format!("{name}.toml"), &config.to_toml())?;
            let args = [role.to_owned(), "--config".to_owned(), path.display().to_string()];
            not_running.insert(name.clone(), ChildSpec::new(&name, &program, args, workspace.path()));
            Ok::<_, anyhow::Error>(())
        };
        let (mut seen, mut routed, mut controls) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (name, schedulers) in CLUSTERS.into_iter().zip(schedulers) {
            let issuer = Issuer::new(&workspace, name)?;
            let replica = |id| {
                let (control, dispatch, beat) = (next()?, next()?, next()?);
                Ok::<_, anyhow::Error>(ReplicaConfig { id: NodeId::new(id), control, dispatch, beat })
            };
            let replicas = (1..=schedulers).map(replica).collect::<Result<Vec<_>>>()?;
            let control: Vec<_> = replicas.iter().map(|replica| replica.control.clone()).collect();
            controls.insert(name, control.iter().map(Address::to_string).collect::<Vec<_>>().join(","));
            let cluster = ClusterConfig { name: name.into(), scheduler: replicas.clone(), ..base.cluster.clone() };
            let empty = NodeConfig { cluster, ..bare.clone() };
            for ReplicaConfig { id, .. } in replicas {
                let process = format!("{name}-scheduler-{}", id.get());
                let data_dir = workspace.file(&node_files::data_dir(&process));
                let own = SchedulerConfig { id, data_dir, metrics: next()?, ..scheduler.clone() };
                let security = issuer.security(Role::Scheduler, &id.get().to_string())?;
                add(process, "scheduler", &NodeConfig { scheduler: Some(own), security, ..empty.clone() })?;
            }
            let own = BackendConfig {
                name: "backend".into(),
                subcluster: "emulated".into(),
                exec: next()?,
                metrics: next()?,
                executor: symphony_config::ExecutorKind::Emulated,
                gpus: vec![GpuConfig { kind: "emulated".into(), count: 2, memory_mb: 4096 }],
                ..backend.clone()
            };
            let security = issuer.security(Role::Backend, "backend")?;
            add(format!("{name}-backend"), "backend", &NodeConfig { backend: Some(own), security, ..empty })?;
            issuer.issue(Role::Operator, "admin")?;
            let as_who = |role, who: &str, data: Option<Address>| {
                let CredentialFiles { ca, cert, key } = issuer.issue(role, who)?;
                let (name, control) = (name.to_owned(), control.clone());
                Ok::<_, anyhow::Error>(FederatedClusterConfig {
                    name,
                    control,
                    data,
                    ca: Some(ca),
                    cert: Some(cert),
                    key: Some(key),
                })
            };
            seen.push(as_who(Role::Federation, FEDERATION, None)?);
            routed.push(as_who(Role::Frontend, "frontend", Some(next()?))?);
        }
        let issuer = Issuer::new(&workspace, FEDERATION)?;
        issuer.issue(Role::Operator, "admin")?;
        let cluster = ClusterConfig { name: FEDERATION.into(), scheduler: Vec::new(), ..base.cluster.clone() };
        let empty = NodeConfig { cluster, ..bare };
        let replica = |id| Ok::<_, anyhow::Error>(FederationReplicaConfig { id: NodeId::new(id), control: next()? });
        let replicas = (1..=REPLICAS).map(replica).collect::<Result<Vec<_>>>()?;
        let federation = FederationConfig {
            id: NodeId::default(),
            data_dir: PathBuf::new(),
            log_engine: LogEngine::Sled,
            metrics: Address::loopback(0),
            unreachable_ms: UNREACHABLE_MS,
            balance: FederationBalanceConfig::default(),
            replica: replicas.clone(),
            clusters: routed,
        };
        for replica in &replicas {
            let name = format!("federation-{}", replica.id.get());
            let data_dir = workspace.file(&node_files::data_dir(&name));
            let own = FederationConfig { id: replica.id, data_dir, clusters: seen.clone(), ..federation.clone() };
            let security = issuer.security(Role::Scheduler, &replica.id.get().to_string())?;
            add(name, "federation", &NodeConfig { federation: Some(own), security, ..empty.clone() })?;
        }
        let frontend = FrontendConfig { grpc: next()?, rest: next()?, metrics: next()?, ..frontend.clone() };
        let security = issuer.security(Role::Frontend, "frontend")?;
        let own = NodeConfig { frontend: Some(frontend.clone()), federation: Some(federation), security, ..empty };
        add("frontend".into(), "frontend", &own)?;

        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let children = BTreeMap::new();
        let mut all = Self { workspace, runtime, children, not_running, replicas, controls, frontend, _alone: alone };
        let names: Vec<_> = all.not_running.keys().cloned().collect();
        names.iter().try_for_each(|name| all.restart(name))?;
        wait_until("both clusters to be known", READY_WITHIN, || {
            for name in CLUSTERS {
                let cluster = all.cluster(name)?;
                let gpus = cluster["kinds"][0]["gpus"].as_u64();
                ensure!(cluster["reachable"] == true && gpus == Some(2), "{name}: {cluster}");
            }
            let ready = all.runtime.block_on(async { all.rest().get("/v2/health/ready").await })?;
            ensure!(ready.status == 200, "the frontend is not ready: {ready:?}");
            Ok(())
        })?;
        Ok(all)
    }

    /// Starts a process that does not run.
    ///
    /// # Errors
    /// If it runs, or cannot be started.
    pub fn restart(&mut self, name: &str) -> Result<()> {
        let spec = self.not_running.remove(name).with_context(|| format!("{name} runs already"))?;
        self.children.insert(name.to_owned(), spec.spawn()?);
        Ok(())
    }

    /// `kill -9` of all processes whose names begin so; how many.
    ///
    /// # Errors
    /// If one cannot be killed.
    pub fn kill_all(&mut self, beginning: &str) -> Result<usize> {
        let names: Vec<_> = self.children.keys().filter(|name| name.starts_with(beginning)).cloned().collect();
        for name in &names {
            let Some(mut child) = self.children.remove(name) else { continue };
            child.kill()?;
            self.not_running.insert(name.clone(), child.spec().clone());
        }
        Ok(names.len())
    }

    /// Starts all processes whose names begin so again.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn restart_all(&mut self, beginning: &str) -> Result<()> {
        let names: Vec<_> = self.not_running.keys().filter(|name| name.starts_with(beginning)).cloned().collect();
        names.iter().try_for_each(|name| self.restart(name))
    }

    /// Waits until a process that runs has logged these words.
    ///
    /// # Errors
    /// If there is none of that name, or that takes too long.
    pub fn wait_for_log(&self, name: &str, words: &str) -> Result<()> {
        let child = self.children.get(name).with_context(|| format!("no process {name} runs"))?;
        wait_until(&format!("`{words}` in the log of {name}"), READY_WITHIN, || {
            ensure!(child.log()?.contains(words), "its log ends:\n{}", child.log_tail());
            Ok(())
        })
    }

    /// Waits until a process ends by itself; returns its exit code and the end of its log.
    ///
    /// # Errors
    /// If there is none of that name, or it does not end in time.
    pub fn ends_by_itself(&mut self, name: &str) -> Result<(Option<i32>, String)> {
        let mut child = self.children.remove(name).with_context(|| format!("no process {name} runs"))?;
        let status = child.wait(READY_WITHIN)?;
        self.not_running.insert(name.to_owned(), child.spec().clone());
        Ok((status.code(), child.log_tail()))
    }

    /// The folder of a replica with what must survive it.
    #[must_use]
    pub fn data_dir(&self, name: &str) -> PathBuf {
        self.workspace.file(&node_files::data_dir(name))
    }

    /// Where a replica of the top-level group listens.
    ///
    /// # Panics
    /// If there is none of that name.
    #[must_use]
    pub fn replica_address(&self, name: &str) -> String {
        let replica = self.replicas.iter().find(|replica| name == format!("federation-{}", replica.id.get()));
        replica.unwrap_or_else(|| panic!("no replica {name}")).control.to_string()
    }

    /// Where the federation's replicas are, as `--federation` takes it.
    #[must_use]
    pub fn addresses(&self) -> String {
        let all: Vec<_> = self.replicas.iter().map(|replica| replica.control.to_string()).collect();
        all.join(",")
    }

    /// Runs the program as an operator of the federation.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn cli<S: AsRef<str>>(&self, args: &[S]) -> ProgramOutput {
        let pki = self.workspace.file(&format!("{FEDERATION}-pki")).display().to_string();
        let named = format!("--federation={}", self.addresses());
        let mut all: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        all.push(&named);
        binary::run(self.workspace.path(), &[("SYMPHONY_PKI", pki.as_str())], &all).unwrap()
    }

    /// Runs the program as an operator of one of the clusters.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn cli_of(&self, cluster: &str, args: &[&str]) -> ProgramOutput {
        let pki = self.workspace.file(&format!("{cluster}-pki")).display().to_string();
        let who = [("SYMPHONY_PKI", pki.as_str()), ("SYMPHONY_CLUSTER", self.controls[cluster].as_str())];
        binary::run(self.workspace.path(), &who, args).unwrap()
    }

    /// Loads an emulated model that two noisy cores serve in time, to begin in that cluster.
    ///
    /// # Panics
    /// If it is not served in time.
    pub fn load_model(&self, name: &str, cluster: &str, more: &[&str]) {
        let mut args = vec!["model", "load", name, "--emulated", "--to-cluster", cluster, "--alpha-ms", "1"];
        args.extend(["--beta-ms", "5", "--batch-max", "32", "--slo-ms", "500"]);
        args.extend(more);
        let output = self.cli(&args).ended_with(0);
        assert!(output.out.contains(&format!("in cluster {cluster}")), "{output:?}");
    }

    /// The output of `symphony get clusters -o json`.
    ///
    /// # Errors
    /// If no replica answers.
    pub fn view(&self) -> Result<serde_json::Value> {
        let output = self.cli(&["get", "clusters", "-o", "json"]);
        ensure!(output.code == Some(0), "{output:?}");
        Ok(serde_json::from_str(&output.out)?)
    }

    /// Waits until a replica leads the top-level group; returns it.
    ///
    /// # Panics
    /// If that takes too long.
    #[must_use]
    pub fn leader(&self) -> u64 {
        let look = || self.view()?["leader"].as_u64().context("nobody leads");
        wait_until("a leader of the top-level group", READY_WITHIN, look).unwrap()
    }

    /// A cluster by its name.
    ///
    /// # Errors
    /// If there is none.
    pub fn cluster(&self, name: &str) -> Result<serde_json::Value> {
        find(&self.view()?["clusters"], name)
    }

    /// A model by its name.
    ///
    /// # Errors
    /// If there is none.
    pub fn model(&self, name: &str) -> Result<serde_json::Value> {
        find(&self.view()?["models"], name)
    }

    /// Waits until a model is as `condition` wants it.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_for_model(&self, what: &str, name: &str, condition: impl Fn(&serde_json::Value) -> bool) {
        wait_until(what, READY_WITHIN, || {
            let model = self.model(name)?;
            ensure!(condition(&model), "{model}");
            Ok(())
        })
        .unwrap();
    }

    /// Talks to the frontend's REST port.
    #[must_use]
    pub fn rest(&self) -> RestClient {
        RestClient::new(&self.frontend.rest.to_string())
    }

    /// The frontend's console.
    ///
    /// # Errors
    /// If it does not answer with JSON.
    pub fn console(&self) -> Result<serde_json::Value> {
        let client = RestClient::new(&self.frontend.metrics.to_string());
        let reply = self.runtime.block_on(async { client.get("/api/view").await })?;
        Ok(serde_json::from_str(&reply.body)?)
    }

    /// One request for an emulated model, answered in [any time](RestClient::infer_in_any_time) with the checksum of
    /// its own input.
    ///
    /// # Errors
    /// If it is answered in any other way.
    pub fn one_good_request(&self, model: &str) -> Result<()> {
        self.runtime.block_on(async { self.rest().check_emulated_in_any_time(model, 7.0).await })
    }

    /// Waits until this version answers a request for an emulated model that names none.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_for_version(&self, model: &str, version: &str) {
        wait_until(&format!("version {version} of {model} to answer"), READY_WITHIN, || {
            let reply = self.runtime.block_on(async { self.rest().infer_in_any_time(model, &emulated(7.0)).await })?;
            let body: serde_json::Value = serde_json::from_str(&reply.body)?;
            ensure!(body["model_version"] == version, "{reply:?}");
            Ok(())
        })
        .unwrap();
    }

    /// Waits until a request for an emulated model succeeds.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_until_it_serves(&self, model: &str) {
        let served = || self.runtime.block_on(async { self.rest().check_emulated(model, 7.0).await });
        wait_until(&format!("{model} to be served"), READY_WITHIN, served).unwrap();
    }

    /// Starts `symphony load` over gRPC, until [`Self::end_load`]; models, as in `NAME=RPS`, are looked up in
    /// `cluster`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_load(&self, name: &str, cluster: &str, models: &[&str]) -> Result<Child> {
        let frontend = self.frontend.grpc.to_string();
        let mut args =
            vec!["load", "--protocol", "grpc", "--frontend", &frontend, "--duration-s", LoadReport::UNTIL_ENDED_S];
        args.extend(LoadReport::OPTIONS);
        models.iter().for_each(|model| args.extend(["--model", model]));
        let pki = self.workspace.file(&format!("{cluster}-pki"));
        let control = self.controls.get(cluster).with_context(|| format!("no cluster {cluster}"))?;
        ChildSpec::new(name, binary::symphony()?, args, self.workspace.path())
            .env("SYMPHONY_CLUSTER", control)
            .env("SYMPHONY_PKI", pki.display().to_string())
            .spawn()
    }

    /// Has [`Self::spawn_load`] send no more, and reads its report.
    ///
    /// # Errors
    /// If it does not end in time or wrote no report.
    pub fn end_load(&self, mut load: Child) -> Result<LoadReport> {
        let status = load.stop(LOAD_ENDS_WITHIN)?;
        LoadReport::parse(status.code(), &load.stdout()?, &load.log_tail())
    }

    /// Waits until the frontend has accepted this many more requests.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_for_more(&self, requests: u64) {
        let accepted = || self.console().map(|page| page["ledger"]["counts"]["accepted"].as_u64().unwrap_or(0));
        let before = accepted().unwrap();
        wait_until("load to flow", READY_WITHIN, || {
            let now = accepted()?;
            ensure!(now >= before + requests, "{now} after {before}");
            Ok(())
        })
        .unwrap();
    }

    /// Waits until the frontend's own counts say that every accepted request had exactly one outcome (S3), and no
    /// invariant was seen broken.
    ///
    /// # Panics
    /// If that does not come true.
    pub fn wait_for_a_balanced_ledger(&self) {
        self.balanced_ledger();
    }

    /// Waits for it, and returns it.
    fn balanced_ledger(&self) -> serde_json::Value {
        wait_until("a balanced ledger", READY_WITHIN, || {
            let page = self.console()?;
            let ledger = &page["ledger"];
            let count = |name: &str| ledger["counts"][name].as_u64().unwrap_or(u64::MAX / 8);
            let ended = ["in_time", "late", "dropped", "failed", "cancelled"].map(count).iter().sum::<u64>();
            ensure!(ledger["in_flight"] == 0 && ended == count("accepted"), "{ledger}");
            ensure!(page["invariant_violations"] == 0, "{page}");
            Ok(ledger.clone())
        })
        .unwrap()
    }

    /// The same, and nothing ran twice.
    ///
    /// # Panics
    /// If that does not come true.
    pub fn check_the_ledger(&self) {
        let ledger = self.balanced_ledger();
        assert_eq!(ledger["counts"]["discarded"], 0, "a request was executed twice: {ledger}");
    }
}

fn find(list: &serde_json::Value, name: &str) -> Result<serde_json::Value> {
    let all = list.as_array().context("a list")?;
    all.iter().find(|entry| entry["name"] == name).cloned().with_context(|| format!("no {name} in {list}"))
}
