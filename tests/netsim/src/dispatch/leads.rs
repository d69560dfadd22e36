//! What a replica leads: sub-clusters under a token, by its own view, as long as it is in contact with the control
//! group. Where a policy is set for a sub-cluster it decides; elsewhere each free GPU gets the oldest request. What is
//! reported of hung and failed leads goes to the control plane's own `LeadReporter`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use symphony_control_plane::{ControlPlane, LeadReport};
use symphony_net::sockets::Listener;
use symphony_net::{Expected, Incoming, Net, Port, Role};
use symphony_protocol::dispatch::{RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::execute::{Done, FromBackend, PlannedRequest, ToBackend};
use symphony_protocol::view::View;
use symphony_scheduler_runtime::STUCK_AFTER_LAN;
use symphony_transport::{LinkReceiver, LinkSender, connect_link, link_over};
use symphony_types::{
    BackendId, BootId, FrontendId, GpuId, Invariant, ModelId, Nanos, NodeId, RequestId, SubclusterId, Token,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::plan_link::PlanLink;
use super::policy_host::SimulatedPolicyHost;
use super::{DIAL_AGAIN_AFTER, PLAN_TAKES};
use crate::cluster::Cluster;
use crate::plant::Plant;

/// How often leads are looked at.
const WATCH_EVERY: Duration = Duration::from_millis(50);
/// How often a policy may be woken.
const TICK: Duration = Duration::from_millis(1);
/// How long a backend may take to answer the hello and the seal.
const SEAL_WITHIN: Duration = Duration::from_millis(500);

/// A sub-cluster that this replica leads. Its links end with it.
#[derive(Default)]
struct Lead {
    waiting: VecDeque<RequestId>,
    /// Requests that this lead does not run again: those that a seal has named, and, without a policy, those that it
    /// gave to a GPU.
    taken: BTreeSet<RequestId>,
    /// GPUs that are sealed and wait for a plan.
    free: Vec<PlanLink>,
    /// If a policy decides: then its host has the waiting requests and the GPUs, not this lead.
    policy: Option<SimulatedPolicyHost>,
    /// It decides nothing any more.
    hung: bool,
}

impl Lead {
    fn ask(&mut self, request: RequestId, header: &RequestHeader) {
        if !self.taken.contains(&request) {
            match &mut self.policy {
                Some(policy) => policy.announced(request, header),
                None if !self.waiting.contains(&request) => self.waiting.push_back(request),
                None => {}
            }
        }
        self.dispatch();
    }

    /// These requests are wanted no longer.
    fn withdraw(&mut self, leaves: impl Fn(RequestId) -> bool) {
        self.waiting.retain(|&request| !leaves(request));
        if let Some(policy) = &mut self.policy {
            policy.withdraw(leaves);
        }
    }

    /// P1: what its frontend withdrew before it asked for another one waits no more, as links keep the order.
    fn check_withdrawn(&self, submitted: RequestId, withdrawn: &BTreeMap<RequestId, u64>) {
        let is_left = |request: &RequestId| {
            (request.frontend, request.boot) == (submitted.frontend, submitted.boot)
                && withdrawn.get(request).is_some_and(|&last| last < submitted.sequence)
        };
        let left = match &self.policy {
            Some(policy) => policy.waiting().find(is_left),
            None => self.waiting.iter().copied().find(is_left),
        };
        if let Some(request) = left {
            let detail =
                format!("{request} waits with a leader although it was withdrawn before {submitted} was asked");
            symphony_telemetry::violated(Invariant::P1, detail);
        }
    }

    /// A GPU is sealed; `ran` are requests that it has run or runs.
    fn sealed(&mut self, gpu: PlanLink, ran: BTreeSet<RequestId>) {
        match &mut self.policy {
            Some(policy) => policy.sealed(gpu, &ran),
            None => {
                self.waiting.retain(|request| !ran.contains(request));
                self.free.retain(|free| free.gpu != gpu.gpu);
                self.free.push(gpu);
            }
        }
        self.taken.extend(ran);
        self.dispatch();
    }

    /// A GPU has run a plan; `next` is the link for another one.
    fn done(&mut self, done: &Done, next: PlanLink) {
        match &mut self.policy {
            Some(policy) => policy.done(done),
            None => self.free.push(next),
        }
        self.dispatch();
    }

    /// Nothing reaches this boot of a backend any more.
    fn lost(&mut self, boot: BootId) {
        if let Some(policy) = &mut self.policy {
            policy.lost(boot);
        }
    }

    fn hang(&mut self) {
        self.hung = true;
        if let Some(policy) = &mut self.policy {
            policy.end();
        }
    }

    fn dispatch(&mut self) {
        while !self.hung
            && !self.waiting.is_empty()
            && let Some(gpu) = self.free.pop()
        {
            let Some(id) = self.waiting.pop_front() else { return };
            let requests = vec![PlannedRequest { id, items: 1, model: ModelId::default() }];
            // A link that has ended takes its GPU with it; the request is tried on the next one.
            match gpu.send((Nanos::ZERO, PLAN_TAKES.into()), requests) {
                Ok(()) => drop(self.taken.insert(id)),
                Err(_) => self.waiting.push_front(id),
            }
        }
    }
}

type Leads = Rc<RefCell<BTreeMap<SubclusterId, (Token, Rc<RefCell<Lead>>, JoinSet<()>)>>>;

/// Leads the assigned sub-clusters until the replica ends.
pub(crate) async fn run(
    cluster: Cluster,
    name: &'static str,
    me: (NodeId, BootId),
    plane: &ControlPlane,
    dispatch: Listener,
) {
    let leads = Leads::default();
    let net = cluster.links.net(name);
    let mut tasks = JoinSet::new();
    tasks.spawn_local(serve(cluster.clone(), dispatch, net.clone(), Rc::clone(&leads)));
    tasks.spawn_local(watch_for_hangs(cluster.clone(), name, plane.lead_reports(), Rc::clone(&leads)));
    let (mut views, mut contact) = (plane.view(), plane.in_contact());
    let mut standby = (0, JoinSet::new());
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        let in_contact = *contact.borrow_and_update();
        leads.borrow_mut().retain(|id, (token, ..)| {
            let now = view.subclusters.get(id);
            in_contact && now.is_some_and(|s| s.leader == Some(me) && s.token == *token)
        });
        for (&id, subcluster) in view.subclusters.iter().filter(|_| in_contact) {
            if subcluster.leader == Some(me) && !leads.borrow().contains_key(&id) {
                cluster.trace.note(format_args!("{name} leads {id} under {}", subcluster.token));
                // If it hung and contact was lost since, this one runs on another thread.
                cluster.hung.borrow_mut().remove(&(id, subcluster.token));
                let policy = SimulatedPolicyHost::new(&cluster, (id, subcluster), plane.lead_reports());
                let has_policy = policy.is_some();
                let lead = Rc::new(RefCell::new(Lead { policy, ..Lead::default() }));
                let mut links = JoinSet::new();
                links.spawn_local(keep_links(net.clone(), me, id, views.clone(), Rc::clone(&lead)));
                if has_policy {
                    links.spawn_local(keep_time(Rc::clone(&lead)));
                }
                leads.borrow_mut().insert(id, (subcluster.token, lead, links));
            }
            let successor = subcluster.successor.filter(|next| (next.node, next.boot) == me && next.since != standby.0);
            if let Some(next) = successor {
                standby = (next.since, JoinSet::new());
                let ready = LeadReport::Ready { subcluster: id, since: next.since };
                let (reports, net, view) = (plane.lead_reports(), net.clone(), Arc::clone(&view));
                standby.1.spawn(async move {
                    for backend in view.backends.values().filter(|b| b.subcluster == id && b.up) {
                        let expected = Expected::named(Role::Backend, &backend.name);
                        while connect_link::<ToBackend, FromBackend>(&net, &backend.exec_addr, &expected).await.is_err()
                        {
                            sleep(DIAL_AGAIN_AFTER).await;
                        }
                    }
                    let _ = reports.send(ready);
                });
            }
        }
        tokio::select! {
            biased;
            changed = views.changed() => if changed.is_err() { return },
            changed = contact.changed() => if changed.is_err() { return },
        }
    }
}

/// Has the leads hang when they are to, and reports them and ends them as the scheduler's watchdog does.
async fn watch_for_hangs(
    cluster: Cluster,
    name: &'static str,
    reports: mpsc::UnboundedSender<LeadReport>,
    leads: Leads,
) {
    loop {
        sleep(WATCH_EVERY).await;
        if !cluster.hangs.borrow_mut().remove(name) {
            continue;
        }
        let mut hung = Vec::new();
        for (&id, (token, lead, _)) in leads.borrow().iter().filter(|(_, (_, lead, _))| !lead.borrow().hung) {
            lead.borrow_mut().hang();
            hung.push((id, *token));
        }
        cluster.trace.note(format_args!("{name} hangs with {hung:?}"));
        cluster.hung.borrow_mut().extend(&hung);
        sleep(STUCK_AFTER_LAN).await;
        for (subcluster, token) in hung {
            let mut leads = leads.borrow_mut();
            let Some((_, lead, links)) = leads.get_mut(&subcluster).filter(|(now, ..)| *now == token) else { continue };
            // The entry stays until the view takes it away: it is not led again under this token.
            links.abort_all();
            lead.borrow_mut().free.clear();
            if !cluster.plants.has(Plant::HangsUnreported) {
                let _ = reports.send(LeadReport::Stuck { subcluster, token, pause: Nanos::ZERO });
            }
        }
    }
}

/// Tells a policy of the time.
async fn keep_time(lead: Rc<RefCell<Lead>>) {
    loop {
        sleep(TICK).await;
        if let Some(policy) = &mut lead.borrow_mut().policy {
            policy.tick();
        }
    }
}

/// Keeps a link to every living backend of the sub-cluster.
async fn keep_links(
    net: Net,
    me: (NodeId, BootId),
    subcluster: SubclusterId,
    mut views: watch::Receiver<Arc<View>>,
    lead: Rc<RefCell<Lead>>,
) {
    let mut links: BTreeMap<(BackendId, BootId), JoinSet<()>> = BTreeMap::new();
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        let mine = || view.backends.iter().filter(|(_, b)| b.subcluster == subcluster && b.up);
        links.retain(|linked, _| {
            let stays = mine().any(|(&id, b)| (id, b.boot) == *linked);
            if !stays {
                lead.borrow_mut().lost(linked.1);
            }
            stays
        });
        for (&id, backend) in mine() {
            links.entry((id, backend.boot)).or_insert_with(|| {
                let mut task = JoinSet::new();
                task.spawn_local(keep_link(net.clone(), me, subcluster, id, views.clone(), Rc::clone(&lead)));
                task
            });
        }
        if views.changed().await.is_err() {
            return;
        }
    }
}

