//! Follows the view, and leads the sub-clusters that are assigned to this node.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use symphony_cluster_state::LeadReport;
use symphony_controllers::{Learnt, SlowGpu};
use symphony_explain::{Explanation, Question};
use symphony_net::{Incoming, Port, Role};
use symphony_protocol::view::{SortedView, View};
use symphony_scheduler::Pressure;
use symphony_telemetry::ErrorCounts;
use symphony_types::PayloadDelay;
use symphony_types::{GpuClass, GpuId, ModelId, Nanos, SubclusterId, Token};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::lead::leads::Leads;
use crate::lead::learners::run_learners;
use crate::lead::policy::policy_of;
use crate::lead::prepared_handover::PreparedHandover;
use crate::lead::subcluster::{Lead, LeadConfig};
use crate::links::frontend::accept_frontends;
use crate::records::explain::explain;
use crate::threads::decision_threads::DecisionThreads;
use crate::threads::hung_threads::watch_threads;
use crate::threads::reaper::Reaper;
use crate::workers::load::{GpuLoad, ModelBatches, ModelLoad};
use crate::workers::worker_metrics::WorkerDurations;

/// How long a lead goes on after another replica was assigned. It still serves until the successor has sealed its
/// backends; from then on its plans are refused. Longer than a seal takes.
const SERVES_ON_WITHIN: Duration = Duration::from_millis(500);
/// How long a replica that does not know a sub-cluster's policy waits before it cedes the lead: if no replica knows the
/// policy, each log entry takes that long.
const UNKNOWN_POLICY_PAUSE: Nanos = Nanos::from_millis(500);
/// How often such a lead is checked for a panic, which would lose requests of frontends that have not left yet.
const CEDING_POLL_EVERY: Duration = Duration::from_millis(50);

/// The port for frontends. Each has one connection per sub-cluster led here: the limit fits 64 frontends with a
/// thousand sub-clusters, or 4096 with sixteen.
const DISPATCH: Port = Port::new("scheduler.dispatch", &[Role::Frontend], 1 << 16);

/// The dispatch runtime of one scheduler replica.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) leads: Arc<Leads>,
    pub(crate) threads: Arc<DecisionThreads>,
    ended: CancellationToken,
}

