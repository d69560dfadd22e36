//! A cluster of real processes.

mod clients;
mod joining;
mod layout;
mod operator;
mod pages;
mod placement;
mod process;
mod writers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use symphony_config::{Address, BackendConfig, FrontendConfig, NodeConfig, Timing};
use symphony_interposer::Control;
use symphony_net::{CredentialFiles, Net, Role};
use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::control as pb;
use symphony_protocol::view::{GroupRole, ModelSpec, PipelineView, View};
use symphony_testkit::{Child, ChildSpec, wait_until_async};
use symphony_transport::{ControlClient, fresh_operation_id};

pub(crate) use clients::Clients;
use joining::Joining;
use layout::Layout;
pub(crate) use layout::{CERTIFICATE_DAYS, CLUSTER, Defaults, GPU_KIND, PKI, Pki};
pub(crate) use pages::page;
use pages::{labels, metric};
pub(crate) use placement::{first_away, homes, movables, strays};
pub(crate) use process::Process;
pub(crate) use process::Processes;
pub(crate) use writers::{Writer, Writers};

use crate::network::Network;
use crate::run_failure::chaos_failed;
use crate::scenario::{ClusterShape, Links};

/// How long processes may take to register, and models to load.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long one look at the cluster may take.
const VIEW_WITHIN: Duration = Duration::from_millis(500);
/// How often it is looked, while something is waited for, whether all processes live.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// How long a process may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(12);
/// How often it is looked whether it has.
const STOP_POLL: Duration = Duration::from_millis(5);

/// The running cluster. Dropping it kills its processes, and then removes its network.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) control: ControlClient,
    /// One client for each replica, with an operator's certificate.
    pub(crate) replicas: Clients,
    /// Frontends that are none.
    pub(crate) writers: Writers,
    pub(crate) frontends: Vec<FrontendConfig>,
    /// What backends have in common.
    pub(crate) backend: BackendConfig,
    pub(crate) processes: Processes,
    /// Journals of the backends.
    pub(crate) journals: BTreeMap<Process, PathBuf>,
    pages: BTreeMap<Process, Address>,
    running: BTreeMap<Process, Child>,
    not_running: BTreeMap<Process, ChildSpec>,
    /// What stands between replicas and the operating system, if anything does.
    interposed: BTreeMap<Process, Control>,
    joining: Joining,
    operator: Net,
    /// Where the control group is reached.
    controls: Vec<(Process, Address)>,
    binary: PathBuf,
    dir: PathBuf,
    pub(crate) network: Network,
}

/// What the cluster runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterSetup<'a> {
    /// The cluster's name.
    pub(crate) name: &'a str,
    pub(crate) binary: &'a Path,
    pub(crate) dir: &'a Path,
    pub(crate) timing: Timing,
    pub(crate) links: Links,
    /// By how much batches of the emulated GPUs miss their profiles.
    pub(crate) noise: f64,
    /// Whether faults of disks and clocks are possible.
    pub(crate) interpose: bool,
}

impl Cluster {
    /// Starts all processes and waits until they are registered and every sub-cluster has a leader and standbys.
    pub(crate) async fn start(shape: &ClusterShape, place: ClusterSetup<'_>) -> Result<Self> {
        let processes = Processes::of(shape);
        let mut network = Network::new(place.links, &processes)?;
        let Layout { configs, controls, frontends, backend, pages, journals, operator, joining } =
            Layout::new(shape, &processes, &mut network, place).await?;
        let (mut not_running, mut interposed) = (BTreeMap::new(), BTreeMap::new());
        for (process, config) in configs {
            let mut spec = spec_of(process, &config, place.binary, place.dir)?;
            if place.interpose && matches!(process, Process::Replica(_)) {
                let control = Control::create(place.dir.join(format!("{process}.control")))?;
                let mut command = Command::new(place.binary);
                symphony_interposer::attach(&mut command, &control);
                for (key, value) in command.get_envs() {
                    let value = value.unwrap_or_default();
                    spec = spec.env(key.to_string_lossy(), value.to_string_lossy());
                }
                interposed.insert(process, control);
            }
            not_running.insert(process, network.place(process, spec)?);
        }
        let addrs: Vec<_> = controls.iter().map(|(_, addr)| addr.to_string()).collect();
        let replicas = Clients::new(&operator, &controls)?;
        let mut cluster = Self {
            control: ControlClient::new(&operator, &addrs)?,
            writers: Writers::new(Arc::clone(&joining.pki), replicas.clone()),
            replicas,
            frontends,
            backend,
            processes,
            journals,
            pages,
            running: BTreeMap::new(),
            not_running,
            interposed,
            joining,
            operator,
            controls,
            binary: place.binary.to_owned(),
            dir: place.dir.to_owned(),
            network,
        };
        // Replicas first: sub-clusters that come while only one of them is up would all be led by that one.
        let replicas: Vec<_> = cluster.processes.replicas().collect();
        replicas.iter().try_for_each(|replica| cluster.start_again(*replica))?;
        let wanted = replicas.len();
        let up = |view: &View| match nodes_up(view) {
            up if up == wanted => Ok(()),
            up => Err(format!("{up} of {wanted} schedulers are up")),
        };
        cluster.until("all schedulers", up).await?;
        let others: Vec<_> = cluster.not_running.keys().copied().collect();
        others.into_iter().try_for_each(|process| cluster.start_again(process))?;
        cluster.until_whole("the whole cluster").await?;
        Ok(cluster)
    }

