//! `symphony scheduler`: control plane and dispatch runtime of one replica.

use std::time::Duration;

use anyhow::Context;
use symphony_config::{ClusterConfig, Idle, LogEngine, NodeConfig, Role, SchedulerConfig, Timing};
use symphony_control_plane::{
    ControlPlane, ControlPlaneConfig, Engine, Listeners, OnDiskError, Remembers, ReplicaAddrs,
};
use symphony_explain::{Explanation, Question};
use symphony_net::Net;
use symphony_protocol::control as pb;
use symphony_scheduler::Delays;
use symphony_scheduler_runtime::{LeadConfig, Runtime, Tapes, ThreadPolicy};
use symphony_telemetry::{Registry, Surface};
use symphony_transport::ControlClient;
use symphony_types::{BackendId, BootId};
use tokio::sync::mpsc;

use super::{begin, bind, control_addrs, fresh_boot, page, security, until_told_to_stop};
use crate::cli::NodeArgs;
use crate::exit::bad_input;

/// How long the report of a lost backend may take before it is given up; the link that is down reports again.
const REPORT_DOWN_WITHIN: Duration = Duration::from_secs(5);

/// How long the end waits for what is still on its way to a tape.
const TAPES_WRITTEN_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &NodeArgs) -> anyhow::Result<()> {
    let Some(config) = begin(args, Role::Scheduler)? else { return Ok(()) };
    let NodeConfig { cluster, scheduler: Some(scheduler), .. } = &config else {
        return Err(bad_input("the configuration has no [scheduler]"));
    };
    let replica = cluster.replica(scheduler.id).context("the configuration was checked")?.clone();
    let control = bind("cluster.scheduler.control", &replica.control).await?;
    let dispatch = bind("cluster.scheduler.dispatch", &replica.dispatch).await?;
    let metrics = bind("scheduler.metrics", &scheduler.metrics).await?;
    let beat = bind("cluster.scheduler.beat", &replica.beat).await?.into_std().context("beat port")?;
    beat.set_nonblocking(false).context("beat port")?;

    let boot = fresh_boot();
    let registry = Registry::new("scheduler");
    let name = scheduler.id.get().to_string();
    let net = security::net(&config, symphony_net::Role::Scheduler, &name, &registry)?;
    let plane_config = plane_config(&net, cluster, scheduler, boot, replica.dispatch.to_string());
    let plane = ControlPlane::start(plane_config, Listeners { control, beat }).await?;
    plane.metrics().register(&registry);
    let lead_config = lead_config(&net, scheduler, boot)?;
    let tapes = lead_config.tapes.clone();
    let (down, downs) = mpsc::unbounded_channel();
    let runtime = std::sync::Arc::new(Runtime::start(lead_config, dispatch, plane.view(), down));
    symphony_scheduler_runtime::register_metrics(&registry, &runtime);
    plane.explain_by(std::sync::Arc::new(Memory(std::sync::Arc::clone(&runtime))));
    tokio::spawn(report_down(ControlClient::new(&net, &control_addrs(&config))?, downs));

    let (view, leadership) = (plane.view(), plane.leadership());
    let name = format!("{}", scheduler.id);
    let surface = Surface::new(registry)
        .with_readiness(move || match leadership.borrow().leader {
            Some(_) => Ok(()),
            None => Err("no leader of the control group is known".into()),
        })
        .with_view(move || page::view_json(&view.borrow(), "scheduler", &name, &|_| serde_json::json!({})));
    let stop = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(symphony_telemetry::serve(metrics, surface, stop.clone().cancelled_owned()));

    until_told_to_stop().await?;
    runtime.stop();
    plane.shutdown().await;
    if let Some(tapes) = tapes
        && tokio::time::timeout(TAPES_WRITTEN_WITHIN, tapes.written()).await.is_err()
    {
        tracing::warn!("tapes are not written after {TAPES_WRITTEN_WITHIN:?}; they are cut");
    }
    stop.cancel();
    let _ = serving.await;
    Ok(())
}

/// What this node's leads remember, as the control plane asks for it.
#[derive(Debug)]
struct Memory(std::sync::Arc<Runtime>);

impl Remembers for Memory {
    fn explain(&self, question: &Question) -> Vec<Explanation> {
        self.0.explain(question)
    }
}

fn plane_config(
    net: &Net,
    cluster: &ClusterConfig,
    scheduler: &SchedulerConfig,
    boot: BootId,
    dispatch_addr: String,
) -> ControlPlaneConfig {
    let replicas = cluster
        .scheduler
        .iter()
        .map(|r| (r.id, ReplicaAddrs { control: r.control.to_string(), beat: r.beat.to_string() }))
        .collect();
    let timing = match cluster.timing {
        Timing::Lan => symphony_control_plane::Timing::lan(),
        Timing::Relaxed => symphony_control_plane::Timing::relaxed(),
    };
    ControlPlaneConfig {
        cluster: cluster.name.clone(),
        node: scheduler.id,
        boot,
        replicas,
        dispatch_addr,
        data_dir: scheduler.data_dir.clone(),
        timing,
        engine: match scheduler.log_engine {
            LogEngine::Sled => Engine::Sled,
            LogEngine::Redb => Engine::Redb,
        },
        on_disk_error: OnDiskError::Abort,
        net: net.clone(),
    }
}

fn lead_config(net: &Net, scheduler: &SchedulerConfig, boot: BootId) -> anyhow::Result<LeadConfig> {
    let delays = &scheduler.delays;
    let tapes = scheduler.tape_dir.as_ref().map(|dir| {
        let tapes = Tapes::in_dir(dir, scheduler.tape_mb_max << 20);
        tapes.map_err(|error| bad_input(format!("scheduler.tape_dir: cannot make {}: {error}", dir.display())))
    });
    Ok(LeadConfig {
        node: scheduler.id,
        boot,
        net: net.clone(),
        delays: Delays {
            control: delays.control(),
            data_per_item: delays.data_per_item(),
            reply: delays.reply(),
            guard: delays.guard(),
        },
        model_threads: scheduler.model_threads,
        threads: ThreadPolicy { spin: scheduler.idle == Idle::Spin, pin: scheduler.pin_cores },
        tapes: tapes.transpose()?,
    })
}

/// Tells the control group which backends the leader cannot reach.
async fn report_down(control: ControlClient, mut downs: mpsc::UnboundedReceiver<(BackendId, BootId)>) {
    while let Some((backend, boot)) = downs.recv().await {
        let request = pb::ReportBackendDownRequest { backend: backend.get(), boot_id: boot.get() };
        let call =
            |mut client: pb::control_client::ControlClient<_>| async move { client.report_backend_down(request).await };
        if let Err(error) = control.call(REPORT_DOWN_WITHIN, call).await {
            tracing::warn!(%backend, %error, "cannot report a lost backend");
        }
    }
}
