//! `symphony scheduler`: control plane and dispatch runtime of one replica.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context;
use symphony_config::{
    AutoscalingConfig, ClusterConfig, DelaysConfig, Idle, LearningConfig, LogEngine, NodeConfig, Role, SchedulerConfig,
    Timing,
};
use symphony_control_plane::{
    Command, ControlPlane, ControlPlaneConfig, Engine, EpochMode, EpochSettings, FleetSettings, Listeners, LoadReports,
    OnDiskError, Remembers, ReplicaAddrs, ScalingSettings, StartError, TriggerSettings,
};
use symphony_explain::{Explanation, Question};
use symphony_net::Net;
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_scheduler::{DataDelaySettings, Delays, PolicyRegistry};
use symphony_scheduler_runtime::{
    DecisionConfig, GpuLoad, LeadConfig, LearningSettings, ModelLoad, OnlineProfileSettings, Runtime, STUCK_AFTER_LAN,
    STUCK_AFTER_RELAXED, StragglerSettings, SubclusterLoad, Tapes, ThreadPolicy,
};
use symphony_telemetry::Registry;
use symphony_types::{BootId, Duty, Member, Nanos, NodeId};

use super::certificates::Certificates;
use super::control_runtime::ControlRuntime;
use super::{DRAIN_WITHIN, begin, bind, frames, fresh_boot, page, security, until_told_to_stop};
use crate::cli::NodeArgs;
use crate::exit::bad_input;

/// How long shutdown waits for the last records of a tape while the control plane ends. Together with the hand-over
/// before and the metrics port after it this is within the 10 s that service managers allow.
const TAPES_WRITTEN_WITHIN: Duration = Duration::from_secs(4);

pub(crate) async fn run(args: &NodeArgs, policies: &PolicyRegistry) -> anyhow::Result<()> {
    let Some(config) = begin(args, Role::Scheduler)? else { return Ok(()) };
    let NodeConfig { cluster, scheduler: Some(scheduler), .. } = &config else {
        return Err(bad_input("the configuration has no [scheduler]"));
    };
    let replica = cluster.replica(scheduler.id).context("the configuration was checked")?.clone();
    let control = bind("cluster.scheduler.control", &replica.control).await?.into_std().context("control port")?;
    let dispatch = bind("cluster.scheduler.dispatch", &replica.dispatch).await?;
    let metrics = bind("scheduler.metrics", &scheduler.metrics).await?;
    let heartbeat = bind("cluster.scheduler.beat", &replica.beat).await?.into_std().context("heartbeat port")?;
    heartbeat.set_nonblocking(false).context("heartbeat port")?;

    let boot = fresh_boot();
    let registry = Registry::new("scheduler");
    let name = scheduler.id.get().to_string();
    let carriers = frames::carriers(&config.frames, &registry)?;
    let net = security::net(&config, symphony_net::Role::Scheduler, &name, &Certificates::shown_in(&registry))?
        .carried(carriers.clone());
    let plane_config = plane_config(&net, cluster, scheduler, boot, replica.dispatch.to_string());
    let plane_config = ControlPlaneConfig { policies: policies.clone(), ..plane_config };
    let own = ControlRuntime::start()?;
    let plane = own.run(async move {
        let control = tokio::net::TcpListener::from_std(control);
        let control = control.map_err(|source| StartError::Io { what: "control port", source })?;
        ControlPlane::start(plane_config, Listeners { control: control.into(), heartbeat: heartbeat.into() }).await
    });
    let plane = plane.await??;
    plane.metrics().register(&registry);
    registry.collect(plane.scaling_collector());
    let lead_config = LeadConfig { policies: policies.clone(), ..lead_config(&net, cluster, scheduler, boot)? };
    let tapes = lead_config.tapes.clone();
    let runtime = Runtime::start(lead_config, dispatch, plane.view(), plane.in_contact(), plane.lead_reports());
    let runtime = std::sync::Arc::new(runtime.context("cannot start the dispatch runtime")?);
    symphony_scheduler_runtime::register_metrics(&registry, &runtime);
    plane.explain_by(std::sync::Arc::new(Memory(std::sync::Arc::clone(&runtime))));
    let own_boot = (scheduler.id, boot);
    tokio::spawn(report_loads(std::sync::Arc::clone(&runtime), plane.load_reports()));

    let (view, leadership) = (plane.view(), plane.leadership());
    let (applied, me) = (plane.view(), scheduler.id);
    let name = format!("{}", scheduler.id);
    let console = super::console(("scheduler", name.as_str()), &net, &config, &view)?;
    let surface = super::surface(registry, &config, &scheduler.metrics)
        .with_readiness(move || match leadership.borrow().leader {
            None => Err("no leader of the control group is known".into()),
            // Until then another one must not be stopped for an upgrade.
            Some(_) if applied.borrow().nodes.get(&me).is_none_or(|node| !node.up || node.boot != Some(boot)) => {
                Err("the control group does not count this replica as up yet".into())
            }
            Some(_) => Ok(()),
        })
        .with_view(move || {
            let mut page = page::view_json(&view.borrow(), "scheduler", &name, &|_| serde_json::json!({}));
            page["frames"] = frames::json(&carriers);
            page
        })
        .with_console(move |question| console.answer(question));
    let stop = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(symphony_telemetry::serve(metrics, surface, stop.clone().cancelled_owned()));

    let mut ends = plane.ends();
    let fatal = tokio::select! {
        stopped = until_told_to_stop(vec![own.handle()]) => {
            stopped?;
            hand_over(&plane, own_boot).await;
            None
        }
        fatal = ends.wait_for(Option::is_some) => fatal.ok().and_then(|fatal| fatal.clone()),
        never = follow_while_draining(&plane, scheduler.id) => match never {},
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
    if !another_may_lead(&view.borrow(), node) {
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
        led == 0 || !another_may_lead(view, node)
    });
    match tokio::time::timeout_at(give_up, done).await {
        Ok(_) => tracing::info!("handed over"),
        Err(_) => {
            tracing::warn!("not all handed over within {DRAIN_WITHIN:?}: the rest is taken over as after a crash")
        }
    }
}