    /// Waits until the cluster's view fulfils a condition, which says what is missing.
    pub(crate) async fn until(&mut self, what: &str, condition: impl Fn(&View) -> Result<(), String>) -> Result<View> {
        self.until_noting(what, condition, drop).await
    }

    /// The same; calls `note` with what is missing, be it the view itself.
    pub(crate) async fn until_noting(
        &mut self,
        what: &str,
        condition: impl Fn(&View) -> Result<(), String>,
        note: impl Fn(String),
    ) -> Result<View> {
        let control = self.control.clone();
        let waited = wait_until_async(what, READY_WITHIN, || async {
            let view = control.get(true, VIEW_WITHIN).await.map_err(|error| error.to_string());
            let met = view.and_then(|view| condition(&view).map(|()| view));
            met.map_err(|missing| {
                note(missing.clone());
                anyhow::Error::msg(missing)
            })
        });
        let mut waited = std::pin::pin!(waited);
        loop {
            let view = tokio::select! {
                view = &mut waited => Some(view),
                () = tokio::time::sleep(CHECK_EVERY) => None,
            };
            // A process that has ended is not waited for.
            self.check()?;
            if let Some(view) = view {
                return view;
            }
        }
    }

    /// Waits until all processes are there.
    pub(crate) async fn until_whole(&mut self, what: &str) -> Result<View> {
        let processes = self.processes.clone();
        self.until(what, move |view| whole(view, &processes)).await
    }

