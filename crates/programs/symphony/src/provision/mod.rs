//! `symphony provision`: starts and stops backends on this machine by the cluster's advice to KEDA.

mod budget;
mod horizontal;
mod replica_processes;
mod replicas;
mod scaler;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use symphony_config::{NodeConfig, Role};
use symphony_net::{CredentialFiles, Net};
use symphony_protocol::view::{BackendView, View};
use symphony_transport::{ControlClient, ViewReceiver};
use symphony_types::{BackendId, Duty, Member};
use tokio::time::Instant;

use self::budget::Budget;
use self::horizontal::Horizontal;
pub(crate) use self::horizontal::HorizontalSettings;
use self::replica_processes::{Fleet, Ports};
use self::replicas::{Order, Replicas, Seen};
use self::scaler::{Scaler, ScalerAnswer};
use crate::cli::ProvisionArgs;
use crate::exit::bad_input;
use crate::local::signalled;
use crate::node::parent::end_with_parent;
use crate::tools::duty;

/// The period of checks on the replicas.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// The timeout of a change of duty; after it the next check tries again.
const CHANGE_DUTY_WITHIN: Duration = Duration::from_secs(2);
/// The timeout of the first contact with the cluster.
const VIEW_WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: &ProvisionArgs) -> anyhow::Result<()> {
    if args.min > args.max {
        return Err(bad_input(format!("--min {} is more than --max {}", args.min, args.max)));
    }
    if args.budget_per_hour.is_some() && args.price_per_hour.len() != args.config.len() {
        let (prices, configs) = (args.price_per_hour.len(), args.config.len());
        return Err(bad_input(format!("--price-per-hour: expected one for each --config, got {prices} for {configs}")));
    }
    let budget = args.budget_per_hour.map(|per_hour| Budget::new(per_hour, &args.price_per_hour, args.min));
    let budget = budget.transpose()?;
    let (ports, mut provisioners) = (Ports::default(), Vec::with_capacity(args.config.len()));
    for (at, file) in args.config.iter().enumerate() {
        let provisioned = provisioned(args, file)?;
        let template_budget = budget.clone().map(|budget| TemplateBudget { budget, at, is_short: false });
        provisioners.push(Provisioner::new(provisioned, args.cluster.control()?, template_budget, ports.clone())?);
    }
    distinct(&provisioners)?;
    end_with_parent();
    let ended = {
        let running = provisioners.iter_mut().map(|provisioner| Box::pin(provisioner.run()));
        tokio::select! {
            (failed, _, _) = futures::future::select_all(running) => failed,
            stopped = signalled() => stopped,
        }
    };
    println!("stopping");
    provisioners.iter_mut().for_each(Provisioner::request_stop);
    provisioners.iter_mut().for_each(Provisioner::stop);
    ended
}

fn provisioned(args: &ProvisionArgs, file: &Path) -> anyhow::Result<Provisioned> {
    let pki = args.cluster.pki_dir()?;
    Ok(Provisioned {
        template: template(args, file, pki.as_deref())?,
        pki,
        dir: std::path::absolute(&args.dir)?,
        net: args.cluster.net()?,
        control_addrs: args.cluster.addresses()?,
        horizontal: HorizontalSettings {
            min: args.min,
            max: args.max,
            tolerance: args.tolerance,
            down_stabilization: Duration::from_secs(args.down_stabilization_s),
        },
        every: Duration::from_millis(args.every_ms),
    })
}

/// Provisioners must differ in their replicas' names, and in sub-cluster and kind, by which replicas are counted.
fn distinct(provisioners: &[Provisioner]) -> anyhow::Result<()> {
    for (at, one) in provisioners.iter().enumerate() {
        for other in &provisioners[..at] {
            if one.fleet.prefix() == other.fleet.prefix() {
                let name = one.fleet.prefix();
                return Err(bad_input(format!(
                    "--config: expected names (backend.name) that differ, got {name}N twice"
                )));
            }
            if one.counted == other.counted {
                let (subcluster, kind) = &one.counted;
                let what = "expected one configuration for each kind of GPU in a sub-cluster";
                return Err(bad_input(format!("--config: {what}, got `{kind}` in `{subcluster}` twice")));
            }
        }
    }
    Ok(())
}

/// The configuration shared by all replicas, validated as the first one would use it.
fn template(args: &ProvisionArgs, file: &Path, pki: Option<&Path>) -> anyhow::Result<NodeConfig> {
    let mut overrides = args.set.clone();
    match pki {
        None => overrides.push("security.insecure_dev=true".to_owned()),
        // Each replica has its own; what matters here is that there are some.
        Some(dir) => {
            let CredentialFiles { ca, cert, key } = CredentialFiles::in_dir(dir, symphony_net::Role::Backend, "any");
            for (name, file) in [("ca", ca), ("cert", cert), ("key", key)] {
                overrides.push(format!("security.{name}={}", file.display()));
            }
        }
    }
    NodeConfig::load(Role::Backend, Some(file), std::env::vars(), &overrides).map_err(bad_input)
}

