//! A cluster of real processes on this machine.

mod lifecycle;
mod loads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use symphony_config::{Address, ExecutorKind};
use symphony_net::{CredentialFiles, Credentials, Net};
use symphony_protocol::view::{SubclusterView, View};
use symphony_testkit::{Child, ChildSpec, Workspace, wait_until};
use symphony_transport::ControlClient;
use tokio::runtime::Runtime;

use crate::binary::{self, ProgramOutput};
use crate::node_files::{self, NodeFile};
use crate::rest_client::RestClient;

/// How long a cluster may take to come up or to come round, on a machine that does other things as well.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long one look at the cluster may take: replicas may be electing.
const VIEW_WITHIN: Duration = Duration::from_secs(20);

/// What a cluster consists of.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Scheduler replicas, named `scheduler-1` and so on.
    pub schedulers: u8,
    /// Frontends, named `frontend`, `frontend-2` and so on.
    pub frontends: u8,
    /// The shapes of the backends, in the order of their start.
    pub backends: Vec<BackendShape>,
    /// `section.key=value`, for all processes.
    pub overrides: Vec<String>,
    /// Whether there is a model repository: the folder `models` of the workspace.
    pub repository: bool,
    /// Variables of all processes.
    pub env: Vec<(String, String)>,
    /// The program of all processes, if it is not `symphony` itself.
    pub program: Option<PathBuf>,
}

/// One backend.
#[derive(Clone, Debug)]
pub struct BackendShape {
    /// Its name.
    pub name: String,
    /// Its sub-cluster.
    pub subcluster: String,
    /// The executor of the batches.
    pub executor: ExecutorKind,
    /// GPUs, of kind `emulated` or `cpu`.
    pub gpus: u32,
}

impl Shape {
    /// Three schedulers and one emulated backend with two GPUs for each sub-cluster named.
    #[must_use]
    pub fn emulated(subclusters: &[&str]) -> Self {
        let backend = |name: &&str| BackendShape {
            name: format!("backend-{name}"),
            subcluster: (*name).to_owned(),
            executor: ExecutorKind::Emulated,
            gpus: 2,
        };
        let backends = subclusters.iter().map(backend).collect();
        Self { schedulers: 3, frontends: 1, backends, ..Self::default() }
    }

    /// This cluster with a backend that runs ONNX models on the CPU, `backend-cpu` in sub-cluster `cpu`.
    #[must_use]
    pub fn with_cpu(mut self) -> Self {
        let (name, subcluster) = ("backend-cpu".to_owned(), "cpu".to_owned());
        self.backends.push(BackendShape { name, subcluster, executor: ExecutorKind::OrtCpu, gpus: 1 });
        self
    }

    /// This cluster with this many frontends.
    #[must_use]
    pub fn with_frontends(mut self, frontends: u8) -> Self {
        self.frontends = frontends;
        self
    }

    /// This cluster with a model repository, which is empty.
    #[must_use]
    pub fn with_repository(mut self) -> Self {
        self.repository = true;
        self
    }

    /// This cluster with variables in the environment of all processes.
    #[must_use]
    pub fn with_env(mut self, env: Vec<(String, String)>) -> Self {
        self.env.extend(env);
        self
    }

    /// This cluster of processes of another program.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// This cluster with `section.key=value` in all configurations.
    #[must_use]
    pub fn with(mut self, setting: &str) -> Self {
        self.overrides.push(setting.to_owned());
        self
    }
}

/// Arguments of `model load` for an emulated model that two noisy cores serve in time.
#[must_use]
pub fn emulated_model<'a>(name: &'a str, subcluster: &'a str) -> Vec<&'a str> {
    let mut args = vec!["model", "load", name, "--emulated", "--subcluster", subcluster];
    args.extend(["--alpha-ms", "1", "--beta-ms", "5", "--batch-max", "32", "--slo-ms", "500"]);
    args
}

