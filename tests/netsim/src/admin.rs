//! Clients of the admin API: load, unload, read. A client without an answer asks another replica, under the same id:
//! one call is one operation, however often it is attempted.

use std::rc::Rc;
use std::time::Duration;

use rand::Rng as _;
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_history::Recorder;
use symphony_history::admin::{Answer, Call, State};
use symphony_net::{Net, Role};
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::view::View;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::cluster::{Cluster, HOSTS};
use crate::operator::fresh_id;

/// What the admins ask for.
pub(crate) type History = Recorder<Call, Answer>;

/// Names that models may have.
const MODELS: [&str; 3] = ["m1", "m2", "m3"];
/// Replicas that are asked before the fate of a call is left open.
const ATTEMPTS_MAX: usize = 3;
/// How long one attempt may take.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(2);
/// Longest pause between two calls of one admin.
const PAUSE_MS_MAX: u64 = 120;

/// Sends calls until stopped.
pub(crate) async fn live(cluster: Cluster, name: &'static str, seed: u64, history: Rc<History>) -> turmoil::Result {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let net = cluster.links.net(name);
    let process = name.bytes().last().map_or(0, u64::from);
    loop {
        let pause = random.random_range(1..=PAUSE_MS_MAX);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if !*cluster.asking.borrow() {
            continue;
        }
        let model = MODELS[random.random_range(0..MODELS.len())].to_owned();
        let call = match random.random_range(0..4) {
            0 => Call::Load { name: model, spec: random.random_range(0..2) },
            1 => Call::Unload { name: model },
            _ => Call::Read,
        };
        let operation_id = fresh_id(&mut random).to_string();
        let operation = history.call(process, call.clone());
        let mut found = None;
        for _ in 0..ATTEMPTS_MAX {
            let replica = HOSTS[random.random_range(0..HOSTS.len())];
            let attempt = tokio::time::timeout(ATTEMPT_WITHIN, ask(&net, replica, &call, &operation_id)).await;
            let outcome = match &attempt {
                Ok(Ok(answer)) => format!("{answer:?}"),
                Ok(Err(status)) => format!("{:?}: {}", status.code(), status.message()),
                Err(_) => "no answer".to_owned(),
            };
            cluster.trace.note(format_args!("{name} asked {replica} {call:?}: {outcome}"));
            if let Ok(Ok(answer)) = attempt {
                found = Some(answer);
                break;
            }
        }
        match found {
            Some(answer) => history.answered(operation, answer),
            None => history.unknown(operation),
        }
    }
}

/// One attempt. An error is the network's or a replica's that does not know; anything may have happened.
async fn ask(net: &Net, replica: &str, call: &Call, operation_id: &str) -> Result<Answer, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{replica}:{}", crate::cluster::CONTROL_PORT));
    let endpoint = endpoint.map_err(|error| Status::internal(error.to_string()))?;
    let operation_id = operation_id.to_owned();
    let mut client = Grpc::new(net.channel(&endpoint.connect_timeout(ATTEMPT_WITHIN), Role::Scheduler.into()));
    match call {
        Call::Load { name, spec } => load(&mut client, name, *spec, operation_id).await,
        Call::Unload { name } => {
            match client.unload_model(pb::UnloadModelRequest { name: name.clone(), operation_id }).await {
                Ok(reply) => Ok(Answer::Unloaded { epoch: reply.into_inner().epoch }),
                Err(status) if status.code() == Code::NotFound => Ok(Answer::NotLoaded),
                Err(status) => Err(status),
            }
        }
        Call::Read => {
            let view = client.get(pb::GetRequest { linearizable: true }).await?.into_inner();
            let view = View::try_from(view).map_err(|error| Status::internal(error.to_string()))?;
            let models = view.models.iter().map(|(id, model)| (model.spec.name.clone(), u64::from(id.get())));
            Ok(Answer::State(State {
                index: view.applied_index,
                epoch: view.epoch.get(),
                models: models.collect(),
                processes: std::collections::BTreeMap::new(),
                asked: MODELS.iter().map(|&name| name.to_owned()).collect(),
            }))
        }
        Call::Register { .. } => Err(Status::internal("admins do not register")),
    }
}

async fn load(client: &mut Grpc<Channel>, name: &str, spec: u64, operation_id: String) -> Result<Answer, Status> {
    let tensor = pb::TensorSpec { name: "x".into(), data_type: "FP32".into(), item_shape: vec![8] };
    let profile = pb::Profile {
        gpu_kind: "gpu".into(),
        latency_ns: vec![1_000_000 + spec, 1_500_000 + spec],
        static_memory_bytes: 1 << 20,
        dynamic_memory_bytes: 1 << 20,
    };
    let spec = pb::ModelSpec {
        name: name.into(),
        subcluster: "s-b1".into(),
        slo_ns: 50_000_000,
        source: Some(pb::model_spec::Source::Emulated(true)),
        inputs: vec![tensor.clone()],
        outputs: vec![tensor],
        profiles: vec![profile],
        policy: Default::default(),
        value_thousandths: 1_000,
        own_trunk: false,
        transforms: None,
    };
    match client.load_model(pb::LoadModelRequest { spec: Some(spec), operation_id }).await {
        Ok(reply) => {
            let pb::LoadModelReply { model, epoch, .. } = reply.into_inner();
            Ok(Answer::Loaded { model: u64::from(model), epoch })
        }
        Err(status) if status.code() == Code::AlreadyExists => Ok(Answer::NameTaken),
        // There is no such sub-cluster yet.
        Err(status) if status.code() == Code::NotFound => Ok(Answer::Refused),
        Err(status) => Err(status),
    }
}