/// Counters of a led sub-cluster since its lead began.
#[derive(Clone, Debug)]
pub struct LeadStatus {
    /// The sub-cluster.
    pub subcluster: SubclusterId,
    /// Its name; empty once it is no longer in the view.
    pub name: String,
    /// The token under which it is led.
    pub token: Token,
    /// Its models by name.
    pub models: Vec<(String, ModelBatches)>,
    /// The policy that decides for it; none if each model has its own.
    pub policy: Option<String>,
    /// The name of its ranking decision thread.
    pub thread: String,
    /// Counters by name.
    pub counters: Vec<(&'static str, u64)>,
    /// How late timers fired and how long turns took, by kind of worker.
    pub durations: Vec<WorkerDurations>,
    /// The error of predicted execution times.
    pub execution_errors: ErrorCounts,
    /// How much of the requests has to be shed.
    pub pressure: Pressure,
    /// Quarantined GPUs.
    pub quarantined: usize,
    /// How long inputs take to arrive, as measured by the backends; none before the first measurement.
    pub payload_delay: Option<PayloadDelay>,
}

/// The load of a led sub-cluster since the lead began.
#[derive(Clone, Debug, PartialEq)]
pub struct SubclusterLoad {
    /// The sub-cluster.
    pub subcluster: SubclusterId,
    /// The token under which it is led; counts restart with each token.
    pub token: Token,
    /// What was counted of each model.
    pub models: BTreeMap<ModelId, ModelLoad>,
    /// What was counted of each GPU.
    pub gpus: BTreeMap<GpuId, GpuLoad>,
    /// GPU time that all requests would have taken in deferred batches, however early their batches really started.
    pub demand: Nanos,
    /// Quarantined GPUs.
    pub slow: Vec<SlowGpu>,
    /// Measured over given execution time, by model and GPU kind, where they differ by a tenth or more.
    pub drifts: Vec<(ModelId, String, f64)>,
    /// Corrections of the given profiles, by model and GPU kind, where plans are made with a corrected one.
    pub learnt: Vec<(ModelId, String, Learnt)>,
}

impl Runtime {
    /// Serves frontends on `listener`, and leads what `view` assigns to this node while it is in `contact` with the
    /// control group. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(
        config: LeadConfig,
        listener: TcpListener,
        view: watch::Receiver<Arc<View>>,
        contact: watch::Receiver<bool>,
        reports: mpsc::UnboundedSender<LeadReport>,
    ) -> std::io::Result<Self> {
        let (changes, _) = watch::channel(0);
        let me = (config.node, config.boot);
        let leads = Arc::new(Leads { me, led: RwLock::default(), view, contact, changes });
        let ended = CancellationToken::new();
        let threads = Arc::new(DecisionThreads::new(config.decisions.clone()));
        let (watched, stuck_after) = ((Arc::clone(&leads), Arc::clone(&threads)), config.stuck_after);
        let (stop, stuck, reaper) = (ended.clone(), reports.clone(), Reaper::start()?);
        std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || watch_threads(&watched.0, &watched.1, stuck_after, &stuck, &reaper, &stop))?;
        let frontends = Incoming::new(listener, config.net.clone(), DISPATCH);
        tokio::spawn(accept_frontends(frontends, Arc::clone(&leads), ended.clone()));
        tokio::spawn(run_learners(Arc::clone(&leads), ended.clone()));
        let follower = Follower {
            config,
            leads: Arc::clone(&leads),
            threads: Arc::clone(&threads),
            reports,
            ended: ended.clone(),
            prepared: HashMap::new(),
            last_tokens: HashMap::new(),
        };
        tokio::spawn(follower.run());
        Ok(Self { leads, threads, ended })
    }

    /// The sub-clusters led now.
    #[must_use]
    pub fn status(&self) -> Vec<LeadStatus> {
        let view = Arc::clone(&self.leads.view.borrow());
        let status = |(subcluster, lead): (SubclusterId, Arc<Lead>)| {
            let named =
                |(id, batches): (ModelId, ModelBatches)| Some((view.models.get(&id)?.spec.name.clone(), batches));
            let name = view.subclusters.get(&subcluster).map(|subcluster| subcluster.name.clone());
            let learner = lead.workers.learner.lock().unwrap_or_else(PoisonError::into_inner);
            LeadStatus {
                subcluster,
                name: name.unwrap_or_default(),
                token: lead.token,
                models: lead.workers.loads.batches().into_iter().filter_map(named).collect(),
                policy: lead.policy.clone(),
                thread: lead.workers.thread().to_owned(),
                counters: lead.workers.counters(),
                durations: lead.workers.durations(),
                execution_errors: lead.workers.execution_errors(),
                pressure: lead.workers.pressure(),
                quarantined: learner.slow(lead.workers.clock.now()).len(),
                payload_delay: *lead.workers.payload_delay.lock().unwrap_or_else(PoisonError::into_inner),
            }
        };
        self.leads.living().into_iter().map(status).collect()
    }

    /// The load of the led sub-clusters.
    #[must_use]
    pub fn loads(&self) -> Vec<SubclusterLoad> {
        let load = |(subcluster, lead): (SubclusterId, Arc<Lead>)| {
            let learner = lead.workers.learner.lock().unwrap_or_else(PoisonError::into_inner);
            let kinds = lead.workers.kinds.read().unwrap_or_else(PoisonError::into_inner);
            let drift =
                |(model, class, factor): (_, GpuClass, _)| Some((model, kinds.get(class.index())?.clone(), factor));
            let learnt = |(model, class, learnt): (_, GpuClass, &Learnt)| {
                Some((model, kinds.get(class.index())?.clone(), learnt.clone()))
            };
            SubclusterLoad {
                subcluster,
                token: lead.token,
                models: lead.workers.loads.models(),
                gpus: lead.workers.loads.gpus(),
                demand: lead.workers.demand(),
                slow: learner.slow(lead.workers.clock.now()),
                drifts: learner.drifts().filter_map(drift).collect(),
                learnt: learner.learnt().filter_map(learnt).collect(),
            }
        };
        self.leads.living().into_iter().map(load).collect()
    }

    /// What the leads of this node remember of a request, or of a model's last batches. Blocks for about a millisecond
    /// per model worker; decisions do not wait.
    #[must_use]
    pub fn explain(&self, question: &Question) -> Vec<Explanation> {
        let leads = self.leads.living();
        let view = Arc::clone(&self.leads.view.borrow());
        leads.iter().flat_map(|(_, lead)| explain(&lead.workers, &view, question)).collect()
    }

    /// Ends all leads and their threads.
    pub fn stop(&self) {
        self.ended.cancel();
        // Links of frontends also hold their lead: dropping it here is not enough.
        for (_, lead) in self.leads.write().drain() {
            lead.end();
        }
        self.threads.stop();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Keeps the leads in step with the view.
struct Follower {
    config: LeadConfig,
    leads: Arc<Leads>,
    threads: Arc<DecisionThreads>,
    reports: mpsc::UnboundedSender<LeadReport>,
    ended: CancellationToken,
    /// Hand-overs to this node that are under way.
    prepared: HashMap<SubclusterId, PreparedHandover>,
    /// A token is led once: a lead that was fenced or that hung does not return under the same token.
    last_tokens: HashMap<SubclusterId, Token>,
}

impl Follower {
    async fn run(mut self) {
        let (mut view, mut contact) = (self.leads.view.clone(), self.leads.contact.clone());
        loop {
            let (current, in_contact) = (Arc::clone(&view.borrow_and_update()), *contact.borrow_and_update());
            if in_contact {
                let current = SortedView::from(current);
                self.prepare_handovers(&current);
                self.lead_by(&current);
            } else {
                self.suspend();
            }
            let outcome = tokio::select! {
                () = self.ended.cancelled() => return,
                changed = view.changed() => changed,
                changed = contact.changed() => changed,
            };
            if outcome.is_err() {
                // The view has ended, so no later view could take the leads away: they stop now.
                return self.suspend();
            }
        }
    }

    /// Stops leading without a successor: plans that were sent still run, and requests wait at their frontends. The
    /// same assignments may be led again, since no GPU has a higher token.
    fn suspend(&mut self) {
        self.prepared.clear();
        let ending = std::mem::take(&mut *self.leads.write());
        for (id, lead) in ending {
            tracing::warn!(subcluster = %id, token = %lead.token, "out of contact with the control group: stops dispatching");
            if !lead.ended.is_cancelled() {
                self.last_tokens.remove(&id);
            }
            lead.end();
        }
        self.leads.changes.send_modify(|count| *count += 1);
    }

    /// Prepares hand-overs to this node, and drops those that were called off.
    fn prepare_handovers(&mut self, current: &View) {
        let me = self.leads.me;
        let next = |id: &SubclusterId| current.subclusters.get(id).and_then(|s| s.successor);
        // What was prepared for a sub-cluster that has just been assigned here is taken by the new lead.
        let wanted = |id: &SubclusterId, since: u64| {
            let leads = current.subclusters.get(id).is_some_and(|s| s.leader == Some(me));
            leads || next(id).is_some_and(|n| (n.node, n.boot) == me && n.since == since)
        };
        self.prepared.retain(|id, handover| wanted(id, handover.since()));
        for (&id, subcluster) in &current.subclusters {
            let Some(next) = subcluster.successor.filter(|next| (next.node, next.boot) == me) else { continue };
            self.prepared.entry(id).or_insert_with(|| {
                let (net, view) = (self.config.net.clone(), self.leads.view.clone());
                PreparedHandover::start(net, id, next.since, view, self.reports.clone())
            });
        }
    }

    /// Ends leads assigned to others, and begins those assigned to this node. Each lead gets its part of the view;
    /// cutting the view costs its length once, for any number of leads.
    fn lead_by(&mut self, current: &SortedView) {
        let me = Some(self.leads.me);
        // The lock is held throughout: a concurrent stop of the runtime either finds every lead here, or prevents it.
        let mut led = self.leads.write();
        if self.ended.is_cancelled() {
            return;
        }
        let mut changed = false;
        led.retain(|id, lead| {
            lead.set_view(current.for_lead(*id));
            let now = current.subclusters.get(id);
            let stays = now.is_some_and(|s| s.leader == me && s.token == lead.token) && !lead.ended.is_cancelled();
            if !stays {
                changed = true;
                match now {
                    // The successor seals the backends when it is ready; until then this lead serves the frontends
                    // that have not left.
                    Some(now) if now.token > lead.token && now.leader.is_some() => self.cede(*id, Arc::clone(lead)),
                    _ => lead.end(),
                }
            }
            stays
        });
        for (&id, subcluster) in &current.subclusters {
            let newer = self.last_tokens.get(&id).is_none_or(|&last| subcluster.token > last);
            if subcluster.leader != me || !newer || led.contains_key(&id) {
                continue;
            }
            let token = subcluster.token;
            let policy = match policy_of(&self.config.policies, subcluster) {
                Ok(policy) => policy,
                Err(error) => {
                    tracing::error!(subcluster = %subcluster.name, %token, %error, "not led here: its policy cannot be built");
                    self.last_tokens.insert(id, token);
                    let pause = UNKNOWN_POLICY_PAUSE;
                    let _ = self.reports.send(LeadReport::PolicyUnknown { subcluster: id, token, pause });
                    continue;
                }
            };
            let dialled = self.prepared.remove(&id).map(|handover| handover.take()).unwrap_or_default();
            let (view, reports) = (current.for_lead(id), self.reports.clone());
            match Lead::start(&self.config, &self.threads, (id, token), policy, view, dialled, reports) {
                Ok(lead) => {
                    self.last_tokens.insert(id, token);
                    led.insert(id, Arc::new(lead));
                    changed = true;
                }
                Err(error) => tracing::error!(subcluster = %id, %error, "cannot start decision threads"),
            }
        }
        drop(led);
        if changed {
            self.leads.changes.send_modify(|count| *count += 1);
        }
    }

    fn cede(&self, id: SubclusterId, lead: Arc<Lead>) {
        let ended = self.ended.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = ceded(&lead, SERVES_ON_WITHIN) => {}
            }
            // The watchdog covers only current leads, and this one has a successor.
            if lead.workers.have_failed() {
                tracing::error!(subcluster = %id, token = %lead.token, "a decision panicked while the sub-cluster was handed over");
            }
            lead.end();
        });
    }
}