/// A running cluster. Dropping it kills its processes; no other cluster of this program runs meanwhile.
#[derive(Debug)]
pub struct TestCluster {
    /// The test's folder: configurations, logs, Raft data.
    pub workspace: Workspace,
    runtime: Runtime,
    control: ControlClient,
    control_addresses: String,
    children: BTreeMap<String, Child>,
    not_running: BTreeMap<String, ChildSpec>,
    /// Processes that were killed or stopped at some time.
    ended_by_test: BTreeSet<String>,
    addresses: BTreeMap<(String, &'static str), Address>,
    /// The frontends' public ports use TLS.
    public_tls: bool,
    _alone: MutexGuard<'static, ()>,
}

impl TestCluster {
    /// Starts all processes and waits until they are registered and every sub-cluster has a leader.
    ///
    /// # Errors
    /// If a process ends, or the cluster is not ready in time; the message has the end of the log.
    pub fn start(test: &str, shape: &Shape) -> Result<Self> {
        let alone = crate::alone();
        let workspace = Workspace::new(test)?;
        let program = match &shape.program {
            Some(program) => program.clone(),
            None => binary::symphony()?,
        };
        let files = node_files::write(&workspace, shape)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (mut addresses, mut waiting) = (BTreeMap::new(), BTreeMap::new());
        for (name, NodeFile { role, path, addresses: own }) in files {
            let args = [(*role).to_owned(), "--config".to_owned(), path.display().to_string()];
            let spec = ChildSpec::new(&name, &program, args, workspace.path());
            let spec = shape.env.iter().fold(spec, |spec, (key, value)| spec.env(key, value));
            waiting.insert(name.clone(), spec);
            addresses.extend(own.into_iter().map(|(key, address)| ((name.clone(), key), address)));
        }
        let controls: Vec<_> =
            addresses.iter().filter(|((_, key), _)| *key == "control").map(|(_, a)| a.to_string()).collect();
        let admin = net_of(&workspace, symphony_net::Role::Operator, "admin")?;
        let control = runtime.block_on(async { ControlClient::new(&admin, &controls) })?;
        let (control_addresses, children) = (controls.join(","), BTreeMap::new());
        let mut cluster = Self {
            workspace,
            runtime,
            control,
            control_addresses,
            children,
            not_running: waiting,
            ended_by_test: BTreeSet::new(),
            addresses,
            public_tls: shape.overrides.iter().any(|setting| setting.starts_with("frontend.tls.cert=")),
            _alone: alone,
        };
        // Replicas first: sub-clusters that come while only one of them is up would all be led by that one.
        let names: Vec<_> = cluster.not_running.keys().cloned().collect();
        let (schedulers, others): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.starts_with("scheduler-"));
        for group in [schedulers, others] {
            group.into_iter().try_for_each(|name| cluster.restart(name))?;
            cluster.wait_until_whole()?;
        }
        Ok(cluster)
    }

    /// Waits until every process is up in the cluster's view and every sub-cluster has a leader.
    ///
    /// # Errors
    /// If a process has ended, or that takes too long.
    pub fn wait_until_whole(&mut self) -> Result<()> {
        let names: Vec<_> = self.children.keys().cloned().collect();
        let mut ended = None;
        wait_until("a whole cluster", READY_WITHIN, || {
            if let Some(what) = self.ended()? {
                ended = Some(what);
                return Ok(());
            }
            let view = self.view()?;
            for name in &names {
                let up = match name.strip_prefix("scheduler-") {
                    Some(id) => view.nodes.iter().any(|(n, v)| n.get().to_string() == id && v.up && v.boot.is_some()),
                    None if name.starts_with("frontend") => view.frontends.values().any(|f| f.name == *name),
                    None => view.backends.values().any(|b| b.name == *name && b.up),
                };
                ensure!(up, "{name} is not up");
            }
            let headless = view.subclusters.values().find(|s| s.leader.is_none());
            ensure!(headless.is_none(), "{headless:?} has no leader");
            if !names.iter().any(|name| name == "frontend") {
                return Ok(());
            }
            let rest = match self.public_tls {
                true => RestClient::secured(&self.address("frontend", "rest"))?,
                false => self.rest(),
            };
            let ready = self.block_on(async { rest.get("/v2/health/ready").await })?;
            ensure!(ready.status == 200, "the frontend is not ready: {ready:?}");
            Ok(())
        })?;
        ended.map_or(Ok(()), |what| Err(anyhow!("{what}")))
    }

    /// A process that has ended by itself, with the end of its log; none if all run.
    ///
    /// # Errors
    /// If the operating system cannot tell.
    pub fn ended(&mut self) -> Result<Option<String>> {
        for child in self.children.values_mut() {
            if let Some(status) = child.ended()? {
                return Ok(Some(format!("{} ended ({status}); its log ends:\n{}", child.name(), child.log_tail())));
            }
        }
        Ok(None)
    }

