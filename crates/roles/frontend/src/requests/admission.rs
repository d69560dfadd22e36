//! Whether a request is taken in. How many may be in flight is asked before it is read, by
//! [`InFlightLimit`](crate::oip::InFlightLimit).

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use symphony_types::{FailReason, Nanos, SLO_MAX};

use super::accepted_request::{AcceptedRequest, RequestKind};
use super::cluster_selection::{Target, unready};
use super::input::Input;
use crate::clusters::routing::PROFILE_OFF_MAX;
use crate::inner::Inner;
use crate::oip::{InferError, InferRequest, ModelInfo, Pictures, RefusedCall, RequestedDeadline};
use crate::records::{RecordKind, RequestRecord};

/// No deadline is further away than this.
const DEADLINE_MAX: Nanos = SLO_MAX;

/// A request that is taken in, and where it goes first.
pub(super) struct Admission {
    pub(super) request: AcceptedRequest,
    pub(super) target: Target,
    pub(super) input: Input,
}

impl Inner {
    /// Takes a request in and begins to decode its pictures, or returns why it is refused, which is counted.
    pub(super) fn admit(&self, request: InferRequest) -> Result<Admission, InferError> {
        let InferRequest { model, items, payload, pictures, deadline: requested, receipt, context, weight } = request;
        let (name, arrived) = (&model.loaded_as, requested.arrived);
        let refused = |error: InferError| {
            self.refused_call(&RefusedCall { model: Some(&model), context: &context, arrived, error: &error });
            error
        };
        if self.is_draining() {
            return Err(refused(InferError::Failed(FailReason::Draining)));
        }
        let target = self
            .select_cluster(name, Some(&model), &[])
            .ok_or_else(|| refused(InferError::UnknownModel(format!("model `{name}` is not loaded any more"))))?;
        let admitted = time_allowed(&requested, items, &target).and_then(|allowed| {
            // Dropping what was begun undoes it, which nothing does for a charge.
            let input = self.begin_input(&model, payload, pictures)?;
            context.caller.charge(self.tenants.as_deref(), items, target.route.gpu_time(items))?;
            Ok((allowed, input))
        });
        if !context.is_copy && admitted.as_ref().err().is_none_or(is_demand) {
            self.rates.arrived(name);
        }
        let (allowed, input) = admitted.map_err(refused)?;
        let deadline = arrived + Duration::from(allowed);
        let span = self.records.span(context.trace);
        if let Some(span) = &span {
            receipt.traced(span.context);
        }
        let admitted = Instant::now();
        let kind = RequestKind::Model;
        let request =
            AcceptedRequest { model, items, arrived, deadline, weight, receipt, context, admitted, span, kind };
        Ok(Admission { request, target, input })
    }

    /// Counts a refusal, and writes it down if that is asked for.
    pub(crate) fn refused_call(&self, call: &RefusedCall<'_>) {
        let RefusedCall { model, context, arrived, error } = *call;
        let (model, reason) = (model.map_or("", |model| model.loaded_as.as_str()), error.error_status().reason);
        match model {
            "" => self.statistics.refused_unread(error),
            model => self.statistics.refused(model, error),
        }
        let span = self.records.span(context.trace);
        if self.records.wants(span) {
            let ended = Instant::now();
            self.records.ended(&RequestRecord {
                kind: RecordKind::Model,
                request: None,
                context,
                model,
                items: 0,
                outcome: "refused",
                reason,
                arrived,
                admitted: ended,
                ended,
                ended_at: SystemTime::now(),
                cluster: String::new(),
                subcluster: String::new(),
                ran: None,
                backend: String::new(),
                span,
            });
        }
    }

    fn begin_input(&self, model: &ModelInfo, payload: Bytes, pictures: Option<Pictures>) -> Result<Input, InferError> {
        match pictures {
            None => Ok(Input::Ready(payload)),
            Some(pictures) => self.decoders.begin(model, payload, pictures).map(Input::Pending),
        }
    }
}

/// Demand is what more GPUs could serve: those planned for anything else would be given to requests that are refused
/// again, and what is beyond a quota is not to be served.
pub(super) const fn is_demand(error: &InferError) -> bool {
    !matches!(
        error,
        InferError::InvalidRequest(_)
            | InferError::TooLittleTime { .. }
            | InferError::TooLittleForStages { .. }
            | InferError::QuotaExceeded { .. }
    )
}

/// The time that a request has in a cluster, if the cluster takes it.
fn time_allowed(requested: &RequestedDeadline, items: u32, target: &Target) -> Result<Nanos, InferError> {
    let Target { cluster, route, .. } = target;
    if let Some(error) = unready(cluster, route) {
        return Err(error);
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
pub(super) fn time_asked(requested: &RequestedDeadline, slo: Nanos) -> Result<Nanos, InferError> {
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
