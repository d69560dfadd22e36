//! One process that plays many backends: the very objects of `symphony backend`, each with a certificate, a port, a
//! journal and an emulated GPU of its own, in a sub-cluster of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use symphony_backend::Backend;
use symphony_config::BackendConfig;
use symphony_net::{Authority, Credentials, Identity, Net, Role};
use symphony_transport::ControlClient;
use symphony_types::BootId;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use super::{CERTIFICATE_DAYS, journal_of, name_of, subcluster_of};

/// Backends that register at a time: a fleet is not started by one hand.
const AT_ONCE: usize = 64;

/// The process's orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlayPlan {
    /// The cluster's name, as certificates have it.
    pub(super) cluster: String,
    /// The folder of the authority.
    pub(super) pki: PathBuf,
    /// Control addresses of the replicas.
    pub(super) controls: Vec<String>,
    /// What all of them have in common.
    pub(super) backend: BackendConfig,
    /// Where their journals go.
    pub(super) dir: PathBuf,
    /// How many.
    pub(super) count: u32,
}

/// Plays the backends of the plan in `file` until the process gets SIGTERM.
///
/// # Errors
/// If the file is no plan, or a backend cannot be started.
pub async fn play(file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let plan: PlayPlan = serde_json::from_str(&text).with_context(|| format!("{} is no plan", file.display()))?;
    let (count, plan) = (plan.count, Arc::new(plan));
    as_many_files_as_allowed()?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut starting = JoinSet::new();
    let mut backends = Vec::new();
    for number in 1..=count {
        if starting.len() >= AT_ONCE
            && let Some(started) = starting.join_next().await
        {
            backends.push(started??);
        }
        let plan = Arc::clone(&plan);
        starting.spawn(async move { start(&plan, number).await.with_context(|| name_of(number)) });
    }
    while let Some(started) = starting.join_next().await {
        backends.push(started??);
    }
    terminated.recv().await;
    Ok(())
}

async fn start(plan: &PlayPlan, number: u32) -> Result<Backend> {
    let name = name_of(number);
    let authority = Authority::open(&plan.pki)?;
    let issued = authority.issue(&Identity::new(&plan.cluster, Role::Backend, &name)?, CERTIFICATE_DAYS)?;
    let net = Net::secured(Arc::new(Credentials::load(issued.files)?));
    let listener = TcpListener::bind((plan.backend.exec.host(), 0)).await?;
    let config = BackendConfig {
        name,
        subcluster: subcluster_of(number),
        exec: listener.local_addr()?.to_string().parse()?,
        journal_file: Some(journal_of(&plan.dir, number)),
        ..plan.backend.clone()
    };
    let control = ControlClient::new(&net, &plan.controls)?;
    Ok(Backend::start(&config, BootId::new(rand::random_range(1..=u64::MAX)), listener, net, control).await?)
}

/// A backend has some ten connections and files.
fn as_many_files_as_allowed() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}
