//! Processes of a test cluster are killed, paused, stopped and started again.

use std::time::Duration;

use anyhow::{Context as _, Result};
use symphony_testkit::ChildSpec;
use symphony_types::NodeId;

use super::{READY_WITHIN, TestCluster};
use crate::binary;
use crate::node_files::{self, NodeFile};

impl TestCluster {
    /// `kill -9` of a process.
    ///
    /// # Errors
    /// If there is none of that name, or it cannot be killed.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let mut child = self.children.remove(name).with_context(|| format!("no process {name} runs"))?;
        child.kill()?;
        self.not_running.insert(name.to_owned(), child.spec().clone());
        self.ended_by_test.insert(name.to_owned());
        Ok(())
    }

    /// Has a process hang (SIGSTOP) until [`Self::resume`].
    ///
    /// # Errors
    /// If there is none of that name, or it has ended.
    pub fn pause(&mut self, name: &str) -> Result<()> {
        self.ended_by_test.insert(name.to_owned());
        self.children.get_mut(name).with_context(|| format!("no process {name} runs"))?.pause()
    }

    /// Lets a process that hangs go on.
    ///
    /// # Errors
    /// If there is none of that name, or it has ended.
    pub fn resume(&mut self, name: &str) -> Result<()> {
        self.children.get_mut(name).with_context(|| format!("no process {name} runs"))?.resume()
    }

    /// Asks a process to stop (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// If there is none of that name, or it does not end in time.
    pub fn stop(&mut self, name: &str, timeout: Duration) -> Result<std::process::ExitStatus> {
        let mut child = self.children.remove(name).with_context(|| format!("no process {name} runs"))?;
        let status = child.stop(timeout)?;
        self.not_running.insert(name.to_owned(), child.spec().clone());
        self.ended_by_test.insert(name.to_owned());
        Ok(status)
    }

    /// Waits until a process that is to end by itself has done so.
    ///
    /// # Errors
    /// If there is none of that name, or it does not end in time.
    pub fn wait_until_it_ends(&mut self, name: &str, timeout: Duration) -> Result<std::process::ExitStatus> {
        let mut child = self.children.remove(name).with_context(|| format!("no process {name} runs"))?;
        let status = child.wait(timeout)?;
        self.not_running.insert(name.to_owned(), child.spec().clone());
        self.ended_by_test.insert(name.to_owned());
        Ok(status)
    }

    /// Starts a process that was killed or stopped again, from the same configuration.
    ///
    /// # Errors
    /// If it was not, or cannot be started.
    pub fn restart(&mut self, name: &str) -> Result<()> {
        let spec = self.not_running.remove(name).with_context(|| format!("{name} was neither killed nor stopped"))?;
        self.children.insert(name.to_owned(), spec.spawn()?);
        Ok(())
    }

    /// The same with another variable in its environment, over one of that name that it had.
    ///
    /// # Errors
    /// If it was not, or cannot be started.
    pub fn restart_with(&mut self, name: &str, key: &str, value: &str) -> Result<()> {
        let spec = self.not_running.remove(name).with_context(|| format!("{name} was neither killed nor stopped"))?;
        self.not_running.insert(name.to_owned(), spec.env(key, value));
        self.restart(name)
    }

    /// Starts another scheduler replica, which waits to take the place of `instead_of`; its id must be new.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_joining(&mut self, id: u64, instead_of: u64) -> Result<()> {
        let name = format!("scheduler-{id}");
        let NodeFile { role, path, addresses } =
            node_files::joining(&self.workspace, NodeId::new(id), NodeId::new(instead_of))?;
        let args = [role.to_owned(), "--config".to_owned(), path.display().to_string()];
        let spec = ChildSpec::new(&name, binary::symphony()?, args, self.workspace.path());
        self.addresses.extend(addresses.into_iter().map(|(key, address)| ((name.clone(), key), address)));
        self.children.insert(name, spec.spawn()?);
        Ok(())
    }

    /// Waits until a process ends by itself; returns its exit code and the end of its log.
    ///
    /// # Errors
    /// If there is none of that name, or it does not end in time.
    pub fn ends_by_itself(&mut self, name: &str) -> Result<(Option<i32>, String)> {
        let mut child = self.children.remove(name).with_context(|| format!("no process {name} runs"))?;
        let status = child.wait(READY_WITHIN)?;
        self.ended_by_test.insert(name.to_owned());
        Ok((status.code(), child.log_tail()))
    }
}
