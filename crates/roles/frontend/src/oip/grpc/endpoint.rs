//! The service itself: every method of `inference.GRPCInferenceService`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt, stream};
use prost::Message as _;
use symphony_protocol::inference::grpc_inference_service_server::GrpcInferenceService;
use symphony_protocol::inference::{
    CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse, CudaSharedMemoryUnregisterRequest,
    CudaSharedMemoryUnregisterResponse, ModelConfigRequest, ModelConfigResponse, ModelInferRequest, ModelInferResponse,
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest,
    ModelStatisticsResponse, ModelStreamInferResponse, RepositoryIndexRequest, RepositoryIndexResponse,
    RepositoryModelLoadRequest, RepositoryModelLoadResponse, RepositoryModelUnloadRequest,
    RepositoryModelUnloadResponse, ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest,
    ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse, SystemSharedMemoryRegisterRequest,
    SystemSharedMemoryRegisterResponse, SystemSharedMemoryStatusRequest, SystemSharedMemoryStatusResponse,
    SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse,
};
use symphony_types::FailReason;
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::admitted::{Arrival, MessageRead};
use super::encoding::is_packed;
use super::{infer_messages, messages, status};
use crate::oip::call::{self, CallContext, find_model, model_to_ask};
use crate::oip::limits::{PACKED_ANSWER_BYTES_MAX, STREAM_PIPELINE_MAX};
use crate::oip::parameters::CallHeaders;
use crate::oip::shared_regions::{Regions, close};
use crate::oip::{
    AccessError, Caller, CheckedCall, InferError, InferenceService, Limits, ModelInfo, Receipt, RefusedCall,
    RequestContext, shared_memory_calls,
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

/// What is known about a call since its admission. Its message has been read by now.
fn arrival(extensions: &Extensions) -> Result<Arrival, Status> {
    read(extensions);
    extensions.get::<Arrival>().cloned().ok_or_else(|| status::of_access(&AccessError::CallerUnknown))
}

/// The message of a call has been read.
fn read(extensions: &Extensions) {
    if let Some(read) = extensions.get::<MessageRead>() {
        read.set();
    }
}

/// The status that ends a stream whose next message cannot be read; it is recorded unless the client has gone.
fn unread<S: InferenceService>(refused: Status, service: &S, stream: &Arrival) -> Status {
    let Some(error) = status::unread(&refused, &stream.too_large) else { return refused };
    let context = RequestContext::of(stream.caller.clone(), "", stream.headers.trace);
    service.refused(&RefusedCall { model: None, context: &context, arrived: Instant::now(), error: &error });
    status::of_infer(&error)
}

/// The caller of a call that needs no admission.
fn caller(extensions: &Extensions) -> Result<Caller, Status> {
    Caller::of(extensions).map_err(|refused| status::of_access(&refused))
}

/// One call from its message to its answer.
async fn answer<S: InferenceService>(
    service: &Arc<S>,
    limits: Limits,
    arrival: &Arrival,
    message: ModelInferRequest,
) -> Result<ModelInferResponse, InferError> {
    let &Arrival { at: arrived, headers, ref caller, ref receipt, ref permit, .. } = arrival;
    let context = RequestContext::of(caller.clone(), &message.id, headers.trace);
    let refused = |model: Option<&ModelInfo>, error: InferError| {
        service.refused(&RefusedCall { model, context: &context, arrived, error: &error });
        error
    };
    let model = model_to_ask(&**service, &message.model_name, &message.model_version, headers);
    let model = model.map_err(|error| refused(None, error))?;
    let call = check(service, &model, message, limits, arrival).await;
    let call = call.map_err(|error| refused(Some(&model), error))?;
    let call_context = CallContext { arrived, headers, receipt, caller, permit };
    let answered = call::run(&**service, &model, &call, call_context).await?;
    Ok(infer_messages::respond(&model, call.id, answered))
}

/// Checks a message. If tensors may be in shared memory, on a blocking thread: pages that were swapped out are read
/// from disk.
async fn check<S: InferenceService>(
    service: &Arc<S>,
    model: &Arc<ModelInfo>,
    message: ModelInferRequest,
    limits: Limits,
    arrival: &Arrival,
) -> Result<CheckedCall, InferError> {
    let regions = Regions::of(&**service, &arrival.caller);
    if regions.is_empty() {
        return infer_messages::check(model, &message, &limits, regions);
    }
    // The work goes on if the client leaves meanwhile, and so it keeps its place with the rest of its arrival.
    let (service, model, arrival) = (Arc::clone(service), Arc::clone(model), arrival.clone());
    let checked = tokio::task::spawn_blocking(move || {
        // All of it: a closure takes no more than it names.
        let arrival = &arrival;
        infer_messages::check(&model, &message, &limits, Regions::of(&*service, &arrival.caller))
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
        // It holds the permit, and lives as long as the call.
        let (_, extensions, message) = request.into_parts();
        let arrival = arrival(&extensions)?;
        let answer = answer(&self.service, self.limits, &arrival, message).await;
        let mut response = answer.map(Response::new).map_err(|error| status::of_named(&error, &arrival.receipt))?;
        // The transport compresses on a thread that serves connections.
        if response.get_ref().encoded_len() > PACKED_ANSWER_BYTES_MAX {
            response.disable_compression();
        }
        status::name(response.metadata_mut(), &arrival.receipt);
        Ok(response)
    }

    type ModelStreamInferStream = Pin<Box<dyn Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>;

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Result<Response<Self::ModelStreamInferStream>, Status> {
        let (metadata, extensions, stream) = request.into_parts();
        // The gRPC deadline of a stream is the stream's, not that of each request in it.
        let of_stream = arrival(&extensions)?;
        let headers = CallHeaders { grpc: None, ..of_stream.headers };
        let (service, limits, is_packed) = (Arc::clone(&self.service), self.limits, is_packed(metadata.as_ref()));
        let of_stream = Arc::new(of_stream);
        let messages = stream::unfold(Some(stream), move |messages| async move {
            let mut messages = messages?;
            let message = messages.next().await?;
            // One message is unpacked, and admitted or not, before the next one is: then others have their turn.
            if is_packed {
                tokio::task::yield_now().await;
            }
            // The codec would find the same fault in the same bytes again, as often as it is asked.
            let rest = message.is_ok().then_some(messages);
            Some((message, rest))
        });
        let answers = messages
            .boxed()
            .map(move |message| {
                let (service, of_stream) = (Arc::clone(&service), Arc::clone(&of_stream));
                async move {
                    let message = message.map_err(|refused| unread(refused, &*service, &of_stream))?;
                    let empty_response = ModelInferResponse {
                        model_name: message.model_name.clone(),
                        model_version: message.model_version.clone(),
                        id: message.id.clone(),
                        ..ModelInferResponse::default()
                    };
                    let receipt = Receipt::default();
                    let arrived = Instant::now();
                    let caller = &of_stream.caller;
                    // A stream outlives changes of the file of tenants: its caller is looked up again.
                    let known = service.reauthenticate(caller).map(|known| known.with_locality(caller.is_local()));
                    let admitted = known.map_err(InferError::from);
                    let admitted = admitted.and_then(|caller| Ok((service.begin_request(&caller)?, caller)));
                    let answer = match admitted {
                        // In flight until it is answered.
                        Ok((permit, caller)) => {
                            let (receipt, too_large) = (receipt.clone(), of_stream.too_large.clone());
                            let permit = Arc::new(permit);
                            let arrival = Arrival { at: arrived, headers, caller, receipt, too_large, permit };
                            answer(&service, limits, &arrival, message).await
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
                        Err(error) => (error.to_string(), infer_messages::no_answer(empty_response, &error, &receipt)),
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
        let registered = shared_memory_calls::register(&self.service, caller, name, key, offset, byte_size).await;
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
        let taken = Regions::of(&*self.service, &caller).unregister(&request.name);
        close(taken.map_err(|error| status::of_infer(&error))?).await;
        Ok(Response::new(SystemSharedMemoryUnregisterResponse {}))
    }

    // There is none.
    async fn cuda_shared_memory_status(
        &self,
        _: Request<CudaSharedMemoryStatusRequest>,
    ) -> Result<Response<CudaSharedMemoryStatusResponse>, Status> {
        Ok(Response::new(CudaSharedMemoryStatusResponse {}))
    }

    // Clients begin with it, whether or not they register any.
    async fn cuda_shared_memory_unregister(
        &self,
        _: Request<CudaSharedMemoryUnregisterRequest>,
    ) -> Result<Response<CudaSharedMemoryUnregisterResponse>, Status> {
        Ok(Response::new(CudaSharedMemoryUnregisterResponse {}))
    }
}
