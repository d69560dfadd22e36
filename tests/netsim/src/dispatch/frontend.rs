//! A frontend: sends requests, follows the leaders, announces requests again after a take-over, and takes the first
//! answer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_net::{Expected, Incoming, Net, Port, Role};
use symphony_protocol::dispatch::{RequestHeader, ToFrontend, ToLeader};
use symphony_protocol::view::View;
use symphony_transport::{LinkSender, connect_link};
use symphony_types::{BootId, FrontendId, SubclusterId, Token};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::pipelines::{Part, Pipelines};
use super::{DEADLINE, DIAL_AGAIN_AFTER};
use crate::cluster::{Cluster, DATA_PORT};

/// Longest pause between two requests.
const PAUSE_MS_MAX: u64 = 40;

/// A request that waits for its answer.
struct Waiting {
    subcluster: SubclusterId,
    until: Instant,
    in_peace: bool,
    /// What it is of a request for the pipeline.
    part: Option<Part>,
}

type Table = Rc<RefCell<BTreeMap<u64, Waiting>>>;
type Links = Rc<RefCell<BTreeMap<SubclusterId, (Token, LinkSender<ToLeader>)>>>;

/// Where requests are asked and wait.
pub(super) struct Desk {
    views: watch::Receiver<Arc<View>>,
    table: Table,
    links: Links,
    /// Of the last request.
    sequence: Cell<u64>,
}

impl Desk {
    fn subclusters(&self) -> Vec<SubclusterId> {
        self.views.borrow().subclusters.keys().copied().collect()
    }

    fn ask(&self, waiting: Waiting) -> u64 {
        let sequence = self.sequence.get() + 1;
        self.sequence.set(sequence);
        let subcluster = waiting.subcluster;
        self.table.borrow_mut().insert(sequence, waiting);
        if let Some((token, link)) = self.links.borrow().get(&subcluster) {
            // A link that has ended is replaced by one on which everything is asked again.
            let _ = link.send(ToLeader::Announce { token: *token, requests: vec![header(sequence, 1)] });
        }
        sequence
    }

    /// Asks a stage of the pipeline; each is in a sub-cluster of its own.
    pub(super) fn ask_stage(&self, stage: usize, until: Instant, part: Part) -> u64 {
        let known = self.subclusters();
        // Without any it waits in vain.
        let subcluster = known.get(stage % known.len().max(1)).copied().unwrap_or_default();
        self.ask(Waiting { subcluster, until, in_peace: false, part: Some(part) })
    }

    /// The request if it has no end, which it has from now on.
    fn take(&self, sequence: u64) -> Option<Waiting> {
        self.table.borrow_mut().remove(&sequence)
    }

    /// Takes a request back from its leader, too.
    pub(super) fn withdraw(&self, sequence: u64) {
        let Some(waiting) = self.take(sequence) else { return };
        if let Some((_, link)) = self.links.borrow().get(&waiting.subcluster) {
            let _ = link.send(ToLeader::Cancel { requests: vec![(sequence, 0)] });
        }
    }

    /// Those whose deadline has passed.
    fn over(&self, now: Instant) -> Vec<u64> {
        let table = self.table.borrow();
        table.iter().filter(|(_, waiting)| now > waiting.until).map(|(&sequence, _)| sequence).collect()
    }

    /// Stage requests of a run that wait.
    pub(super) fn open_of(&self, run: u64) -> usize {
        self.table.borrow().values().filter(|waiting| waiting.part.is_some_and(|part| part.is_of(run))).count()
    }
}

/// Asks and waits until its host ends.
pub(crate) async fn run(
    cluster: Cluster,
    name: &'static str,
    (frontend, boot): (FrontendId, BootId),
    mut views: watch::Receiver<Arc<View>>,
) -> turmoil::Result {
    let (table, links) = (Table::default(), Links::default());
    let net = cluster.links.net(name);
    let listener = cluster.links.listen(name, DATA_PORT).await?;
    let incoming = Incoming::new(listener, net.clone(), Port::new("frontend.data", &[Role::Backend], 256));
    let desk =
        Desk { views: views.clone(), table: Rc::clone(&table), links: Rc::clone(&links), sequence: Cell::new(0) };
    let (desk, pipelines) = (Rc::new(desk), Rc::new(RefCell::new(Pipelines::new(cluster.clone(), boot)?)));
    tokio::task::spawn_local(take_results(cluster.clone(), boot, incoming, Rc::clone(&desk), Rc::clone(&pipelines)));
    tokio::task::spawn_local(ask(cluster.clone(), boot, desk, pipelines));
    let mut followed: BTreeMap<SubclusterId, (Token, JoinSet<()>)> = BTreeMap::new();
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        followed.retain(|id, (token, _)| view.subclusters.get(id).is_some_and(|s| s.token == *token));
        for (&id, subcluster) in &view.subclusters {
            let leader = subcluster.leader.and_then(|(node, _)| view.nodes.get(&node));
            let Some(addr) = leader.map(|node| node.dispatch_addr.clone()) else { continue };
            followed.entry(id).or_insert_with(|| {
                let hello = ToLeader::Hello { frontend, boot, subcluster: id, token: subcluster.token };
                let mut link = JoinSet::new();
                let (net, table, links) = (net.clone(), Rc::clone(&table), Rc::clone(&links));
                link.spawn_local(follow(net, addr, id, subcluster.token, hello, table, links));
                (subcluster.token, link)
            });
        }
        views.changed().await?;
    }
}

