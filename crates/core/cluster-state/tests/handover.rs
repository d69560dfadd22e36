//! Planned moves of leadership, and what processes are there for.

use symphony_cluster_state::{Action, Command, Effect, LeadTransfer, Refusal};
use symphony_types::{BackendId, BootId, Duty, FrontendId, Member, NodeId, SubclusterId, Token};

use crate::scene::{Scene, backend, frontend, node, node_down, operate};

const S: SubclusterId = SubclusterId::new(1);

fn begin(token: u64, to: u64, boot: u64) -> Command {
    Command::BeginHandover { subcluster: S, token: Token::new(token), to: NodeId::new(to), boot: BootId::new(boot) }
}

fn complete(since: u64, node: u64, boot: u64) -> Command {
    Command::CompleteHandover { subcluster: S, since, node: NodeId::new(node), boot: BootId::new(boot) }
}

fn duty(member: Member, duty: Duty) -> Command {
    operate(Action::SetDuty { member, duty })
}

fn scheduler(id: u64) -> Member {
    Member::Scheduler(NodeId::new(id))
}

/// Three replicas, one sub-cluster, led by the first under token 4.
fn one_subcluster() -> Scene {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 1, "s", &["cpu"]));
    assert_eq!(scene.leadership("s"), (Some(1), 4, vec![2, 3]));
    scene
}

fn moves_to(scene: &Scene, found: Option<LeadTransfer>) -> Option<(u32, u64)> {
    let found = found?;
    assert_eq!(found.boot, scene.state.nodes()[&found.to].boot);
    Some((found.subcluster.get(), found.to.get()))
}

/// Hands over as long as `next` names a move; returns the moves.
fn settle(scene: &mut Scene, next: impl Fn(&Scene) -> Option<LeadTransfer>) -> Vec<(u32, u64)> {
    let mut moves = Vec::new();
    while let Some(found) = next(scene) {
        assert!(moves.len() < 100, "a move that calls for its reverse: {moves:?}");
        let LeadTransfer { subcluster, token, to, boot } = found;
        scene.done(&Command::BeginHandover { subcluster, token, to, boot });
        let since = scene.index;
        scene.done(&Command::CompleteHandover { subcluster, since, node: to, boot });
        moves.push((subcluster.get(), to.get()));
    }
    moves
}

#[test]
fn the_leader_leads_until_its_successor_is_ready_and_the_token_is_the_index_of_that() {
    let mut scene = one_subcluster();
    let epoch = scene.state.epoch();
    scene.done(&begin(4, 2, 20));
    assert_eq!(scene.leadership("s"), (Some(1), 4, vec![2, 3]), "nobody routes differently yet");
    assert_eq!((scene.state.epoch(), scene.state.handovers()), (epoch, 1));
    assert_eq!(scene.done(&begin(4, 2, 20)), [], "saying it again changes nothing");

    scene.done(&complete(5, 2, 20));
    assert_eq!(scene.leadership("s"), (Some(2), 7, vec![1, 3]));
    assert!(scene.state.epoch() > epoch);
    assert_eq!(scene.state.handovers(), 0);
    let over = Refusal::HandoverOver { subcluster: S, since: 5 };
    assert_eq!(scene.refused(&complete(5, 2, 20)), over, "a repeated completion does not grant a second token");
}

#[test]
fn a_handover_is_refused_where_it_makes_no_sense() {
    let mut scene = one_subcluster();
    let over = Refusal::AssignmentOver { subcluster: S, named: Token::new(3), current: Token::new(4) };
    assert_eq!(scene.refused(&begin(3, 2, 20)), over);
    assert_eq!(scene.refused(&begin(4, 1, 10)), Refusal::CannotSucceed { subcluster: S, node: NodeId::new(1) });
    assert!(matches!(scene.refused(&begin(4, 2, 21)), Refusal::StaleBoot { .. }));
    scene.done(&duty(scheduler(2), Duty::Cordoned));
    assert_eq!(scene.refused(&begin(4, 2, 20)), Refusal::CannotSucceed { subcluster: S, node: NodeId::new(2) });
    scene.done(&begin(4, 3, 30));
    scene.done(&duty(scheduler(2), Duty::Serving));
    assert_eq!(scene.refused(&begin(4, 2, 20)), Refusal::HandoverUnderWay { subcluster: S });
    let other_boot = Refusal::HandoverOver { subcluster: S, since: scene.index - 2 };
    assert_eq!(scene.refused(&complete(scene.index - 2, 3, 31)), other_boot);
}