    /// An error if a process has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        for child in self.running.values_mut() {
            if let Some(status) = child.ended()? {
                bail!("{} ended by itself ({status}); its log ends:\n{}", child.name(), child.log_tail());
            }
        }
        Ok(())
    }

    /// Has the cluster load a model and waits until it is ready.
    pub(crate) async fn load(&mut self, spec: &ModelSpec) -> Result<()> {
        let operation_id = fresh_operation_id().to_string();
        let request = pb::LoadModelRequest { spec: Some(spec.into()), operation_id };
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.load_model(request).await }
        };
        self.control.call(READY_WITHIN, call).await?;
        let ready = |view: &View| match view.model_named(&spec.name) {
            Some((_, model)) if model.is_ready(view) => Ok(()),
            _ => Err(format!("model {} is not ready", spec.name)),
        };
        self.until("the model", ready).await.map(drop)
    }

    /// The same of a pipeline, of which the models are loaded.
    pub(crate) async fn load_pipeline(&mut self, declaration: &PipelineDeclaration) -> Result<()> {
        let operation_id = fresh_operation_id().to_string();
        let request = pb::LoadPipelineRequest { spec: Some(declaration.into()), operation_id };
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.load_pipeline(request).await }
        };
        self.control.call(READY_WITHIN, call).await?;
        let loaded_as = declaration.versioned().loaded_as();
        let ready = |view: &View| match view.pipelines.get(&loaded_as) {
            Some(pipeline) => pipeline_unready(view, (&loaded_as, pipeline)).map_or(Ok(()), Err),
            None => Err(format!("there is no pipeline {loaded_as}")),
        };
        self.until("the pipeline", ready).await.map(drop)
    }

    fn child(&mut self, process: Process) -> Result<&mut Child> {
        self.running.get_mut(&process).with_context(|| format!("{process} does not run"))
    }

    /// `kill -9`. Returns when the operating system has confirmed the end.
    pub(crate) fn kill(&mut self, process: Process) -> Result<()> {
        let child = self.child(process)?;
        ensure!(child.ended()?.is_none(), "{process} had ended before it was killed");
        child.kill().map_err(chaos_failed)?;
        self.put_aside(process)
    }

    /// SIGTERM, and waits for the end.
    pub(crate) async fn stop(&mut self, process: Process) -> Result<()> {
        self.signal(process, Signal::SIGTERM)?;
        let give_up = tokio::time::Instant::now() + STOP_WITHIN;
        while self.child(process)?.ended()?.is_none() {
            ensure!(tokio::time::Instant::now() < give_up, "{process} has not ended {STOP_WITHIN:?} after SIGTERM");
            tokio::time::sleep(STOP_POLL).await;
        }
        self.put_aside(process)
    }

    fn put_aside(&mut self, process: Process) -> Result<()> {
        let child = self.running.remove(&process).with_context(|| format!("{process} does not run"))?;
        self.not_running.insert(process, child.spec().clone());
        Ok(())
    }

    /// Starts a process that does not run, over its own data.
    pub(crate) fn start_again(&mut self, process: Process) -> Result<()> {
        let spec = self.not_running.remove(&process).with_context(|| format!("{process} runs already"))?;
        self.running.insert(process, spec.spawn().map_err(chaos_failed)?);
        Ok(())
    }

    /// Sends a signal.
    pub(crate) fn signal(&mut self, process: Process, signal: Signal) -> Result<()> {
        let child = self.child(process)?;
        ensure!(child.ended()?.is_none(), "{process} had ended before it got {signal}");
        child.signal(signal).map_err(chaos_failed)
    }

    /// The directory of a replica's log.
    pub(crate) fn data_dir(&self, process: Process) -> PathBuf {
        layout::data_dir(&self.dir, process)
    }

    /// What stands between a replica and the operating system.
    pub(crate) fn control_of(&mut self, process: Process) -> Result<&mut Control> {
        let control = self.interposed.get_mut(&process);
        control.with_context(|| format!("nothing stands between {process} and the operating system"))
    }

    /// Whether a process has ended by itself; it is then put aside.
    pub(crate) fn has_ended(&mut self, process: Process) -> Result<bool> {
        let ended = self.child(process)?.ended()?.is_some();
        if ended {
            self.put_aside(process)?;
        }
        Ok(ended)
    }

    /// Its process id.
    pub(crate) fn pid(&mut self, process: Process) -> Result<u32> {
        Ok(self.child(process)?.id())
    }

    /// Whether it was started and has not been ended.
    pub(crate) fn runs(&self, process: Process) -> bool {
        self.running.contains_key(&process)
    }

    /// A counter or gauge without labels of a process.
    pub(crate) async fn metric(&self, process: Process, name: &str) -> Result<f64> {
        let address = self.pages.get(&process).with_context(|| format!("{process} has no page"))?;
        metric(address, name).await.with_context(|| format!("metrics of {process}"))
    }

    /// The decision threads with which a replica leads, by name, each with the ids of the sub-clusters that it ranks
    /// for.
    pub(crate) async fn leads_by_thread(&self, process: Process) -> Result<BTreeMap<String, Vec<String>>> {
        let address = self.pages.get(&process).with_context(|| format!("{process} has no page"))?;
        let mut by_thread: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for mut lead in labels(address, "symphony_dispatch_lead_info").await? {
            if let (Some(thread), Some(subcluster)) = (lead.remove("thread"), lead.remove("id")) {
                by_thread.entry(thread).or_default().push(subcluster);
            }
        }
        Ok(by_thread)
    }

    /// Addresses of the frontends' health and metrics pages.
    pub(crate) fn frontend_pages(&self) -> Vec<Address> {
        self.frontends.iter().map(|frontend| frontend.metrics.clone()).collect()
    }

    /// A certificate of the cluster's authority for a process outside the cluster.
    pub(crate) fn issue(&self, role: Role, name: &str) -> Result<CredentialFiles> {
        self.joining.pki.issue(role, name)
    }

    /// The replicas' control addresses.
    pub(crate) fn controls(&self) -> Vec<Address> {
        self.controls.iter().map(|(_, addr)| addr.clone()).collect()
    }

    /// Addresses of its processes' health and metrics pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = Address> {
        self.pages.values().cloned()
    }

    /// Who runs.
    pub(crate) fn running(&self) -> Vec<Process> {
        self.running.keys().copied().collect()
    }

    /// Control addresses of the replicas.
    pub(crate) fn control_addrs(&self) -> Vec<String> {
        self.controls.iter().map(|(_, addr)| addr.to_string()).collect()
    }

    /// Stops everything, the replicas last.
    pub(crate) async fn stop_all(mut self) -> Result<()> {
        let (replicas, others): (Vec<_>, Vec<_>) =
            self.running.keys().copied().partition(|process| matches!(process, Process::Replica(_)));
        for process in others.into_iter().rev().chain(replicas) {
            self.stop(process).await?;
        }
        Ok(())
    }
}

