//! What a replica asks the others before it may found the group, with an empty disk or a state from a backup.

use std::collections::BTreeMap;

use symphony_consensus::founding::{ANSWER_WITHIN, FoundingError, MemberStatus, Newcomer, PeerState, Question};
use symphony_consensus::{ControlGroup, GroupConfig};
use symphony_protocol::control as pb;
use symphony_protocol::control::federation_client::FederationClient as Grpc;
use symphony_transport::FederationClient;
use symphony_types::NodeId;

/// Founds the group unless one exists, or begins it anew where it was restored, and lets this replica take part once it
/// may; else the words to end with.
pub(crate) async fn found(config: &GroupConfig, group: &ControlGroup) -> Result<(), String> {
    let GroupConfig { node: me, voters, data_dir, net, .. } = config;
    let client = |(&node, address): (&NodeId, &String)| {
        let client = FederationClient::new(net, std::slice::from_ref(address));
        client.map(|client| (node, client)).map_err(|error| error.to_string())
    };
    let clients = voters.iter().map(client).collect::<Result<BTreeMap<_, _>, _>>()?;
    let peer_state = |node: NodeId, question| {
        let client = clients.get(&node).cloned();
        async move { peer_state(config, node, &ask(&client.ok_or("no address is configured")?, question).await?) }
    };
    let (node, voters, data_dir) = (*me, voters.clone(), data_dir.clone());
    let newcomer = Newcomer { node, voters, join: false, data_dir, what: "federation" };
    let taken = match group.begins_anew() {
        true => newcomer.begin(group, peer_state).await,
        false => newcomer.take_part(group, peer_state).await,
    };
    taken.map_err(|error| match error {
        FoundingError::Known | FoundingError::Removed => format!(
            "replica {me} of the federation has an empty disk ({}), but the federation knows it: what it voted for is forgotten. \
             Give it its old disk; without it the others go on as long as they are a majority",
            config.data_dir.display()
        ),
        FoundingError::Stranger => format!(
            "replica {me} is none of the replicas with which the federation was founded, and those are fixed: \
             start it with the id and the disk of one of them"
        ),
        error @ (FoundingError::NotAlone { .. } | FoundingError::Group(_)) => error.to_string(),
    })
}

async fn ask(client: &FederationClient, question: Question) -> Result<pb::FederationView, String> {
    let linearizable = question == Question::Quorum;
    let get = |mut client: Grpc<_>| async move { client.get(pb::FederationGetRequest { linearizable }).await };
    client.call(ANSWER_WITHIN, get).await.map_err(|error| error.to_string())
}

/// The group's state in a view; an error if it is not of that replica.
fn peer_state(config: &GroupConfig, by: NodeId, view: &pb::FederationView) -> Result<PeerState, String> {
    if view.federation != config.cluster || view.replica != by.get() {
        let (federation, replica) = (&view.federation, view.replica);
        return Err(format!("replica {replica} of the federation `{federation}` answers there"));
    }
    let me = config.node.get();
    let configured: Vec<_> = config.voters.keys().map(|node| node.get()).collect();
    if view.members.contains(&me) && view.members != configured {
        return Err(format!(
            "it was founded with the replicas {:?}, and this configuration names {configured:?}",
            view.members
        ));
    }
    let newcomer_status = if view.replicas.contains(&me) {
        MemberStatus::Known
    } else if !view.members.is_empty() && !view.members.contains(&me) {
        MemberStatus::Stranger
    } else {
        MemberStatus::New
    };
    Ok(PeerState { applied_index: view.applied_index, log_entries: view.log_entries, newcomer_status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_asked_replica_of_this_federation_speaks_and_says_whom_it_knows() {
        let [me, other] = [1, 2].map(NodeId::new);
        let voters = (1..=3).map(|node| (NodeId::new(node), format!("f{node}:1"))).collect();
        let config = GroupConfig::new("world", me, voters, "data".into());
        let view = |federation: &str, replica, replicas: &[u64]| pb::FederationView {
            federation: federation.into(),
            replica,
            replicas: replicas.into(),
            members: vec![1, 2, 3],
            applied_index: 7,
            log_entries: 9,
            ..Default::default()
        };
        let state_by = |view| peer_state(&config, other, &view);
        let of = |newcomer_status| Ok(PeerState { applied_index: 7, log_entries: 9, newcomer_status });
        assert_eq!(state_by(view("world", 2, &[2, 3])), of(MemberStatus::New));
        assert_eq!(state_by(view("world", 2, &[1, 2])), of(MemberStatus::Known));
        assert_eq!(
            state_by(pb::FederationView { members: vec![2, 3], ..view("world", 2, &[2]) }),
            of(MemberStatus::Stranger)
        );
        assert_eq!(
            state_by(pb::FederationView { members: vec![], ..view("world", 2, &[]) }),
            of(MemberStatus::New),
            "unfounded"
        );
        let differs = state_by(pb::FederationView { members: vec![1, 2], ..view("world", 2, &[]) });
        assert!(differs.is_err_and(|why| why.contains("names [1, 2, 3]")));
        let elsewhere = Err("replica 3 of the federation `world` answers there".to_owned());
        assert_eq!(state_by(view("world", 3, &[])), elsewhere);
        assert!(state_by(view("moon", 2, &[])).is_err_and(|why| why.contains("`moon`")));
    }
}
