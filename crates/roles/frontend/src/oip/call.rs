//! The path of one inference call through the protocol: checked, run, answered. gRPC and REST differ only before and
//! after.

use std::sync::Arc;
use std::time::Instant;

use symphony_types::{RequestId, parse_version};

use super::inputs::CheckedInputs;
use super::outputs::{Output, Selection};
use super::parameters::{CallHeaders, RequestParameters};
use super::refusal_text::shorten;
use super::shared_memory_calls;
use super::shared_regions::SharedOutput;
use super::{
    Caller, InFlightPermit, IndexEntry, InferAnswer, InferError, InferRequest, InferenceService, LateAnswer, ModelInfo,
    ModelState, Receipt, RefusedCall, RepositoryError, RequestContext, Timeliness,
};

/// A request that has passed every check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedCall {
    /// The client's own name for it.
    pub(crate) id: String,
    pub(crate) inputs: CheckedInputs,
    pub(crate) outputs: Selection,
    /// Those outputs that are to be in shared memory.
    pub(crate) shared: Vec<SharedOutput>,
    pub(crate) parameters: RequestParameters,
}

impl CheckedCall {
    /// Items in the request.
    #[must_use]
    pub const fn items(&self) -> u32 {
        self.inputs.items
    }

    /// Its inputs in the order of the signature, little-endian; without the one that is given as pictures.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.inputs.payload
    }

    /// Encoded pictures, one for each item; empty if no input is given so.
    #[must_use]
    pub fn pictures(&self) -> &[bytes::Bytes] {
        self.inputs.pictures.as_ref().map_or(&[], |pictures| &pictures.encoded)
    }
}

/// What is known of a call beside its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallContext<'a> {
    pub(crate) arrived: Instant,
    pub(crate) headers: CallHeaders,
    pub(crate) receipt: &'a Receipt,
    pub(crate) caller: &'a Caller,
    /// Work on the call that goes on beyond its end keeps its place.
    pub(crate) permit: &'a Arc<InFlightPermit>,
}

/// A call that has its answer.
#[derive(Clone, Debug)]
pub(crate) struct Answered<'m> {
    pub(crate) outputs: Vec<Output<'m>>,
    pub(crate) answer: InferAnswer,
    /// What `symphony explain` knows the request as.
    pub(crate) request: Option<RequestId>,
    /// The answer must be marked as the last one.
    pub(crate) says_final: bool,
}

/// The model of that name and version that a client asks for; without a version the latest.
pub(crate) fn find_model<S: InferenceService>(
    service: &S,
    name: &str,
    version: &str,
) -> Result<Arc<ModelInfo>, InferError> {
    if name.is_empty() {
        return Err(InferError::UnknownModel("the name of the model is empty".into()));
    }
    let found = match (version, parse_version(version)) {
        ("", _) => service.model(name, None),
        (_, Some(version)) => service.model(name, Some(version)),
        // No version is spelled so.
        (_, None) => None,
    };
    found.ok_or_else(|| {
        let (known, version) = (service.versions(name), shorten(version));
        let known: Vec<_> = known.iter().map(u64::to_string).collect();
        InferError::UnknownModel(match known.as_slice() {
            [] => format!("there is no model `{}`", shorten(name)),
            [only] => format!("model `{name}` has version {only}, not `{version}`"),
            _ => format!("model `{name}` has versions {}, not `{version}`", known.join(", ")),
        })
    })
}

/// The model that is to answer a request: the version that it names, or else its headers; without one the latest, or
/// whichever has its turn.
pub(crate) fn model_to_ask<S: InferenceService>(
    service: &S,
    name: &str,
    version: &str,
    headers: CallHeaders,
) -> Result<Arc<ModelInfo>, InferError> {
    match (version, headers.version) {
        ("", None) => service.model_for_request(name).map_or_else(|| find_model(service, name, ""), Ok),
        ("", Some(version)) => find_model(service, name, &version.to_string()),
        (version, _) => find_model(service, name, version),
    }
}

/// Runs a checked call and cuts the wanted outputs out of its answer.
///
/// The service decides whether the model is ready: it may know better than the view that was checked against.
pub(crate) async fn run<'m, S: InferenceService>(
    service: &S,
    model: &'m Arc<ModelInfo>,
    call: &CheckedCall,
    context: CallContext<'_>,
) -> Result<Answered<'m>, InferError> {
    let CallContext { arrived, headers, receipt, caller, permit } = context;
    let items = call.items();
    let request = InferRequest {
        model: Arc::clone(model),
        items,
        payload: call.inputs.payload.clone(),
        pictures: call.inputs.pictures.clone(),
        deadline: call.parameters.deadline(arrived, headers),
        receipt: receipt.clone(),
        context: RequestContext::of(caller.clone(), &call.id, headers.trace),
        weight: call.parameters.weight(caller.weight()),
    };
    let answer = service.infer(request).await?;
    if answer.timeliness == Timeliness::Late && call.parameters.late_answer == LateAnswer::Refuse {
        return Err(InferError::Late);
    }
    let mut outputs = call.outputs.cut(&call.id, model, items, &answer)?;
    if !call.shared.is_empty() {
        let placed = shared_memory_calls::place(&mut outputs, &call.shared, Arc::clone(permit)).await;
        placed.inspect_err(|error| {
            // To the service it was answered, and its client has no answer.
            let context = RequestContext::of(caller.clone(), &call.id, headers.trace);
            service.refused(&RefusedCall { model: Some(model), context: &context, arrived, error });
        })?;
    }
    Ok(Answered { outputs, answer, request: receipt.id(), says_final: call.parameters.says_final })
}

/// The repository's index; with `only_ready`, of those that take requests now.
pub(crate) async fn index<S: InferenceService>(
    service: &S,
    only_ready: bool,
    caller: &Caller,
) -> Result<Vec<IndexEntry>, RepositoryError> {
    let mut entries = service.index(caller).await?;
    let server_ready = service.server().ready;
    entries.retain(|entry| !only_ready || (server_ready && entry.state == ModelState::Ready));
    Ok(entries)
}

/// Whether a model takes requests now: it is ready and so is the server.
pub(crate) fn is_ready<S: InferenceService>(service: &S, model: &ModelInfo) -> bool {
    model.state == ModelState::Ready && service.server().ready
}