#[test]
fn the_successor_leads_if_the_leader_dies_meanwhile_and_nothing_moves_if_the_successor_does() {
    let mut scene = one_subcluster();
    scene.done(&begin(4, 3, 30));
    scene.done(&node_down(3, 30));
    assert_eq!((scene.leadership("s").0, scene.state.handovers()), (Some(1), 0));
    assert!(matches!(scene.refused(&complete(5, 3, 30)), Refusal::HandoverOver { .. }));

    scene.done(&node(3, 30));
    scene.done(&begin(4, 3, 30));
    scene.done(&node_down(1, 10));
    assert_eq!(scene.leadership("s").0, Some(3), "it is nearly ready; the least loaded would be replica 2");
}

#[test]
fn a_cancelled_handover_leaves_everything_as_it_was() {
    let mut scene = one_subcluster();
    let before = scene.leadership("s");
    scene.done(&begin(4, 2, 20));
    scene.done(&Command::CancelHandover { subcluster: S, since: 5 });
    assert_eq!(scene.leadership("s"), before);
    assert!(matches!(scene.refused(&complete(5, 2, 20)), Refusal::HandoverOver { .. }));
}

#[test]
fn a_draining_replica_gives_everything_away_and_gets_nothing() {
    let mut scene = Scene::with_three_nodes();
    for (name, subcluster) in [("a", "s1"), ("b", "s2"), ("c", "s3"), ("d", "s4")] {
        scene.done(&backend(name, 1, subcluster, &["cpu"]));
    }
    scene.done(&duty(scheduler(1), Duty::Draining));
    let raft_leader = Some(NodeId::new(3));
    assert_eq!(
        settle(&mut scene, |s| s.state.next_drain(raft_leader, &|_| false)),
        [(1, 2), (4, 2)],
        "not the Raft leader"
    );
    scene.done(&backend("e", 1, "s5", &["cpu"]));
    assert_eq!(scene.leadership("s5"), (Some(3), scene.index, vec![2]));
    assert_eq!(scene.done(&node(1, 11)).len(), 2, "a restart does not end a drain");
    assert_eq!(scene.state.nodes()[&NodeId::new(1)].duty(), Duty::Draining);
    scene.done(&node_down(2, 20));
    assert_eq!([1, 2, 3, 4, 5].map(|s| scene.leadership(&format!("s{s}")).0), [Some(3); 5]);
    scene.done(&node_down(3, 30));
    assert_eq!(scene.leadership("s1").0, Some(1), "better served than tidy");
    assert_eq!(moves_to(&scene, scene.state.next_drain(None, &|_| false)), None, "nobody can take it");
}

#[test]
fn a_boot_that_leaves_gives_everything_away_and_the_next_one_serves() {
    let mut scene = one_subcluster();
    scene.done(&Command::Leave { member: scheduler(1), boot: BootId::new(10) });
    assert_eq!(settle(&mut scene, |s| s.state.next_drain(None, &|_| false)), [(1, 2)]);
    let stale = Command::Leave { member: scheduler(1), boot: BootId::new(9) };
    assert!(matches!(scene.refused(&stale), Refusal::StaleBoot { .. }));
    scene.done(&node(1, 11));
    assert!(scene.state.nodes()[&NodeId::new(1)].takes_leads());
}

#[test]
fn the_load_is_spread_away_from_the_raft_leader_and_then_rests() {
    let mut scene = Scene::with_three_nodes();
    for (name, subcluster) in [("a", "s1"), ("b", "s2"), ("c", "s3"), ("d", "s4"), ("e", "s5")] {
        scene.done(&backend(name, 1, subcluster, &["cpu"]));
    }
    scene.done(&node_down(2, 20));
    scene.done(&node_down(3, 30));
    scene.done(&node(2, 20));
    scene.done(&node(3, 30));
    let raft_leader = Some(NodeId::new(3));
    let moves = settle(&mut scene, |s| s.state.next_rebalance(raft_leader, &|_| false));
    assert_eq!(moves, [(1, 2), (2, 2)], "three and two; the Raft leader leads none");
    let raft_leader = Some(NodeId::new(2));
    let moves = settle(&mut scene, |s| s.state.next_rebalance(raft_leader, &|_| false));
    assert_eq!(moves.len(), 2, "the new Raft leader gives its two away");
    assert_eq!(scene.state.next_rebalance(raft_leader, &|_| false), None);
    scene.done(&duty(scheduler(1), Duty::Cordoned));
    scene.done(&duty(scheduler(3), Duty::Cordoned));
    assert_eq!(scene.state.next_rebalance(raft_leader, &|_| false), None, "alone it leads, or not, as it is");
}

