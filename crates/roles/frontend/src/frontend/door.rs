//! Whether a request is taken in.

use std::sync::Arc;

use symphony_types::{FailReason, Nanos, SLO_MAX};

use super::Inner;
use crate::cluster::Cluster;
use crate::decoders::Decoding;
use crate::oip::{InferError, InferRequest, ModelState, RequestedDeadline};
use crate::routing::Route;

/// No deadline is further away than this.
const DEADLINE_MAX: Nanos = SLO_MAX;

/// Profiles may say so many times as much as batches really take: leads learn that, and nobody is turned away for it here.
const PROFILE_OFF_MAX: u64 = 4;

impl Inner {
    /// The time that a request has, and its pictures on their way if it has any; or why it is refused, which is counted.
    ///
    /// It counts as demand unless nobody could serve it, however many GPUs there were: whoever plans GPUs by what clients ask for
    /// would give them to requests that are refused again.
    pub(super) fn admit(
        &self,
        request: &mut InferRequest,
        cluster: &Arc<Cluster>,
        route: &Route,
    ) -> Result<(Nanos, Option<Decoding>), InferError> {
        let admitted = self.allowed(request, cluster, route).and_then(|allowed| Ok((allowed, self.decoding(request)?)));
        let name = &request.model.loaded_as;
        if !matches!(admitted, Err(InferError::InvalidRequest(_) | InferError::TooLittleTime { .. })) {
            self.rates.arrived(name);
        }
        admitted.map_err(|error| self.refused(name, error))
    }

    /// Counts a refusal.
    pub(super) fn refused(&self, model: &str, error: InferError) -> InferError {
        self.statistics.refused(model, error.face().reason);
        error
    }

    fn allowed(&self, request: &InferRequest, cluster: &Arc<Cluster>, route: &Route) -> Result<Nanos, InferError> {
        // Nothing new where the frontend shall become empty, else it never does.
        if cluster.turns_away() {
            return Err(InferError::Failed(FailReason::Draining));
        }
        match route.info.state {
            ModelState::Ready => {}
            ModelState::NoGpu(why) => return Err(InferError::NoGpu(why)),
            _ => return Err(InferError::Failed(FailReason::ModelNotReady)),
        }
        // Whoever waits has its chance until its deadline; nobody new shall wait for a leader that has stopped or is gone.
        if cluster.is_suspended(route.subcluster) {
            return Err(InferError::Failed(FailReason::ControlPlaneLost));
        }
        if self.in_flight() >= self.in_flight_max {
            return Err(InferError::Busy { in_flight_max: self.in_flight_max });
        }
        let allowed = allowed(&request.deadline, route.info.slo)?;
        if let Some(alone) = route.alone(request.items).filter(|alone| allowed.get() < alone.get() / PROFILE_OFF_MAX) {
            return Err(InferError::TooLittleTime { allowed, items: request.items, alone });
        }
        Ok(allowed)
    }

    fn decoding(&self, request: &mut InferRequest) -> Result<Option<Decoding>, InferError> {
        let Some(pictures) = request.pictures.take() else { return Ok(None) };
        self.decoders.begin(&request.model, std::mem::take(&mut request.payload), pictures).map(Some)
    }
}

/// Whether a cluster takes requests for a model that it has.
pub(super) fn takes(cluster: &Arc<Cluster>, route: &Route) -> bool {
    let stopped = cluster.is_suspended(route.subcluster);
    route.info.state == ModelState::Ready && !stopped && !cluster.turns_away()
}

/// The time that a request has.
///
/// # Errors
/// If it may exceed the model's SLO and is to wait longer than a request may.
fn allowed(deadline: &RequestedDeadline, slo: Nanos) -> Result<Nanos, InferError> {
    let named = deadline.shortest();
    match named.filter(|_| deadline.exceed_slo) {
        Some(named) if named > DEADLINE_MAX => Err(InferError::InvalidRequest(format!(
            "{} ms are asked for with symphony_exceed_slo; expected at most {} ms",
            named.as_millis_f64(),
            DEADLINE_MAX.as_millis_f64()
        ))),
        Some(named) => Ok(named),
        None => Ok(named.map_or(slo, |named| named.min(slo)).min(DEADLINE_MAX)),
    }
}
