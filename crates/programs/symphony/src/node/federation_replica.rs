//! `symphony federation`: one replica of the group above several clusters.

use std::time::Duration;

use symphony_config::{
    EpochMode, FederatedClusterConfig, FederationBalanceConfig, LogEngine, NodeConfig, Role, Timing,
};
use symphony_consensus::{Engine, GroupConfig};
use symphony_federation::{BalanceMode, BalanceSettings, ClusterAccess, Federation, FederationConfig, TriggerSettings};
use symphony_net::Net;
use symphony_telemetry::Registry;
use symphony_transport::ControlClient;
use symphony_types::Nanos;
use tokio_util::sync::CancellationToken;

use super::certificates::Certificates;
use super::{begin, bind, security, until_told_to_stop};
use crate::cli::NodeArgs;
use crate::exit::bad_input;

pub(crate) async fn run(args: &NodeArgs) -> anyhow::Result<()> {
    let Some(config) = begin(args, Role::Federation)? else { return Ok(()) };
    let NodeConfig { federation: Some(own), .. } = &config else {
        return Err(bad_input("the configuration has no [federation]"));
    };
    let replica = own.replica(own.id).ok_or_else(|| bad_input("federation.id is not among the replicas"))?;
    let control = bind("federation.replica.control", &replica.control).await?;
    let metrics = bind("federation.metrics", &own.metrics).await?;

    let registry = Registry::new("federation");
    // The replicas of the top-level group are the schedulers of their own trust domain.
    let (name, certificates) = (own.id.get().to_string(), Certificates::shown_in(&registry));
    let net = security::net(&config, symphony_net::Role::Scheduler, &name, &certificates)?;
    let clusters = own.clusters.iter().map(|cluster| {
        let net =
            security::net_in(&config, cluster, symphony_net::Role::Federation, &config.cluster.name, &certificates)?;
        let (name, addrs) = (cluster.name.clone(), control_addrs(cluster));
        let control = ControlClient::new(&net, &addrs)?;
        Ok(ClusterAccess { name, addrs, control })
    });
    let plane = FederationConfig {
        group: group(&config, net)?,
        clusters: clusters.collect::<anyhow::Result<_>>()?,
        unreachable: Duration::from_millis(own.unreachable_ms),
        balance: balance(&own.balance),
        wall_clock: symphony_control_plane::unix_ms,
    };
    let federation = Federation::start(plane, control).await?;
    federation.register_metrics(&registry);
    let (leadership, mut ends) = (federation.leadership(), federation.leadership());
    let surface =
        super::surface(registry, &config, &own.metrics).with_readiness(move || match leadership.borrow().leader {
            Some(_) => Ok(()),
            None => Err("no leader of the federation is known".into()),
        });
    let stop = CancellationToken::new();
    let serving = tokio::spawn(symphony_telemetry::serve(metrics, surface, stop.clone().cancelled_owned()));
    let ended = tokio::select! {
        stopped = until_told_to_stop(Vec::new()) => stopped,
        why = federation.ends() => Err(anyhow::anyhow!(why)),
        // The watch closes when the replica cannot continue: its log says why.
        () = async { while ends.changed().await.is_ok() {} } => Err(anyhow::anyhow!("this replica of the federation ended")),
    };
    federation.shutdown().await;
    stop.cancel();
    let _ = serving.await;
    ended
}

pub(super) fn control_addrs(cluster: &FederatedClusterConfig) -> Vec<String> {
    cluster.control.iter().map(ToString::to_string).collect()
}

fn balance(config: &FederationBalanceConfig) -> BalanceSettings {
    let period = Nanos::from_millis(config.period_s.saturating_mul(1000));
    BalanceSettings {
        mode: match config.mode {
            EpochMode::Off => BalanceMode::Off,
            EpochMode::Propose => BalanceMode::Propose,
            EpochMode::Adopt => BalanceMode::Adopt,
        },
        trigger: TriggerSettings { period, ..TriggerSettings::default() },
        moved_bytes_max: (config.moved_mb_max > 0).then(|| config.moved_mb_max.saturating_mul(1 << 20)),
    }
}

pub(super) fn group(config: &NodeConfig, net: Net) -> anyhow::Result<GroupConfig> {
    let Some(own) = &config.federation else { return Err(bad_input("the configuration has no [federation]")) };
    let voters = own.replica.iter().map(|replica| (replica.id, replica.control.to_string())).collect();
    let timing = match config.cluster.timing {
        Timing::Lan => symphony_consensus::Timing::lan(),
        Timing::Relaxed => symphony_consensus::Timing::relaxed(),
    };
    let engine = match own.log_engine {
        LogEngine::Sled => Engine::Sled,
        LogEngine::Redb => Engine::Redb,
    };
    let group = GroupConfig::new(&config.cluster.name, own.id, voters, own.data_dir.clone());
    Ok(GroupConfig { timing, engine, net, ..group })
}
