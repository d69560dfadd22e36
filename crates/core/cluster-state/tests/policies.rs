//! Policies for whole sub-clusters: who may decide by them, and what becomes of one that fails.

use symphony_cluster_state::{Action, Command, Effect, PolicyFailure};
use symphony_types::{BootId, Duty, Level, Member, NodeId, SubclusterId, Token};

use crate::scene::{Scene, backend, node, node_down, operate};

const SUBCLUSTER: SubclusterId = SubclusterId::new(1);

fn set(policy: &str) -> Command {
    operate(Action::SetPolicy { subcluster: "s".into(), policy: policy.into() })
}

fn knows(node: u64, boot: u64, names: &[&str]) -> Command {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Command::KnowPolicies { node: NodeId::new(node), boot: BootId::new(boot), names }
}

fn failed(token: u64, node: u64, boot: u64) -> Command {
    Command::PolicyFailed {
        subcluster: SUBCLUSTER,
        token: Token::new(token),
        node: NodeId::new(node),
        boot: BootId::new(boot),
        why: PolicyFailure::Panicked,
        avoid: None,
    }
}

/// Three replicas, and a sub-cluster that one of them leads.
fn scene() -> Scene {
    let mut scene = Scene::default();
    scene.state.found_at(Level::WITH_POLICIES);
    for id in 1..=3 {
        scene.done(&node(id, id * 10));
    }
    scene.done(&backend("a", 1, "s", &["cpu"]));
    scene
}

fn text(scene: &Scene) -> Option<(String, bool)> {
    scene.state.policies().get(&SUBCLUSTER).map(|policy| (policy.text.clone(), policy.failed.is_some()))
}

#[test]
fn a_policy_is_set_once_under_a_new_token_of_the_same_leader_and_taken_back() {
    let mut scene = scene();
    let (leader, token, _) = scene.leadership("s");
    scene.done(&set("{ name = \"nexus\", frontends = 1 }"));
    let (same, newer, _) = scene.leadership("s");
    assert!(same == leader && newer > token, "{newer}");
    assert_eq!(text(&scene), Some(("nexus".into(), false)), "the canonical text");
    assert_eq!(scene.done(&set("nexus")), [], "it is there already");
    assert_eq!(scene.leadership("s").1, newer);
    scene.done(&set("auto"));
    assert_eq!(text(&scene), None);
    assert!(scene.leadership("s").1 > newer);
    assert_eq!(scene.done(&set("auto")), []);
}

#[test]
fn below_the_level_of_policies_none_is_set() {
    let mut scene = Scene::with_three_nodes();
    scene.done(&backend("a", 1, "s", &["cpu"]));
    for early in [set("nexus"), knows(1, 10, &["house"])] {
        assert!(scene.refused(&early).to_string().contains("expected level 3"), "{early:?}");
    }
}

#[test]
fn what_no_replica_knows_or_decides_for_single_models_is_refused_in_words() {
    let mut scene = scene();
    let refused = |scene: &mut Scene, policy: &str| scene.refused(&set(policy)).to_string();
    let message = refused(&mut scene, "house");
    assert!(message.contains("\"nexus\"") && message.contains("\"house\""), "{message}");
    let message = refused(&mut scene, "eager");
    assert!(
        message.contains("decides for each model alone") && message.contains("clockwork, nexus, shepherd"),
        "{message}"
    );
    assert!(refused(&mut scene, "{ name = \"nexus\", frontends = 0 }").contains("frontends"));
    let nowhere = operate(Action::SetPolicy { subcluster: "t".into(), policy: "nexus".into() });
    assert!(scene.refused(&nowhere).to_string().contains("no sub-cluster is named `t`"));
    scene.done(&knows(2, 20, &["house"]));
    // Short as it is given, and longer than a state may hold with all its zeros.
    let message = refused(&mut scene, "{ name = \"house\", a = 1e300, b = 1e300 }");
    assert!(message.contains("written out in full; expected at most 512"), "{message}");
    scene.done(&set("house"));
}

#[test]
fn only_who_knows_the_policy_leads_and_who_restarts_tells_again() {
    let mut scene = scene();
    scene.done(&knows(3, 30, &["house"]));
    scene.done(&set("house"));
    assert_eq!(scene.leadership("s").0, Some(3));
    let token = Token::new(scene.leadership("s").1);
    let to_one = Command::BeginHandover { subcluster: SUBCLUSTER, token, to: NodeId::new(1), boot: BootId::new(10) };
    assert!(scene.refused(&to_one).to_string().contains("does not know its policy"));
    assert!(scene.refused(&knows(3, 31, &["house"])).to_string().contains("runs in boot"), "another boot");
    scene.done(&knows(2, 20, &["house", "yard"]));
    scene.done(&node_down(3, 30));
    assert_eq!(scene.leadership("s").0, Some(2));
    // Without the name it is the last choice, but leads where no replica knows it: it says what is wrong.
    scene.done(&node(2, 21));
    assert_eq!(scene.leadership("s").0, Some(1));
}

#[test]
fn nobody_is_asked_to_take_over_by_a_policy_that_it_does_not_know() {
    let mut scene = scene();
    scene.done(&knows(1, 10, &["house"]));
    scene.done(&set("house"));
    scene.done(&backend("b", 2, "t", &["cpu"]));
    scene.done(&backend("c", 3, "u", &["cpu"]));
    assert_eq!(scene.leadership("s").0, Some(1));
    let nobody = |_: NodeId| false;
    let to = |scene: &Scene| scene.state.next_drain(None, &nobody).map(|lead| (lead.subcluster, lead.to));
    let drain = |id| operate(Action::SetDuty { member: Member::Scheduler(NodeId::new(id)), duty: Duty::Draining });
    scene.done(&drain(1));
    assert_eq!(to(&scene), None, "the others would only refuse");
    let next = scene.leadership("t").0.unwrap();
    scene.done(&drain(next));
    let last = NodeId::new(5 - next);
    assert_eq!(to(&scene), Some((SubclusterId::new(2), last)), "and it holds up nobody else");
    scene.done(&knows(last.get(), last.get() * 10, &["house"]));
    assert_eq!(to(&scene), Some((SUBCLUSTER, last)));
}

#[test]
fn a_policy_that_fails_ends_the_lead_and_decides_nothing_until_it_is_set_again() {
    let mut scene = scene();
    scene.done(&set("nexus"));
    let (leader, token, _) = scene.leadership("s");
    let leader = leader.unwrap();
    assert!(scene.refused(&failed(token + 1, leader, leader * 10)).to_string().contains("is over"));
    let effects = scene.done(&failed(token, leader, leader * 10));
    let message = effects.iter().find(|effect| matches!(effect, Effect::PolicyFailed { .. })).unwrap().to_string();
    assert!(message.contains("policy nexus of sub-cluster s panicked on n"), "{message}");
    let (next, newer, _) = scene.leadership("s");
    assert!(next != Some(leader) && newer > token, "{next:?}");
    assert_eq!(text(&scene), Some(("nexus".into(), true)));
    scene.done(&set("nexus"));
    assert_eq!(text(&scene), Some(("nexus".into(), false)), "it is tried again");
}
