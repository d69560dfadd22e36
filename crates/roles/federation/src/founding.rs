//! What a replica with an empty disk asks the others before it may found the group.

use std::collections::BTreeMap;

use symphony_consensus::founding::{ANSWER_WITHIN, Asker, FoundingError, Newcomer, Past};
use symphony_consensus::{ControlGroup, GroupConfig};
use symphony_protocol::control as pb;
use symphony_protocol::control::federation_client::FederationClient as Grpc;
use symphony_transport::FederationClient;
use symphony_types::NodeId;

/// Founds the group unless one exists, and lets this replica take part once it may; else the words to end with.
pub(crate) async fn found(config: &GroupConfig, group: &ControlGroup) -> Result<(), String> {
    let GroupConfig { node: me, voters, data_dir, net, .. } = config;
    let client = |(&node, address): (&NodeId, &String)| {
        let client = FederationClient::new(net, std::slice::from_ref(address));
        client.map(|client| (node, client)).map_err(|error| error.to_string())
    };
    let clients = voters.iter().map(client).collect::<Result<BTreeMap<_, _>, _>>()?;
    let past = |node: NodeId| {
        let client = clients.get(&node).cloned();
        async move { past(config, node, &ask(&client?).await?) }
    };
    let (node, voters, data_dir) = (*me, voters.clone(), data_dir.clone());
    let newcomer = Newcomer { node, voters, join: false, data_dir, what: "federation" };
    newcomer.take_part(group, past).await.map_err(|error| match error {
        FoundingError::Known | FoundingError::Removed => format!(
            "replica {me} of the federation has an empty disk ({}), but the federation knows it: what it voted for is forgotten. \
             Give it its old disk; without it the others go on as long as they are a majority",
            config.data_dir.display()
        ),
        FoundingError::Group(error) => error.to_string(),
    })
}

async fn ask(client: &FederationClient) -> Option<pb::FederationView> {
    let get = |mut client: Grpc<_>| async move { client.get(pb::FederationGetRequest { linearizable: false }).await };
    client.call(ANSWER_WITHIN, get).await.ok()
}

/// What a view says of the group; nothing if it is not of that replica.
fn past(config: &GroupConfig, by: NodeId, view: &pb::FederationView) -> Option<Past> {
    let known = view.replicas.contains(&config.node.get());
    let asker = if known { Asker::Known } else { Asker::New };
    let past = Past { applied_index: view.applied_index, log_entries: view.log_entries, asker };
    (view.federation == config.cluster && view.replica == by.get()).then_some(past)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_asked_replica_of_this_federation_speaks_and_says_whom_it_knows() {
        let [me, other] = [1, 2].map(NodeId::new);
        let config = GroupConfig::new("world", me, BTreeMap::new(), "data".into());
        let view = |federation: &str, replica, replicas: &[u64]| pb::FederationView {
            federation: federation.into(),
            replica,
            replicas: replicas.into(),
            applied_index: 7,
            log_entries: 9,
            ..Default::default()
        };
        let said = |view| past(&config, other, &view);
        let of = |asker| Some(Past { applied_index: 7, log_entries: 9, asker });
        assert_eq!(said(view("world", 2, &[2, 3])), of(Asker::New));
        assert_eq!(said(view("world", 2, &[1, 2])), of(Asker::Known));
        assert_eq!((said(view("world", 3, &[])), said(view("moon", 2, &[]))), (None, None), "somebody else answers");
    }
}
