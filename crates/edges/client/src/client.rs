//! The client: requests to their answers, and questions about servers and models.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use symphony_protocol::inference as pb;
use symphony_protocol::parameters::{self, SLO_MS};
use tokio::sync::Semaphore;
use tonic::{Response, Status};

use crate::answer::Answer;
use crate::error::{Error, Failure};
use crate::frontend::{Frontend, FrontendStatus, Grpc};
use crate::limits;
use crate::pool::Pool;
use crate::request::Request;
use crate::settings::{BuildError, Metadata, Settings};
use crate::tensor::ElementType;

/// A client of one or more frontends; cheap to clone. Its connections end with its last clone.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    in_flight: Semaphore,
    in_flight_max: usize,
    timeout: Duration,
    answer_grace: Duration,
    wait_for_frontend: Duration,
    metadata: Metadata,
    /// What names of this client's requests begin with.
    name: u64,
    requests: AtomicU64,
}

/// The identity of a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMetadata {
    /// The product.
    pub name: String,
    /// Version of the release that the frontend runs.
    pub version: String,
    /// Extensions of the protocol that it speaks.
    pub extensions: Vec<String>,
}

/// What a model takes and gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMetadata {
    /// The name by which the frontend knows it.
    pub name: String,
    /// What executes it.
    pub platform: String,
    /// What goes in.
    pub inputs: Vec<TensorMetadata>,
    /// What comes out.
    pub outputs: Vec<TensorMetadata>,
}

/// How a model is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// Most items in one request.
    pub batch_max: u32,
    /// Its latency objective, if the server says one.
    pub slo: Option<Duration>,
}

/// One input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMetadata {
    /// Name of the input or output in the model's signature.
    pub name: String,
    /// Type of its elements; `shape` says how many there are.
    pub element: ElementType,
    /// Its shape; -1 stands for any number.
    pub shape: Vec<i64>,
}

