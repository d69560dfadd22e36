//! Leadership moves off live replicas when an operator asks for it or the load requires it.

use symphony_cluster_state::Command;
use symphony_protocol::control as pb;
use symphony_types::{BootId, Duty, Member, NodeId};

use crate::scene::{Cluster, backend, leadership, patiently, steady};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_drain_asks_a_successor_and_the_leader_leads_until_it_is_ready() {
    let cluster = Cluster::start(3, steady()).await;
    let raft_leader = cluster.settled().await;
    let client = cluster.client(raft_leader).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    let view = cluster.sees(raft_leader, "the sub-cluster led", |view| leadership(view, "s").is_some()).await;
    let (old, _, old_token) = leadership(&view, "s").unwrap();

    eprintln!("phase: replica {old} drains");
    let request =
        pb::SetDutyRequest { member: Some(Member::Scheduler(NodeId::new(old)).into()), duty: 2, ..Default::default() };
    patiently(async || client.clone().set_duty(request.clone()).await).await;
    let successor = |view: &symphony_protocol::view::View| view.subclusters.values().next().and_then(|s| s.successor);
    let view = cluster.sees(raft_leader, "a successor", |view| successor(view).is_some()).await;
    let (&subcluster, next) = (view.subclusters.keys().next().unwrap(), successor(&view).unwrap());
    assert_eq!(leadership(&view, "s").unwrap().2, old_token, "it leads until the other one is ready");
    assert_ne!((next.node.get(), next.node.get()), (old, raft_leader));
    assert_eq!(view.nodes[&NodeId::new(old)].duty, Duty::Draining);

    eprintln!("phase: replica {} says that it is ready", next.node);
    let (since, node, boot) = (next.since, next.node, next.boot);
    let complete = Command::CompleteHandover { subcluster, since, node, boot };
    cluster.running[&node.get()].propose(&complete).await.unwrap();
    cluster
        .all_see("it leading under a larger token", |view| {
            leadership(view, "s").is_some_and(|(leader, _, token)| leader == node.get() && token > old_token)
        })
        .await;

    eprintln!("phase: a boot that leaves is drained as well, and the Raft leader hands its own leadership over");
    let leave = Command::Leave { member: Member::Scheduler(node), boot: BootId::new(node.get() * 10) };
    cluster.running[&node.get()].propose(&leave).await.unwrap();
    cluster
        .sees(raft_leader, "the Raft leader asked", |view| successor(view).is_some_and(|s| s.node.get() == raft_leader))
        .await;
    assert!(cluster.running[&raft_leader].give_leadership_away().await);
    cluster.all_see("another Raft leader", |v| v.control_leader.is_some_and(|l| l.get() != raft_leader)).await;
    cluster.stop_all().await;
}