async fn keep_link(
    net: Net,
    me: (NodeId, BootId),
    subcluster: SubclusterId,
    backend: BackendId,
    views: watch::Receiver<Arc<View>>,
    lead: Rc<RefCell<Lead>>,
) {
    loop {
        let view = Arc::clone(&views.borrow());
        let Some(known) = view.backends.get(&backend) else { return };
        let expected = Expected::named(Role::Backend, &known.name);
        if let Ok(link) = connect_link::<ToBackend, FromBackend>(&net, &known.exec_addr, &expected).await {
            let tokens: Vec<_> = known.gpus.iter().map(|gpu| (gpu.id, view.gpu_token(known, gpu))).collect();
            converse(link, me, subcluster, known.boot, tokens, &lead).await;
        }
        sleep(DIAL_AGAIN_AFTER).await;
    }
}

/// Hello, seal, then plans as long as the link lasts.
async fn converse(
    (link, mut reports): (LinkSender<ToBackend>, LinkReceiver<FromBackend>),
    (node, boot): (NodeId, BootId),
    subcluster: SubclusterId,
    expected: BootId,
    tokens: Vec<(GpuId, Token)>,
    lead: &Rc<RefCell<Lead>>,
) {
    let seal = ToBackend::Seal { subcluster, gpus: tokens.clone() };
    if link.send(ToBackend::Hello { node, boot }).and_then(|()| link.send(seal)).is_err() {
        return;
    }
    let sealed = async {
        loop {
            match reports.receive().await {
                Ok(frame) => {
                    if let FromBackend::Sealed { boot, gpus, finished, .. } = frame.message {
                        return Some((boot, gpus, finished));
                    }
                }
                Err(_) => return None,
            }
        }
    };
    let Ok(Some((boot, gpus, finished))) = timeout(SEAL_WITHIN, sealed).await else { return };
    if boot != expected {
        return;
    }
    for sealed in gpus.into_iter().filter(|sealed| tokens.contains(&(sealed.gpu, sealed.promised))) {
        let ran = finished.iter().chain(&sealed.in_flight).copied().collect();
        let (gpu, token, sender) = (sealed.gpu, sealed.promised, link.clone());
        lead.borrow_mut().sealed(PlanLink { gpu, token, boot, sequence: 1, sender }, ran);
    }
    let until_it_ends = async {
        while let Ok(frame) = reports.receive().await {
            match frame.message {
                FromBackend::Done(done) => {
                    let (gpu, token, sequence, sender) = (done.gpu, done.token, done.sequence + 1, link.clone());
                    lead.borrow_mut().done(&done, PlanLink { gpu, token, boot, sequence, sender });
                }
                FromBackend::Refused { gpu, sequence, .. } => {
                    if let Some(policy) = &mut lead.borrow_mut().policy {
                        policy.refused(gpu, sequence);
                    }
                    return;
                }
                FromBackend::Welcome { .. }
                | FromBackend::Sealed { .. }
                | FromBackend::PayloadDelay { .. }
                | FromBackend::Hosts { .. } => {}
            }
        }
    };
    until_it_ends.await;
    let mut lead = lead.borrow_mut();
    // Its last sender would take a plan and lose it.
    lead.free.retain(|free| tokens.iter().all(|(gpu, _)| *gpu != free.gpu));
    lead.lost(boot);
}

