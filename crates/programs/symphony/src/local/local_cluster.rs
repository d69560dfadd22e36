//! A cluster of separate processes on this machine: writes configurations, starts processes, waits until they are
//! ready.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use symphony_config::{BackendConfig, NodeConfig, SecurityConfig};
use symphony_net::Role;
use symphony_protocol::view::View;
use symphony_transport::{ControlClient, ControlError};
use symphony_types::NodeId;
use tokio::time::Instant;

use super::layout::Layout;
use super::pki::Pki;
use super::process::{Process, ProcessLifetime};

/// How long the processes may take to register.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The period of that check.
const POLL: Duration = Duration::from_millis(50);
/// The timeout of one check.
const VIEW_WITHIN: Duration = Duration::from_millis(500);

/// The last log line of a replica that `symphony members` has removed.
const REMOVED: &str = "was removed from the cluster and its id is never given again";

/// Advice for a process that ended with this line, instead of its own: `up` starts the replicas of its configuration
/// and does not know about members changed by operators.
fn advice(end: &str) -> &'static str {
    if !end.contains(REMOVED) {
        return "";
    }
    "\n`symphony members` has changed the replicas of this cluster, and the configuration of `up` still names those of before. Give `up` one \
     with --config whose [[cluster.scheduler]] are the replicas of now, each with its data in raft-ID of --dir; or another --dir for a new \
     cluster"
}

/// A running local cluster. Dropping it kills its processes.
#[derive(Debug)]
pub(crate) struct LocalCluster {
    pub(crate) control: ControlClient,
    schedulers: Vec<(NodeId, Process)>,
    others: Vec<Process>,
}

impl LocalCluster {
    /// Starts everything and waits until every process is registered and every sub-cluster has a leader.
    pub(crate) async fn start(layout: &Layout, dir: &Path) -> anyhow::Result<Self> {
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        let addrs: Vec<_> = layout.cluster.scheduler.iter().map(|r| r.control.to_string()).collect();
        let certificates = dir.join("pki");
        let pki = Pki::prepare(layout, &certificates)?;
        let control = ControlClient::new(&pki.operator()?, &addrs)?;
        let mut cluster = Self { control, schedulers: Vec::new(), others: Vec::new() };
        let bar = ProgressBar::new_spinner().with_message("starting the cluster");
        bar.enable_steady_tick(Duration::from_millis(100));
        for scheduler in &layout.schedulers {
            let name = format!("scheduler-{}", scheduler.id.get());
            let config = NodeConfig {
                scheduler: Some(scheduler.clone()),
                ..base(layout, pki.security(Role::Scheduler, &scheduler.id.get().to_string()))
            };
            cluster.schedulers.push((
                scheduler.id,
                Process::start_node("scheduler", &name, &config, dir, ProcessLifetime::EndsWithParent)?,
            ));
        }
        // A sub-cluster's leader is chosen among the replicas that are up when its first backend registers.
        cluster.wait_for(&bar, |view| missing_schedulers(view, layout)).await?;
        for backend in &layout.backends {
            let config = NodeConfig {
                backend: Some(backend.clone()),
                ..base(layout, pki.security(Role::Backend, &backend.name))
            };
            cluster.others.push(Process::start_node(
                "backend",
                &backend.name,
                &config,
                dir,
                ProcessLifetime::EndsWithParent,
            )?);
        }
        if let Some(frontend) = layout.own_frontend() {
            let security = pki.security(Role::Frontend, &frontend.name);
            let mut frontend = frontend.clone();
            let tenants = frontend.tenants.is_some();
            pki.authorize(&mut frontend.repository, tenants)?;
            let config = NodeConfig { frontend: Some(frontend.clone()), ..base(layout, security) };
            cluster.others.push(Process::start_node(
                "frontend",
                &frontend.name,
                &config,
                dir,
                ProcessLifetime::EndsWithParent,
            )?);
        }
        cluster.wait_for(&bar, |view| missing(view, layout)).await?;
        bar.finish_and_clear();
        Ok(cluster)
    }