fn spec_of(process: Process, config: &NodeConfig, binary: &Path, dir: &Path) -> Result<ChildSpec> {
    node_spec(&process.to_string(), process.role(), config, binary, dir)
}

/// Writes a process's configuration and returns how to start it.
pub(crate) fn node_spec(name: &str, role: &str, config: &NodeConfig, binary: &Path, dir: &Path) -> Result<ChildSpec> {
    let file = dir.join(format!("{name}.toml"));
    std::fs::write(&file, config.to_toml()).with_context(|| format!("cannot write {}", file.display()))?;
    let args = [role.to_owned(), "--config".to_owned(), file.to_string_lossy().into_owned()];
    Ok(ChildSpec::new(name, binary, args, dir))
}

fn nodes_up(view: &View) -> usize {
    view.nodes.values().filter(|node| node.up && node.boot.is_some()).count()
}

/// All processes registered, every sub-cluster with a leader and all others as standbys, every model held by a backend.
pub(crate) fn whole(view: &View, processes: &Processes) -> Result<(), String> {
    let (replicas, up) = (processes.replicas().count(), nodes_up(view));
    if up != replicas {
        return Err(format!("{up} of {replicas} schedulers are up"));
    }
    let voters = view.group.iter().filter(|(_, member)| member.role != GroupRole::Learner);
    let voters: Vec<_> = voters.map(|(node, _)| Process::Replica(node.get())).collect();
    if voters != processes.replicas().collect::<Vec<_>>() {
        return Err(format!("the control group is {voters:?}"));
    }
    for backend in processes.backends() {
        let name = backend.to_string();
        if !view.backends.values().any(|b| b.up && b.name == name) {
            return Err(format!("{name} is not up"));
        }
    }
    for frontend in processes.frontends() {
        let name = frontend.to_string();
        if !view.frontends.values().any(|f| f.name == name) {
            return Err(format!("{name} is not registered"));
        }
    }
    for name in processes.subclusters() {
        let subcluster = view.subclusters.values().find(|s| s.name == name);
        let subcluster = subcluster.ok_or_else(|| format!("no sub-cluster {name} yet"))?;
        if subcluster.leader.is_none() || subcluster.standbys.len() + 1 < replicas {
            return Err(format!("{name}: leader {:?}, standbys {:?}", subcluster.leader, subcluster.standbys));
        }
    }
    if let Some(model) = view.models.values().find(|m| !m.is_ready(view) && m.spec.name.starts_with(SERVED)) {
        return Err(format!("model {} is not ready", model.spec.name));
    }
    if let Some(why) = view.pipelines.iter().find_map(|pipeline| pipeline_unready(view, pipeline)) {
        return Err(why);
    }
    let home = homes(processes);
    if let Some(away) = strays(view, &home).next() {
        return Err(format!("{} is not at home", away.name));
    }
    view.control_leader.map(drop).ok_or_else(|| "the control group has no leader".into())
}

/// Why a pipeline cannot be asked.
fn pipeline_unready(view: &View, (name, pipeline): (&String, &PipelineView)) -> Option<String> {
    pipeline.unready(view).map(|why| format!("pipeline {name} is not ready: {why}"))
}

/// Names of models that are served with load begin so.
pub(crate) const SERVED: &str = "served-";
