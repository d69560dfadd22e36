//! `symphony members`: the members of the control group, and the removal of frontends.

use std::time::Duration;

use symphony_net::Role;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient;
use symphony_types::{FrontendId, Member, OperationId};
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::Endpoint;

use super::duty::{AGREE_WITHIN, find};
use super::operation::{STALE_HINT, asked, not_done, unknown};
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
                eprintln!("n{id} hands over what it leads, and leaves");
                (pb::ChangeReplicasRequest { remove: id, ..Default::default() }, &args.operation, &args.cluster)
            }
        },
        MembersCommand::Replace(MemberReplaceArgs { id, with, control, operation, cluster }) => {
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
    /// A replica, known to the cluster or not.
    Scheduler(u64),
    Frontend(FrontendId),
}

async fn removed(MemberRemoveArgs { member, cluster, .. }: &MemberRemoveArgs) -> anyhow::Result<Removed> {
    if let Ok(id) = replica_id(member) {
        return Ok(Removed::Scheduler(id));
    }
    let view = cluster.control()?.get(true, AGREE_WITHIN).await.map_err(asked)?;
    match find(&view, member).map_err(bad_input)? {
        Member::Scheduler(id) => Ok(Removed::Scheduler(id.get())),
        Member::Frontend(id) => Ok(Removed::Frontend(id)),
        Member::Backend(id) => Err(bad_input(format!(
            "{id} is a backend; it is known as long as there is room, and needs no removal: stop it, after symphony drain {id}"
        ))),
    }
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
    let late = format!("the change was not made within {} s; last answer: {last}{STALE_HINT}", CHANGE_WITHIN.as_secs());
    Err(unknown(operation, &late))
}

/// Whether the leader, or the next replica, may give a better answer.
fn may_pass(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Aborted)
}
