//! A frontend: sends requests, follows the leaders, announces requests again after a take-over, and takes the first
//! answer.

use std::cell::RefCell;
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

use super::{DEADLINE, DIAL_AGAIN_AFTER};
use crate::cluster::{Cluster, DATA_PORT};

/// Longest pause between two requests.
const PAUSE_MS_MAX: u64 = 40;

/// A request that waits for its answer.
struct Waiting {
    subcluster: SubclusterId,
    until: Instant,
    in_peace: bool,
}

type Table = Rc<RefCell<BTreeMap<u64, Waiting>>>;
type Links = Rc<RefCell<BTreeMap<SubclusterId, (Token, LinkSender<ToLeader>)>>>;

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
    tokio::task::spawn_local(take_results(cluster.clone(), boot, incoming, Rc::clone(&table)));
    tokio::task::spawn_local(ask(cluster.clone(), boot, views.clone(), Rc::clone(&table), Rc::clone(&links)));
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

async fn ask(cluster: Cluster, boot: BootId, views: watch::Receiver<Arc<View>>, table: Table, links: Links) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(boot.get());
    let mut sequence = 0;
    loop {
        sleep(Duration::from_millis(random.random_range(1..=PAUSE_MS_MAX))).await;
        let now = Instant::now();
        table.borrow_mut().retain(|_, waiting| {
            let over = now > waiting.until;
            let mut ledger = cluster.ledger.borrow_mut();
            ledger.dropped += u64::from(over);
            ledger.dropped_in_peace += u64::from(over && waiting.in_peace);
            !over
        });
        let known: Vec<_> = views.borrow().subclusters.keys().copied().collect();
        if known.is_empty() {
            continue;
        }
        let subcluster = known[random.random_range(0..known.len())];
        sequence += 1;
        let in_peace = *cluster.peace.borrow();
        table.borrow_mut().insert(sequence, Waiting { subcluster, until: now + DEADLINE, in_peace });
        cluster.ledger.borrow_mut().asked += 1;
        if let Some((token, link)) = links.borrow().get(&subcluster) {
            // A link that has ended is replaced by one on which everything is asked again.
            let _ = link.send(ToLeader::Announce { token: *token, requests: vec![header(sequence, 1)] });
        }
    }
}

async fn take_results(cluster: Cluster, boot: BootId, mut incoming: Incoming, table: Table) {
    while let Some(mut stream) = incoming.next().await {
        let (cluster, table) = (cluster.clone(), Rc::clone(&table));
        tokio::task::spawn_local(async move {
            let mut bytes = [0; 16];
            while stream.read_exact(&mut bytes).await.is_ok() {
                let ([meant, sequence], _) = bytes.as_chunks::<8>() else { return };
                if u64::from_le_bytes(*meant) != boot.get() {
                    return;
                }
                let first = table.borrow_mut().remove(&u64::from_le_bytes(*sequence)).is_some();
                let mut ledger = cluster.ledger.borrow_mut();
                ledger.answered += u64::from(first);
                ledger.again += u64::from(!first);
            }
        });
    }
}
