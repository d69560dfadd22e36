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
use symphony_protocol::dispatch::{ToFrontend, ToLeader};
use symphony_protocol::view::View;
use symphony_transport::connect_link;
use symphony_types::{BootId, FrontendId, SubclusterId, Token};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::pipelines::Pipelines;
use super::request_table::{RequestTable, Waiting};
use super::{DEADLINE, DIAL_AGAIN_AFTER};
use crate::cluster::{Cluster, DATA_PORT};

/// Longest pause between two requests.
const PAUSE_MS_MAX: u64 = 40;

/// Asks and waits until its host ends.
pub(crate) async fn run(
    cluster: Cluster,
    name: &'static str,
    (frontend, boot): (FrontendId, BootId),
    mut views: watch::Receiver<Arc<View>>,
) -> turmoil::Result {
    let net = cluster.links.net(name);
    let listener = cluster.links.listen(name, DATA_PORT).await?;
    let incoming = Incoming::new(listener, net.clone(), Port::new("frontend.data", &[Role::Backend], 256));
    let table = Rc::new(RequestTable::new(cluster.clone(), (frontend, boot), views.clone()));
    let pipelines = Rc::new(RefCell::new(Pipelines::new(cluster.clone(), boot)?));
    tokio::task::spawn_local(take_results(cluster.clone(), boot, incoming, Rc::clone(&table), Rc::clone(&pipelines)));
    tokio::task::spawn_local(ask(cluster.clone(), boot, Rc::clone(&table), pipelines));
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
                link.spawn_local(follow(net.clone(), addr, (id, subcluster.token), hello, Rc::clone(&table)));
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
    (subcluster, token): (SubclusterId, Token),
    hello: ToLeader,
    table: Rc<RequestTable>,
) {
    loop {
        let dialled = connect_link::<ToLeader, ToFrontend>(&net, &addr, &Expected::from(Role::Scheduler)).await;
        if let Ok((link, mut answers)) = dialled
            && link.send(hello.clone()).is_ok()
            && let Ok(Ok(frame)) = timeout(DEADLINE, answers.receive()).await
            && matches!(frame.message, ToFrontend::Welcome { .. })
        {
            table.linked(subcluster, token, link);
            while answers.receive().await.is_ok() {}
            table.unlinked(subcluster);
        }
        sleep(DIAL_AGAIN_AFTER).await;
    }
}

async fn ask(cluster: Cluster, boot: BootId, table: Rc<RequestTable>, pipelines: Rc<RefCell<Pipelines>>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(boot.get());
    loop {
        sleep(Duration::from_millis(random.random_range(1..=PAUSE_MS_MAX))).await;
        let now = Instant::now();
        for sequence in table.expired(now) {
            // With one stage request that is over its siblings may be taken back.
            let Some(waiting) = table.take(sequence) else { continue };
            match waiting.part {
                Some(part) => pipelines.borrow_mut().expired(part, &table),
                None => {
                    let mut ledger = cluster.ledger.borrow_mut();
                    ledger.dropped += 1;
                    ledger.dropped_in_peace += u64::from(waiting.in_peace);
                }
            }
        }
        pipelines.borrow_mut().tick(&table);
        let known = table.subclusters();
        if known.is_empty() {
            continue;
        }
        let subcluster = known[random.random_range(0..known.len())];
        let in_peace = *cluster.peace.borrow();
        cluster.ledger.borrow_mut().submitted += 1;
        table.submit(Waiting { subcluster, until: now + DEADLINE, in_peace, part: None });
    }
}

async fn take_results(
    cluster: Cluster,
    boot: BootId,
    mut incoming: Incoming,
    table: Rc<RequestTable>,
    pipelines: Rc<RefCell<Pipelines>>,
) {
    while let Some(mut stream) = incoming.next().await {
        let (cluster, table, pipelines) = (cluster.clone(), Rc::clone(&table), Rc::clone(&pipelines));
        tokio::task::spawn_local(async move {
            let mut bytes = [0; 16];
            while stream.read_exact(&mut bytes).await.is_ok() {
                let ([meant, sequence], _) = bytes.as_chunks::<8>() else { return };
                if u64::from_le_bytes(*meant) != boot.get() {
                    return;
                }
                match table.take(u64::from_le_bytes(*sequence)) {
                    Some(Waiting { part: Some(part), .. }) => pipelines.borrow_mut().answered(part, &table),
                    Some(_) => cluster.ledger.borrow_mut().answered += 1,
                    None => cluster.ledger.borrow_mut().again += 1,
                }
            }
        });
    }
}
