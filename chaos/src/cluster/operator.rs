//! What an operator does to the cluster while it serves: changes of the control group, and draining, by the program
//! that operators use.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use symphony_config::{Address, NodeConfig, Role};
use symphony_transport::ControlClient;
use tokio::process::Command;

use super::layout::{OPERATOR, PKI};
use super::{Cluster, Process, STOP_POLL, spec_of};
use crate::run_failure::chaos_failed;

/// How long one command may take: a new replica catches up, one that goes hands over.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
/// How long a replica that was removed may take to notice and end.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

impl Cluster {
    /// Runs `symphony` with an operator's certificate.
    async fn command(&self, args: &[&str]) -> Result<()> {
        let addrs: Vec<_> = self.controls.iter().map(|(_, addr)| addr.to_string()).collect();
        let ran = Command::new(&self.binary)
            .args(args)
            .args(["--cluster", &addrs.join(",")])
            .arg("--pki")
            .arg(self.dir.join(PKI))
            .args(["--identity", &format!("operator-{OPERATOR}")])
            .kill_on_drop(true)
            .output();
        let said = format!("symphony {}", args.join(" "));
        let ran = tokio::time::timeout(COMMAND_WITHIN, ran).await.with_context(|| format!("`{said}` hangs"))?;
        let output = ran.map_err(chaos_failed)?;
        ensure!(output.status.success(), "`{said}`: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// Has a process hand over or finish what it has, and waits until nothing is left.
    pub(crate) async fn drain(&self, process: Process) -> Result<()> {
        self.command(&["drain", &process.to_string()]).await
    }

    /// Lets it work again.
    pub(crate) async fn uncordon(&self, process: Process) -> Result<()> {
        self.command(&["uncordon", &process.to_string()]).await
    }

    /// `symphony members add|remove|replace`: a process joins, one leaves, or both at once.
    pub(crate) async fn change_members(&mut self, comes: bool, goes: Option<Process>) -> Result<Option<Process>> {
        let new = if comes { Some(self.start_joining()?) } else { None };
        let id = |process: Process| match process {
            Process::Replica(id) => Ok(id.to_string()),
            other => bail!("{other} is no replica"),
        };
        let comes = new.as_ref().map(|(replica, control)| Ok::<_, anyhow::Error>((id(*replica)?, control.to_string())));
        let (comes, goes_id) = (comes.transpose()?, goes.map(id).transpose()?);
        match (&comes, &goes_id) {
            (Some((new, control)), None) => self.command(&["members", "add", new, "--control", control]).await?,
            (None, Some(old)) => self.command(&["members", "remove", old]).await?,
            (Some((new, control)), Some(old)) => {
                self.command(&["members", "replace", old, "--with", new, "--control", control]).await?;
            }
            (None, None) => {}
        }
        if let Some((replica, control)) = &new {
            self.replicas.add(*replica, control)?;
        }
        if let Some(old) = goes {
            self.forget(old).await?;
        }
        Ok(new.map(|(replica, _)| replica))
    }

    /// Writes the present replicas into the configuration file of one of them, as an operator does after changes; that
    /// replica reads them at its next start. With direct links only: otherwise it would dial past the proxies.
    pub(crate) fn renew_list(&self, replica: Process) -> Result<()> {
        let file = self.dir.join(format!("{replica}.toml"));
        let mut config = NodeConfig::load(Role::Scheduler, Some(&file), [], &[])?;
        config.cluster.scheduler.clone_from(&self.joining.base.cluster.scheduler);
        let written = std::fs::write(&file, config.to_toml());
        written.with_context(|| format!("cannot write {}", file.display())).map_err(chaos_failed)
    }

    /// Starts a replica that waits to be taken in.
    fn start_joining(&mut self) -> Result<(Process, Address)> {
        let replica = self.processes.add_replica();
        let (config, addresses) = self.joining.config(replica, &self.processes, &mut self.network)?;
        let spec = spec_of(replica, &config, &self.binary, &self.dir)?;
        let metrics = config.scheduler.context("a replica's configuration has its section")?.metrics;
        self.pages.insert(replica, metrics);
        self.not_running.insert(replica, self.network.place(replica, spec)?);
        self.start_again(replica)?;
        self.controls.push((replica, addresses.control.clone()));
        self.control = self.control_of_all()?;
        Ok((replica, addresses.control))
    }

    /// A removed replica ends by itself; it gets no more calls.
    async fn forget(&mut self, replica: Process) -> Result<()> {
        self.processes.remove_replica(replica);
        self.replicas.remove(replica);
        self.controls.retain(|(of, _)| *of != replica);
        self.control = self.control_of_all()?;
        self.pages.remove(&replica);
        let Some(mut child) = self.running.remove(&replica) else { return Ok(()) };
        let give_up = tokio::time::Instant::now() + ENDS_WITHIN;
        while child.ended()?.is_none() {
            ensure!(tokio::time::Instant::now() < give_up, "{replica} was removed and runs on for {ENDS_WITHIN:?}");
            tokio::time::sleep(STOP_POLL).await;
        }
        Ok(())
    }

    fn control_of_all(&self) -> Result<ControlClient> {
        let addrs: Vec<_> = self.controls.iter().map(|(_, addr)| addr.to_string()).collect();
        Ok(ControlClient::new(&self.operator, &addrs)?)
    }
}