/// Keeps a link to the leader, and asks everything again on each.
async fn follow(
    net: Net,
    addr: String,
    subcluster: SubclusterId,
    token: Token,
    hello: ToLeader,
    table: Table,
    links: Links,
) {
    loop {
        let dialled = connect_link::<ToLeader, ToFrontend>(&net, &addr, &Expected::from(Role::Scheduler)).await;
        if let Ok((link, mut answers)) = dialled
            && link.send(hello.clone()).is_ok()
            && let Ok(Ok(frame)) = timeout(DEADLINE, answers.receive()).await
            && matches!(frame.message, ToFrontend::Welcome { .. })
        {
            let again = ToLeader::Redrive { token, requests: unanswered(&table, subcluster), last: true };
            // A link that has ended is noticed below.
            let _ = link.send(again);
            links.borrow_mut().insert(subcluster, (token, link));
            while answers.receive().await.is_ok() {}
            links.borrow_mut().remove(&subcluster);
        }
        sleep(DIAL_AGAIN_AFTER).await;
    }
}

fn unanswered(table: &Table, subcluster: SubclusterId) -> Vec<RequestHeader> {
    let table = table.borrow();
    table.iter().filter(|(_, w)| w.subcluster == subcluster).map(|(&sequence, _)| header(sequence, 2)).collect()
}

fn header(sequence: u64, attempt: u32) -> RequestHeader {
    let budget = u64::try_from(DEADLINE.as_nanos()).unwrap_or(u64::MAX);
    RequestHeader { sequence, model: 0, items: 1, budget, attempt, weight: 1000 }
}

async fn ask(cluster: Cluster, boot: BootId, desk: Rc<Desk>, pipelines: Rc<RefCell<Pipelines>>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(boot.get());
    loop {
        sleep(Duration::from_millis(random.random_range(1..=PAUSE_MS_MAX))).await;
        let now = Instant::now();
        for sequence in desk.over(now) {
            // With one stage request that is over its siblings may be taken back.
            let Some(waiting) = desk.take(sequence) else { continue };
            match waiting.part {
                Some(part) => pipelines.borrow_mut().expired(part, &desk),
                None => {
                    let mut ledger = cluster.ledger.borrow_mut();
                    ledger.dropped += 1;
                    ledger.dropped_in_peace += u64::from(waiting.in_peace);
                }
            }
        }
        pipelines.borrow_mut().tick(&desk);
        let known = desk.subclusters();
        if known.is_empty() {
            continue;
        }
        let subcluster = known[random.random_range(0..known.len())];
        let in_peace = *cluster.peace.borrow();
        cluster.ledger.borrow_mut().asked += 1;
        desk.ask(Waiting { subcluster, until: now + DEADLINE, in_peace, part: None });
    }
}

async fn take_results(
    cluster: Cluster,
    boot: BootId,
    mut incoming: Incoming,
    desk: Rc<Desk>,
    pipelines: Rc<RefCell<Pipelines>>,
) {
    while let Some(mut stream) = incoming.next().await {
        let (cluster, desk, pipelines) = (cluster.clone(), Rc::clone(&desk), Rc::clone(&pipelines));
        tokio::task::spawn_local(async move {
            let mut bytes = [0; 16];
            while stream.read_exact(&mut bytes).await.is_ok() {
                let ([meant, sequence], _) = bytes.as_chunks::<8>() else { return };
                if u64::from_le_bytes(*meant) != boot.get() {
                    return;
                }
                match desk.take(u64::from_le_bytes(*sequence)) {
                    Some(Waiting { part: Some(part), .. }) => pipelines.borrow_mut().answered(part, &desk),
                    Some(_) => cluster.ledger.borrow_mut().answered += 1,
                    None => cluster.ledger.borrow_mut().again += 1,
                }
            }
        });
    }
}
