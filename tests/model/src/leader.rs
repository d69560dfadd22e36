//! A scheduler and its leads. In production this is spread over tasks and threads of `scheduler-runtime`; here it is
//! modelled without queues, times and batches.

use std::collections::{BTreeMap, BTreeSet};

use symphony_cluster_state::Leader;
use symphony_types::Token;

use crate::broken::Broken;
use crate::log::{Entry, backend, boot_id, gpu_token, node_id, subcluster};
use crate::world::{Connection, Request, ToBackend, ToLeader, World};
use crate::{BACKENDS, Boot, Mutation, Scope};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scheduler {
    pub(crate) incarnation: Boot,
    /// The boot it registered. Behind the incarnation where a restart inherits.
    pub(crate) boot: Boot,
    /// How far it has applied the log.
    pub(crate) applied: u8,
    pub(crate) lead: Option<Lead>,
    /// A token is led once.
    last_token: u64,
}

/// The sub-cluster, while this node leads it under one token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lead {
    /// Log index of the assignment.
    pub(crate) since: u8,
    pub(crate) token: u64,
    pub(crate) links: [Link; BACKENDS],
    sealed: [bool; BACKENDS],
    /// The link of the frontend, by number.
    pub(crate) frontend: Option<u8>,
    pub(crate) recovered: bool,
    /// Announced again, until it is known which of them backends have.
    held: BTreeSet<Request>,
    pub(crate) queue: BTreeSet<Request>,
    /// What backends had when they were sealed, by connection.
    known: BTreeMap<Request, u8>,
    /// Requests that were announced again.
    awaited: BTreeMap<Request, u8>,
    sent: BTreeMap<(u8, u8), Request>,
}

/// The way to one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    #[default]
    Down,
    Sealing(u8),
    /// The connection, the number of the next order, and whether the answer to the seal has come.
    Usable {
        connection: u8,
        next: u8,
        informed: bool,
    },
}

impl Link {
    pub(crate) const fn connection(self) -> Option<u8> {
        match self {
            Self::Down => None,
            Self::Sealing(connection) | Self::Usable { connection, .. } => Some(connection),
        }
    }
}

impl Scheduler {
    pub(crate) const fn new(applied: u8) -> Self {
        Self { incarnation: 0, boot: 0, applied, lead: None, last_token: 0 }
    }

    fn lead_with(&mut self, connection: u8) -> Option<&mut Lead> {
        self.lead.as_mut().filter(|lead| lead.links.iter().any(|link| link.connection() == Some(connection)))
    }
}

