//! Replicas join, leave and are replaced while the others serve; a replica that has lost its votes does not return.

use std::time::Duration;

use symphony_protocol::control as pb;
use symphony_protocol::view::{GroupRole, View};
use symphony_types::{Duty, NodeId};
use tonic::Code;

use crate::scene::{Cluster, backend, leadership, patiently, steady};

/// The control group by a linearizable read: id and role of each member.
async fn group(cluster: &Cluster, id: u64) -> Vec<(u64, GroupRole)> {
    let client = cluster.client(id).await;
    let view = patiently(async || client.clone().get(pb::GetRequest { linearizable: true }).await).await;
    let view = View::try_from(view).unwrap();
    view.group.iter().map(|(node, member)| (node.get(), member.role)).collect()
}

/// Asks for a change at replica `id` until it is carried out or refused for good.
async fn change(cluster: &Cluster, id: u64, add: Option<(u64, &str)>, remove: Option<u64>) -> Vec<u64> {
    let (add, add_control_addr) = add.map_or((0, String::new()), |(id, addr)| (id, addr.to_owned()));
    let request =
        pb::ChangeReplicasRequest { add, add_control_addr, remove: remove.unwrap_or(0), ..Default::default() };
    let client = cluster.client(id).await;
    patiently(async || client.clone().change_replicas(request.clone()).await).await.voters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_takes_the_place_of_the_leader_and_the_old_one_finds_itself_left_out() {
    let mut cluster = Cluster::start(3, steady()).await;
    let leader = cluster.settled().await;
    let follower = cluster.other_than(&[leader]);
    let client = cluster.client(leader).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;

    eprintln!("phase: a new replica waits, follows, and takes the place of the leader of the group, {leader}");
    let addr = cluster.start_joining(4).await;
    let voters = change(&cluster, follower, Some((4, &addr)), Some(leader)).await;
    let expected: Vec<_> = (1..=4).filter(|id| *id != leader).collect();
    assert_eq!(voters, expected);
    let same = change(&cluster, follower, Some((4, &addr)), None).await;
    assert_eq!(same, expected, "repeating it is harmless");
    let request = pb::ChangeReplicasRequest { remove: leader, operation_id: "ab".repeat(16), ..Default::default() };
    let client = cluster.client(follower).await;
    for _ in 0..2 {
        let voters = patiently(async || client.clone().change_replicas(request.clone()).await).await.voters;
        assert_eq!(voters, expected, "so is removing who is gone");
    }
    let view = patiently(async || client.clone().get(pb::GetRequest { linearizable: true }).await).await;
    let mut operations: Vec<_> = view.operations.iter().map(|operation| operation.what.as_str()).collect();
    operations.dedup();
    let (drain, replace) =
        (format!("make scheduler n{leader} draining"), format!("replace scheduler n{leader} with n4 at {addr}"));
    let (add, remove) = (format!("add scheduler n4 at {addr}"), format!("remove scheduler n{leader}"));
    assert_eq!(operations, [&drain, &replace, &add, &remove], "each by itself, and the last one once");
    let members = group(&cluster, 4).await;
    assert_eq!(members.iter().map(|(id, _)| *id).collect::<Vec<_>>(), expected);
    assert_eq!(members.iter().filter(|(_, role)| *role == GroupRole::Leader).count(), 1);
    assert!(members.iter().all(|(_, role)| *role != GroupRole::Learner), "{members:?}");
    for &id in &expected {
        cluster
            .sees(id, "the new replica up and the old one gone", |view| {
                let up = view.nodes.get(&NodeId::new(4)).is_some_and(|n| n.up);
                up && !view.nodes.contains_key(&NodeId::new(leader)) && leadership(view, "s").is_some()
            })
            .await;
    }

    eprintln!("phase: the old one finds out, also when it starts again");
    assert!(cluster.ends(leader).await.contains("was removed from the cluster"));
    cluster.stop(leader).await;
    cluster.restart(leader, 990).await;
    assert!(cluster.ends(leader).await.contains("was removed from the cluster"));
    cluster.stop(leader).await;

    eprintln!("phase: its id is never given again");
    let mut client = cluster.client(4).await;
    let again = pb::ChangeReplicasRequest {
        add: leader,
        add_control_addr: "127.0.0.1:1".into(),
        remove: 0,
        ..Default::default()
    };
    let refused = client.change_replicas(again).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("its id is never given again"), "{refused}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_over_an_empty_disk_does_not_come_back_under_its_id() {
    let mut cluster = Cluster::start(3, steady()).await;
    let leader = cluster.settled().await;
    let victim = cluster.other_than(&[leader]);
    cluster.stop(victim).await;
    cluster.wipe(victim);
    cluster.restart(victim, victim * 10 + 1).await;
    let words = cluster.ends(victim).await;
    assert!(words.contains("empty disk") && words.contains(&format!("members replace {victim}")), "{words}");
    cluster.stop(victim).await;

    eprintln!("phase: a new one takes its place; changes that make no sense are refused");
    let addr = cluster.start_joining(9).await;
    let voters = change(&cluster, leader, Some((9, &addr)), Some(victim)).await;
    assert!(voters.contains(&9) && !voters.contains(&victim), "{voters:?}");
    let mut client = cluster.client(leader).await;
    for (add, remove, words) in [(0, 0, "two different ids"), (0, 77, "unknown scheduler replica n77")] {
        let request = pb::ChangeReplicasRequest { add, add_control_addr: addr.clone(), remove, ..Default::default() };
        let refused = client.change_replicas(request).await.unwrap_err();
        assert!(refused.message().contains(words), "{refused}");
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_after_which_nothing_could_be_agreed_is_refused() {
    let mut cluster = Cluster::start(3, steady()).await;
    let leader = cluster.settled().await;
    let dead = cluster.other_than(&[leader]);
    let alive = 6 - leader - dead;
    cluster.stop(dead).await;
    let down = |view: &View| view.nodes.get(&NodeId::new(dead)).is_some_and(|node| !node.up);
    cluster.sees(leader, "the dead one down", down).await;

    let client = cluster.client(leader).await;
    let remove = |id| pb::ChangeReplicasRequest { remove: id, ..Default::default() };
    let refused = loop {
        match client.clone().change_replicas(remove(alive)).await {
            Err(status) if status.code() == Code::Unavailable => tokio::time::sleep(Duration::from_millis(20)).await,
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains(&format!("n{dead} would be down: no majority")), "{refused}");
    let duty = |view: &View| view.nodes.get(&NodeId::new(alive)).is_some_and(|node| node.duty == Duty::Serving);
    cluster.sees(leader, "the living one at its work", duty).await;

    eprintln!("phase: two of three still agree; the dead one may go");
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    let left: Vec<_> = (1..=3).filter(|id| *id != dead).collect();
    assert_eq!(change(&cluster, leader, None, Some(dead)).await, left);

    eprintln!("phase: a voter does not move to another address");
    let moved = pb::ChangeReplicasRequest { add: alive, add_control_addr: "127.0.0.1:1".into(), ..Default::default() };
    let refused = client.clone().change_replicas(moved).await.unwrap_err();
    assert!(refused.message().contains("votes at"), "{refused}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contact_is_lost_with_the_quorum_and_found_again() {
    let mut timing = steady();
    timing.group.election_max = Duration::from_millis(1_000);
    timing.group.election_min = Duration::from_millis(800);
    timing.liveness.unconfirmed_max = Duration::from_millis(4_000);
    let mut cluster = Cluster::start(3, timing).await;
    let leader = cluster.settled().await;
    let (left, other) = (cluster.other_than(&[leader]), 6 - leader - cluster.other_than(&[leader]));
    let mut contact = cluster.running[&left].in_contact();
    assert!(*contact.borrow());

    eprintln!("phase: only replica {left} is left");
    cluster.stop(leader).await;
    cluster.stop(other).await;
    let timeout = Duration::from_secs(60);
    tokio::time::timeout(timeout, contact.wait_for(|in_contact| !in_contact)).await.unwrap().unwrap();

    eprintln!("phase: another one is back, and so is the contact");
    cluster.restart(leader, leader * 10 + 1).await;
    tokio::time::timeout(timeout, contact.wait_for(|in_contact| *in_contact)).await.unwrap().unwrap();
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_that_never_answered_is_given_no_vote() {
    let cluster = Cluster::start(1, steady()).await;
    cluster.settled().await;
    let client = cluster.client(1).await;
    // Bound, so that no other process answers there.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let add_control_addr = silent.local_addr().unwrap().to_string();
    let request = pb::ChangeReplicasRequest { add: 2, add_control_addr, ..Default::default() };
    let adds = tokio::spawn({
        let mut client = client.clone();
        async move { client.change_replicas(request).await }
    });

    let expected = [(1, GroupRole::Leader), (2, GroupRole::Learner)];
    while group(&cluster, 1).await.len() < expected.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // With its vote nothing more could be committed.
    for boot in 1..=5 {
        patiently(async || client.clone().register_backend(backend(&format!("b{boot}"), boot, "s")).await).await;
    }
    assert!(!adds.is_finished(), "it was said to have caught up");
    assert_eq!(group(&cluster, 1).await, expected);
    adds.abort();
    cluster.stop_all().await;
}
