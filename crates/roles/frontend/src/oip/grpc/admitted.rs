//! What happens to an inference call before its message is read: it is admitted, and its clock starts.
//!
//! The deadline of gRPC is kept here and not by the transport, which would end the call with CANCELLED: proxies take
//! that for the client's own wish.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;

use super::status;
use crate::oip::limits::BODY_READ_MAX;
use crate::oip::parameters::{CallHeaders, trace_of};
use crate::oip::{Caller, InFlightPermit, InferError, InferenceService, Receipt, RefusedCall, RequestContext};

const INFER_PATH: &str = "/inference.GRPCInferenceService/ModelInfer";
/// The encodings that a side takes.
pub(crate) const ACCEPTED_ENCODINGS: &str = "grpc-accept-encoding";
const STREAM_PATH: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// Travels with an admitted call until it ends.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) headers: CallHeaders,
    pub(crate) caller: Caller,
    /// Of the one request of a call; each request of a stream has its own.
    pub(crate) receipt: Receipt,
    /// The error for a message that is too large.
    pub(crate) too_large: InferError,
    /// Work on the call that goes on beyond its end keeps its place.
    pub(crate) permit: Arc<InFlightPermit>,
}

/// Travels with every call: whether its message has been read. Delays from then on are not the client's.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageRead(Arc<AtomicBool>);

impl MessageRead {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Admits inference calls before their message is read; of all others it waits for the message only for this time.
#[derive(Debug)]
pub(crate) struct Admitted<I, S> {
    inner: I,
    service: Arc<S>,
    too_large: InferError,
}

impl<I, S> Admitted<I, S> {
    /// Refuses with `too_large` the messages that are too large for `inner`.
    pub(crate) fn new(inner: I, service: Arc<S>, too_large: InferError) -> Self {
        Self { inner, service, too_large }
    }
}

impl<I: Clone, S> Clone for Admitted<I, S> {
    fn clone(&self) -> Self {
        let service = Arc::clone(&self.service);
        Self { inner: self.inner.clone(), service, too_large: self.too_large.clone() }
    }
}

impl<I: NamedService, S> NamedService for Admitted<I, S> {
    const NAME: &'static str = I::NAME;
}

impl<I, S, B> Service<http::Request<B>> for Admitted<I, S>
where
    S: InferenceService,
    I: Service<http::Request<B>, Response = http::Response<Body>, Error = Infallible>,
    I::Future: Send + Unpin + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let too_large = self.too_large.clone();
        let read = MessageRead::default();
        request.extensions_mut().insert(read.clone());
        if !matches!(request.uri().path(), INFER_PATH | STREAM_PATH) {
            let answer = self.inner.call(request);
            return Box::pin(async move {
                let answer = in_time(answer, &read, || {}).await?;
                Ok(match refused_unread(&answer, &too_large) {
                    Some(error) => in_our_words(&error, &answer),
                    None => answer,
                })
            });
        }
        let at = Instant::now();
        let caller = match Caller::of(request.extensions()) {
            Ok(caller) => caller,
            Err(refused) => return answered(status::of_access(&refused)),
        };
        let context = RequestContext::of(caller.clone(), "", trace_of(request.headers()));
        let admitted = CallHeaders::parse(request.headers())
            .and_then(|headers| Ok((headers, Arc::new(self.service.begin_request(&caller)?))));
        let (headers, permit) = match admitted {
            Ok(admitted) => admitted,
            Err(refused) => {
                notice(&*self.service, &context, at, &refused);
                return answered(status::of_infer(&refused));
            }
        };
        // The deadline of a stream is kept by its client, which resets it. A deadline beyond the clock's range counts
        // as none.
        let deadline = headers.grpc.filter(|_| request.uri().path() == INFER_PATH);
        let due = deadline.and_then(|deadline| at.checked_add(Duration::from_nanos(deadline.get())));
        let receipt = Receipt::default();
        let arrival = Arrival { at, headers, caller, receipt: receipt.clone(), too_large: too_large.clone(), permit };
        request.extensions_mut().insert(arrival);
        let service = Arc::clone(&self.service);
        let answer = self.inner.call(request);
        let (noticing, of_call) = (Arc::clone(&service), context.clone());
        let call =
            async move { in_time(answer, &read, || notice(&*noticing, &of_call, at, &InferError::BodyTimeout)).await };
        Box::pin(async move {
            let answer = match due {
                Some(due) => tokio::time::timeout_at(due.into(), call)
                    .await
                    .unwrap_or_else(|_| Ok(status::of_named(&InferError::DeadlinePassed, &receipt).into_http())),
                None => call.await,
            };
            let answer = answer?;
            let Some(error) = refused_unread(&answer, &too_large) else { return Ok(answer) };
            notice(&*service, &context, at, &error);
            Ok(in_our_words(&error, &answer))
        })
    }
}

/// The answer to a call whose message comes within [`BODY_READ_MAX`]; another one, and word of it, if it does not.
async fn in_time(
    mut answer: impl Future<Output = Result<http::Response<Body>, Infallible>> + Unpin,
    read: &MessageRead,
    notice: impl FnOnce(),
) -> Result<http::Response<Body>, Infallible> {
    match tokio::time::timeout(BODY_READ_MAX, &mut answer).await {
        Ok(answer) => answer,
        Err(_) if read.get() => answer.await,
        Err(_) => {
            notice();
            Ok(status::of_infer(&InferError::BodyTimeout).into_http())
        }
    }
}

/// The answer to a call that is not passed on.
fn answered(refused: Status) -> BoxFuture<http::Response<Body>, Infallible> {
    Box::pin(std::future::ready(Ok(refused.into_http())))
}

/// Tells the service of a call that was refused before its message had been read.
fn notice<S: InferenceService>(service: &S, context: &RequestContext, arrived: Instant, error: &InferError) {
    service.refused(&RefusedCall { model: None, context, arrived, error });
}

/// Why a call was refused before its message was understood, by what is not ours and so says no reason.
fn refused_unread(answer: &http::Response<Body>, too_large: &InferError) -> Option<InferError> {
    status::unread(&Status::from_header_map(answer.headers())?, too_large)
}

/// The same refusal with a reason, and with the encodings that it may have named.
fn in_our_words(error: &InferError, answer: &http::Response<Body>) -> http::Response<Body> {
    let mut ours = status::of_infer(error).into_http();
    if let Some(encodings) = answer.headers().get(ACCEPTED_ENCODINGS) {
        ours.headers_mut().insert(ACCEPTED_ENCODINGS, encodings.clone());
    }
    ours
}
