//! The way to the leader of one sub-cluster: follows the assignment, announces requests, and after a take-over
//! announces all unanswered ones again (docs/concepts/take-over.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use symphony_net::{Expected, Net, Role};
use symphony_protocol::dispatch::{ANNOUNCED_REQUESTS_MAX, EndReason, RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::view::View;
use symphony_transport::{LinkReceiver, LinkSender, ViewReceiver, connect_link};
use symphony_types::{BootId, FailReason, FrontendId, NodeId, SubclusterId, Token};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::counts::ledger::Ledger;
use crate::dispatch::control_plane_contact::{ContactAnswer, ControlPlaneContact};
use crate::requests::request_table::{Announcement, Ending, RequestTable};

/// Pause before the next attempt to reach a leader: it may learn of its assignment a moment after the frontend does.
const RETRY_AFTER: Duration = Duration::from_millis(5);
/// Longest pause before a leader that refused is asked again: every attempt costs both sides a handshake, and one that
/// is suspended may stay so for long. From [`RETRY_AFTER`] it doubles with each refusal.
const ASK_AGAIN_AFTER_MAX: Duration = Duration::from_millis(100);
/// How often the commands for a sub-cluster without a leader are thrown away, which bounds their queue.
const CHECK_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long a leader without waiting requests is not dialled. The first request ends the pause.
const UNHURRIED: Duration = Duration::from_millis(500);
/// How long a leader may take to welcome.
const WELCOME_TIMEOUT: Duration = Duration::from_millis(250);

/// A message to the leader about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderCommand {
    /// It is in the table.
    Announce(u64),
    /// Its client has gone; sequence number and model.
    Cancel(u64, u32),
}

pub(crate) struct LeaderLink {
    pub(crate) frontend: FrontendId,
    pub(crate) boot: BootId,
    pub(crate) subcluster: SubclusterId,
    pub(crate) net: Net,
    pub(crate) view: ViewReceiver,
    pub(crate) table: Arc<RequestTable>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) commands: UnboundedReceiver<LeaderCommand>,
    /// Whether the leader has stopped because it lost the control group, or is gone and no replica could name another
    /// one.
    pub(crate) suspended: Arc<AtomicBool>,
    /// The other replicas' contact with the control group.
    pub(crate) control_plane_contact: Arc<ControlPlaneContact>,
    /// Since when no link could be made; none after one.
    pub(crate) unlinked: Option<Instant>,
    /// Where requests go that the leader does not serve.
    pub(crate) misrouted: UnboundedSender<u64>,
}

/// Which replica leads, where it is, and under which token.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leader {
    node: NodeId,
    addr: String,
    token: Token,
}

/// A connection, and the answer to the hello.
type Handshake = (LinkSender<ToLeader>, LinkReceiver<ToFrontend>, ToFrontend);

/// Why there is no link to a leader.
enum NoLink {
    /// It does not lead, or not now.
    Refused(String),
    /// It cannot be reached, or its answer cannot be used.
    Failed(String),
}

impl LeaderLink {
    pub(crate) async fn run(mut self, ended: CancellationToken) {
        let mut pause = RETRY_AFTER;
        loop {
            tokio::select! {
                () = ended.cancelled() => return,
                next = self.run_one_link(pause) => match next {
                    Some(next) => pause = next,
                    None => return,
                },
            }
        }
    }