/// What is provisioned, and for which sub-cluster.
#[derive(Debug)]
pub(crate) struct Provisioned {
    /// The configuration of all replicas; replica N is called `backend.name`-N.
    pub(crate) template: NodeConfig,
    /// Where certificates are found or generated; `None` in plaintext.
    pub(crate) pki: Option<PathBuf>,
    /// The folder of configurations and logs.
    pub(crate) dir: PathBuf,
    /// The connections to the cluster, and its addresses.
    pub(crate) net: Net,
    pub(crate) control_addrs: Vec<String>,
    /// How many replicas there should be.
    pub(crate) horizontal: HorizontalSettings,
    /// The period of queries to the scaler.
    pub(crate) every: Duration,
}

/// The desired number of replicas, and the number of GPUs that it was computed from.
#[derive(Clone, Copy, Debug)]
struct DesiredReplicas {
    replicas: u32,
    gpus: Option<f64>,
}

/// A template's access to the budget of all.
#[derive(Debug)]
struct TemplateBudget {
    budget: Budget,
    /// The template's number.
    at: usize,
    /// Whether more is wanted than can be paid; logged once.
    is_short: bool,
}

/// Keeps the desired number of replicas running.
#[derive(Debug)]
pub(crate) struct Provisioner {
    control: ControlClient,
    scaler: Scaler,
    horizontal: Horizontal,
    replicas: Replicas,
    fleet: Fleet,
    /// Sub-cluster and kind of its GPUs.
    counted: (String, String),
    template_budget: Option<TemplateBudget>,
    /// Changes of duty that the cluster has not confirmed yet.
    duties: BTreeMap<u32, Duty>,
    every: Duration,
    desired: DesiredReplicas,
    /// The last failed query, so that it is logged once.
    unanswered: Option<String>,
}

impl Provisioner {
    fn new(
        provisioned: Provisioned,
        control: ControlClient,
        template_budget: Option<TemplateBudget>,
        ports: Ports,
    ) -> anyhow::Result<Self> {
        let Provisioned { template, pki, dir, net, control_addrs, horizontal, every } = provisioned;
        let backend = template.backend.as_ref().ok_or_else(|| bad_input("the configuration has no [backend]"))?;
        let [gpus] = backend.gpus.as_slice() else {
            return Err(bad_input("backend.gpus: expected one kind of GPUs, since replicas are counted by them"));
        };
        let min = horizontal.min;
        Ok(Self {
            scaler: Scaler::new(&net, &control_addrs, &backend.subcluster, &gpus.kind, gpus.count)?,
            counted: (backend.subcluster.clone(), gpus.kind.clone()),
            template_budget,
            control,
            horizontal: Horizontal::new(horizontal),
            replicas: Replicas::default(),
            fleet: Fleet::new(template, pki, dir, ports)?,
            duties: BTreeMap::new(),
            every,
            desired: DesiredReplicas { replicas: min, gpus: None },
            unanswered: None,
        })
    }

    /// Runs until it is dropped; ends by itself only if it cannot start.
    pub(crate) async fn run(&mut self) -> anyhow::Result<()> {
        let mut views = self.control.watch("provision");
        self.begin(&mut views).await?;
        let mut activity = self.scaler.activity();
        let mut polls = tokio::time::interval(POLL_EVERY);
        polls.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut ask_at = Instant::now();
        loop {
            tokio::select! {
                _ = polls.tick() => {}
                // A pushed change triggers a query at once.
                Ok(()) = activity.changed() => ask_at = Instant::now(),
            }
            let now = Instant::now();
            if now >= ask_at {
                ask_at = now + self.every;
                self.desired = self.ask().await;
            }
            let view = std::sync::Arc::clone(&views.borrow_and_update());
            self.reconcile(&view).await;
        }
    }

