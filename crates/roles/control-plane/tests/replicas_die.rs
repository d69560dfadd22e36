//! Replicas die, are declared down, and return: others lead their sub-clusters, under larger tokens.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use symphony_cluster_state::{Command, NodeRegistration};
use symphony_control_plane::{LeadReport, Timing};
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_types::{BootId, Duty, Member, Nanos, NodeId, Token};

use crate::scene::{Cluster, backend, leadership, patiently, steady};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_leader_of_a_subcluster_dies_and_comes_back_as_somebody_new() {
    let mut cluster = Cluster::start(3, Timing::relaxed()).await;
    let leader = cluster.settled().await;
    let client = cluster.client(leader).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    let view = cluster.sees(leader, "the sub-cluster led", |view| leadership(view, "s").is_some()).await;
    let (victim, _, old_token) = leadership(&view, "s").unwrap();

    eprintln!("phase: replica {victim}, which leads the sub-cluster, is stopped");
    cluster.stop(victim).await;
    let survivors: Vec<_> = cluster.running.keys().copied().collect();
    for &id in &survivors {
        let view = cluster
            .sees(id, "somebody else leading", |view| {
                leadership(view, "s").is_some_and(|(node, _, token)| node != victim && token > old_token)
            })
            .await;
        assert!(!view.nodes[&NodeId::new(victim)].up);
    }

    eprintln!("phase: replica {victim} is started again, in a new boot, and leads nothing of what it led");
    cluster.restart(victim, victim * 10 + 1).await;
    cluster
        .all_see("the new boot up and standing by", |view| {
            let node = &view.nodes[&NodeId::new(victim)];
            let stands_by = view.subclusters.values().all(|s| s.standbys.contains(&NodeId::new(victim)));
            node.up && node.boot == Some(BootId::new(victim * 10 + 1)) && stands_by
        })
        .await;
    let view = cluster.running[&victim].view().borrow().clone();
    let (node, _, token) = leadership(&view, "s").unwrap();
    assert!(node != victim && token > old_token, "{node} leads with token {token}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lead_that_reports_to_hang_is_led_by_another_and_its_replica_stays_up() {
    let cluster = Cluster::start(3, steady()).await;
    let leader = cluster.settled().await;
    let client = cluster.client(leader).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    let view = cluster.sees(leader, "the sub-cluster led", |view| leadership(view, "s").is_some()).await;
    let (victim, _, token) = leadership(&view, "s").unwrap();
    let subcluster = *view.subclusters.iter().find(|(_, s)| s.name == "s").unwrap().0;

    eprintln!("phase: replica {victim} reports that its lead hangs");
    let report = LeadReport::Stuck { subcluster, token: Token::new(token), pause: Nanos::ZERO };
    cluster.running[&victim].lead_reports().send(report).unwrap();
    let led_by_another =
        |view: &View| leadership(view, "s").is_some_and(|(node, _, now)| node != victim && now > token);
    cluster.all_see("another lead", led_by_another).await;
    let view = cluster.running[&leader].view().borrow().clone();
    assert!(view.nodes[&NodeId::new(victim)].up, "it was heard, so it need not look dead");
    cluster.stop_all().await;
}

/// Declares no live replica down on a machine that stalls at times: a replica that was declared down leads none of the
/// sub-clusters any more. A stopped process is still detected by its closed port.
fn unhurried() -> Timing {
    let mut timing = Timing::relaxed();
    let group = &mut timing.group;
    (group.election_min, group.election_max) = (Duration::from_secs(2), Duration::from_secs(3));
    (group.quorum_loss_probe, group.disk_stall) = (Duration::from_secs(6), Duration::from_secs(3));
    let liveness = &mut timing.liveness;
    (liveness.suspicion, liveness.old_leader_grace) = (Duration::from_secs(5), Duration::from_secs(4));
    liveness.unconfirmed_max = Duration::from_secs(15);
    timing
}

/// Prints the duration without a limit on it: `cargo nextest run --release -p symphony-control-plane hundreds_of
/// --no-capture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_subclusters_of_one_replica_are_led_by_another_after_one_entry() {
    // A debug build checks the whole state after each registration.
    const SUBCLUSTERS: usize = if cfg!(debug_assertions) { 300 } else { 1000 };
    let mut cluster = Cluster::start(3, unhurried()).await;
    let leader = cluster.settled().await;
    let victim = cluster.other_than(&[leader]);
    let third = 6 - leader - victim;
    let client = cluster.client(leader).await;
    let set = |id: u64, duty: pb::Duty| pb::SetDutyRequest {
        member: Some(Member::Scheduler(NodeId::new(id)).into()),
        duty: duty.into(),
        operation_id: String::new(),
    };
    eprintln!("phase: replica {victim} leads them all, since {third} is cordoned and {leader} leads the group");
    patiently(async || client.clone().set_duty(set(third, pb::Duty::Cordoned)).await).await;
    let registrations = (0..SUBCLUSTERS).map(|n| {
        let request = backend(&format!("b{n}"), 77, &format!("s{n}"));
        let client = client.clone();
        async move { patiently(async || client.clone().register_backend(request.clone()).await).await }
    });
    // Replicas of other boots in between would spread them.
    let _: Vec<_> = futures::stream::iter(registrations).buffer_unordered(64).collect().await;
    let led_by = |view: &View, id| {
        view.subclusters.values().filter(|s| s.leader.is_some_and(|(node, _)| node == NodeId::new(id))).count()
    };
    let all_led = |view: &View| led_by(view, victim) == SUBCLUSTERS;
    let view = cluster.sees(leader, "all led by one", all_led).await;
    eprintln!("phase: {third} may lead again, {victim} dies at entry {}", view.applied_index);
    patiently(async || client.clone().set_duty(set(third, pb::Duty::Serving)).await).await;
    let serving =
        cluster.sees(leader, "the third on duty", |view| view.nodes[&NodeId::new(third)].duty == Duty::Serving);
    let before = serving.await;
    let died = std::time::Instant::now();
    cluster.stop(victim).await;
    let view = cluster.sees(third, "all led by the others", |view| led_by(view, victim) == 0).await;
    eprintln!("{SUBCLUSTERS} sub-clusters are led again after {} ms", died.elapsed().as_millis());
    assert_eq!(view.subclusters.len(), SUBCLUSTERS);
    assert!(view.subclusters.values().all(|s| s.leader.is_some()));
    let tokens: BTreeSet<_> = view.subclusters.values().map(|s| s.token).collect();
    let later: Vec<_> = tokens.iter().filter(|token| token.get() > before.applied_index).collect();
    assert_eq!(later.len(), 1, "one entry for all of them: {later:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_control_groups_leader_dies_and_control_goes_on() {
    let mut cluster = Cluster::start(3, Timing::relaxed()).await;
    let leader = cluster.settled().await;
    cluster.stop(leader).await;

    eprintln!("phase: replica {leader}, which led the control group, is stopped; a survivor takes a registration");
    let survivor = cluster.other_than(&[]);
    let client = cluster.client(survivor).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    cluster
        .all_see("the old leader down, another one, and the sub-cluster led by a survivor", |view| {
            let led_by = leadership(view, "s").map(|(node, ..)| node);
            !view.nodes[&NodeId::new(leader)].up
                && view.control_leader.is_some_and(|now| now != NodeId::new(leader))
                && led_by.is_some_and(|node| node != leader)
        })
        .await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lonely_replica_that_restarts_leads_under_a_new_token() {
    let mut cluster = Cluster::start(1, steady()).await;
    cluster.settled().await;
    let client = cluster.client(1).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    let view = cluster.sees(1, "the sub-cluster led", |view| leadership(view, "s").is_some()).await;
    let (_, _, old_token) = leadership(&view, "s").unwrap();
    cluster.stop(1).await;

    eprintln!("phase: the replica reads its log; the assignment of its old boot ends when the new one registers");
    cluster.restart(1, 11).await;
    let view = cluster
        .sees(1, "its new boot leading", |view| leadership(view, "s").is_some_and(|(_, boot, _)| boot == 11))
        .await;
    let (_, _, token) = leadership(&view, "s").unwrap();
    assert!(token > old_token, "token {token} after {old_token}");
    assert_eq!(view.backends.len(), 1, "what was acknowledged is still there");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silence_is_taken_for_death() {
    let cluster = Cluster::start(1, Timing::relaxed()).await;
    cluster.settled().await;

    eprintln!("phase: a replica registers that sends no heartbeat");
    let ghost = NodeId::new(9);
    let registration = Command::RegisterNode(NodeRegistration {
        node: ghost,
        boot: BootId::new(90),
        control_addr: "127.0.0.1:1".into(),
        dispatch_addr: "127.0.0.1:2".into(),
        beat_addr: "127.0.0.1:3".into(),
        disk: 1,
        avoid: None,
    });
    cluster.running[&1].propose(&registration).await.unwrap();
    let view = cluster.sees(1, "the ghost down", |view| view.nodes.get(&ghost).is_some_and(|n| !n.up)).await;
    assert!(view.nodes[&NodeId::new(1)].up, "the replica that judges is not judged by its own silence");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_living_replica_that_was_declared_down_comes_back_as_a_standby() {
    let cluster = Cluster::start(3, steady()).await;
    let leader = cluster.settled().await;
    let client = cluster.client(leader).await;
    patiently(async || client.clone().register_backend(backend("b", 77, "s")).await).await;
    let view = cluster.sees(leader, "the sub-cluster led", |view| leadership(view, "s").is_some()).await;
    let (victim, boot, old_token) = leadership(&view, "s").unwrap();

    eprintln!("phase: replica {victim} is declared down although it is alive");
    let down = Command::NodeDown { node: NodeId::new(victim), boot: BootId::new(boot), avoid: None };
    cluster.running[&leader].propose(&down).await.unwrap();
    cluster
        .all_see("it up again, and the sub-cluster led by another under a larger token", |view| {
            let elsewhere = leadership(view, "s").is_some_and(|(n, _, token)| n != victim && token > old_token);
            elsewhere && view.nodes[&NodeId::new(victim)].up
        })
        .await;
    let view = cluster.running[&victim].view().borrow().clone();
    let ups = view.events.iter().filter(|event| event.what == format!("scheduler n{victim} is up")).count();
    assert_eq!(ups, 2, "at the start, and after it was declared down: {:?}", view.events);
    cluster.stop_all().await;
}
