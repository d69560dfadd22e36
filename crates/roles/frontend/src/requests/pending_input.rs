//! What an attempt does while its input is made of pictures.

use super::attempt::Attempt;
use super::attempt_end::AttemptEnd;
use super::input::Input;
use super::request_table::Ending;
use crate::clusters::routing::Route;
use crate::pictures::decoders::Progress;

/// Follows an attempt until its input is ready. Some if the attempt ends before.
///
/// The schedulers hear of a request once a thread has its last picture, or once all are decoded if that takes long:
/// then a GPU waits for its input for milliseconds at most. Its id and its entry in the request table it has from the
/// start.
pub(super) async fn run_until_ready(attempt: &mut Attempt<'_>, input: &mut Input) -> Option<AttemptEnd> {
    while let Input::Pending(decoding) = input {
        let progress = tokio::select! {
            end = attempt.end() => return Some(end),
            progress = decoding.next() => progress,
        };
        match progress {
            Progress::Begun => {}
            Progress::Made(Ok(payload)) => *input = Input::Ready(payload),
            Progress::Made(Err(error)) => return Some(AttemptEnd::BadInput(error)),
        }
        if attempt.withheld {
            attempt.withheld = false;
            // It has waited: its model may be elsewhere by now, or another one of that name, or its cluster lost.
            let Some(route) = attempt.route_now() else {
                attempt.target.cluster.withdraw(attempt.sequence);
                return Some(AttemptEnd::Settled(Ending::NotHere));
            };
            attempt.target.cluster.announce_withheld(attempt.sequence, &route, input.ready());
        } else if let Some(payload) = input.ready() {
            attempt.target.cluster.supply(attempt.sequence, payload);
        }
    }
    None
}

impl Attempt<'_> {
    /// Where the request's model is in its cluster by now. None if it is not there any more, or another cluster is to
    /// be tried first and takes it.
    fn route_now(&self) -> Option<Route> {
        let (model, name) = (&self.request.model, &self.request.model.loaded_as);
        let preferred = self.inner.select_cluster(name, Some(model), self.tried);
        if preferred.is_some_and(|preferred| preferred.slot != self.target.slot && preferred.takes_requests()) {
            return None;
        }
        self.target.cluster.route(name).filter(|route| route.info.reads_and_answers_as(model))
    }
}
