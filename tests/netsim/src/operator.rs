//! The operator of the cluster: changes the control group and the duties of replicas, one job after the other, each
//! until it is known to be done. A command without an answer is given again under its id, at another replica; one that
//! was refused for now is followed by another command.

use std::time::Duration;

use rand::Rng as _;
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_net::Role;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_types::{NodeId, OperationId};
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use crate::cluster::{CONTROL_PORT, Cluster, HOSTS};

/// Something to have done.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// One replica comes, one goes, or both.
    Change { add: Option<(NodeId, &'static str)>, remove: Option<(NodeId, &'static str)> },
    /// What a replica is for.
    Duty { of: NodeId, duty: pb::Duty },
    /// Which policy decides for a sub-cluster.
    Policy { subcluster: &'static str, policy: &'static str },
}

/// How long one attempt may take: a change waits for a replica to catch up, and for one that hands over.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(4);
/// Between two attempts, and between two looks for a job.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Works until its host ends.
pub(crate) async fn live(cluster: Cluster, name: &'static str, seed: u64) -> turmoil::Result {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut operation = fresh_id(&mut random);
    loop {
        tokio::time::sleep(AGAIN_AFTER).await;
        let Some(job) = cluster.jobs.borrow().front().cloned() else { continue };
        let replica = HOSTS[random.random_range(0..HOSTS.len())];
        let attempt = tokio::time::timeout(ATTEMPT_WITHIN, attempt(&cluster, name, replica, &job, operation)).await;
        let outcome = match &attempt {
            Ok(Ok(())) => "done".to_owned(),
            Ok(Err(status)) => format!("{:?}: {}", status.code(), status.message()),
            Err(_) => "no answer".to_owned(),
        };
        cluster.trace.note(format_args!("{name} asked {replica} {job:?}: {outcome}"));
        let over = match (&attempt, &job) {
            (Ok(Ok(())), _) => true,
            // The replica is gone.
            (Ok(Err(status)), Job::Duty { .. }) => status.code() == Code::NotFound,
            // There is no such sub-cluster yet.
            (Ok(Err(status)), Job::Policy { .. }) => matches!(status.code(), Code::NotFound | Code::InvalidArgument),
            _ => false,
        };
        if over {
            cluster.jobs.borrow_mut().pop_front();
        }
        if over || matches!(&attempt, Ok(Err(status)) if status.code() == Code::FailedPrecondition) {
            operation = fresh_id(&mut random);
        }
    }
}

/// The id of a command that was not given before.
pub(crate) fn fresh_id(random: &mut Xoshiro256PlusPlus) -> OperationId {
    OperationId::new(random.random_range(1..=u128::MAX))
}

async fn attempt(
    cluster: &Cluster,
    name: &str,
    replica: &str,
    job: &Job,
    operation: OperationId,
) -> Result<(), Status> {
    let operation_id = operation.to_string();
    let endpoint = Endpoint::from_shared(format!("http://{replica}:{CONTROL_PORT}"));
    let endpoint = endpoint.map_err(|error| Status::internal(error.to_string()))?.connect_timeout(ATTEMPT_WITHIN);
    let mut client = Grpc::new(cluster.links.net(name).channel(&endpoint, Role::Scheduler.into()));
    match *job {
        Job::Duty { of, duty } => {
            let member = Some(pb::Member { id: Some(pb::member::Id::Scheduler(of.get())) });
            client.set_duty(pb::SetDutyRequest { member, duty: duty.into(), operation_id }).await.map(drop)
        }
        Job::Policy { subcluster, policy } => {
            let (subcluster, policy) = (subcluster.to_owned(), policy.to_owned());
            client.set_policy(pb::SetPolicyRequest { subcluster, policy, operation_id }).await.map(drop)
        }
        Job::Change { add, remove } => {
            let request = pb::ChangeReplicasRequest {
                add: add.map_or(0, |(id, _)| id.get()),
                add_control_addr: add.map_or_else(String::new, |(_, host)| format!("{host}:{CONTROL_PORT}")),
                remove: remove.map_or(0, |(id, _)| id.get()),
                operation_id,
            };
            client.change_replicas(request).await.map(drop)
        }
    }
}
