//! Whether the message of a call comes compressed. The name of an encoding in a call does not show it: a client leaves
//! messages as they are that do not get smaller.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming};

/// A body whose first frame has been read.
#[derive(Debug)]
pub(crate) struct Seen {
    first: Option<Result<Frame<Bytes>, hyper::Error>>,
    rest: Incoming,
}

impl Body for Seen {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}

/// Whether the first message of the body is compressed, by its first byte; and the body as it was. A body that ends or
/// fails before that is for the codec to judge.
pub(crate) async fn peek(mut body: Incoming) -> (bool, Seen) {
    let first = loop {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        if data.is_none_or(|data| !data.is_empty()) {
            break frame;
        }
    };
    let data = first.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
    let is_packed = data.and_then(|data| data.first()).is_some_and(|&flag| flag != 0);
    (is_packed, Seen { first, rest: body })
}
