//! `grpc.reflection`: what is served here, for clients without our protocol files, such as grpcurl.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Frame;
use symphony_protocol::inference::FILE_DESCRIPTOR_SET;
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::CompressionEncoding::{Deflate, Gzip};
use tonic::codegen::http::HeaderMap;
use tonic::service::Routes;
use tonic_reflection::pb::{v1, v1alpha};
use tonic_reflection::server::{Builder, Error};

use crate::oip::limits::{OPEN_MESSAGE_BYTES_MAX, REFLECTION_MAX};

/// Both versions: clients ask for the newer one and fall back on the older one.
pub(crate) const SERVICE_NAMES: [&str; 2] =
    [v1::server_reflection_server::SERVICE_NAME, v1alpha::server_reflection_server::SERVICE_NAME];

/// The services that show the public surface; nothing of it changes while the process runs.
pub(crate) fn services() -> Routes {
    let refused = |error: &Error| tracing::error!(%error, "what is served cannot be shown by reflection");
    build().inspect_err(refused).unwrap_or_default()
}

fn build() -> Result<Routes, Error> {
    let shown = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let newer = shown().build_v1()?.max_decoding_message_size(OPEN_MESSAGE_BYTES_MAX);
    let older = shown().build_v1alpha()?.max_decoding_message_size(OPEN_MESSAGE_BYTES_MAX);
    let newer = newer.accept_compressed(Gzip).accept_compressed(Deflate);
    let older = older.accept_compressed(Gzip).accept_compressed(Deflate);
    Ok(Routes::new(newer).add_service(older).prepare())
}

/// The answers of a call, which end after [`REFLECTION_MAX`]: clients have no questions for longer, and a call that is
/// left open keeps one of its connection's places.
pub(crate) fn ending(answers: Body) -> Body {
    Body::new(Ending { answers, until: Some(Box::pin(tokio::time::sleep(REFLECTION_MAX))) })
}

struct Ending {
    answers: Body,
    /// None once it has passed.
    until: Option<Pin<Box<Sleep>>>,
}

impl hyper::body::Body for Ending {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(until) = &mut self.until else { return Poll::Ready(None) };
        if until.as_mut().poll(context).is_ready() {
            self.until = None;
            let words = format!("a call of reflection may take {} s; call again", REFLECTION_MAX.as_secs());
            let mut trailers = HeaderMap::new();
            // Plain words are always a header.
            let _ = Status::deadline_exceeded(words).add_header(&mut trailers);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.answers).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.until.is_none() || self.answers.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Body as _;

    use super::*;

    /// Answers that never come.
    struct Silence;

    impl hyper::body::Body for Silence {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_left_open_ends() {
        let mut answers = ending(Body::new(Silence));
        let last = std::future::poll_fn(|context| Pin::new(&mut answers).poll_frame(context)).await;
        let last = last.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(last["grpc-status"], "4");
        assert!(answers.is_end_stream());
    }
}
