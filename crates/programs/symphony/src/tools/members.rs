//! `symphony members`: the members of the control group, and the removal of frontends.

use std::collections::BTreeSet;
use std::time::Duration;

use symphony_net::Role;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient;
use symphony_protocol::view::View;
use symphony_transport::AGREE_WITHIN;
use symphony_types::{FrontendId, Member, NodeId, OperationId};
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::Endpoint;

use super::duty::find;
use super::operation::{not_done, query_error, unknown, with_stale_hint};
use crate::cli::{ClusterArgs, MemberAddArgs, MemberRemoveArgs, MemberReplaceArgs, MembersCommand, replica_id};
use crate::exit::bad_input;

/// The timeout of a change: a new replica catches up, and a removed one hands over.
const CHANGE_WITHIN: Duration = Duration::from_secs(120);
/// How long dialling one replica may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// The pause before the replicas are asked again, for instance while leadership moves.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

pub(crate) async fn run(command: &MembersCommand) -> anyhow::Result<()> {
    let (mut request, operation, cluster) = match command {
        MembersCommand::Add(MemberAddArgs { id, control, operation, cluster }) => {
            eprintln!("n{id} at {control} follows first and votes once it has caught up");
            (joins(*id, control), operation, cluster)
        }
        MembersCommand::Remove(args) => match removed(args).await? {
            Removed::Frontend(frontend) => return remove_frontend(args, frontend).await,
            Removed::Scheduler(id) => {
                // Only now is it known that the replica exists.
                eprintln!("n{id} hands over what it leads, and leaves");
                (pb::ChangeReplicasRequest { remove: id, ..Default::default() }, &args.operation, &args.cluster)
            }
        },
        MembersCommand::Replace(MemberReplaceArgs { id, with, control, operation, cluster }) => {
            if operation.operation_id.is_none() {
                let view = cluster.control()?.get(true, AGREE_WITHIN).await.map_err(query_error)?;
                known(&view, *id).map_err(bad_input)?;
            }
            eprintln!("n{with} at {control} catches up and takes the place of n{id}");
            (pb::ChangeReplicasRequest { remove: *id, ..joins(*with, control) }, operation, cluster)
        }
    };
    let operation = operation.id();
    request.operation_id = operation.to_string();
    let voters = change(cluster, operation, &request).await?;
    let voters: Vec<_> = voters.iter().map(|id| format!("n{id}")).collect();
    println!("the control group is {}", voters.join(", "));
    Ok(())
}

/// The process to remove.
enum Removed {
    /// A replica.
    Scheduler(u64),
    Frontend(FrontendId),
}

async fn removed(MemberRemoveArgs { member, operation, cluster }: &MemberRemoveArgs) -> anyhow::Result<Removed> {
    let id = replica_id(member).ok();
    if let (Some(id), Some(_)) = (id, operation.operation_id) {
        // Given again: a replica that was removed is no longer known.
        return Ok(Removed::Scheduler(id));
    }
    let view = cluster.control()?.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    if let Some(id) = id {
        known(&view, id).map_err(bad_input)?;
        return Ok(Removed::Scheduler(id));
    }
    match find(&view, member).map_err(bad_input)? {
        Member::Scheduler(id) => Ok(Removed::Scheduler(id.get())),
        Member::Frontend(id) => Ok(Removed::Frontend(id)),
        Member::Backend(id) => Err(bad_input(format!(
            "{id} is a backend; it is known as long as there is room, and needs no removal: stop it, after symphony drain {id}"
        ))),
    }
}

/// Whether the cluster has a replica of that id, or one that joins.
fn known(view: &View, id: u64) -> Result<(), String> {
    let node = NodeId::new(id);
    if view.nodes.contains_key(&node) || view.group.contains_key(&node) {
        return Ok(());
    }
    let all: BTreeSet<_> = view.nodes.keys().chain(view.group.keys()).map(ToString::to_string).collect();
    let all = all.into_iter().collect::<Vec<_>>().join(", ");
    let was = if view.removed_nodes.contains(&node) { "was removed already" } else { "is no scheduler replica" };
    Err(format!("n{id} {was}; there are {all}"))
}

async fn remove_frontend(args: &MemberRemoveArgs, frontend: FrontendId) -> anyhow::Result<()> {
    let operation = args.operation.id();
    let call = |mut client: ControlClient<_>| {
        let request = pb::RemoveFrontendRequest { frontend: frontend.get(), operation_id: operation.to_string() };
        async move { client.remove_frontend(request).await }
    };
    args.cluster.control()?.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
    println!("frontend {frontend} is removed");
    Ok(())
}

fn joins(id: u64, control: &str) -> pb::ChangeReplicasRequest {
    pb::ChangeReplicasRequest { add: id, add_control_addr: control.to_owned(), ..Default::default() }
}

/// Asks one replica after the other until one makes the change or refuses it.
async fn change(
    cluster: &ClusterArgs,
    operation: OperationId,
    request: &pb::ChangeReplicasRequest,
) -> anyhow::Result<Vec<u64>> {
    let give_up = Instant::now() + CHANGE_WITHIN;
    let (net, addrs) = (cluster.net()?, cluster.addresses()?);
    let mut last = String::new();
    while Instant::now() < give_up {
        for addr in &addrs {
            let endpoint = Endpoint::from_shared(format!("http://{addr}"))
                .map_err(|error| bad_input(format!("--cluster {addr}: {error}")))?
                .connect_timeout(CONNECT_WITHIN);
            let mut client = ControlClient::new(net.channel(&endpoint, Role::Scheduler.into()));
            let answered = client.change_replicas(request.clone());
            match tokio::time::timeout_at(give_up, answered).await {
                Ok(Ok(reply)) => return Ok(reply.into_inner().voters),
                Ok(Err(status)) if may_pass(status.code()) => last = format!("{addr}: {}", status.message()),
                Ok(Err(status)) => return Err(bad_input(status.message())),
                Err(_) => break,
            }
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    let joins = match request.add {
        0 => String::new(),
        id => format!(" (a replica that does not come is forgotten by `symphony members remove n{id}`)"),
    };
    let late = format!("the change was not made within {} s{joins}; last answer: {last}", CHANGE_WITHIN.as_secs());
    Err(unknown(operation, &with_stale_hint(&late)))
}

/// Whether the leader, or the next replica, may give a better answer.
fn may_pass(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Aborted)
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::NodeView;

    use super::*;

    #[test]
    fn a_replica_that_is_none_is_refused_before_anything_is_announced() {
        let view = View {
            nodes: [(NodeId::new(1), NodeView::default()), (NodeId::new(2), NodeView::default())].into(),
            removed_nodes: [NodeId::new(3)].into(),
            ..View::default()
        };
        assert_eq!(known(&view, 2), Ok(()));
        assert_eq!(known(&view, 9), Err("n9 is no scheduler replica; there are n1, n2".into()));
        assert_eq!(known(&view, 3), Err("n3 was removed already; there are n1, n2".into()));
    }
}
