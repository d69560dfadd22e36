//! `symphony restore`: the directory of a replica that founds its cluster, or its federation, anew from a backup.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::join_all;
use symphony_config::{ClusterConfig, NodeConfig, Role};
use symphony_control_plane::{
    Backup, BackupError, ClusterState, IDS_SKIPPED_MAX, IDS_SKIPPED_MIN, RestoreError, restore, unix_ms,
};
use symphony_federation::RestoreError as FederationRestoreError;
use symphony_net::Net;
use symphony_types::NodeId;
use tokio::net::TcpStream;

use super::{federation_replica, fresh_boot, load, scheduler};
use crate::backup_file::{self, Content};
use crate::cli::RestoreArgs;
use crate::exit::bad_input;

/// How long a replica of the former group may take to take a connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &RestoreArgs) -> anyhow::Result<()> {
    let (backup, content) = backup_file::read(&args.from)?;
    let role = match content {
        Content::Cluster(_) => Role::Scheduler,
        Content::Federation(_) => Role::Federation,
    };
    let config = load(&args.node, role)?;
    if args.node.dump_config {
        print!("{}", config.to_toml());
        return Ok(());
    }
    let next_steps = match &content {
        Content::Cluster(state) => restore_cluster(&args.from, &config, &backup, state).await?,
        Content::Federation(_) => restore_federation(&args.from, &config, &backup).await?,
    };
    println!("{}: {}", args.from.display(), backup_file::in_words(&backup, &content));
    print!("{next_steps}");
    Ok(())
}

/// Restores a replica of a cluster's control group; returns what is to be done now.
async fn restore_cluster(
    file: &Path,
    config: &NodeConfig,
    backup: &Backup,
    state: &ClusterState,
) -> anyhow::Result<String> {
    let NodeConfig { cluster, scheduler: Some(own), .. } = config else {
        return Err(bad_input("the configuration has no [scheduler]"));
    };
    if own.join {
        return Err(bad_input("scheduler.join = true: a replica that joins founds nothing; restore one that does not"));
    }
    let replica = cluster.replica(own.id).context("the configuration was checked")?;
    let dispatch = replica.dispatch.to_string();
    let plane = scheduler::plane_config(&Net::plaintext(), cluster, own, fresh_boot(), dispatch);
    warn_of(&check_none_runs(cluster, state).await?);
    let ids_skipped = rand::random_range(IDS_SKIPPED_MIN..=IDS_SKIPPED_MAX);
    let index = restore(&plane, backup, ids_skipped, rand::random()).await.map_err(|error| refused(file, error))?;
    Ok(next_steps(cluster, own.id, &own.data_dir, backup, index))
}

/// The same of a federation's top group.
async fn restore_federation(file: &Path, config: &NodeConfig, backup: &Backup) -> anyhow::Result<String> {
    let Some(own) = &config.federation else {
        return Err(bad_input("the configuration has no [federation]"));
    };
    let group = federation_replica::group(config, Net::plaintext())?;
    let replicas = own.replica.iter().map(|replica| (replica.control.to_string(), replica.id));
    warn_of(&check_none_listens(replicas.collect(), "replica of the federation").await?);
    let restored = symphony_federation::restore(group, backup, unix_ms(), rand::random()).await;
    let index = restored.map_err(|error| match error {
        FederationRestoreError::Backup(error @ BackupError::Foreign { .. }) => {
            bad_input(format!("{}: {error}", file.display()))
        }
        FederationRestoreError::Disk(error @ symphony_consensus::StartError::NotEmpty { .. }) => bad_input(error),
        FederationRestoreError::Disk(error) => error.into(),
        error => bad_input(format!("{} is not restored: {error}", file.display())),
    })?;
    let others = own.replica.iter().map(|replica| replica.id).filter(|&id| id != own.id);
    Ok(format!(
        "restored into {}; the log goes on behind {index}\n\
         Everything that the federation agreed on after log index {} is lost: look at what was loaded, unloaded and moved since.\n\
         Start {} now.{} Clusters and frontends go on.\n",
        own.data_dir.display(),
        backup.index,
        own.id,
        then(others, "federation.data_dir")
    ))
}

/// The replicas that are to be started next, if there are any.
fn then(others: impl Iterator<Item = NodeId>, data_dir: &str) -> String {
    let others: Vec<_> = others.map(|id| id.to_string()).collect();
    match others.as_slice() {
        [] => String::new(),
        others => format!(" Then {}, each over an empty {data_dir}.", others.join(", ")),
    }
}

/// Names those that have not answered.
fn warn_of(silent: &[String]) {
    if !silent.is_empty() {
        let (silent, within) = (silent.join(", "), ANSWERS_WITHIN.as_secs());
        eprintln!("no answer from {silent} within {within} s: make sure that none runs there");
    }
}

