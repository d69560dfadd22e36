//! `symphony scheduler`: control plane and dispatch runtime of one replica.

use std::time::Duration;

use anyhow::Context;
use symphony_config::{
    AutoscalingConfig, ClusterConfig, DelaysConfig, Idle, LearningConfig, LogEngine, NodeConfig, Role, SchedulerConfig,
    Timing,
};
use symphony_control_plane::{
    AutoscalerSettings, Command, ControlPlane, ControlPlaneConfig, Engine, EpochMode, EpochSettings, Listeners,
    LoadReports, OnDiskError, Remembers, ReplicaAddrs, ScalingSettings, StartError, TriggerSettings,
};
use symphony_explain::{Explanation, Question};
use symphony_net::Net;
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_scheduler::{DataDelaySettings, Delays};
use symphony_scheduler_runtime::{
    DecisionConfig, GpuLoad, LeadConfig, LearningSettings, ModelLoad, OnlineProfileSettings, Runtime,
    StragglerSettings, SubclusterLoad, Tapes, ThreadPolicy,
};
use symphony_telemetry::{Registry, Surface};
use symphony_types::{BootId, Member, Nanos, NodeId};

use super::control_runtime::ControlRuntime;
use super::{DRAIN_WITHIN, begin, bind, frames, fresh_boot, page, security, until_told_to_stop};
use crate::cli::NodeArgs;
use crate::exit::bad_input;

/// How long shutdown waits for the last records of a tape while the control plane ends. Together with the hand-over
/// before and the metrics port after it this is within the 10 s that service managers allow.
const TAPES_WRITTEN_WITHIN: Duration = Duration::from_secs(4);

pub(crate) async fn run(args: &NodeArgs) -> anyhow::Result<()> {
    let Some(config) = begin(args, Role::Scheduler)? else { return Ok(()) };
    let NodeConfig { cluster, scheduler: Some(scheduler), .. } = &config else {
        return Err(bad_input("the configuration has no [scheduler]"));
    };
    let replica = cluster.replica(scheduler.id).context("the configuration was checked")?.clone();
    let control = bind("cluster.scheduler.control", &replica.control).await?.into_std().context("control port")?;
    let dispatch = bind("cluster.scheduler.dispatch", &replica.dispatch).await?;
    let metrics = bind("scheduler.metrics", &scheduler.metrics).await?;
    let beat = bind("cluster.scheduler.beat", &replica.beat).await?.into_std().context("beat port")?;
    beat.set_nonblocking(false).context("beat port")?;

    let boot = fresh_boot();
    let registry = Registry::new("scheduler");
    let name = scheduler.id.get().to_string();
    let carriers = frames::carriers(&config.frames, &registry)?;
    let net = security::net(&config, symphony_net::Role::Scheduler, &name, &registry)?.carried(carriers.clone());
    let plane_config = plane_config(&net, cluster, scheduler, boot, replica.dispatch.to_string());
    let own = ControlRuntime::start()?;
    let plane = own.run(async move {
        let control = tokio::net::TcpListener::from_std(control);
        let control = control.map_err(|source| StartError::Io { what: "control port", source })?;
        ControlPlane::start(plane_config, Listeners { control: control.into(), beat: beat.into() }).await
    });
    let plane = plane.await??;
    plane.metrics().register(&registry);
    registry.collect(plane.scaling_collector());
    let lead_config = lead_config(&net, cluster, scheduler, boot)?;
    let tapes = lead_config.tapes.clone();
    let runtime = Runtime::start(lead_config, dispatch, plane.view(), plane.in_contact(), plane.lead_reports());
    let runtime = std::sync::Arc::new(runtime.context("cannot start the dispatch runtime")?);
    symphony_scheduler_runtime::register_metrics(&registry, &runtime);
    plane.explain_by(std::sync::Arc::new(Memory(std::sync::Arc::clone(&runtime))));
    let life = (scheduler.id, boot);
    tokio::spawn(report_loads(std::sync::Arc::clone(&runtime), plane.load_reports()));

    let (view, leadership) = (plane.view(), plane.leadership());
    let name = format!("{}", scheduler.id);
    let surface = Surface::new(registry)
        .with_readiness(move || match leadership.borrow().leader {
            Some(_) => Ok(()),
            None => Err("no leader of the control group is known".into()),
        })
        .with_view(move || {
            let mut page = page::view_json(&view.borrow(), "scheduler", &name, &|_| serde_json::json!({}));
            page["frames"] = frames::json(&carriers);
            page
        });
    let stop = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(symphony_telemetry::serve(metrics, surface, stop.clone().cancelled_owned()));

    let mut ends = plane.ends();
    let fatal = tokio::select! {
        told = until_told_to_stop() => {
            told?;
            hand_over(&plane, life).await;
            None
        }
        fatal = ends.wait_for(Option::is_some) => fatal.ok().and_then(|fatal| fatal.clone()),
    };
    runtime.stop();
    let written = async {
        if let Some(tapes) = tapes
            && tokio::time::timeout(TAPES_WRITTEN_WITHIN, tapes.written()).await.is_err()
        {
            tracing::warn!("tapes are not written after {TAPES_WRITTEN_WITHIN:?}; they are cut");
        }
    };
    tokio::join!(plane.shutdown(), written);
    stop.cancel();
    let _ = serving.await;
    fatal.map_or(Ok(()), |fatal| Err(fatal.into()))
}