    /// Replicas started by another program cannot be stopped here: then this is not the only provisioner.
    async fn begin(&self, views: &mut ViewReceiver) -> anyhow::Result<()> {
        let known = views.wait_for(|view| view.applied_index > 0);
        let view = tokio::time::timeout(VIEW_WITHIN, known).await;
        let view = view.map_err(|_| anyhow::anyhow!("no scheduler replica answered within {VIEW_WITHIN:?}"))??;
        let prefix = self.fleet.prefix();
        let numbered = |name: &str| name.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.parse::<u32>().is_ok());
        match view.backends.values().find(|backend| backend.up && numbered(&backend.name)) {
            Some(backend) => Err(bad_input(format!(
                "backend {} is up and was not started here; stop it, or give another backend.name",
                backend.name
            ))),
            None => Ok(()),
        }
    }

    async fn ask(&mut self) -> DesiredReplicas {
        let current = self.replicas.current();
        match self.scaler.ask().await {
            Ok(ScalerAnswer { active, measured }) => {
                self.unanswered = None;
                let gpus = Some(measured.value);
                // If the scaler is inactive, the metric is ignored.
                let replicas = match active {
                    true => self.horizontal.desired(Instant::now(), current, Some(measured)),
                    false => self.horizontal.none(),
                };
                let replicas = self.affordable(replicas);
                DesiredReplicas { replicas, gpus }
            }
            Err(status) => {
                let words = status.message().to_owned();
                if self.unanswered.as_ref() != Some(&words) {
                    eprintln!("the scaler does not say how many replicas are wanted; nothing changes: {words}");
                    self.unanswered = Some(words);
                }
                let replicas = self.horizontal.desired(Instant::now(), current, None);
                DesiredReplicas { replicas: self.affordable(replicas), gpus: None }
            }
        }
    }

    /// As many of the wanted replicas as can be paid.
    fn affordable(&mut self, wanted: u32) -> u32 {
        let Some(TemplateBudget { budget, at, is_short }) = &mut self.template_budget else { return wanted };
        let granted = budget.grant(*at, wanted);
        if granted < wanted && !*is_short {
            println!("{wanted} replicas of kind {} are wanted; the budget pays for {granted}", self.counted.1);
        }
        *is_short = granted < wanted;
        granted
    }

    async fn reconcile(&mut self, view: &View) {
        let current = self.replicas.current();
        let known: Vec<_> = self.replicas.known().collect();
        let seen = known.into_iter().map(|number| (number, self.seen(view, number))).collect();
        for order in self.replicas.step(Instant::now(), self.desired.replicas, &seen) {
            self.carry_out(order, current);
        }
        self.agree(view).await;
    }

    fn seen(&mut self, view: &View, number: u32) -> Seen {
        let runs = self.fleet.runs(number);
        let name = self.fleet.name(number);
        let Some((_, backend)) = named(view, &name).filter(|(_, backend)| backend.up) else {
            return Seen { runs, ..Seen::default() };
        };
        let gpu = backend.gpus.iter().map(|gpu| gpu.id).max();
        Seen { runs, up: true, drained: backend.drained, gpu }
    }

    fn carry_out(&mut self, order: Order, current: u32) {
        let DesiredReplicas { replicas, gpus } = self.desired;
        let wanted = gpus.map(|gpus| format!(", GPUs wanted: {gpus}")).unwrap_or_default();
        let why = format!("{current} replicas, {replicas} wanted{wanted}");
        let name = |number| self.fleet.name(number);
        match order {
            Order::Start(number) => {
                println!("start {} ({why})", name(number));
                self.duties.insert(number, Duty::Serving);
                if let Err(error) = self.fleet.start(number) {
                    eprintln!("cannot start {}: {error:#}", self.fleet.name(number));
                }
            }
            Order::Drain(number) => {
                println!("drain {} ({why})", name(number));
                self.duties.insert(number, Duty::Draining);
            }
            Order::Uncordon(number) => {
                println!("uncordon {} ({why})", name(number));
                self.duties.insert(number, Duty::Serving);
            }
            Order::Stop(number) => {
                println!("stop {}", name(number));
                self.duties.remove(&number);
                self.fleet.request_stop(number);
            }
            Order::Kill(number) => {
                eprintln!("kill {}: it does not stop", name(number));
                self.fleet.kill(number);
            }
        }
    }

    /// Requests the duties that the cluster does not show yet. A name that was drained before is still drained when it
    /// is back.
    async fn agree(&mut self, view: &View) {
        for (number, duty) in self.duties.clone() {
            let Some((id, backend)) = named(view, &self.fleet.name(number)) else {
                // A new replica: its duty is to serve.
                continue;
            };
            let agreed = backend.duty == duty
                || duty::change(&self.control, Member::Backend(id), duty, CHANGE_DUTY_WITHIN).await.is_ok();
            if agreed {
                self.duties.remove(&number);
            }
        }
    }

    /// Tells all replicas to stop, so that those of several kinds do it at the same time.
    fn request_stop(&mut self) {
        self.fleet.stop_all();
    }

    /// Stops all replicas; each first finishes its work.
    pub(crate) fn stop(&mut self) {
        self.fleet.stop();
    }
}

fn named<'a>(view: &'a View, name: &str) -> Option<(BackendId, &'a BackendView)> {
    view.backends.iter().find(|(_, backend)| backend.name == name).map(|(&id, backend)| (id, backend))
}