impl Lead {
    fn new(since: u8, token: u64) -> Self {
        Self {
            since,
            token,
            links: [Link::Down; BACKENDS],
            sealed: [false; BACKENDS],
            frontend: None,
            recovered: false,
            held: BTreeSet::new(),
            queue: BTreeSet::new(),
            known: BTreeMap::new(),
            awaited: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Everything that came over a connection, and went out on it, is over. What was sent is queued again.
    fn lose(&mut self, connection: u8) {
        for link in self.links.iter_mut().filter(|link| link.connection() == Some(connection)) {
            *link = Link::Down;
        }
        let sent = std::mem::take(&mut self.sent);
        for ((by, sequence), request) in sent {
            if by == connection {
                self.queue.insert(request);
            } else {
                self.sent.insert((by, sequence), request);
            }
        }
        self.known.retain(|_, by| *by != connection);
        let awaited = std::mem::take(&mut self.awaited);
        for (request, by) in awaited {
            if by == connection {
                self.queue.insert(request);
            } else {
                self.awaited.insert(request, by);
            }
        }
    }
}

impl World {
    /// Scheduler `node` looks at what it has applied: it ends what others lead and begins what it was assigned.
    pub(crate) fn follow(&mut self, scope: &Scope, node: u8) {
        let scheduler = &self.schedulers[node as usize];
        let state = self.log.state(scheduler.applied);
        let me = Leader { node: node_id(node), boot: boot_id(scheduler.boot) };
        let assigned = subcluster(state).filter(|s| s.leader == Some(me)).map(|s| s.token);
        if let Some(lead) = &scheduler.lead
            && assigned != Some(Token::new(u64::from(lead.since)))
        {
            self.end_lead(node);
        }
        let scheduler = &self.schedulers[node as usize];
        if let Some(since) = assigned
            && scheduler.lead.is_none()
            && since.get() > scheduler.last_token
        {
            let token = if scope.has(Mutation::RaftTermAsToken) { TERM } else { since.get() };
            self.begin_lead(node, since.get(), token);
        }
        self.follow_backends(scope, node);
    }

    fn begin_lead(&mut self, node: u8, since: u64, token: u64) {
        let scheduler = &mut self.schedulers[node as usize];
        scheduler.last_token = since;
        scheduler.lead = Some(Lead::new(since as u8, token));
        let me = (token, node, scheduler.incarnation);
        if self.led.iter().any(|led| led.0 == token && *led != me) {
            self.breaks(Broken::TokenLedTwice);
        }
        if !self.led.contains(&me) {
            self.led.push(me);
            self.led.sort_unstable();
        }
    }

    /// Links to other boots or under other tokens than the view names are let go.
    fn follow_backends(&mut self, scope: &Scope, node: u8) {
        for which in 0..BACKENDS as u8 {
            let Some(link) = self.link(node, which).connection() else { continue };
            let target = self.target(scope, node, which);
            let same = self.connection(link).is_some_and(|c| Some((c.expected, c.token)) == target);
            if !same {
                self.let_go(node, link);
            }
        }
    }

    fn link(&self, node: u8, which: u8) -> Link {
        self.schedulers[node as usize].lead.as_ref().map_or(Link::Down, |lead| lead.links[which as usize])
    }

    /// The boot of a backend and the token for its GPU, as the leader's view has them; none while it is down.
    fn target(&self, scope: &Scope, node: u8, which: u8) -> Option<(Boot, u64)> {
        let scheduler = &self.schedulers[node as usize];
        let lead = scheduler.lead.as_ref()?;
        let state = self.log.state(scheduler.applied);
        let entry = backend(state, which).filter(|b| b.up())?;
        let token = match scope.mutation {
            Some(Mutation::RaftTermAsToken) => TERM,
            _ => gpu_token(state, which, Token::new(lead.token)).get(),
        };
        Some(((entry.boot.get() - 1) as Boot, token))
    }

    pub(crate) fn can_connect(&self, scope: &Scope, node: u8, which: u8) -> bool {
        self.schedulers[node as usize].lead.is_some()
            && self.link(node, which) == Link::Down
            && self.target(scope, node, which).is_some()
    }

    /// Dials a backend and seals. The backend that runs there accepts and says which boot it is.
    pub(crate) fn connect(&mut self, scope: &Scope, node: u8, which: u8) {
        let Some((expected, token)) = self.target(scope, node, which) else { return };
        let scheduler = &mut self.schedulers[node as usize];
        let Some(lead) = &mut scheduler.lead else { return };
        let since = Token::new(u64::from(lead.since));
        let granted_at = gpu_token(self.log.state(scheduler.applied), which, since).get();
        let id = self.spent.connections;
        self.spent.connections += 1;
        let boot = self.backends[which as usize].boot;
        let without_seal = scope.has(Mutation::NoSeal);
        let waits = !without_seal && !scope.has(Mutation::SkipSeal);
        lead.links[which as usize] =
            if waits { Link::Sealing(id) } else { Link::Usable { connection: id, next: 1, informed: false } };
        self.connections.push(Connection {
            id,
            node,
            backend: which,
            boot,
            expected,
            since: lead.since,
            granted_at,
            token,
            open: true,
            reset: false,
            to_backend: if without_seal { Vec::new() } else { vec![ToBackend::Seal] },
            // A welcome as expected changes nothing.
            to_leader: if boot == expected { Vec::new() } else { vec![ToLeader::Welcome { boot }] },
            granted: false,
            reported: Vec::new(),
            taken: 0,
        });
    }

    /// A message arrives at the leader.
    pub(crate) fn leader_hears(&mut self, scope: &Scope, id: u8, message: ToLeader) {
        let Some(connection) = self.connection(id) else { return };
        let (node, expected, token) = (connection.node, connection.expected, connection.token);
        let (which, since) = (connection.backend, connection.since);
        let same_boot = |boot: Boot| boot == expected || scope.has(Mutation::NoBootCheck);
        let mut fenced = false;
        match message {
            ToLeader::Welcome { boot } => {
                if !same_boot(boot) {
                    self.let_go(node, id);
                }
            }
            ToLeader::Sealed { promised, .. } if promised > token => fenced = true,
            ToLeader::Sealed { boot, promised, in_flight, finished } => {
                if !same_boot(boot) {
                    return self.let_go(node, id);
                }
                let Some(lead) = self.schedulers[node as usize].lead_with(id) else { return };
                lead.known.extend(in_flight.into_iter().chain(finished).map(|request| (request, id)));
                lead.sealed[which as usize] = true;
                // A promise of another token is no use of the GPU.
                let link = &mut lead.links[which as usize];
                match link {
                    Link::Sealing(_) if promised == token => {
                        *link = Link::Usable { connection: id, next: 1, informed: true };
                    }
                    Link::Usable { informed, .. } => *informed = true,
                    _ => {}
                }
                if lead.sealed.iter().take(scope.backends as usize).all(|&sealed| sealed) {
                    self.recover(scope, node);
                }
            }
            ToLeader::Done { sequence } => {
                if let Some(lead) = self.schedulers[node as usize].lead_with(id) {
                    lead.sent.remove(&(id, sequence));
                }
            }
            ToLeader::Refused { fenced: true, .. } => fenced = true,
            ToLeader::Refused { .. } => self.let_go(node, id),
        }
        if fenced {
            let later = subcluster(self.log.head()).is_some_and(|s| s.token.get() > u64::from(since));
            let led_here = self.schedulers[node as usize].lead.as_ref().is_some_and(|lead| lead.since == since);
            if led_here {
                if !later {
                    self.breaks(Broken::FencedByNobody);
                }
                self.end_lead(node);
            }
        }
    }

    /// The leader's end of a connection is closed, by it or by the network. What it sent may still arrive.
    pub(crate) fn let_go(&mut self, node: u8, id: u8) {
        if let Some(connection) = self.connection(id) {
            connection.open = false;
            connection.to_leader.clear();
        }
        if let Some(lead) = self.schedulers[node as usize].lead_with(id) {
            lead.lose(id);
        }
        self.sweep();
    }

    pub(crate) fn end_lead(&mut self, node: u8) {
        let Some(lead) = self.schedulers[node as usize].lead.take() else { return };
        for link in lead.links {
            if let Some(connection) = link.connection().and_then(|id| self.connection(id)) {
                connection.open = false;
                connection.to_leader.clear();
            }
        }
        self.announcements.retain(|announcement| announcement.node != node);
        self.sweep();
    }

    /// A scheduler dies and is back under a new boot, which registers.
    pub(crate) fn restart_scheduler(&mut self, scope: &Scope, node: u8) {
        self.end_lead(node);
        let old = &self.schedulers[node as usize];
        let mut new = Scheduler { incarnation: old.incarnation + 1, boot: old.boot, ..Scheduler::new(old.applied) };
        if !scope.has(Mutation::FastRestartInherits) {
            new.boot += 1;
            self.log.append(Entry::NodeUp(node, new.boot));
        }
        self.schedulers[node as usize] = new;
        self.follow(scope, node);
    }

    /// Requests arrive at the leader.
    pub(crate) fn receive_announced(&mut self, scope: &Scope, node: u8, requests: &[Request], redriven: bool) {
        for &request in requests {
            let Some(lead) = &mut self.schedulers[node as usize].lead else { return };
            if redriven && !lead.recovered && !scope.has(Mutation::RedriveWithoutAsking) {
                lead.held.insert(request);
            } else {
                self.enqueue(scope, node, request, redriven);
            }
        }
    }

    pub(crate) fn waits_for_backends(&self, node: u8) -> bool {
        self.schedulers[node as usize].lead.as_ref().is_some_and(|lead| !lead.held.is_empty())
    }

    /// All backends have answered, or the wait is over: held requests are queued, except those that backends have.
    pub(crate) fn recover(&mut self, scope: &Scope, node: u8) {
        let Some(lead) = &mut self.schedulers[node as usize].lead else { return };
        lead.recovered = true;
        for request in std::mem::take(&mut lead.held) {
            self.enqueue(scope, node, request, true);
        }
    }

    fn enqueue(&mut self, scope: &Scope, node: u8, request: Request, redriven: bool) {
        let Some(lead) = &mut self.schedulers[node as usize].lead else { return };
        let known_by = lead.known.get(&request).copied();
        let ours = lead.sent.values().any(|&sent| sent == request);
        if redriven && !scope.has(Mutation::RedriveWithoutAsking) {
            if let Some(connection) = known_by {
                lead.awaited.insert(request, connection);
            }
            if ours || known_by.is_some() {
                return;
            }
        }
        lead.queue.insert(request);
        // The requests that this leader's own seals reported, checked with the backends by the observer.
        let sealed = lead.links.iter().zip(&self.backends).any(|(link, backend)| {
            let informed = matches!(link, Link::Usable { informed: true, .. });
            let linked = link.connection().and_then(|id| self.connections.iter().find(|c| c.id == id));
            let had = backend.recent.contains(&request) || backend.pending.iter().any(|(_, r)| *r == request);
            informed && had && linked.is_some_and(|c| c.granted)
        });
        if redriven && sealed {
            self.breaks(Broken::RunAgainThoughKnown);
        }
    }

    /// Orders a request to run on a usable GPU.
    pub(crate) fn dispatch(&mut self, node: u8, which: u8, request: Request) {
        let Some(lead) = &mut self.schedulers[node as usize].lead else { return };
        let Link::Usable { connection, next, informed } = &mut lead.links[which as usize] else { return };
        let (id, sequence, informed) = (*connection, *next, *informed);
        *next += 1;
        lead.queue.remove(&request);
        lead.sent.insert((id, sequence), request);
        if let Some(connection) = self.connection(id).filter(|c| !c.reset) {
            connection.to_backend.push(ToBackend::Execute { sequence, request, informed });
        }
    }
}

/// The term that does not change when the sub-cluster's leader does.
const TERM: u64 = 10;