/// How long one step of the hand-over at shutdown may take while the group has no leader.
const STEP_WITHIN: Duration = Duration::from_secs(1);

/// Hands over this replica's leads, the control group first, to other living replicas; in bounded time.
async fn hand_over(plane: &ControlPlane, (node, boot): (NodeId, BootId)) {
    let give_up = tokio::time::Instant::now() + DRAIN_WITHIN;
    let mut view = plane.view();
    let heirs = |view: &View| view.nodes.iter().any(|(&id, n)| id != node && n.up && n.duty.takes_work());
    if !heirs(&view.borrow()) {
        return;
    }
    let _ = tokio::time::timeout(STEP_WITHIN, plane.give_leadership_away()).await;
    let leave = Command::Leave { member: Member::Scheduler(node), boot };
    match tokio::time::timeout(STEP_WITHIN, plane.propose(&leave)).await {
        Ok(Ok(_)) => {}
        failed => return tracing::warn!(?failed, "not handed over: the others take over as after a crash"),
    }
    let done = view.wait_for(|view| {
        let led = view.subclusters.values().filter(|s| s.leader == Some((node, boot))).count();
        led == 0 || !heirs(view)
    });
    match tokio::time::timeout_at(give_up, done).await {
        Ok(_) => tracing::info!("handed over"),
        Err(_) => {
            tracing::warn!("not all handed over within {DRAIN_WITHIN:?}: the rest is taken over as after a crash")
        }
    }
}

/// The records of this node's leads, for the control plane's questions.
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
        host: symphony_control_plane::Host::Machine,
        net: net.clone(),
        join: scheduler.join,
        epochs: epochs(scheduler),
        request_delays: request_delays(&scheduler.delays),
        wall_clock: symphony_control_plane::unix_ms,
    }
}

/// The fixed delays of a request besides its batch: those of the plan, of the input (at least) and of the answer.
fn request_delays(delays: &DelaysConfig) -> Nanos {
    delays.control() + delays.data_min() + delays.reply()
}

fn epochs(scheduler: &SchedulerConfig) -> EpochSettings {
    let config = &scheduler.epochs;
    let seconds = |s: u64| Nanos::from_millis(s.saturating_mul(1000));
    EpochSettings {
        mode: match config.mode {
            symphony_config::EpochMode::Off => EpochMode::Off,
            symphony_config::EpochMode::Propose => EpochMode::Propose,
            symphony_config::EpochMode::Adopt => EpochMode::Adopt,
        },
        trigger: TriggerSettings {
            period: seconds(config.period_s),
            distance_min: seconds(config.distance_min_s),
            rate_change_min: config.rate_change_min_percent as f64 / 100.0,
            change_holds: seconds(config.change_holds_s),
            dry_run: false,
        },
        rate_over: Duration::from_secs(config.rate_over_s),
        subcluster_rate_max_rps: config.subcluster_rate_max_rps as f64,
        moved_bytes_max: (config.moved_mb_max > 0).then(|| config.moved_mb_max.saturating_mul(1 << 20)),
        load_bytes_per_s: config.load_mb_per_s.saturating_mul(1 << 20),
        solve_within: Duration::from_millis(config.solve_ms_max),
        scaling: scaling(&scheduler.autoscaling),
    }
}

fn scaling(config: &AutoscalingConfig) -> ScalingSettings {
    let seconds = |s: u64| Nanos::from_millis(s.saturating_mul(1000));
    let share = |percent: u32| f64::from(percent) / 100.0;
    let defaults = ScalingSettings::default();
    ScalingSettings {
        gpus_min: config.gpus_min,
        gpus_max: config.gpus_max,
        order_stands: Duration::from_secs(config.order_stands_s),
        law: AutoscalerSettings {
            reserve: share(config.reserve_percent),
            reserve_min: share(config.reserve_percent) / 2.0,
            up_window: seconds(config.up_window_s),
            down_window: seconds(config.down_window_s),
            down_after_up: seconds(config.down_after_up_s),
            up_after_down: seconds(config.up_after_down_s),
            down_period: seconds(config.down_period_s),
            down_step_max: share(config.down_step_percent_max),
            ..defaults.law
        },
    }
}

