//! A replica sends heartbeats and does not apply what was agreed.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_types::{Level, Member, NodeId};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::scene::{Cluster, backend, leadership, patiently, steady};

/// Bytes of a heartbeat; where it names its replica, and says how far that has applied the log.
const HEARTBEAT_BYTES: usize = 72;
const NODE: Range<usize> = 16..24;
const APPLIED: Range<usize> = 32..40;

/// Passes heartbeats on, those of one replica with an index that does not grow.
#[derive(Default)]
struct Frozen {
    /// The replica; 0: none.
    node: AtomicU64,
    index: AtomicU64,
}

impl Frozen {
    fn freeze(&self, node: u64, index: u64) {
        self.index.store(index, Ordering::SeqCst);
        self.node.store(node, Ordering::SeqCst);
    }

    /// Takes heartbeats for this port, and returns where.
    fn in_place_of(self: &Arc<Self>, port: SocketAddr) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let (addr, frozen) = (listener.local_addr().unwrap(), Arc::clone(self));
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(pass_on(caller, port, Arc::clone(&frozen)));
            }
        });
        addr
    }
}

async fn pass_on(mut caller: TcpStream, port: SocketAddr, frozen: Arc<Frozen>) -> io::Result<()> {
    let mut leader = TcpStream::connect(port).await?;
    caller.set_nodelay(true)?;
    leader.set_nodelay(true)?;
    let (heartbeats, mut to_caller) = caller.split();
    let (mut acks, to_leader) = leader.split();
    tokio::select! {
        ended = pass_heartbeats(heartbeats, to_leader, &frozen) => ended,
        ended = tokio::io::copy(&mut acks, &mut to_caller) => ended.map(drop),
    }
}

async fn pass_heartbeats(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    frozen: &Frozen,
) -> io::Result<()> {
    let mut bytes = [0; HEARTBEAT_BYTES];
    loop {
        from.read_exact(&mut bytes).await?;
        if bytes[NODE] == frozen.node.load(Ordering::SeqCst).to_le_bytes() {
            bytes[APPLIED].copy_from_slice(&frozen.index.load(Ordering::SeqCst).to_le_bytes());
        }
        to.write_all(&bytes).await?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_is_heard_and_does_not_apply_the_log_loses_what_it_leads_until_it_does() {
    let frozen = Arc::new(Frozen::default());
    let cluster = Cluster::start_behind(Level::NEWEST, 3, steady(), |port| frozen.in_place_of(port)).await;
    let leader = cluster.settled().await;
    let victim = cluster.other_than(&[leader]);
    let (node, third) = (NodeId::new(victim), NodeId::new(6 - leader - victim));
    let client = cluster.client(leader).await;
    let cordon = pb::SetDutyRequest {
        member: Some(Member::Scheduler(third).into()),
        duty: pb::Duty::Cordoned.into(),
        ..Default::default()
    };
    patiently(async || client.clone().set_duty(cordon.clone()).await).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    let led_by_it = |view: &View| leadership(view, "s").is_some_and(|(leads, ..)| leads == victim);
    let view = cluster.sees(leader, "the sub-cluster led by a follower", led_by_it).await;
    let (_, _, token) = leadership(&view, "s").unwrap();
    let not_applying = cluster.running[&leader].metrics().replicas_not_applying;
    assert_eq!(not_applying.get(), 0);

    eprintln!("phase: replica {victim} says no more that it goes on, and there is more to apply");
    frozen.freeze(victim, view.applied_index);
    patiently(async || client.clone().register_backend(backend("c", 78, "s")).await).await;
    let led_by_another = |view: &View| {
        let other = leadership(view, "s").is_some_and(|(leads, _, now)| leads != victim && now > token);
        other && !view.nodes[&node].up
    };
    cluster.sees(leader, "it down, and another lead", led_by_another).await;
    let members = patiently(async || client.clone().get(pb::GetRequest { linearizable: true }).await).await;
    let members = View::try_from(members).unwrap().group;
    assert!(members[&node].stuck.is_some() && members[&third].stuck.is_none(), "{members:?}");
    assert_eq!(not_applying.get(), 1);

    eprintln!("phase: it goes on");
    frozen.freeze(0, 0);
    cluster.sees(leader, "it up", |view| view.nodes[&node].up).await;
    assert_eq!(not_applying.get(), 0);
    cluster.stop_all().await;
}