/// Waits until a lead that was handed over can be dropped: it has ended, `within` has passed, or it has panicked and
/// would keep its frontends without answering them.
async fn ceded(lead: &Lead, within: Duration) {
    let panicked = async {
        while !lead.workers.have_failed() {
            tokio::time::sleep(CEDING_POLL_EVERY).await;
        }
    };
    tokio::select! {
        () = lead.ended.cancelled() => {}
        () = panicked => {}
        () = tokio::time::sleep(within) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use symphony_protocol::view::{BackendView, EventView, SubclusterView};
    use symphony_scheduler::{DataDelaySettings, Delays};
    use symphony_types::{BackendId, BootId, NodeId};

    use super::*;
    use crate::workers::decision_config::DecisionConfig;

    const ME: (NodeId, BootId) = (NodeId::new(1), BootId::new(7));
    const ILL: SubclusterId = SubclusterId::new(1);
    const WELL: SubclusterId = SubclusterId::new(2);

    struct Scene {
        runtime: Runtime,
        view: watch::Sender<Arc<View>>,
        contact: watch::Sender<bool>,
        reported: mpsc::UnboundedReceiver<LeadReport>,
    }

    /// A runtime that leads both sub-clusters.
    async fn leads_two() -> Scene {
        let subcluster =
            |token| SubclusterView { leader: Some(ME), token: Token::new(token), ..SubclusterView::default() };
        let subclusters = BTreeMap::from([(ILL, subcluster(10)), (WELL, subcluster(11))]);
        let (view, views) = watch::channel(Arc::new(View { applied_index: 11, subclusters, ..View::default() }));
        let (contact, in_contact) = watch::channel(true);
        let (reports, reported) = mpsc::unbounded_channel();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = LeadConfig {
            node: ME.0,
            boot: ME.1,
            data_delays: DataDelaySettings::default(),
            delays: Delays::default(),
            decisions: DecisionConfig { model_threads: 1, ..DecisionConfig::default() },
            tapes: None,
            stuck_after: Duration::from_secs(20),
            consolidate: Vec::new(),
            policies: symphony_scheduler::PolicyRegistry::new(),
            net: symphony_net::Net::plaintext(),
        };
        let runtime = Runtime::start(config, listener, views, in_contact, reports).unwrap();
        while runtime.status().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Scene { runtime, view, contact, reported }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_led_once_nobody_can_say_stop() {
        for view_ends in [true, false] {
            let Scene { runtime, view, contact, reported: _reported } = leads_two().await;
            // One of the two channels closes.
            let (mut view, mut contact) = (Some(view), Some(contact));
            if view_ends {
                view = None;
            } else {
                contact = None;
            }
            let ended = async {
                while !runtime.leads.read().is_empty() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the leads end");
            assert!(runtime.status().is_empty());
            drop((view, contact));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lead_without_a_name_has_no_series_under_another_one() {
        let Scene { runtime, view, contact: _contact, reported: _reported } = leads_two().await;
        let (runtime, registry) = (Arc::new(runtime), symphony_telemetry::Registry::new("scheduler"));
        crate::metrics::register_metrics(&registry, &runtime);
        let names = || {
            let text = registry.encode();
            let infos = text.lines().filter_map(|line| line.strip_prefix("symphony_dispatch_lead_info{subcluster=\""));
            infos.map(|rest| rest.split('"').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(), [""; 0]);
        let mut next = View::clone(&view.borrow());
        next.subclusters.get_mut(&ILL).unwrap().name = "pool".into();
        view.send_replace(Arc::new(next));
        assert_eq!(names(), ["pool"]);
    }

    /// The watchdog covers current leads. A lead that was handed over is not among them, but still decides for
    /// frontends that have not left.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_during_a_hand_over_is_counted_and_ends_the_lead() {
        let Scene { runtime, view, contact: _contact, reported: mut reports } = leads_two().await;
        let ill = Arc::clone(&runtime.leads.read()[&ILL]);
        let other = Some((NodeId::new(2), BootId::new(8)));
        let handed_over = SubclusterView { leader: other, token: Token::new(12), ..SubclusterView::default() };
        let mut next = View { applied_index: 12, ..View::clone(&view.borrow()) };
        next.subclusters.insert(ILL, handed_over);
        view.send_replace(Arc::new(next));
        let soon = Duration::from_secs(30);
        let left = async {
            while runtime.leads.read().contains_key(&ILL) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(soon, left).await.expect("it is handed over");
        ill.workers.models[0].push(crate::workers::messages::ModelMessage::Panic);
        let panicked = async {
            while runtime.threads.panics() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(soon, panicked).await.expect("it is counted");
        assert!(ill.workers.have_failed());
        tokio::time::timeout(soon, ill.ended.cancelled()).await.expect("it ends");
        assert_eq!(runtime.status().len(), 1, "the other one is led");
        assert!(reports.try_recv().is_err(), "somebody else leads already: nothing is to be ceded");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lead_that_panics_while_it_is_handed_over_keeps_nobody_until_the_hand_over_is_over() {
        let Scene { runtime, view: _view, contact: _contact, reported: _reported } = leads_two().await;
        // The watchdog no longer covers it.
        let ill = runtime.leads.write().remove(&ILL).expect("it is led");
        let hour = Duration::from_secs(3_600);
        let waits = tokio::spawn({
            let ill = Arc::clone(&ill);
            async move { ceded(&ill, hour).await }
        });
        ill.workers.models[0].push(crate::workers::messages::ModelMessage::Panic);
        tokio::time::timeout(Duration::from_secs(30), waits).await.expect("long before that").unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lead_hears_of_its_own_subcluster_and_wakes_for_nothing_else() {
        let Scene { runtime, view, contact: _contact, reported: _reported } = leads_two().await;
        let ill = Arc::clone(&runtime.leads.read()[&ILL]);
        let mut views = runtime.leads.read()[&WELL].view.subscribe();
        // The second backend does not exist: no seal succeeds, which does not matter here.
        let backend = |subcluster| BackendView {
            subcluster,
            up: true,
            exec_addr: "127.0.0.1:1".into(),
            ..BackendView::default()
        };
        let backends = BTreeMap::from([(BackendId::new(1), backend(WELL)), (BackendId::new(2), backend(ILL))]);
        let newer = View { applied_index: 12, backends, ..View::clone(&view.borrow()) };
        view.send_replace(Arc::new(newer.clone()));
        let received =
            tokio::time::timeout(Duration::from_secs(30), views.wait_for(|view| !view.backends.is_empty())).await;
        let received = received.unwrap().unwrap().clone();
        assert_eq!(*received, SortedView::from(Arc::new(newer.clone())).for_lead(WELL));
        assert_eq!((received.backends.len(), received.subclusters.len()), (1, 1));
        let mut views = ill.view.subscribe();
        tokio::time::timeout(Duration::from_secs(30), views.wait_for(|v| !v.backends.is_empty()))
            .await
            .unwrap()
            .unwrap();
        views.mark_unchanged();
        // A change in another sub-cluster.
        let event = EventView { index: 13, what: "a model came".into(), ..EventView::default() };
        let elsewhere = View { applied_index: 13, events: vec![event], ..newer.clone() };
        ill.set_view(SortedView::from(Arc::new(elsewhere)).for_lead(ILL));
        assert!(!views.has_changed().unwrap());
        ill.set_view(SortedView::from(Arc::new(View { backends: BTreeMap::new(), ..newer })).for_lead(ILL));
        assert!(views.has_changed().unwrap());
    }
}
