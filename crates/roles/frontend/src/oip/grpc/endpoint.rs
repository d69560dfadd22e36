//! The service itself: every method of `inference.GRPCInferenceService`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt, stream};
use symphony_protocol::inference::grpc_inference_service_server::GrpcInferenceService;
use symphony_protocol::inference::{
    ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
    ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest, ModelStatisticsResponse,
    ModelStreamInferResponse, RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelLoadRequest,
    RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, ServerLiveRequest,
    ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
    SystemSharedMemoryRegisterRequest, SystemSharedMemoryRegisterResponse, SystemSharedMemoryStatusRequest,
    SystemSharedMemoryStatusResponse, SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse,
};
use symphony_types::FailReason;
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::admitted::{Arrival, MessageRead};
use super::{infer_messages, messages, status};
use crate::oip::call::{self, find_model, model_to_ask};
use crate::oip::limits::STREAM_PIPELINE_MAX;
use crate::oip::parameters::CallHeaders;
use crate::oip::shared_regions::Regions;
use crate::oip::{
    AccessError, Caller, CheckedCall, InferError, InferenceService, Limits, ModelInfo, Receipt, RefusedCall,
    RequestContext,
};

/// Answers the methods out of an [`InferenceService`].
#[derive(Debug)]
pub(crate) struct Endpoint<S> {
    service: Arc<S>,
    limits: Limits,
}

impl<S> Endpoint<S> {
    pub(crate) fn new(service: Arc<S>, limits: Limits) -> Self {
        Self { service, limits }
    }
}

/// When a call arrived, what its headers say about time, and who calls. Its message has been read by now.
fn arrival(extensions: &Extensions) -> Result<(Instant, CallHeaders, Caller, Receipt), Status> {
    read(extensions);
    let arrival = extensions.get::<Arrival>().ok_or_else(|| status::of_access(&AccessError::PastTheDoor))?;
    Ok((arrival.at, arrival.headers, arrival.caller.clone(), arrival.receipt.clone()))
}

/// The message of a call has been read.
fn read(extensions: &Extensions) {
    if let Some(read) = extensions.get::<MessageRead>() {
        read.set();
    }
}

/// What a stream ends with whose next message cannot be read.
fn unread(refused: Status, limits: Limits) -> Status {
    let bytes_max = limits.request_bytes_max;
    if status::is_too_large(&refused) { status::of_infer(&InferError::TooLarge { bytes_max }) } else { refused }
}

/// Who calls, of a call that is not admitted.
fn caller(extensions: &Extensions) -> Result<Caller, Status> {
    Caller::of(extensions).map_err(|refused| status::of_access(&refused))
}

/// One call from its message to its answer.
async fn answer<S: InferenceService>(
    service: &Arc<S>,
    limits: Limits,
    arrived: Instant,
    headers: CallHeaders,
    message: ModelInferRequest,
    receipt: &Receipt,
    caller: &Caller,
) -> Result<ModelInferResponse, InferError> {
    let refused = |model: Option<&ModelInfo>, error: InferError| {
        let context = RequestContext::of(caller.clone(), &message.id, headers.trace);
        service.refused(&RefusedCall { model, context: &context, arrived, error: &error });
        error
    };
    let model = model_to_ask(&**service, &message.model_name, &message.model_version, headers);
    let model = model.map_err(|error| refused(None, error))?;
    let call = check(service, &model, &message, limits, caller).await;
    let call = call.map_err(|error| refused(Some(&model), error))?;
    drop(message);
    let answered = call::run(&**service, &model, &call, arrived, headers, receipt, caller).await?;
    Ok(infer_messages::respond(&model, call.id, answered))
}

/// Checks a message; on a thread for such work, if it may have tensors in shared memory, which waits for a disk where
/// it was swapped out.
async fn check<S: InferenceService>(
    service: &Arc<S>,
    model: &Arc<ModelInfo>,
    message: &ModelInferRequest,
    limits: Limits,
    caller: &Caller,
) -> Result<CheckedCall, InferError> {
    let regions = Regions::of(&**service, caller);
    if regions.is_empty() {
        return infer_messages::check(model, message, &limits, regions);
    }
    let (service, model, caller, message) = (Arc::clone(service), Arc::clone(model), caller.clone(), message.clone());
    let checked = tokio::task::spawn_blocking(move || {
        infer_messages::check(&model, &message, &limits, Regions::of(&*service, &caller))
    });
    // The runtime gives such work up only when it shuts down.
    checked.await.map_err(|_| InferError::Failed(FailReason::Draining))?
}