    /// The log line about a process that is down although the test never ended it, if there is one.
    #[must_use]
    pub fn false_alarm(&self) -> Option<String> {
        // Any replica's word will do, and the story may have left no quorum.
        let view = self.block_on(self.control.get(false, READY_WITHIN)).ok()?;
        view.events.into_iter().map(|event| event.what).find(|what| {
            let Some(who) = what.strip_suffix(" is down") else { return false };
            let name = match who.strip_prefix("scheduler n") {
                Some(id) => format!("scheduler-{id}"),
                None => who.strip_prefix("backend ").unwrap_or(who).split(' ').next().unwrap_or(who).to_owned(),
            };
            !self.ended_by_test.contains(&name)
        })
    }

    /// Runs a future on this cluster's runtime.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Lets a future run beside the story, on this cluster's runtime.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// The cluster's view, linearizable.
    ///
    /// # Errors
    /// If no replica answers.
    pub fn view(&self) -> Result<View> {
        Ok(self.block_on(self.control.get(true, VIEW_WITHIN))?)
    }

    /// Waits until the view is as `condition` wants it.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_for_view<T>(&self, what: &str, mut condition: impl FnMut(&View) -> Option<T>) -> Result<T> {
        wait_until(what, READY_WITHIN, || {
            let view = self.view()?;
            condition(&view).ok_or_else(|| anyhow!("{view:?}"))
        })
    }

    /// A sub-cluster by name.
    ///
    /// # Errors
    /// If there is none.
    pub fn subcluster(&self, name: &str) -> Result<SubclusterView> {
        let view = self.view()?;
        let found = view.subclusters.into_values().find(|s| s.name == name);
        found.with_context(|| format!("there is no sub-cluster {name}"))
    }

    /// Where process `name` listens for `key`: `control`, `dispatch`, `beat`, `exec`, `data`, `grpc`, `rest`,
    /// `metrics`.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    #[track_caller]
    pub fn address(&self, name: &str, key: &'static str) -> String {
        let address = self.addresses.get(&(name.to_owned(), key));
        address.unwrap_or_else(|| panic!("{name} has no address {key}")).to_string()
    }

    /// Every address on which some process listens: process, key, address.
    #[must_use]
    pub fn addresses(&self) -> Vec<(String, &'static str, String)> {
        self.addresses.iter().map(|((name, key), address)| (name.clone(), *key, address.to_string())).collect()
    }

    /// The control addresses of all replicas, as `--cluster` takes them.
    #[must_use]
    pub fn control_addresses(&self) -> &str {
        &self.control_addresses
    }

    /// How a process of the cluster authenticates to the others.
    ///
    /// # Panics
    /// If there is no certificate of that name.
    #[must_use]
    #[track_caller]
    pub fn net(&self, role: symphony_net::Role, name: &str) -> Net {
        net_of(&self.workspace, role, name).unwrap()
    }

    /// Talks to the frontend's REST port.
    #[must_use]
    pub fn rest(&self) -> RestClient {
        RestClient::new(&self.address("frontend", "rest"))
    }

    /// The frontend's console.
    ///
    /// # Errors
    /// If it does not answer with JSON.
    pub fn console(&self) -> Result<serde_json::Value> {
        self.console_of("frontend")
    }

    /// A process's console.
    ///
    /// # Errors
    /// If it does not answer with JSON.
    pub fn console_of(&self, name: &str) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.page_of(name, "/api/view")?)?)
    }

    /// A process's metrics, as they are scraped.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn metrics_of(&self, name: &str) -> Result<String> {
        self.page_of(name, "/metrics")
    }

    /// The same in protobuf, as Prometheus scrapes it where it takes native histograms.
    ///
    /// # Errors
    /// If it does not answer so.
    pub fn protobuf_metrics_of(&self, name: &str) -> Result<Vec<u8>> {
        let client = RestClient::new(&self.address(name, "metrics"));
        let accept = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
        self.block_on(async { client.get_bytes("/metrics", accept).await })
    }

    fn page_of(&self, name: &str, page: &str) -> Result<String> {
        let client = RestClient::new(&self.address(name, "metrics"));
        Ok(self.block_on(async { client.get(page).await })?.body)
    }

    /// The id of a process that runs.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn process_id(&self, name: &str) -> Result<u32> {
        Ok(self.child(name)?.id())
    }

    /// Waits until a process that runs has logged these words.
    ///
    /// # Errors
    /// If there is none of that name, or that takes too long.
    pub fn wait_for_log(&self, name: &str, words: &str) -> Result<()> {
        let child = self.child(name)?;
        wait_until(&format!("`{words}` in the log of {name}"), READY_WITHIN, || {
            ensure!(child.log()?.contains(words), "its log ends:\n{}", child.log_tail());
            Ok(())
        })
    }

    /// Waits until the metrics of a process have a line that begins so.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn wait_for_metric(&self, name: &str, line: &str) -> Result<()> {
        wait_until(&format!("`{line}` in the metrics of {name}"), READY_WITHIN, || {
            let scraped = self.metrics_of(name)?;
            ensure!(scraped.lines().any(|scraped| scraped.starts_with(line)), "{scraped}");
            Ok(())
        })
    }

    fn child(&self, name: &str) -> Result<&Child> {
        self.children.get(name).with_context(|| format!("no process {name} runs"))
    }

    /// Runs the program with this cluster in its environment.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn cli<S: AsRef<str>>(&self, args: &[S]) -> ProgramOutput {
        let pki = self.workspace.file(node_files::PKI).display().to_string();
        let who = match Path::new(&pki).join("operator-admin.pem").exists() {
            true => ("SYMPHONY_PKI", pki.as_str()),
            false => ("SYMPHONY_INSECURE_DEV", "true"),
        };
        binary::run(self.workspace.path(), &[("SYMPHONY_CLUSTER", self.control_addresses.as_str()), who], args).unwrap()
    }

    /// Starts the program beside the cluster; its words are in `NAME.out` and `NAME.err`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_cli(&self, name: &str, args: &[&str]) -> Result<Child> {
        ChildSpec::new(name, binary::symphony()?, args.iter().copied(), self.workspace.path())
            .env("SYMPHONY_CLUSTER", &self.control_addresses)
            .env("SYMPHONY_PKI", self.workspace.file(node_files::PKI).display().to_string())
            .spawn()
    }

    /// Starts `symphony provision` for backends of one GPU in a sub-cluster, `NAME-0` and so on; its words are in
    /// `NAME.out`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_provision(&self, name: &str, subcluster: &str, (min, max): (u32, u32)) -> Result<Child> {
        let (name, subcluster) = (name.to_owned(), subcluster.to_owned());
        let shape = BackendShape { name: name.clone(), subcluster, executor: ExecutorKind::Emulated, gpus: 1 };
        let config = node_files::backend(&self.workspace, &shape)?.display().to_string();
        let (min, max, dir) = (min.to_string(), max.to_string(), self.workspace.path().display().to_string());
        let args = ["provision", "--config", &config, "--min", &min, "--max", &max, "--every-ms", "500", "--dir", &dir];
        self.spawn_cli(&name, &args)
    }

    /// Starts `symphony provision` for backends of one emulated GPU of each of these kinds, `KIND-0` and so on, at
    /// their prices per hour and within a budget; at least one of each.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_fleet(&self, subcluster: &str, kinds: &[(&str, f64)], budget_per_hour: f64) -> Result<Child> {
        let mut configs = Vec::new();
        for &(kind, price) in kinds {
            let (name, subcluster) = (kind.to_owned(), subcluster.to_owned());
            let shape = BackendShape { name, subcluster, executor: ExecutorKind::Emulated, gpus: 1 };
            let file = node_files::backend(&self.workspace, &shape)?;
            let text = std::fs::read_to_string(&file)?;
            std::fs::write(&file, text.replace("kind = \"emulated\"", &format!("kind = \"{kind}\"")))?;
            configs.push((file.display().to_string(), price.to_string()));
        }
        let (budget, dir) = (budget_per_hour.to_string(), self.workspace.path().display().to_string());
        let mut args = vec!["provision", "--max", "3", "--every-ms", "500", "--dir", &dir];
        args.extend(["--budget-per-hour", &budget]);
        for (config, price) in &configs {
            args.extend(["--config", config, "--price-per-hour", price]);
        }
        self.spawn_cli("fleet", &args)
    }

    /// The folder of a scheduler replica with what must survive it.
    #[must_use]
    pub fn data_dir(&self, name: &str) -> PathBuf {
        self.workspace.file(&node_files::data_dir(name))
    }

    /// The control client, for calls that the command line does not have.
    #[must_use]
    pub fn control(&self) -> &ControlClient {
        &self.control
    }
}

/// Plaintext if the cluster has no certificates.
fn net_of(workspace: &Workspace, role: symphony_net::Role, name: &str) -> Result<Net> {
    let files = CredentialFiles::in_dir(&workspace.file(node_files::PKI), role, name);
    if !files.cert.exists() {
        return Ok(Net::plaintext());
    }
    Ok(Net::secured(Arc::new(Credentials::load(files)?)))
}