fn learning(config: &LearningConfig) -> LearningSettings {
    let seconds = |s: u64| Nanos::from_millis(s.saturating_mul(1000));
    let share = |percent: u32| f64::from(percent) / 100.0;
    LearningSettings {
        profiles: config.profiles.then(|| OnlineProfileSettings {
            change_min: share(config.profile_change_percent_min),
            publish_every: seconds(config.profile_period_s),
            ..OnlineProfileSettings::default()
        }),
        stragglers: config.stragglers.then(|| StragglerSettings {
            slow_factor: 1.0 + share(config.slow_percent),
            share_max: share(config.quarantined_percent_max),
            pause: seconds(config.quarantine_s),
            pause_max: seconds(config.quarantine_s_max),
            trial_batches: config.trial_batches,
            ..StragglerSettings::default()
        }),
    }
}

/// The period of load reports to the Raft leader.
const LOADS_EVERY: Duration = Duration::from_secs(1);

/// Reports the load of this replica's leads to the Raft leader, as long as the process runs.
async fn report_loads(runtime: std::sync::Arc<Runtime>, mut reports: LoadReports) {
    let mut ticks = tokio::time::interval(LOADS_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let loads: Vec<_> = runtime.loads().iter().map(load).collect();
        if !loads.is_empty() {
            reports.report(loads).await;
        }
    }
}

fn load(load: &SubclusterLoad) -> pb::SubclusterLoad {
    let models = load.models.iter().map(|(id, counted)| {
        let ModelLoad { arrived_items, dropped, executed, queued } = *counted;
        pb::ModelLoad { model: id.get(), arrived_items, dropped, executed, queued }
    });
    let gpus = load.gpus.iter().map(|(id, counted)| {
        let GpuLoad { busy_ns, plans } = *counted;
        let slow = load.slow.iter().find(|slow| slow.gpu == *id);
        let (slowdown, failed) = slow.map_or((0.0, 0), |slow| (slow.slowdown, slow.failed));
        let left = slow.and_then(|slow| slow.left).unwrap_or_default();
        let (quarantined_ms, lost) = (left.get() / 1_000_000, slow.is_some_and(|slow| slow.left.is_none()));
        pb::GpuLoad { gpu: id.get(), busy_ns, plans, slowdown, quarantined_ms, failed, lost }
    });
    let drifts = load.drifts.iter().map(|(model, kind, factor)| pb::Drift {
        model: model.get(),
        gpu_kind: kind.clone(),
        factor: *factor,
    });
    let learnt = load.learnt.iter().map(|(model, kind, learnt)| {
        let point = |&(batch, factor): &(u32, f64)| pb::StretchPoint { batch, factor: factor as f32 };
        let points = learnt.stretch.points().iter().map(point).collect();
        pb::LearntProfile { model: model.get(), gpu_kind: kind.clone(), points, measured_max: learnt.measured_max }
    });
    pb::SubclusterLoad {
        subcluster: load.subcluster.get(),
        token: load.token.get(),
        models: models.collect(),
        gpus: gpus.collect(),
        drifts: drifts.collect(),
        learnt: learnt.collect(),
        demand_ns: Some(load.demand.get()),
    }
}

fn lead_config(
    net: &Net,
    cluster: &ClusterConfig,
    scheduler: &SchedulerConfig,
    boot: BootId,
) -> anyhow::Result<LeadConfig> {
    let delays = &scheduler.delays;
    let tapes = scheduler.tape_dir.as_ref().map(|dir| {
        let tapes = Tapes::in_dir(dir, scheduler.tape_mb_max << 20);
        tapes.map_err(|error| bad_input(format!("scheduler.tape_dir: cannot make {}: {error}", dir.display())))
    });
    Ok(LeadConfig {
        node: scheduler.id,
        boot,
        net: net.clone(),
        delays: Delays { control: delays.control(), reply: delays.reply(), guard: delays.guard(), ..Delays::default() },
        data_delays: DataDelaySettings {
            per_item: delays.data_per_item(),
            min: delays.data_min(),
            max: delays.data_max(),
            ..DataDelaySettings::default()
        },
        decisions: DecisionConfig {
            model_threads: scheduler.model_threads,
            shared_threads: scheduler.decision_threads,
            threads: ThreadPolicy { spin: scheduler.idle == Idle::Spin, pin: scheduler.pin_cores },
            learning: learning(&scheduler.learning),
            ..DecisionConfig::default()
        },
        tapes: tapes.transpose()?,
        stuck_after: match cluster.timing {
            Timing::Lan => STUCK_AFTER_LAN,
            Timing::Relaxed => STUCK_AFTER_RELAXED,
        },
        consolidate: scheduler.consolidate.clone(),
    })
}

/// A decision thread whose turn takes longer than this counts as hung: with detection and seal, another replica then
/// leads within 200 ms. Turns take microseconds; only pauses of the machine last this long.
const STUCK_AFTER_LAN: Duration = Duration::from_millis(100);
/// The same for machines whose pauses must not count as faults.
const STUCK_AFTER_RELAXED: Duration = Duration::from_millis(500);