    /// One connection to one leader, from finding it to losing it, and `pause` after it. Returns the next pause; none
    /// when the view has ended.
    async fn run_one_link(&mut self, mut pause: Duration) -> Option<Duration> {
        // Nothing is lost with these commands: everything in the table is announced to the next leader.
        while self.commands.try_recv().is_ok() {}
        let leader = leader_of(&self.view.borrow_and_update(), self.subcluster);
        let Some(leader) = leader else {
            return tokio::select! {
                changed = self.view.changed() => changed.ok().map(|()| RETRY_AFTER),
                () = tokio::time::sleep(CHECK_AGAIN_AFTER) => Some(RETRY_AFTER),
            };
        };
        // One replica may be the new leader of a thousand sub-clusters: it is dialled first where something waits. If
        // the last leader had stopped, new requests wait outside the table until a leader goes on.
        if !self.suspended.load(Ordering::Acquire) && !self.table.waits_for(self.subcluster) {
            tokio::select! {
                command = self.commands.recv() => drop(command?),
                () = another_leader(self.view.clone(), self.subcluster, &leader) => return Some(RETRY_AFTER),
                () = tokio::time::sleep(UNHURRIED) => {}
            }
        }
        let connected = tokio::select! {
            connected = self.connect(&leader) => connected,
            // A dead host answers nothing for hundreds of milliseconds; its successor is named before that.
            () = another_leader(self.view.clone(), self.subcluster, &leader) => return Some(RETRY_AFTER),
        };
        let mut next = RETRY_AFTER;
        let mut unreached = false;
        match connected {
            Ok((sender, receiver)) => {
                tracing::debug!(subcluster = %self.subcluster, leader = %leader.addr, token = %leader.token, "leader linked");
                self.suspended.store(false, Ordering::Release);
                self.unlinked = None;
                self.serve(&leader, &sender, receiver).await?;
                pause = RETRY_AFTER;
            }
            Err(NoLink::Refused(reason)) => {
                tracing::debug!(subcluster = %self.subcluster, leader = %leader.addr, %reason, "refused by the leader");
                next = (pause * 2).min(ASK_AGAIN_AFTER_MAX);
            }
            Err(NoLink::Failed(reason)) => {
                tracing::debug!(subcluster = %self.subcluster, leader = %leader.addr, %reason, "no leader");
                pause = RETRY_AFTER;
                unreached = true;
            }
        }
        // Whatever is new in the cluster is followed at once, also what ended the link; without news the same leader is
        // asked again after a pause.
        let unlinked = self.unlinked.get_or_insert_with(Instant::now).elapsed();
        let mut news = self.view.clone();
        let waited = async {
            if unreached {
                self.suspend_if_contact_lost(&leader, unlinked).await;
            }
            tokio::time::sleep(pause).await;
        };
        tokio::select! {
            () = another_leader(self.view.clone(), self.subcluster, &leader) => Some(RETRY_AFTER),
            changed = news.changed() => changed.ok().map(|()| RETRY_AFTER),
            () = waited => Some(next),
        }
    }

    /// Requests that wait for a leader that is gone get the reason, if no replica can name another one.
    async fn suspend_if_contact_lost(&self, leader: &Leader, unlinked: Duration) {
        if self.suspended.load(Ordering::Acquire) || !self.table.waits_for(self.subcluster) {
            return;
        }
        if self.control_plane_contact.is_lost(unlinked, self.query_other_replicas(leader)).await {
            tracing::warn!(subcluster = %self.subcluster, leader = %leader.addr,
                "the leader is gone, and no replica is in contact with the control group");
            self.suspended.store(true, Ordering::Release);
        }
    }

    /// Asks the other replicas for the sub-cluster: their answers show whether they are in contact.
    async fn query_other_replicas(&self, leader: &Leader) -> Vec<ContactAnswer> {
        let others: Vec<_> = {
            let view = self.view.borrow();
            let others = view.nodes.iter().filter(|&(&id, node)| node.up && id != leader.node);
            let others = others.filter(|(_, node)| !node.dispatch_addr.is_empty());
            others.map(|(&node, view)| Leader { node, addr: view.dispatch_addr.clone(), token: leader.token }).collect()
        };
        let ask = |other: Leader| async move {
            match self.handshake(&other).await {
                Ok((.., ToFrontend::Suspended)) => ContactAnswer::OutOfContact,
                Ok(_) => ContactAnswer::InContact,
                Err(_) => ContactAnswer::NoAnswer,
            }
        };
        let mut answers: FuturesUnordered<_> = others.into_iter().map(ask).collect();
        let mut received = Vec::new();
        while let Some(one) = answers.next().await {
            // One is enough, and a host that is gone takes long to time out.
            let in_contact = matches!(one, ContactAnswer::InContact);
            received.push(one);
            if in_contact {
                break;
            }
        }
        received
    }

    async fn connect(&self, leader: &Leader) -> Result<(LinkSender<ToLeader>, LinkReceiver<ToFrontend>), NoLink> {
        match self.handshake(leader).await? {
            (sender, receiver, ToFrontend::Welcome { token }) if token == leader.token => Ok((sender, receiver)),
            (.., ToFrontend::Suspended) => {
                self.suspended.store(true, Ordering::Release);
                Err(NoLink::Refused("the leader has lost the control group".into()))
            }
            (.., other) => Err(NoLink::Refused(format!("{other:?} instead of a welcome"))),
        }
    }

    /// A connection to a replica, and its answer to a hello.
    async fn handshake(&self, leader: &Leader) -> Result<Handshake, NoLink> {
        let failed = |error: &dyn std::fmt::Display| NoLink::Failed(error.to_string());
        // Only the replica that was named learns what waits here.
        let named = Expected::named(Role::Scheduler, leader.node.get().to_string());
        // One replica may be the new leader of everything.
        let turn = self.net.dial_turn().await;
        let link = turn.spend(connect_link::<ToLeader, ToFrontend>(&self.net, &leader.addr, &named)).await;
        let (sender, mut receiver) = link.map_err(|e| failed(&e))?;
        let hello = ToLeader::Hello {
            frontend: self.frontend,
            boot: self.boot,
            subcluster: self.subcluster,
            token: leader.token,
        };
        sender.send(hello).map_err(|e| failed(&e))?;
        match tokio::time::timeout(WELCOME_TIMEOUT, receiver.receive()).await {
            Err(_) => Err(NoLink::Failed(format!("no welcome within {} ms", WELCOME_TIMEOUT.as_millis()))),
            Ok(Err(error)) => Err(failed(&error)),
            Ok(Ok(frame)) => Ok((sender, receiver, frame.message)),
        }
    }