impl Client {
    pub(crate) fn new(settings: &Settings, metadata: Metadata) -> Result<Self, BuildError> {
        let inner = Inner {
            pool: Pool::new(settings)?,
            in_flight: Semaphore::new(settings.in_flight_max),
            in_flight_max: settings.in_flight_max,
            timeout: settings.timeout,
            answer_grace: settings.answer_grace,
            wait_for_frontend: settings.wait_for_frontend,
            metadata,
            name: rand::random(),
            requests: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Waits until a frontend takes requests.
    ///
    /// # Errors
    /// [`Error::Unreachable`] once all have been asked and none does, or the time is up. The client goes on trying.
    pub async fn connected(&self, within: Duration) -> Result<(), Error> {
        self.inner.pool.connected(within).await
    }

    /// The state of each frontend, in the order of configuration.
    #[must_use]
    pub fn frontends(&self) -> Vec<FrontendStatus> {
        self.inner.pool.status()
    }

    /// Runs one request. Dropping the future withdraws it.
    ///
    /// # Errors
    /// If there is no answer; [`Error::was_not_accepted`] says whether the request may have run.
    pub async fn infer(&self, mut request: Request) -> Result<Answer, Error> {
        let inner = &*self.inner;
        if let Some(problem) = request.problem() {
            return Err(Error::InvalidRequest(problem));
        }
        let full = |_| Error::TooManyInFlight { in_flight_max: inner.in_flight_max };
        let _place = inner.in_flight.try_acquire().map_err(full)?;
        let id = request.take_id(|| format!("{:016x}-{}", inner.name, inner.requests.fetch_add(1, Ordering::Relaxed)));
        let timeout = request.time().map_or(inner.timeout, |within| within.saturating_add(inner.answer_grace));
        let timeout = timeout.min(limits::TIMEOUT_MAX);
        let clock = Clock { started: Instant::now(), within: request.time(), timeout };
        let (mut tried, mut last): (_, Option<Error>) = (Vec::new(), None);
        for _ in 0..limits::ATTEMPTS_MAX {
            // Once a frontend has given a reason for its refusal, the call does not wait for others.
            let refused = last.as_ref().is_some_and(|error| error.refusal().is_some());
            let wait = if refused { Duration::ZERO } else { inner.wait_for_frontend.min(clock.left()) };
            let (index, held) = match inner.pool.pick(&tried, wait).await {
                Ok(picked) => picked,
                Err(unreachable) => return Err(last.filter(|_| refused).unwrap_or(unreachable)),
            };
            let error = match inner.attempt(&held.frontend, &request, &id, &clock).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let not_sent = matches!(error, Error::Unreachable(_));
            if !(not_sent || error.another_may_be_asked()) || clock.left().is_zero() {
                return Err(error);
            }
            // A frontend that was not reached is asked again once a probe has found it back.
            if !not_sent || !inner.pool.is_watched() {
                tried.push(index);
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(Error::no_connection))
    }

    /// Whether the process of some frontend works.
    ///
    /// # Errors
    /// If none answers.
    pub async fn server_live(&self) -> Result<bool, Error> {
        let ask = |mut grpc: Grpc, call| async move { grpc.server_live(call).await };
        Ok(self.inner.ask(pb::ServerLiveRequest {}, ask).await?.live)
    }

    /// Whether some frontend takes requests.
    ///
    /// # Errors
    /// If none answers.
    pub async fn server_ready(&self) -> Result<bool, Error> {
        let ask = |mut grpc: Grpc, call| async move { grpc.server_ready(call).await };
        Ok(self.inner.ask(pb::ServerReadyRequest {}, ask).await?.ready)
    }

    /// The identity of a frontend.
    ///
    /// # Errors
    /// If none answers.
    pub async fn server_metadata(&self) -> Result<ServerMetadata, Error> {
        let ask = |mut grpc: Grpc, call| async move { grpc.server_metadata(call).await };
        let pb::ServerMetadataResponse { name, version, extensions } =
            self.inner.ask(pb::ServerMetadataRequest {}, ask).await?;
        Ok(ServerMetadata { name, version, extensions })
    }

    /// Whether a model takes requests; one that is unknown does not.
    ///
    /// # Errors
    /// If no frontend answers.
    pub async fn model_ready(&self, model: &str) -> Result<bool, Error> {
        let ask = |mut grpc: Grpc, call| async move { grpc.model_ready(call).await };
        let request = pb::ModelReadyRequest { name: model.to_owned(), version: String::new() };
        Ok(self.inner.ask(request, ask).await?.ready)
    }

    /// What a model takes and gives.
    ///
    /// # Errors
    /// If no frontend answers, or there is no such model.
    pub async fn model_metadata(&self, model: &str) -> Result<ModelMetadata, Error> {
        let ask = |mut grpc: Grpc, call| async move { grpc.model_metadata(call).await };
        let request = pb::ModelMetadataRequest { name: model.to_owned(), version: String::new() };
        let answer = self.inner.ask(request, ask).await?;
        let tensors = |tensors: Vec<pb::model_metadata_response::TensorMetadata>| {
            let tensor = |tensor: pb::model_metadata_response::TensorMetadata| {
                let element = ElementType::named(&tensor.datatype)?;
                Some(TensorMetadata { name: tensor.name, element, shape: tensor.shape })
            };
            tensors.into_iter().map(tensor).collect::<Option<Vec<_>>>()
        };
        let (inputs, outputs) = (tensors(answer.inputs), tensors(answer.outputs));
        let (Some(inputs), Some(outputs)) = (inputs, outputs) else {
            let words = format!("model `{model}` has tensors of a type that this client does not know");
            return Err(Error::InvalidRequest(words));
        };
        Ok(ModelMetadata { name: answer.name, platform: answer.platform, inputs, outputs })
    }

    /// How a model is served.
    ///
    /// # Errors
    /// If no frontend answers, or there is no such model.
    pub async fn model_config(&self, model: &str) -> Result<ModelConfig, Error> {
        let ask = |mut grpc: Grpc, call| async move { grpc.model_config(call).await };
        let request = pb::ModelConfigRequest { name: model.to_owned(), version: String::new() };
        let config = self.inner.ask(request, ask).await?.config.unwrap_or_default();
        let slo = config.parameters.get(SLO_MS).and_then(|slo| parameters::slo(&slo.string_value));
        Ok(ModelConfig { batch_max: u32::try_from(config.max_batch_size).unwrap_or(0), slo })
    }
}

/// The time of one request.
struct Clock {
    started: Instant,
    /// When its answer is due.
    within: Option<Duration>,
    /// After this time the client stops waiting for an answer.
    timeout: Duration,
}

impl Clock {
    /// The time until then.
    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    /// Until the answer is due.
    fn due(&self) -> Option<Duration> {
        self.within.map(|within| within.saturating_sub(self.started.elapsed()))
    }
}

impl Inner {
    /// One message to one frontend, and its answer.
    async fn attempt(
        &self,
        frontend: &Arc<Frontend>,
        request: &Request,
        id: &str,
        clock: &Clock,
    ) -> Result<Answer, Error> {
        let left = clock.left();
        let mut call = self.call(request.message(id, clock.due()));
        // The frontend gives the request up when the client stops waiting.
        call.set_timeout(left);
        let mut grpc = frontend.connection();
        // Kept here too: the clock of a frontend that hangs does not tick.
        let answer = tokio::time::timeout(left, grpc.model_infer(call)).await;
        let named = || frontend.address.clone();
        let status = match answer {
            Ok(Ok(answer)) => {
                let bad = |source| Error::BadAnswer { frontend: named(), source };
                let answer = Answer::try_from(answer.into_inner()).map_err(bad)?;
                if answer.id != id {
                    return Err(Error::Misdirected { frontend: named(), asked: id.to_owned(), got: answer.id });
                }
                return Ok(answer);
            }
            Ok(Err(status)) => status,
            Err(_) => {
                frontend.is_suspect();
                return Err(Error::NoAnswer { frontend: named(), within: clock.timeout });
            }
        };
        Err(match Failure::of(&status, &frontend.address) {
            Failure::NotSent(reason) => {
                frontend.is_down(&reason);
                Error::Unreachable(format!("{}: {reason}", frontend.address))
            }
            Failure::Said(refusal) => Error::Refused(Box::new(refusal)),
            Failure::Lost(_) if clock.left().is_zero() => Error::NoAnswer { frontend: named(), within: clock.timeout },
            Failure::Lost(reason) => {
                frontend.is_suspect();
                Error::Lost { frontend: named(), reason }
            }
        })
    }

    /// A question that changes nothing: asked of one frontend after the other until one answers.
    async fn ask<Q, A, F>(&self, question: Q, ask: impl Fn(Grpc, tonic::Request<Q>) -> F) -> Result<A, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let (mut tried, mut last) = (Vec::new(), None);
        for _ in 0..limits::ATTEMPTS_MAX {
            let wait = if last.is_some() { Duration::ZERO } else { self.wait_for_frontend };
            let (index, held) = match self.pool.pick(&tried, wait).await {
                Ok(picked) => picked,
                Err(unreachable) => return Err(last.unwrap_or(unreachable)),
            };
            let frontend = &held.frontend;
            let mut call = self.call(question.clone());
            call.set_timeout(limits::QUESTION_WITHIN);
            let answer = tokio::time::timeout(limits::QUESTION_WITHIN, ask(frontend.connection(), call)).await;
            let (address, within) = (frontend.address.clone(), limits::QUESTION_WITHIN);
            last = Some(match answer {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Err(_) => Error::NoAnswer { frontend: address, within },
                Ok(Err(status)) => match Failure::of(&status, &address) {
                    // The other frontends would answer the same.
                    Failure::Said(refusal) => return Err(Error::Refused(Box::new(refusal))),
                    Failure::NotSent(reason) => Error::Unreachable(format!("{address}: {reason}")),
                    Failure::Lost(reason) => Error::Lost { frontend: address, reason },
                },
            });
            frontend.is_suspect();
            tried.push(index);
        }
        Err(last.unwrap_or_else(Error::no_connection))
    }

    fn call<T>(&self, message: T) -> tonic::Request<T> {
        let mut call = tonic::Request::new(message);
        for (key, value) in &self.metadata {
            call.metadata_mut().insert(key.clone(), value.clone());
        }
        call
    }
}