    /// Lets `symphony provision` keep as many backends like this one as the cluster asks for, within limits, and waits
    /// for the first.
    pub(crate) async fn provision(
        &mut self,
        layout: &Layout,
        backend: BackendConfig,
        (min, max): (u32, u32),
        dir: &Path,
    ) -> anyhow::Result<()> {
        let first = format!("{}-0", backend.name);
        let config = NodeConfig { backend: Some(backend), ..base(layout, layout.security.clone()) };
        let path = dir.join("provision.toml");
        std::fs::write(&path, config.to_toml()).with_context(|| format!("cannot write {}", path.display()))?;
        let addrs: Vec<_> = layout.cluster.scheduler.iter().map(|r| r.control.to_string()).collect();
        let (path, dir_text, pki) = (path.to_string_lossy(), dir.to_string_lossy(), dir.join("pki"));
        let (min, max, addrs, pki) = (min.to_string(), max.to_string(), addrs.join(","), pki.to_string_lossy());
        let mut args = vec!["provision", "--config", &path, "--min", &min, "--max", &max];
        args.extend(["--dir", &dir_text, "--cluster", &addrs]);
        match layout.security.insecure_dev {
            true => args.push("--insecure-dev"),
            false => args.extend(["--pki", &pki]),
        }
        self.others.push(Process::start(
            "provision",
            &args,
            &dir.join("logs").join("provision.log"),
            ProcessLifetime::EndsWithParent,
        )?);
        let bar = ProgressBar::new_spinner().with_message("starting the first backend");
        let is_there = |view: &View| view.backends.values().any(|b| b.name == first && b.up);
        self.wait_for(&bar, |view| (!is_there(view)).then(|| format!("backend {first}"))).await?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Waits until nothing is missing any more.
    async fn wait_for(&mut self, bar: &ProgressBar, missing: impl Fn(&View) -> Option<String>) -> anyhow::Result<()> {
        let give_up = Instant::now() + READY_WITHIN;
        loop {
            self.check()?;
            let missing = match self.control.get(false, VIEW_WITHIN).await {
                Ok(view) => match missing(&view) {
                    None => return Ok(()),
                    Some(missing) => missing,
                },
                Err(ControlError::Unreachable { .. }) => "a scheduler that answers".into(),
                Err(error) => return Err(error.into()),
            };
            bar.set_message(format!("waiting for {missing}"));
            if Instant::now() >= give_up {
                anyhow::bail!("the cluster is not ready after {} s: {missing} is missing", READY_WITHIN.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// An error if a process has ended by itself.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        for process in self.schedulers.iter_mut().map(|(_, process)| process).chain(&mut self.others) {
            if let Some(end) = process.ended() {
                anyhow::bail!("{end}{}", advice(&end));
            }
        }
        Ok(())
    }

    /// Forgets the processes that have ended by themselves; returns how each ended.
    pub(crate) fn take_ended(&mut self) -> Vec<String> {
        let mut ends = Vec::new();
        let mut runs = |process: &mut Process| {
            let end = process.ended();
            let runs = end.is_none();
            ends.extend(end);
            runs
        };
        self.schedulers.retain_mut(|(_, process)| runs(process));
        self.others.retain_mut(runs);
        ends
    }

    /// Whether any process is left.
    pub(crate) fn runs(&self) -> bool {
        !self.schedulers.is_empty() || !self.others.is_empty()
    }

    /// `kill -9` of one scheduler replica; returns its process id.
    pub(crate) fn kill_scheduler(&mut self, node: NodeId) -> anyhow::Result<u32> {
        let index = self.schedulers.iter().position(|(id, _)| *id == node);
        let (_, mut process) = self.schedulers.remove(index.with_context(|| format!("no process of {node} runs"))?);
        let pid = process.pid();
        process.kill()?;
        Ok(pid)
    }

    /// Stops everything: frontend and backends first, so that none of them searches for stopped schedulers.
    pub(crate) fn stop(&mut self) {
        for process in self.others.iter_mut().rev() {
            process.stop();
        }
        for (_, process) in &mut self.schedulers {
            process.stop();
        }
    }
}

fn base(layout: &Layout, security: SecurityConfig) -> NodeConfig {
    let SecurityConfig { insecure_public, page_hosts, .. } = layout.security.clone();
    let security = SecurityConfig { insecure_public, page_hosts, ..security };
    NodeConfig {
        cluster: layout.cluster.clone(),
        scheduler: None,
        frontend: None,
        backend: None,
        federation: None,
        network: layout.network.clone(),
        frames: layout.frames.clone(),
        log: layout.log.clone(),
        telemetry: layout.telemetry.clone(),
        security,
    }
}

/// What the cluster still lacks, in words.
fn missing(view: &View, layout: &Layout) -> Option<String> {
    if let Some(schedulers) = missing_schedulers(view, layout) {
        return Some(schedulers);
    }
    for backend in &layout.backends {
        if !view.backends.values().any(|b| b.name == backend.name && b.up) {
            return Some(format!("backend {}", backend.name));
        }
    }
    if let Some(frontend) = layout.own_frontend()
        && !view.frontends.values().any(|f| f.name == frontend.name)
    {
        return Some(format!("frontend {}", frontend.name));
    }
    let headless = view.subclusters.values().find(|s| s.leader.is_none())?;
    Some(format!("a leader of sub-cluster {}", headless.name))
}

fn missing_schedulers(view: &View, layout: &Layout) -> Option<String> {
    let up = view.nodes.values().filter(|n| n.up && n.boot.is_some()).count();
    let all = layout.schedulers.len();
    (up < all).then(|| format!("schedulers ({up} of {all} are up)"))
}

#[cfg(test)]
mod tests {
    use super::advice;

    #[test]
    fn who_starts_a_removed_replica_is_told_what_to_change() {
        assert_eq!(advice("scheduler-3 ended with exit status: 1; the end of its log:\nno place on disk"), "");
        let removed =
            "symphony: scheduler n3 was removed from the cluster and its id is never given again; start it over";
        assert!(advice(removed).contains("[[cluster.scheduler]]") && advice(removed).contains("raft-ID"));
    }
}