/// Takes requests for what is led.
async fn serve(cluster: Cluster, listener: Listener, net: Net, leads: Leads) {
    // The last link of each frontend for each sub-cluster: what is still to be read of an earlier one counts no more.
    let last = Rc::<RefCell<BTreeMap<(FrontendId, BootId, SubclusterId), u64>>>::default();
    let mut links = 0_u64;
    let mut incoming = Incoming::new(listener, net, Port::new("scheduler.dispatch", &[Role::Frontend], 256));
    while let Some(frontend) = incoming.next().await {
        let (sender, mut receiver) = link_over::<ToFrontend, ToLeader>(frontend);
        links += 1;
        let (link, cluster, leads, last) = (links, cluster.clone(), Rc::clone(&leads), Rc::clone(&last));
        tokio::task::spawn_local(async move {
            let mut whose: Option<(FrontendId, BootId, SubclusterId, Token)> = None;
            let lead_of = |whose: Option<(FrontendId, BootId, SubclusterId, Token)>| {
                let (frontend, boot, subcluster, token) = whose?;
                let is_last = last.borrow().get(&(frontend, boot, subcluster)) == Some(&link);
                let lead = leads.borrow().get(&subcluster).map(|(held, lead, _)| (*held, Rc::clone(lead)));
                lead.filter(|(held, _)| is_last && *held == token).map(|(_, lead)| (frontend, boot, lead))
            };
            while let Ok(frame) = receiver.receive().await {
                match frame.message {
                    ToLeader::Hello { frontend, boot, subcluster, token } => {
                        let held = leads.borrow().get(&subcluster).map_or(Token::default(), |(held, ..)| *held);
                        let leads_it = held == token;
                        whose = leads_it.then_some((frontend, boot, subcluster, token));
                        let answer = if leads_it {
                            ToFrontend::Welcome { token }
                        } else {
                            ToFrontend::NotLeader { token: held }
                        };
                        if sender.send(answer).is_err() || !leads_it {
                            return;
                        }
                        last.borrow_mut().insert((frontend, boot, subcluster), link);
                        let Some((_, _, lead)) = lead_of(whose) else { return };
                        // It starts over, and asks again for what it still wants.
                        lead.borrow_mut().withdraw(|id| (id.frontend, id.boot) == (frontend, boot));
                    }
                    ToLeader::Announce { requests, .. } | ToLeader::Redrive { requests, .. } => {
                        let Some((frontend, boot, lead)) = lead_of(whose) else { return };
                        let mut lead = lead.borrow_mut();
                        for header in requests {
                            let request = RequestId { frontend, boot, sequence: header.sequence };
                            lead.check_withdrawn(request, &cluster.withdrawn.borrow());
                            lead.ask(request, &header);
                        }
                    }
                    ToLeader::Cancel { requests } => {
                        let Some((frontend, boot, lead)) = lead_of(whose) else { return };
                        let id = |(sequence, _)| RequestId { frontend, boot, sequence };
                        let gone: Vec<_> = requests.into_iter().map(id).collect();
                        lead.borrow_mut().withdraw(|id| gone.contains(&id));
                    }
                }
            }
        });
    }
}
