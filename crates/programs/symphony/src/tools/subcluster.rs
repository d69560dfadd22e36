//! `symphony subcluster policy`.

use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_transport::AGREE_WITHIN;

use super::operation::not_done;
use crate::cli::{SubclusterCommand, SubclusterPolicyArgs};

pub(crate) async fn run(command: SubclusterCommand) -> anyhow::Result<()> {
    match command {
        SubclusterCommand::Policy(args) => policy(&args).await,
    }
}

async fn policy(args: &SubclusterPolicyArgs) -> anyhow::Result<()> {
    let (control, operation) = (args.cluster.control()?, args.operation.id());
    let request = pb::SetPolicyRequest {
        subcluster: args.name.clone(),
        policy: args.policy.clone(),
        operation_id: operation.to_string(),
    };
    let call = |mut client: Grpc<_>| {
        let request = request.clone();
        async move { client.set_policy(request).await }
    };
    control.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
    println!("policy of sub-cluster {}: {}", args.name, args.policy);
    Ok(())
}