#[test]
fn a_leader_that_cannot_decide_is_replaced_at_once() {
    let mut scene = one_subcluster();
    let cede = |token| Command::CedeLead {
        subcluster: S,
        token: Token::new(token),
        node: NodeId::new(1),
        boot: BootId::new(10),
        avoid: Some(NodeId::new(2)),
    };
    scene.done(&cede(4));
    assert_eq!(scene.leadership("s"), (Some(3), 5, vec![1, 2]));
    assert!(matches!(scene.refused(&cede(4)), Refusal::AssignmentOver { .. }), "a late word of a former leader");
    let other = Command::CedeLead {
        subcluster: S,
        token: Token::new(5),
        node: NodeId::new(3),
        boot: BootId::new(30),
        avoid: Some(NodeId::new(2)),
    };
    scene.done(&other);
    assert_eq!(scene.leadership("s").0, Some(1), "it leads again, under another token");
    assert!(matches!(scene.refused(&cede(4)), Refusal::AssignmentOver { .. }), "a late word of its former lead");

    // Only the Raft leader is left besides: it leads rather than one that says that it cannot.
    let mut scene = one_subcluster();
    scene.done(&node_down(3, 30));
    scene.done(&cede(4));
    assert_eq!(scene.leadership("s"), (Some(2), 6, vec![1]));
}

#[test]
fn a_backend_is_drained_by_its_own_word_and_serves_again_in_a_new_boot() {
    let mut scene = one_subcluster();
    let (member, boot) = (Member::Backend(BackendId::new(1)), BootId::new(1));
    let drained = Command::ReportDrained { member, boot };
    assert_eq!(scene.refused(&drained), Refusal::NotDraining { member: "backend b1".into() });
    scene.done(&Command::Leave { member, boot });
    assert_eq!(scene.done(&drained), [Effect::Drained { member }]);
    assert!(scene.state.backends()[&BackendId::new(1)].standing.drained);
    scene.done(&backend("a", 2, "s", &["cpu"]));
    let standing = scene.state.backends()[&BackendId::new(1)].standing;
    assert_eq!((standing.duty(), standing.drained), (Duty::Serving, false));

    scene.done(&frontend("f", 1));
    let member = Member::Frontend(FrontendId::new(1));
    scene.done(&duty(member, Duty::Draining));
    scene.done(&Command::ReportDrained { member, boot });
    scene.done(&frontend("f", 2));
    let standing = scene.state.frontends()[&FrontendId::new(1)].standing;
    assert_eq!((standing.duty(), standing.drained), (Duty::Draining, false), "what operators say is kept");
    assert_eq!(
        scene.refused(&duty(Member::Frontend(FrontendId::new(9)), Duty::Serving)).to_string(),
        "unknown frontend f9"
    );
}

#[test]
fn a_removed_replica_and_one_over_another_disk_do_not_come_back() {
    let mut scene = one_subcluster();
    let id = NodeId::new(1);
    let remove = || operate(Action::ChangeReplicas { add: None, remove: Some(id) });
    let effects = scene.done(&remove().avoiding(NodeId::new(2)));
    assert_eq!(effects[..2], [Effect::NodeDown { node: id, boot: BootId::new(10) }, Effect::NodeRemoved { node: id }]);
    assert_eq!(scene.leadership("s"), (Some(3), 5, vec![2]));
    assert_eq!(scene.refused(&node(1, 12)), Refusal::NodeRemoved { node: id });
    assert_eq!(scene.done(&remove()), []);

    let mut wiped = node(2, 21);
    if let Command::RegisterNode(registration) = &mut wiped {
        registration.disk = 77;
    }
    assert_eq!(scene.refused(&wiped), Refusal::DiskLost { node: NodeId::new(2) });
    scene.done(&node(2, 21));
}
