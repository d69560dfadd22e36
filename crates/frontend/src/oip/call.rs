//! The way of one inference call through the protocol: checked, run, answered. gRPC and REST differ only before and
//! after.

use std::sync::Arc;
use std::time::Instant;

use symphony_types::RequestId;

use super::inputs::{CheckedInputs, shorten};
use super::outputs::{Output, Selection};
use super::parameters::{DeadlineHeaders, RequestParameters};
use super::{
    InferAnswer, InferError, InferRequest, InferenceService, LateAnswer, MODEL_VERSION, ModelInfo, ModelState, Receipt,
    Timeliness,
};

/// A request that has passed every check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedCall {
    /// The client's own name for it.
    pub(crate) id: String,
    pub(crate) inputs: CheckedInputs,
    pub(crate) outputs: Selection,
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

    /// The pictures of that one.
    #[must_use]
    pub fn pictures(&self) -> &[bytes::Bytes] {
        self.inputs.pictures.as_ref().map_or(&[], |pictures| &pictures.encoded)
    }
}

/// A call that has its answer.
#[derive(Clone, Debug)]
pub(crate) struct Answered<'m> {
    pub(crate) outputs: Vec<Output<'m>>,
    pub(crate) answer: InferAnswer,
    /// What `symphony explain` knows the request as.
    pub(crate) request: Option<RequestId>,
}

/// The model of that name and version that a client asks for.
pub(crate) fn find_model<S: InferenceService>(
    service: &S,
    name: &str,
    version: &str,
) -> Result<Arc<ModelInfo>, InferError> {
    if name.is_empty() {
        return Err(InferError::UnknownModel("the name of the model is empty".into()));
    }
    let model = service
        .model(name)
        .ok_or_else(|| InferError::UnknownModel(format!("there is no model `{}`", shorten(name))))?;
    if !version.is_empty() && version != MODEL_VERSION {
        let version = shorten(version);
        return Err(InferError::UnknownModel(format!("model `{name}` has version {MODEL_VERSION}, not `{version}`")));
    }
    Ok(model)
}

/// Runs a checked call and cuts the wanted outputs out of its answer.
///
/// Whether the model is ready is the service's to say: it may know better than the view that was checked against.
pub(crate) async fn run<'m, S: InferenceService>(
    service: &S,
    model: &'m Arc<ModelInfo>,
    call: &CheckedCall,
    arrived: Instant,
    headers: DeadlineHeaders,
    receipt: &Receipt,
) -> Result<Answered<'m>, InferError> {
    let items = call.items();
    let request = InferRequest {
        model: Arc::clone(model),
        items,
        payload: call.inputs.payload.clone(),
        pictures: call.inputs.pictures.clone(),
        deadline: call.parameters.deadline(arrived, headers),
        receipt: receipt.clone(),
    };
    let answer = service.infer(request).await?;
    if answer.timeliness == Timeliness::Late && call.parameters.late_answer == LateAnswer::Refuse {
        return Err(InferError::Late);
    }
    let outputs = call.outputs.cut(model, items, &answer.payload)?;
    Ok(Answered { outputs, answer, request: receipt.id() })
}

/// Whether a model takes requests now: it is ready and so is the server.
pub(crate) fn is_ready<S: InferenceService>(service: &S, model: &ModelInfo) -> bool {
    model.state == ModelState::Ready && service.server().ready
}