#[tonic::async_trait]
impl<S: InferenceService> GrpcInferenceService for Endpoint<S> {
    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: self.service.server().live }))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse { ready: self.service.server().ready }))
    }

    // A model that is unknown is not ready: a client that waits for one to appear must not have to catch errors.
    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let model = find_model(&*self.service, &name, &version);
        let ready = model.is_ok_and(|model| call::is_ready(&*self.service, &model));
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(messages::server_metadata(&*self.service)))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let model = find_model(&*self.service, &name, &version).map_err(|error| status::of_infer(&error))?;
        Ok(Response::new(messages::model_metadata(&model, &self.service.versions(&model.name))))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Result<Response<ModelInferResponse>, Status> {
        // The extensions hold the permit: they live as long as the call.
        let (_, extensions, message) = request.into_parts();
        let (arrived, headers, caller, receipt) = arrival(&extensions)?;
        let answer = answer(&self.service, self.limits, arrived, headers, message, &receipt, &caller).await;
        let mut response = answer.map(Response::new).map_err(|error| status::of_named(&error, &receipt))?;
        status::name(response.metadata_mut(), &receipt);
        Ok(response)
    }

    type ModelStreamInferStream = Pin<Box<dyn Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>;

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        let (_, extensions, stream) = request.into_parts();
        // The gRPC deadline of a stream is the stream's, not that of each request in it.
        let (_, headers, caller, _) = arrival(&extensions)?;
        let headers = CallHeaders { grpc: None, ..headers };
        let (service, limits) = (Arc::clone(&self.service), self.limits);
        let answers = stream
            .map(move |message| {
                let (service, caller) = (Arc::clone(&service), caller.clone());
                async move {
                    let message = message.map_err(|refused| unread(refused, limits))?;
                    let id = message.id.clone();
                    let receipt = Receipt::default();
                    let arrived = Instant::now();
                    // A stream outlives changes of the file of tenants: its caller is looked up again.
                    let known = service.still_known(&caller).map(|known| known.seen(caller.is_near()));
                    let admitted = known.map_err(InferError::from);
                    let admitted = admitted.and_then(|caller| Ok((service.admit(&caller)?, caller)));
                    let answer = match admitted {
                        // In flight until it is answered.
                        Ok((_permit, caller)) => {
                            answer(&service, limits, arrived, headers, message, &receipt, &caller).await
                        }
                        Err(error) => {
                            let context = RequestContext::of(caller.clone(), &message.id, headers.trace);
                            service.refused(&RefusedCall { model: None, context: &context, arrived, error: &error });
                            Err(error)
                        }
                    };
                    // An error ends its request, not the stream; its id says which one.
                    let (error_message, mut response) = match answer {
                        Ok(answer) => (String::new(), answer),
                        Err(error) => (error.to_string(), infer_messages::no_answer(id, &error, &receipt)),
                    };
                    infer_messages::say_final(&mut response);
                    Ok(ModelStreamInferResponse { error_message, infer_response: Some(response) })
                }
            })
            .buffered(STREAM_PIPELINE_MAX);
        // The extensions hold the permit: they live as long as the stream.
        let answers = stream::unfold((Box::pin(answers), extensions), |(mut answers, extensions)| async move {
            let answer = answers.next().await?;
            Some((answer, (answers, extensions)))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Result<Response<ModelConfigResponse>, Status> {
        let ModelConfigRequest { name, version } = request.into_inner();
        let model = find_model(&*self.service, &name, &version).map_err(|error| status::of_infer(&error))?;
        Ok(Response::new(ModelConfigResponse { config: Some(messages::model_config(&model)) }))
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Result<Response<ModelStatisticsResponse>, Status> {
        let ModelStatisticsRequest { name, version } = request.into_inner();
        let model = match name.as_str() {
            "" => None,
            name => Some(find_model(&*self.service, name, &version).map_err(|error| status::of_infer(&error))?),
        };
        let of = model.as_ref().map(|model| (model.name.as_str(), (!version.is_empty()).then_some(model.version)));
        let model_stats = self.service.statistics(of).into_iter().map(messages::statistics).collect();
        Ok(Response::new(ModelStatisticsResponse { model_stats }))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        read(&extensions);
        let caller = caller(&extensions)?;
        let entries = call::index(&*self.service, request.ready, &caller).await;
        let entries = entries.map_err(|error| status::of_repository(&error))?;
        Ok(Response::new(RepositoryIndexResponse { models: entries.iter().map(messages::index).collect() }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        // Loading takes longer than the body of a call may.
        read(&extensions);
        let caller = caller(&extensions)?;
        let RepositoryModelLoadRequest { model_name, parameters, .. } = request;
        let parameters = messages::repository_parameters(parameters).map_err(|error| status::of_repository(&error))?;
        let loaded = self.service.load_model(&model_name, parameters, caller).await;
        loaded.map(|()| Response::new(RepositoryModelLoadResponse {})).map_err(|error| status::of_repository(&error))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Result<Response<RepositoryModelUnloadResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        read(&extensions);
        let caller = caller(&extensions)?;
        let unloaded = self.service.unload_model(&request.model_name, caller).await;
        unloaded
            .map(|()| Response::new(RepositoryModelUnloadResponse {}))
            .map_err(|error| status::of_repository(&error))
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<SystemSharedMemoryStatusRequest>,
    ) -> Result<Response<SystemSharedMemoryStatusResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        let caller = caller(&extensions)?;
        let regions = Regions::of(&*self.service, &caller).status(&request.name);
        let regions = regions.map_err(|error| status::of_infer(&error))?;
        let regions = regions.iter().map(|region| (region.name.clone(), messages::region(region))).collect();
        Ok(Response::new(SystemSharedMemoryStatusResponse { regions }))
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<SystemSharedMemoryRegisterRequest>,
    ) -> Result<Response<SystemSharedMemoryRegisterResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        let caller = caller(&extensions)?;
        let SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } = request;
        let registered = Regions::of(&*self.service, &caller).register(&name, &key, offset, byte_size);
        registered
            .map(|()| Response::new(SystemSharedMemoryRegisterResponse {}))
            .map_err(|error| status::of_infer(&error))
    }

    async fn system_shared_memory_unregister(
        &self,
        request: Request<SystemSharedMemoryUnregisterRequest>,
    ) -> Result<Response<SystemSharedMemoryUnregisterResponse>, Status> {
        let (_, extensions, request) = request.into_parts();
        let caller = caller(&extensions)?;
        let unregistered = Regions::of(&*self.service, &caller).unregister(&request.name);
        unregistered
            .map(|()| Response::new(SystemSharedMemoryUnregisterResponse {}))
            .map_err(|error| status::of_infer(&error))
    }
}