/// Whose mistake it is that nothing was restored.
fn refused(file: &Path, error: RestoreError) -> anyhow::Error {
    match error {
        RestoreError::Backup(error @ BackupError::Foreign { .. }) => bad_input(format!("{}: {error}", file.display())),
        RestoreError::Backup(error) => bad_input(format!("{} is not restored: {error}", file.display())),
        RestoreError::Config(reason) => bad_input(reason),
        RestoreError::Disk(error @ symphony_consensus::StartError::NotEmpty { .. }) => bad_input(error),
        RestoreError::Disk(error) => error.into(),
    }
}

/// The result of a connection attempt to a scheduler.
enum ProbeResult {
    /// It takes connections.
    Runs(String),
    /// The machine has refused the connection: nothing listens.
    Gone,
    /// No answer, or none that shows that nothing listens.
    Silent(String),
}

/// Refuses while a replica of the former or of the new group takes connections: what it agrees on would be lost.
/// Returns those that did not answer at all, and so may run.
async fn check_none_runs(cluster: &ClusterConfig, state: &ClusterState) -> anyhow::Result<Vec<String>> {
    let former = state.nodes().iter().map(|(&id, node)| (node.control_addr.clone(), id));
    let new = cluster.scheduler.iter().map(|replica| (replica.control.to_string(), replica.id));
    check_none_listens(former.chain(new).collect(), "scheduler").await
}

/// The same of replicas at these addresses.
async fn check_none_listens(all: BTreeMap<String, NodeId>, what: &str) -> anyhow::Result<Vec<String>> {
    let answers = |(addr, id): (String, NodeId)| async move {
        let dialled = tokio::time::timeout(ANSWERS_WITHIN, TcpStream::connect(&addr)).await;
        let name = format!("{id} ({addr})");
        match dialled {
            Ok(Ok(_)) => ProbeResult::Runs(name),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => ProbeResult::Gone,
            Ok(Err(_)) | Err(_) => ProbeResult::Silent(name),
        }
    };
    let (mut running, mut silent) = (Vec::new(), Vec::new());
    for result in join_all(all.into_iter().map(answers)).await {
        match result {
            ProbeResult::Runs(name) => running.push(name),
            ProbeResult::Gone => {}
            ProbeResult::Silent(name) => silent.push(name),
        }
    }
    if running.is_empty() {
        return Ok(silent);
    }
    Err(bad_input(format!(
        "a {what} still takes connections: {}; stop all of them first. What they agree on from now on would be lost, and if most of \
         them run there is nothing to restore",
        running.join(", ")
    )))
}

/// What is lost, and what to do now.
fn next_steps(cluster: &ClusterConfig, me: NodeId, data_dir: &Path, backup: &Backup, index: u64) -> String {
    let others = cluster.scheduler.iter().map(|replica| replica.id).filter(|&id| id != me);
    let others = then(others, "scheduler.data_dir");
    format!(
        "restored into {}; the log goes on behind {index}\n\
         Everything that the cluster agreed on after log index {} is lost: look at what was loaded, unloaded and moved since.\n\
         Start {me} now.{others} Backends and frontends go on; those that registered after the backup end, to be started anew.\n",
        data_dir.display(),
        backup.index
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NodeConfig {
        let replica = |id| {
            format!(
                "[[cluster.scheduler]]\nid = {id}\ncontrol = \"127.0.0.1:1\"\ndispatch = \"127.0.0.1:2\"\nbeat = \"127.0.0.1:3\"\n"
            )
        };
        let text = format!("[scheduler]\nid = 1\ndata_dir = \"d\"\n{}[security]\ninsecure_dev = true\n", replica(1));
        NodeConfig::from_layers(Role::Scheduler, Some((Path::new("node.toml"), &text)), [], &[]).unwrap()
    }

    #[tokio::test]
    async fn a_scheduler_that_takes_connections_is_named() {
        let mut cluster = config().cluster;
        let silent = check_none_runs(&cluster, &ClusterState::default()).await.unwrap();
        assert!(silent.is_empty(), "it has refused: {silent:?}");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        cluster.scheduler[0].control = addr.parse().unwrap();
        let refused = check_none_runs(&cluster, &ClusterState::default()).await.unwrap_err().to_string();
        assert!(
            refused.contains(&format!("n1 ({addr})"))
                && refused.contains("a scheduler still")
                && refused.contains("stop all"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn who_does_not_answer_does_not_pass_for_stopped() {
        let mut cluster = config().cluster;
        // The system refuses to dial a broadcast address, which says nothing about listeners.
        cluster.scheduler[0].control = "255.255.255.255:7001".parse().unwrap();
        let silent = check_none_runs(&cluster, &ClusterState::default()).await.unwrap();
        assert_eq!(silent, ["n1 (255.255.255.255:7001)"]);
    }
}
