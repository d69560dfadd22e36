//! Clients that load, unload and read models all the time.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_history::OperationId;
use symphony_history::admin::{Answer, Call, State};
use symphony_protocol::control as pb;
use symphony_protocol::view::{ModelSpec, View};
use symphony_transport::{ControlClient, ControlError, fresh_operation_id};
use symphony_types::Nanos;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::AdminRecorder;
use crate::cluster::Clients;

/// Names that clients share.
const NAMES: u32 = 4;
/// How long one call may take.
const CALL_WITHIN: Duration = Duration::from_millis(2500);
/// The pause between a client's calls.
const PAUSE: Duration = Duration::from_millis(25);
/// Of the GPUs' 16 GiB, so that not all of the clients' models fit at a time, and loads are refused.
const STATIC_BYTES: u64 = 4 << 30;
/// A multiple of every number of replicas up to six: each is drawn as often as another.
const REPLICAS_DRAWN: usize = 60;
/// SLOs begin here, so that none of them is too short for the model.
const SLO_MS_MIN: u64 = 1000;

/// The clients while they run.
#[derive(Debug)]
pub(crate) struct AdminClients {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

struct Client {
    number: u64,
    replicas: Clients,
    model: ModelSpec,
    random: Xoshiro256PlusPlus,
    recorder: AdminRecorder,
}

impl AdminClients {
    /// Starts `count` clients, which load models like `model` under names of their own.
    pub(crate) fn start(
        replicas: &Clients,
        model: &ModelSpec,
        count: u32,
        seed: u64,
        recorder: &AdminRecorder,
    ) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut large = model.clone();
        large.profiles.values_mut().for_each(|profile| profile.static_memory_bytes = STATIC_BYTES);
        for number in 1..=u64::from(count) {
            let client = Client {
                number,
                replicas: replicas.clone(),
                model: large.clone(),
                random: Xoshiro256PlusPlus::seed_from_u64(seed ^ (number << 32)),
                recorder: recorder.clone(),
            };
            tasks.spawn(client.run(stop.clone()));
        }
        Self { stop, tasks }
    }

    /// Stops the clients after their last calls.
    pub(crate) async fn finish(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Client {
    async fn run(mut self, stop: CancellationToken) {
        for turn in 0_u64.. {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
            let name = format!("admin-{}", self.random.random_range(0..NAMES));
            let replica = self.replicas.nth(self.random.random_range(0..REPLICAS_DRAWN));
            match self.random.random_range(0..10) {
                // No other load of the run has this value.
                0..3 => self.load(&replica, name, SLO_MS_MIN + turn * 64 + self.number).await,
                3..6 => self.unload(&replica, name).await,
                _ => self.read(&replica).await,
            }
        }
    }

    // One operation, however often it is attempted: all attempts have its id.

    async fn load(&self, replica: &ControlClient, name: String, value: u64) {
        let spec = ModelSpec { name: name.clone(), slo: Nanos::from_millis(value), ..self.model.clone() };
        let operation_id = fresh_operation_id().to_string();
        let request = pb::LoadModelRequest { spec: Some((&spec).into()), operation_id };
        let operation = self.recorder.call(self.number, Call::Load { name, spec: value });
        let attempt = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.load_model(request).await }
        };
        let end = replica.call(CALL_WITHIN, attempt).await;
        self.note(operation, end, Code::AlreadyExists, Answer::NameTaken, |reply| Answer::Loaded {
            model: reply.model.into(),
            epoch: reply.epoch,
        });
    }

    async fn unload(&self, replica: &ControlClient, name: String) {
        let operation_id = fresh_operation_id().to_string();
        let request = pb::UnloadModelRequest { name: name.clone(), operation_id };
        let operation = self.recorder.call(self.number, Call::Unload { name });
        let attempt = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.unload_model(request).await }
        };
        let end = replica.call(CALL_WITHIN, attempt).await;
        self.note(operation, end, Code::NotFound, Answer::NotLoaded, |reply| Answer::Unloaded { epoch: reply.epoch });
    }

    async fn read(&self, replica: &ControlClient) {
        let operation = self.recorder.call(self.number, Call::Read);
        if let Ok(view) = replica.get(true, CALL_WITHIN).await {
            self.recorder.answered(operation, Answer::State(seen(&view)));
        }
    }

    fn note<T>(
        &self,
        operation: OperationId,
        end: Result<T, ControlError>,
        code: Code,
        refused: Answer,
        answer: impl FnOnce(&T) -> Answer,
    ) {
        match end {
            Ok(reply) => self.recorder.answered(operation, answer(&reply)),
            Err(ControlError::Refused(status)) if status.code() == code => self.recorder.answered(operation, refused),
            // No room, for now: whether there is some is not in the history.
            Err(ControlError::Refused(status)) if status.code() == Code::FailedPrecondition => {
                self.recorder.answered(operation, Answer::Refused);
            }
            Err(_) => self.recorder.unknown(operation),
        }
    }
}

/// What the history knows of: the clients' models.
fn seen(view: &View) -> State {
    let names: Vec<_> = (0..NAMES).map(|n| format!("admin-{n}")).collect();
    let found = |name: &String| Some((name.clone(), u64::from(view.model_named(name)?.0.get())));
    State {
        index: view.applied_index,
        epoch: view.epoch.get(),
        models: names.iter().filter_map(found).collect(),
        processes: Default::default(),
        asked: names,
    }
}