/// Whether another replica can lead.
fn another_may_lead(view: &View, node: NodeId) -> bool {
    view.nodes.iter().any(|(&id, n)| id != node && n.up && n.duty.takes_work())
}

/// How often a replica looks whether it is to drain.
const CHECK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// While this replica drains it does not lead the control group either, if another one can: it may be stopped in any
/// way then.
async fn follow_while_draining(plane: &ControlPlane, node: NodeId) -> Infallible {
    let view = plane.view();
    loop {
        let drains = |view: &View| view.nodes.get(&node).is_some_and(|n| n.duty == Duty::Draining);
        let hands_over = {
            let view = view.borrow();
            drains(&view) && another_may_lead(&view, node)
        };
        if hands_over {
            let _ = tokio::time::timeout(STEP_WITHIN, plane.give_leadership_away()).await;
        }
        tokio::time::sleep(CHECK_AGAIN_AFTER).await;
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

pub(super) fn plane_config(
    net: &Net,
    cluster: &ClusterConfig,
    scheduler: &SchedulerConfig,
    boot: BootId,
    dispatch_addr: String,
) -> ControlPlaneConfig {
    let replicas = cluster
        .scheduler
        .iter()
        .map(|r| (r.id, ReplicaAddrs { control: r.control.to_string(), heartbeat: r.beat.to_string() }))
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
        environment: symphony_control_plane::Environment::Machine,
        net: net.clone(),
        join: scheduler.join,
        epochs: epochs(scheduler),
        request_delays: request_delays(&scheduler.delays),
        wall_clock: symphony_control_plane::unix_ms,
        policies: PolicyRegistry::new(),
    }
}

/// The fixed delays of a request besides its batch: those of the plan, of the input (at least) and of the answer.
fn request_delays(delays: &DelaysConfig) -> Nanos {
    delays.control() + delays.data_min() + delays.reply()
}

const fn seconds(s: u64) -> Nanos {
    Nanos::from_millis(s.saturating_mul(1000))
}

fn share(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

fn epochs(scheduler: &SchedulerConfig) -> EpochSettings {
    let (config, speedup) = (&scheduler.epochs, scheduler.loop_speedup);
    if speedup != 1 {
        tracing::warn!(
            speedup,
            "scheduler.loop_speedup is for tests: advice and plans change faster than measurements settle"
        );
    }
    let constants = EpochSettings::default();
    EpochSettings {
        mode: match config.mode {
            symphony_config::EpochMode::Off => EpochMode::Off,
            symphony_config::EpochMode::Propose => EpochMode::Propose,
            symphony_config::EpochMode::Adopt => EpochMode::Adopt,
        },
        trigger: TriggerSettings { period: seconds(config.period_s), ..constants.trigger }.sped_up(speedup),
        rate_over: constants.rate_over / speedup,
        subcluster_rate_max_rps: config.subcluster_rate_max_rps as f64,
        moved_bytes_max: (config.moved_mb_max > 0).then(|| config.moved_mb_max.saturating_mul(1 << 20)),
        scaling: scaling(&scheduler.autoscaling, speedup),
        ..constants
    }
}

fn scaling(config: &AutoscalingConfig, speedup: u32) -> ScalingSettings {
    ScalingSettings {
        gpus_min: config.gpus_min,
        gpus_max: config.gpus_max,
        order_stands: Duration::from_secs(config.order_stands_s),
        fleet: (config.budget_per_hour > 0.0).then(|| FleetSettings {
            budget_per_hour: config.budget_per_hour,
            price_per_hour: config.prices.iter().map(|price| (price.kind.clone(), price.per_hour)).collect(),
        }),
        autoscaler: ScalingSettings::default().autoscaler.with_reserve(share(config.reserve_percent)).sped_up(speedup),
    }
}

fn learning(config: &LearningConfig, speedup: u32) -> LearningSettings {
    let profiles = OnlineProfileSettings::default();
    LearningSettings {
        profiles: config
            .profiles
            .then(|| OnlineProfileSettings { publish_every: profiles.publish_every.divided_by(speedup), ..profiles }),
        stragglers: config.stragglers.then(|| StragglerSettings {
            share_max: share(config.quarantined_percent_max),
            pause: seconds(config.quarantine_s),
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
        let ModelLoad { arrived_items, request_items, dropped, executed, failed, late, queued } = counted.clone();
        pb::ModelLoad { model: id.get(), arrived_items, dropped, executed, failed, late, queued, request_items }
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
            learning: learning(&scheduler.learning, scheduler.loop_speedup),
            ..DecisionConfig::default()
        },
        tapes: tapes.transpose()?,
        stuck_after: match cluster.timing {
            Timing::Lan => STUCK_AFTER_LAN,
            Timing::Relaxed => STUCK_AFTER_RELAXED,
        },
        consolidate: scheduler.consolidate.clone(),
        policies: PolicyRegistry::new(),
    })
}

#[cfg(test)]
mod tests {
    use symphony_config::REMOVED_KEYS;
    use symphony_protocol::view::NodeView;

    use super::*;

    /// The text of a configuration's keys that are constants now, and the constants.
    #[test]
    fn keys_that_are_constants_now_tell_the_constants() {
        let seconds = |span: Nanos| format!("{} s", span.as_secs_f64());
        let percent = |share: f64| format!("{} %", (share * 100.0).round());
        let (epochs, law) = (EpochSettings::default(), ScalingSettings::default().autoscaler);
        let (profiles, stragglers) = (OnlineProfileSettings::default(), StragglerSettings::default());
        let trigger = |section: &str| {
            [
                (format!("{section}.distance_min_s"), seconds(epochs.trigger.distance_min)),
                (format!("{section}.rate_change_min_percent"), percent(epochs.trigger.rate_change_min)),
                (format!("{section}.change_holds_s"), seconds(epochs.trigger.change_holds)),
            ]
        };
        let others = [
            ("epochs.rate_over_s", seconds(epochs.rate_over.into())),
            ("epochs.load_mb_per_s", format!("{} MB", epochs.load_bytes_per_s >> 20)),
            ("epochs.solve_ms_max", format!("{} ms", epochs.solve_within.as_millis())),
            ("autoscaling.up_window_s", seconds(law.up_window)),
            ("autoscaling.down_window_s", seconds(law.down_window)),
            ("autoscaling.down_after_up_s", seconds(law.down_after_up)),
            ("autoscaling.up_after_down_s", seconds(law.up_after_down)),
            ("autoscaling.down_period_s", seconds(law.down_period)),
            ("autoscaling.down_step_percent_max", percent(law.down_step_max)),
            ("learning.profile_change_percent_min", percent(profiles.change_min)),
            ("learning.profile_period_s", seconds(profiles.publish_every)),
            ("learning.slow_percent", percent(stragglers.slow_factor - 1.0)),
            ("learning.quarantine_s_max", seconds(stragglers.pause_max)),
            ("learning.trial_batches", stragglers.trial_batches.to_string()),
        ];
        let others = others.map(|(key, now)| (format!("scheduler.{key}"), now));
        let plans = ("backend.plans_queued_max".to_owned(), symphony_types::GPU_PLANS_MAX.to_string());
        let known = trigger("scheduler.epochs").into_iter().chain(trigger("federation.balance")).chain(others);
        let known: std::collections::BTreeMap<_, _> = known.chain([plans]).collect();
        for removed in REMOVED_KEYS.iter().filter(|removed| removed.key != "federation.look_every_ms") {
            assert_eq!(known.get(removed.key).map(String::as_str), Some(removed.now), "{}", removed.key);
        }
        assert_eq!(known.len() + 1, REMOVED_KEYS.len());
    }

    #[test]
    fn another_may_lead_if_it_is_up_and_takes_work() {
        let view = |others: &[(bool, Duty)]| {
            let node = |(up, duty)| NodeView { up, duty, ..NodeView::default() };
            let all = [(true, Duty::Serving)].into_iter().chain(others.iter().copied());
            View { nodes: (1..).map(NodeId::new).zip(all.map(node)).collect(), ..View::default() }
        };
        let may = |others: &[(bool, Duty)]| another_may_lead(&view(others), NodeId::new(1));
        assert!(!may(&[]), "it is alone");
        assert!(!may(&[(false, Duty::Serving), (true, Duty::Cordoned), (true, Duty::Draining)]));
        assert!(may(&[(false, Duty::Serving), (true, Duty::Serving)]));
    }

    #[test]
    fn what_a_configuration_leaves_out_is_what_the_loops_do_by_themselves() {
        let text = "[scheduler]\nid = 1\ndata_dir = \"d\"\n[[cluster.scheduler]]\nid = 1\n\
                    control = \"127.0.0.1:1\"\ndispatch = \"127.0.0.1:2\"\nbeat = \"127.0.0.1:3\"\n\
                    [security]\ninsecure_dev = true\n";
        let read = |overrides: &[String]| {
            let file = Some((std::path::Path::new("node.toml"), text));
            NodeConfig::from_layers(Role::Scheduler, file, [], overrides).unwrap().scheduler.unwrap()
        };
        let left_out = read(&[]);
        assert_eq!(epochs(&left_out), EpochSettings::default());
        let learns = learning(&left_out.learning, left_out.loop_speedup);
        assert_eq!(learns.profiles, Some(OnlineProfileSettings::default()));
        assert_eq!(learns.stragglers, Some(StragglerSettings::default()));

        // Tests shorten all times that are not configured, but no shares.
        let hurried = epochs(&read(&["scheduler.loop_speedup=10".to_owned()]));
        let usual = EpochSettings::default();
        let times = |settings: &EpochSettings| {
            let (trigger, law) = (&settings.trigger, &settings.scaling.autoscaler);
            let averaged = Nanos::from(settings.rate_over);
            [trigger.distance_min, trigger.change_holds, averaged, law.down_window, law.down_after_up]
        };
        assert_eq!(times(&hurried), times(&usual).map(|time| time.divided_by(10)));
        assert_eq!(
            (hurried.trigger.period, hurried.scaling.autoscaler.up_window),
            (usual.trigger.period, usual.scaling.autoscaler.up_window)
        );
    }
}
