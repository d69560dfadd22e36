//! Who leads a sub-cluster, and with which token, as replicas come and go.

use symphony_cluster_state::{Command, Effect, Refusal};
use symphony_types::{BootId, Epoch, NodeId, SubclusterId, Token};

use crate::scene::{Scene, backend, node, node_down};

fn led(subcluster: u32, name: &str, leader: Option<u64>, token: u64) -> Effect {
    let (leader, token) = (leader.map(NodeId::new), Token::new(token));
    Effect::LeaderChanged { subcluster: SubclusterId::new(subcluster), name: name.into(), leader, token }
}

fn up(node: u64, boot: u64) -> Effect {
    Effect::NodeUp { node: NodeId::new(node), boot: BootId::new(boot) }
}

fn down(node: u64, boot: u64) -> Effect {
    Effect::NodeDown { node: NodeId::new(node), boot: BootId::new(boot) }
}

#[test]
fn the_first_backend_creates_its_subcluster_and_the_least_loaded_replica_leads_it() {
    let mut scene = Scene::with_three_nodes();
    let avoiding_one = |command: Command| command.avoiding(NodeId::new(1));
    scene.done(&avoiding_one(backend("a", 1, "s1", &["cpu"])));
    scene.done(&avoiding_one(backend("b", 1, "s2", &["cpu"])));
    scene.done(&avoiding_one(backend("c", 1, "s3", &["cpu"])));
    scene.done(&avoiding_one(backend("d", 1, "s3", &["cpu"])));
    assert_eq!(scene.leadership("s1"), (Some(2), 4, vec![1, 3]));
    assert_eq!(scene.leadership("s2"), (Some(3), 5, vec![1, 2]));
    assert_eq!(scene.leadership("s3"), (Some(2), 6, vec![1, 3]), "a second backend does not move the leader");
}

#[test]
fn the_replica_to_avoid_leads_when_it_is_alone() {
    let mut scene = Scene::default();
    scene.done(&node(1, 10));
    scene.done(&backend("a", 1, "s", &["cpu"]).avoiding(NodeId::new(1)));
    assert_eq!(scene.leadership("s"), (Some(1), 2, vec![]));
}

#[test]
fn one_entry_rehomes_everything_a_dead_replica_led() {
    let mut scene = Scene::with_three_nodes();
    for (name, subcluster) in [("a", "s1"), ("b", "s2"), ("c", "s3"), ("d", "s4")] {
        scene.done(&backend(name, 1, subcluster, &["cpu"]));
    }
    assert_eq!([1, 2, 3, 1].map(Some), ["s1", "s2", "s3", "s4"].map(|s| scene.leadership(s).0));
    let epoch = scene.state.epoch();

    let effects = scene.done(&node_down(1, 10));
    assert_eq!(effects, [down(1, 10), led(1, "s1", Some(2), 8), led(4, "s4", Some(3), 8)], "spread over the standbys");
    assert_eq!(scene.state.epoch(), Epoch::new(epoch.get() + 1), "one entry, one epoch");
    assert_eq!(scene.leadership("s2"), (Some(2), 5, vec![3]), "what others led stays, the dead stand by for nothing");

    let effects = scene.done(&node_down(1, 10));
    assert_eq!(effects, [], "saying it again changes nothing");

    let effects = scene.done(&node(1, 10));
    assert_eq!(effects, [up(1, 10)], "the recovered replica leads nothing");
    assert_eq!(scene.leadership("s1"), (Some(2), 8, vec![1, 3]), "but stands by, first because it leads nothing");
}

#[test]
fn a_new_boot_never_inherits_what_the_old_one_led() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 1, "s", &["cpu"]));
    assert_eq!(scene.leadership("s"), (Some(1), 4, vec![2, 3]));
    let effects = scene.done(&node(1, 11).avoiding(NodeId::new(2)));
    assert_eq!(effects, [down(1, 10), up(1, 11), led(1, "s", Some(3), 5)], "neither the restarted nor the avoided one");
    let effects = scene.done(&node(3, 31).avoiding(NodeId::new(2)));
    assert_eq!(effects, [down(3, 30), up(3, 31), led(1, "s", Some(1), 6)]);
}

#[test]
fn with_two_alive_the_one_to_avoid_leads_rather_than_the_one_that_just_restarted() {
    let mut scene = Scene::default();
    scene.done(&node(1, 10));
    scene.done(&node(2, 20));
    scene.done(&backend("a", 1, "s", &["cpu"]).avoiding(NodeId::new(2)));
    assert_eq!(scene.leadership("s").0, Some(1));
    let effects = scene.done(&node(1, 11).avoiding(NodeId::new(2)));
    assert_eq!(effects, [down(1, 10), up(1, 11), led(1, "s", Some(2), 4)]);
}

#[test]
fn a_lonely_replica_leads_again_in_its_new_boot_with_a_new_token() {
    let mut scene = Scene::default();
    scene.done(&node(1, 10));
    scene.done(&backend("a", 1, "s", &["cpu"]));
    let effects = scene.done(&node(1, 11));
    assert_eq!(effects, [down(1, 10), up(1, 11), led(1, "s", Some(1), 3)]);
    let leader = scene.state.subcluster_named("s").unwrap().1.leader.unwrap();
    assert_eq!(leader.boot, BootId::new(11));
}

#[test]
fn a_subcluster_without_leader_gets_the_first_replica_that_registers() {
    let mut scene = Scene::default();
    let effects = scene.done(&backend("a", 1, "s", &["cpu"]));
    assert!(!effects.iter().any(|e| matches!(e, Effect::LeaderChanged { .. })), "nobody is there to lead: {effects:?}");
    assert_eq!(scene.leadership("s"), (None, 1, vec![]));
    scene.done(&node(2, 20));
    assert_eq!(scene.leadership("s"), (Some(2), 2, vec![]));

    let effects = scene.done(&node_down(2, 20));
    assert_eq!(effects, [down(2, 20), led(1, "s", None, 3)]);
    let effects = scene.done(&node(2, 20));
    assert_eq!(effects, [up(2, 20), led(1, "s", Some(2), 4)], "the same boot, but a new token");
}

#[test]
fn a_boot_that_is_over_cannot_come_back_or_be_ended_again() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&node(1, 11));
    let stale = Refusal::StaleBoot {
        what: "scheduler".into(),
        name: "n1".into(),
        named: BootId::new(10),
        current: BootId::new(11),
    };
    assert_eq!(scene.refused(&node(1, 10)), stale, "a late message of the old boot");
    assert_eq!(scene.refused(&node_down(1, 10)), stale, "a late suspicion of the old boot");
    assert_eq!(scene.refused(&node_down(9, 10)), Refusal::UnknownNode { node: NodeId::new(9) });
}