    /// None once all senders of commands are gone.
    async fn serve(
        &mut self,
        leader: &Leader,
        sender: &LinkSender<ToLeader>,
        mut receiver: LinkReceiver<ToFrontend>,
    ) -> Option<()> {
        let again = self.table.announce_all(self.subcluster, leader.token);
        self.ledger.redrive(again.iter().filter(|a| a.attempt > 1).count() as u64);
        let mut chunks = again.chunks(ANNOUNCED_REQUESTS_MAX).peekable();
        while let Some(chunk) = chunks.next() {
            let requests = chunk.iter().map(header).collect();
            let message = ToLeader::Redrive { token: leader.token, requests, last: chunks.peek().is_none() };
            if sender.send(message).is_err() {
                return Some(());
            }
        }
        let mut commands = Vec::new();
        loop {
            tokio::select! {
                frame = receiver.receive() => match frame {
                    Ok(frame) => self.receive(leader.token, frame.message),
                    Err(error) => {
                        tracing::debug!(subcluster = %self.subcluster, %error, "dispatch link ended");
                        return Some(());
                    }
                },
                count = self.commands.recv_many(&mut commands, ANNOUNCED_REQUESTS_MAX) => {
                    if count == 0 {
                        return None;
                    }
                    if !self.send_commands(leader.token, sender, &commands) {
                        return Some(());
                    }
                    commands.clear();
                }
                changed = self.view.changed() => {
                    changed.ok()?;
                    let now = leader_of(&self.view.borrow_and_update(), self.subcluster);
                    if now.as_ref().is_some_and(|now| now != leader) {
                        return Some(());
                    }
                }
            }
        }
    }

    fn send_commands(&self, token: Token, sender: &LinkSender<ToLeader>, commands: &[LeaderCommand]) -> bool {
        let (mut requests, mut cancelled) = (Vec::with_capacity(commands.len()), Vec::new());
        for command in commands {
            match *command {
                // A request that was redriven with the link is not announced twice.
                LeaderCommand::Announce(sequence) => {
                    requests.extend(self.table.announce(sequence, token).as_ref().map(header))
                }
                LeaderCommand::Cancel(sequence, model) => cancelled.push((sequence, model)),
            }
        }
        (requests.is_empty() || sender.send(ToLeader::Announce { token, requests }).is_ok())
            && (cancelled.is_empty() || sender.send(ToLeader::Cancel { requests: cancelled }).is_ok())
    }

    fn receive(&self, token: Token, message: ToFrontend) {
        match message {
            ToFrontend::Ended { requests } => {
                for (sequence, reason) in requests {
                    // It never ran: its model is on its way to another sub-cluster, or this leader has not heard of it
                    // yet.
                    if reason == EndReason::Failed(FailReason::ModelNotReady) {
                        let _ = self.misrouted.send(sequence);
                    } else {
                        self.table.end(sequence, Ending::NoResult(reason));
                    }
                }
            }
            ToFrontend::Panicked => {
                let failed = self.table.panicked(self.subcluster, token);
                tracing::warn!(subcluster = %self.subcluster, %token, failed, "the leader panicked; requests that were with another one before which did have failed");
            }
            ToFrontend::Welcome { .. } | ToFrontend::NotLeader { .. } | ToFrontend::Suspended => {}
        }
    }
}

/// Waits until the view names another leader than `leader`, or the same one under another token.
async fn another_leader(mut view: ViewReceiver, subcluster: SubclusterId, leader: &Leader) {
    loop {
        if leader_of(&view.borrow_and_update(), subcluster).is_some_and(|named| named != *leader) {
            return;
        }
        if view.changed().await.is_err() {
            // Nothing changes any more.
            std::future::pending::<()>().await;
        }
    }
}

fn leader_of(view: &View, subcluster: SubclusterId) -> Option<Leader> {
    let subcluster = view.subclusters.get(&subcluster)?;
    let (node, _) = subcluster.leader?;
    let addr = view.nodes.get(&node)?.dispatch_addr.clone();
    Some(Leader { node, addr, token: subcluster.token })
}

fn header(announcement: &Announcement) -> RequestHeader {
    let left = announcement.deadline.saturating_duration_since(Instant::now());
    RequestHeader {
        sequence: announcement.sequence,
        model: announcement.model.get(),
        items: announcement.items,
        budget: u64::try_from(left.as_nanos()).unwrap_or(u64::MAX),
        attempt: announcement.attempt,
        weight: announcement.weight.thousandths(),
    }
}
