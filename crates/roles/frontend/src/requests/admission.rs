//! Whether a request is taken in. How many may be in flight is asked before it is read, by
//! [`InFlightLimit`](crate::oip::InFlightLimit).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_types::{FailReason, Nanos, RequestValue, SLO_MAX};

use super::cluster_selection::Target;
use super::pending_input::Input;
use crate::frontend::Inner;
use crate::oip::{InferError, InferRequest, ModelInfo, ModelState, Pictures, Receipt, RequestedDeadline};

/// No deadline is further away than this.
const DEADLINE_MAX: Nanos = SLO_MAX;

/// Profiles may say so many times as much as batches really take: leads learn that, and nothing is refused for it here.
const PROFILE_OFF_MAX: u64 = 4;

/// A request that is taken in, and where it goes first.
pub(super) struct Admission {
    pub(super) request: AcceptedRequest,
    pub(super) target: Target,
    pub(super) input: Input,
}

/// What stays the same from a request's acceptance to its outcome.
pub(super) struct AcceptedRequest {
    /// As it was when the inputs were checked.
    pub(super) model: Arc<ModelInfo>,
    pub(super) items: u32,
    pub(super) arrived: Instant,
    pub(super) deadline: Instant,
    /// What it is worth when some must be shed.
    pub(super) weight: RequestValue,
    pub(super) receipt: Receipt,
}

impl Inner {
    /// Takes a request in and begins to decode its pictures, or says why it is refused, which is counted.
    pub(super) fn admit(&self, request: InferRequest) -> Result<Admission, InferError> {
        let InferRequest { model, items, payload, pictures, deadline: requested, receipt, caller, weight } = request;
        let name = &model.loaded_as;
        if self.is_draining() {
            return Err(self.refused(name, InferError::Failed(FailReason::Draining)));
        }
        let target = self
            .select_cluster(name, Some(&model), &[])
            .ok_or_else(|| InferError::UnknownModel(format!("model `{name}` is not loaded any more")))?;
        let admitted = time_allowed(&requested, items, &target).and_then(|allowed| {
            caller.charge(self.tenants.as_deref(), items, target.route.gpu_time(items))?;
            Ok((allowed, self.begin_input(&model, payload, pictures)?))
        });
        // Demand is what more GPUs could serve: those planned for anything else would be given to requests that are
        // refused again, and what is beyond a quota is not to be served.
        let is_demand = |error: &InferError| {
            !matches!(
                error,
                InferError::InvalidRequest(_) | InferError::TooLittleTime { .. } | InferError::QuotaExceeded { .. }
            )
        };
        if admitted.as_ref().err().is_none_or(is_demand) {
            self.rates.arrived(name);
        }
        let (allowed, input) = admitted.map_err(|error| self.refused(name, error))?;
        let arrived = requested.arrived;
        let deadline = arrived + Duration::from(allowed);
        let request = AcceptedRequest { model, items, arrived, deadline, weight, receipt };
        Ok(Admission { request, target, input })
    }

    /// Counts a refusal.
    fn refused(&self, model: &str, error: InferError) -> InferError {
        self.statistics.refused(model, error.face().reason);
        error
    }

    fn begin_input(&self, model: &ModelInfo, payload: Bytes, pictures: Option<Pictures>) -> Result<Input, InferError> {
        match pictures {
            None => Ok(Input::Ready(payload)),
            Some(pictures) => self.decoders.begin(model, payload, pictures).map(Input::Pending),
        }
    }
}

/// The time that a request has in a cluster, if the cluster takes it.
fn time_allowed(requested: &RequestedDeadline, items: u32, target: &Target) -> Result<Nanos, InferError> {
    let Target { cluster, route, .. } = target;
    // Nothing new where the frontend shall become empty, else it never does.
    if cluster.is_cordoned() {
        return Err(InferError::Failed(FailReason::Draining));
    }
    match route.info.state {
        ModelState::Ready => {}
        ModelState::NoGpu(why) => return Err(InferError::NoGpu(why)),
        _ => return Err(InferError::Failed(FailReason::ModelNotReady)),
    }
    // A request that waits has its chance until its deadline; no new one shall wait for a leader that has stopped or is
    // gone.
    if cluster.is_suspended(route.subcluster) {
        return Err(InferError::Failed(FailReason::ControlPlaneLost));
    }
    let allowed = time_asked(requested, route.info.slo)?;
    if let Some(alone) = route.alone(items).filter(|alone| allowed.get() < alone.get() / PROFILE_OFF_MAX) {
        return Err(InferError::TooLittleTime { allowed, items, alone });
    }
    Ok(allowed)
}

/// The time that a request may take by its client's words and the model's SLO.
///
/// # Errors
/// If it may exceed the SLO and is to wait longer than a request may.
fn time_asked(requested: &RequestedDeadline, slo: Nanos) -> Result<Nanos, InferError> {
    let named = requested.shortest();
    match named.filter(|_| requested.exceed_slo) {
        Some(named) if named > DEADLINE_MAX => Err(InferError::InvalidRequest(format!(
            "{} ms are asked for with symphony_exceed_slo; expected at most {} ms",
            named.as_millis_f64(),
            DEADLINE_MAX.as_millis_f64()
        ))),
        Some(named) => Ok(named),
        None => Ok(named.map_or(slo, |named| named.min(slo)).min(DEADLINE_MAX)),
    }
}
