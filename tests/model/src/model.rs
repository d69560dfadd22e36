//! What can happen, and what follows.

use stateright::{Model, Property};
use symphony_types::GPU_PLANS_MAX;

use crate::broken::Broken;
use crate::frontend::Fate;
use crate::leader::Link;
use crate::log::{Entry, backend, boot_id, node_id};
use crate::world::{Announcement, Request, World};
use crate::{NODES, Scope};

/// The take-over protocol within a scope.
#[derive(Clone, Copy, Debug)]
pub struct Protocol(pub Scope);

/// One step. Schedulers, backends and connections go by number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each says what happens to whom.
pub enum Action {
    NodeDown(u8),
    NodeReturns(u8),
    NodeRestarts(u8),
    BackendDown(u8),
    BackendReturns(u8),
    BackendRestarts(u8),
    FrontendRestarts,
    NodeApplies(u8),
    FrontendApplies,
    Connects { node: u8, backend: u8 },
    BackendHears { connection: u8, place: u8 },
    LeaderHears { connection: u8, place: u8 },
    Cut(u8),
    NoticesReset(u8),
    LosesToBackend { connection: u8, place: u8 },
    DoublesToBackend { connection: u8, place: u8 },
    LosesResult(u8),
    DoublesResult(u8),
    Dispatches { node: u8, backend: u8, request: u8 },
    RecoveryTimesOut(u8),
    Finishes(u8),
    Arrives(u8),
    FrontendLinks,
    FrontendUnlinks,
    Announced(u8),
    Result(u8),
    DeadlinePasses(u8),
    ReadBegins(u8),
    ReadEnds,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::founded(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_none() {
            self.progress(world, actions);
            self.trouble(world, actions);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        self.step(&mut world, &action);
        if world.broken.is_none() && self.is_stuck(&world) {
            world.breaks(Broken::Stuck);
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![Property::always(Self::NOTHING_BROKEN, |_, world: &World| world.broken.is_none())];
        properties.push(Property::sometimes(Self::ANSWERED, |_, world: &World| {
            world.frontend.requests.iter().all(|fate| *fate == Fate::Ended)
        }));
        if self.0.node_downs + self.0.node_restarts > 0 && self.0.mutation.is_none() {
            // Without these a search proves nothing about take-overs.
            properties.push(Property::sometimes(Self::REDRIVEN, |_, world: &World| world.redriven_answered));
            properties.push(Property::sometimes(Self::LED_TWICE, |_, world: &World| world.led.len() > 1));
        }
        properties
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.spent.connections <= self.0.connections_max
    }
}

impl Protocol {
    /// Holds in every world; the counterexample's last world shows which promise is broken.
    pub const NOTHING_BROKEN: &'static str = "no promise is broken";
    /// Reached in every scope.
    pub const ANSWERED: &'static str = "all requests are answered";
    /// Reached wherever leads change.
    pub const REDRIVEN: &'static str = "a request announced again is answered";
    /// Reached wherever leads change.
    pub const LED_TWICE: &'static str = "two leads, one after the other";

    /// What happens when nothing goes wrong.
    fn progress(&self, world: &World, actions: &mut Vec<Action>) {
        let scope = &self.0;
        let last = world.log.last();
        for node in 0..NODES as u8 {
            let scheduler = &world.schedulers[node as usize];
            if scheduler.applied < last {
                actions.push(Action::NodeApplies(node));
            } else if world.log.head().nodes()[&node_id(node)].boot == boot_id(scheduler.boot)
                && world.log.head().nodes().values().all(|node| !node.up)
            {
                // A node returns when no other is left; returning beside a leader makes it a standby and changes
                // nothing.
                actions.push(Action::NodeReturns(node));
            }
            for which in 0..scope.backends {
                if world.can_connect(scope, node, which) {
                    actions.push(Action::Connects { node, backend: which });
                }
            }
            // A wait that ends before there is anything to wait for ends as well when there is.
            if world.waits_for_backends(node) {
                actions.push(Action::RecoveryTimesOut(node));
            }
            let Some(lead) = &scheduler.lead else { continue };
            for (which, link) in lead.links.iter().enumerate() {
                let Link::Usable { connection, .. } = link else { continue };
                let busy = world.connections.iter().find(|c| c.id == *connection).map_or(0, |c| c.to_backend.len());
                let queued = world.backends[which].pending.len() + busy;
                if queued < GPU_PLANS_MAX as usize {
                    let numbers = 0..lead.queue.len() as u8;
                    actions.extend(numbers.map(|request| Action::Dispatches { node, backend: which as u8, request }));
                }
            }
        }
        for (which, one) in world.backends.iter().enumerate() {
            if !one.pending.is_empty() {
                actions.push(Action::Finishes(which as u8));
            }
            let entry = backend(world.log.head(), which as u8);
            if entry.is_some_and(|entry| !entry.up() && entry.boot == boot_id(one.boot)) {
                actions.push(Action::BackendReturns(which as u8));
            }
        }
        for connection in &world.connections {
            let id = connection.id;
            let places = |queue: usize| 0..if scope.unordered { queue } else { queue.min(1) } as u8;
            let to_backend = places(connection.to_backend.len());
            actions.extend(to_backend.map(|place| Action::BackendHears { connection: id, place }));
            let to_leader = places(connection.to_leader.len());
            actions.extend(to_leader.map(|place| Action::LeaderHears { connection: id, place }));
            if connection.reset && connection.open {
                actions.push(Action::NoticesReset(id));
            }
        }
        let frontend = &world.frontend;
        if frontend.applied < last {
            actions.push(Action::FrontendApplies);
        }
        if let Some(next) = frontend.requests.iter().position(|fate| *fate == Fate::Unborn) {
            actions.push(Action::Arrives(next as u8));
        }
        if world.can_link().is_some() {
            actions.push(Action::FrontendLinks);
        }
        if let Some((node, link, since)) = frontend.link {
            let lead = world.schedulers[node as usize].lead.as_ref();
            if lead.is_none_or(|lead| lead.since != since || lead.frontend != Some(link)) {
                actions.push(Action::FrontendUnlinks);
            }
        }
        actions.extend((0..world.announcements.len() as u8).map(Action::Announced));
        let mut before = None;
        for (place, result) in world.results.iter().enumerate() {
            if before.replace(result) != Some(result) {
                actions.push(Action::Result(place as u8));
            }
        }
        if world.read.is_some_and(|(node, begun)| self.may_answer(world, node, begun)) {
            actions.push(Action::ReadEnds);
        }
    }

    /// A replica answers a linearizable read once it has applied what was agreed on when it was asked: the read index.
    fn may_answer(&self, world: &World, node: u8, begun: u8) -> bool {
        world.schedulers[node as usize].applied >= begun || self.0.has(crate::Mutation::ReadWithoutIndex)
    }

    /// What may go wrong, as often as the scope allows.
    fn trouble(&self, world: &World, actions: &mut Vec<Action>) {
        let (scope, spent) = (&self.0, &world.spent);
        for node in 0..NODES as u8 {
            if spent.node_downs < scope.node_downs && world.log.head().nodes()[&node_id(node)].up {
                actions.push(Action::NodeDown(node));
            }
            if spent.node_restarts < scope.node_restarts {
                actions.push(Action::NodeRestarts(node));
            }
            if spent.reads < scope.reads && world.read.is_none() {
                actions.push(Action::ReadBegins(node));
            }
        }
        for which in 0..scope.backends {
            if spent.backend_downs < scope.backend_downs
                && backend(world.log.head(), which).is_some_and(symphony_cluster_state::Backend::up)
            {
                actions.push(Action::BackendDown(which));
            }
            if spent.backend_restarts < scope.backend_restarts {
                actions.push(Action::BackendRestarts(which));
            }
        }
        if spent.frontend_restarts < scope.frontend_restarts {
            actions.push(Action::FrontendRestarts);
        }
        for connection in &world.connections {
            if connection.open && spent.cuts < scope.cuts {
                actions.push(Action::Cut(connection.id));
            }
            for place in 0..connection.to_backend.len() as u8 {
                let connection = connection.id;
                if scope.unordered && spent.losses < scope.losses {
                    actions.push(Action::LosesToBackend { connection, place });
                }
                if scope.unordered && spent.doubles < scope.doubles {
                    actions.push(Action::DoublesToBackend { connection, place });
                }
            }
        }
        for place in 0..world.results.len() as u8 {
            if spent.losses < scope.losses && scope.deadlines > 0 {
                actions.push(Action::LosesResult(place));
            }
            if spent.doubles < scope.doubles {
                actions.push(Action::DoublesResult(place));
            }
        }
        for (number, fate) in world.frontend.requests.iter().enumerate() {
            if matches!(fate, Fate::Waits { .. }) && spent.deadlines < scope.deadlines {
                actions.push(Action::DeadlinePasses(number as u8));
            }
        }
    }

    fn step(&self, world: &mut World, action: &Action) {
        let scope = &self.0;
        match *action {
            Action::NodeDown(node) => {
                world.spent.node_downs += 1;
                let boot = (world.log.head().nodes()[&node_id(node)].boot.get() - 1) as u8;
                world.log.append(Entry::NodeDown(node, boot));
            }
            Action::NodeReturns(node) => {
                world.log.append(Entry::NodeUp(node, world.schedulers[node as usize].boot));
            }
            Action::NodeRestarts(node) => {
                world.spent.node_restarts += 1;
                world.restart_scheduler(scope, node);
            }
            Action::BackendDown(which) => {
                world.spent.backend_downs += 1;
                let boot = backend(world.log.head(), which).map_or(0, |b| (b.boot.get() - 1) as u8);
                world.log.append(Entry::BackendDown(which, boot));
            }
            Action::BackendReturns(which) => {
                world.log.append(Entry::BackendUp(which, world.backends[which as usize].boot));
            }
            Action::BackendRestarts(which) => {
                world.spent.backend_restarts += 1;
                world.restart_backend(scope, which);
            }
            Action::FrontendRestarts => {
                world.spent.frontend_restarts += 1;
                world.restart_frontend(scope);
            }
            Action::NodeApplies(node) => {
                world.schedulers[node as usize].applied += 1;
                world.follow(scope, node);
            }
            Action::FrontendApplies => {
                world.frontend.applied += 1;
                world.check_link();
            }
            Action::Connects { node, backend } => world.connect(scope, node, backend),
            Action::BackendHears { connection, place } => {
                let Some(link) = world.connection(connection) else { return };
                let message = link.to_backend.remove(place as usize);
                world.backend_hears(scope, connection, message);
            }
            Action::LeaderHears { connection, place } => {
                let Some(link) = world.connection(connection) else { return };
                let message = link.to_leader.remove(place as usize);
                world.leader_hears(scope, connection, message);
            }
            Action::Cut(connection) => {
                world.spent.cuts += 1;
                let node = world.connection(connection).map_or(0, |c| c.node);
                world.let_go(node, connection);
            }
            Action::NoticesReset(connection) => {
                let node = world.connection(connection).map_or(0, |c| c.node);
                world.let_go(node, connection);
            }
            Action::LosesToBackend { connection, place } => {
                world.spent.losses += 1;
                if let Some(link) = world.connection(connection) {
                    link.to_backend.remove(place as usize);
                }
                world.sweep();
            }
            Action::DoublesToBackend { connection, place } => {
                world.spent.doubles += 1;
                if let Some(link) = world.connection(connection) {
                    let message = link.to_backend[place as usize];
                    link.to_backend.push(message);
                }
            }
            Action::LosesResult(place) => {
                world.spent.losses += 1;
                world.results.remove(place as usize);
            }
            Action::DoublesResult(place) => {
                world.spent.doubles += 1;
                let result = world.results[place as usize];
                world.results.insert(place as usize, result);
            }
            Action::Dispatches { node, backend, request } => {
                let lead = world.schedulers[node as usize].lead.as_ref();
                let request: Option<Request> = lead.and_then(|lead| lead.queue.iter().nth(request as usize).copied());
                if let Some(request) = request {
                    world.dispatch(node, backend, request);
                }
            }
            Action::RecoveryTimesOut(node) => world.recover(scope, node),
            Action::Finishes(which) => world.finish(which),
            Action::Arrives(number) => world.arrive(number),
            Action::FrontendLinks => {
                if let Some((node, since)) = world.can_link() {
                    world.link_frontend(node, since);
                }
            }
            Action::FrontendUnlinks => world.check_link(),
            Action::Announced(place) => {
                let announcement: Option<Announcement> = world.announcements.iter().nth(place as usize).cloned();
                if let Some(announcement) = announcement {
                    world.announcements.remove(&announcement);
                    world.announced(scope, &announcement);
                }
            }
            Action::Result(place) => {
                let result = world.results.remove(place as usize);
                world.result(scope, result);
            }
            Action::DeadlinePasses(number) => {
                world.spent.deadlines += 1;
                world.frontend.requests[number as usize] = Fate::Ended;
            }
            Action::ReadBegins(node) => {
                world.spent.reads += 1;
                world.read = Some((node, world.log.last()));
            }
            Action::ReadEnds => {
                if let Some((node, begun)) = world.read.take()
                    && world.schedulers[node as usize].applied < begun
                {
                    world.breaks(Broken::StaleRead);
                }
            }
        }
    }

    /// Nothing can happen any more without new trouble, and a request waits. Lost results are the deadline's business.
    fn is_stuck(&self, world: &World) -> bool {
        if !world.frontend.waits() || world.spent.losses > 0 || !self.within_boundary(world) {
            return false;
        }
        let mut actions = Vec::new();
        self.progress(world, &mut actions);
        actions.is_empty()
    }
}
