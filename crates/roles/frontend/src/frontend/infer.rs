//! One request, from its acceptance through one cluster or several to its outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_protocol::dispatch::EndReason;
use symphony_types::{DropReason, FailReason, Token};
use tokio::sync::oneshot;

use super::Inner;
use super::door::takes;
use super::owned::Owned;
use crate::decoders::{Decoding, Progress};
use crate::oip::{InferAnswer, InferError, InferRequest, ModelState};
use crate::request_table::{Ending, Payload, Pending};

impl Inner {
    pub(super) async fn infer(self: &Arc<Self>, mut request: InferRequest) -> Result<InferAnswer, InferError> {
        let model = Arc::clone(&request.model);
        let name = &model.loaded_as;
        if self.turns_away() {
            return Err(self.refused(name, InferError::Failed(FailReason::Draining)));
        }
        let (mut cluster, mut index, mut route) = self
            .choose(name, Some(&request.model), &[])
            .ok_or_else(|| InferError::UnknownModel(format!("model `{name}` is not loaded any more")))?;
        let (allowed, mut decoding) = self.admit(&mut request, &cluster, &route)?;
        let arrived = request.deadline.arrived;
        let deadline = arrived + Duration::from(allowed);
        self.ledger.accept();
        let mut owned = Owned { inner: self, here: None, name, arrived, items: request.items, ended: false };
        let mut not_here = Vec::new();
        loop {
            let (waiter, mut ending) = oneshot::channel();
            // The schedulers hear of it once nothing is before the last of its pictures, or once all are decoded if that takes long:
            // a GPU that is given it then waits for milliseconds at most. It has its name and its place in the table from the start.
            let mut held = decoding.as_ref().is_some_and(Decoding::is_waiting);
            let (id, sequence) = cluster.submit(Pending {
                model: route.model,
                subcluster: route.subcluster,
                items: request.items,
                payload: match decoding {
                    Some(_) => Payload::Coming(Vec::new()),
                    None => Payload::Here(request.payload.clone()),
                },
                deadline,
                held,
                announced: Token::default(),
                attempt: 0,
                panics: 0,
                shared: None,
                read: false,
                waiter,
            });
            request.receipt.accepted(id);
            owned.here = Some((Arc::clone(&cluster), sequence));
            let ending = loop {
                let end_by = if held { deadline } else { deadline + self.grace };
                tokio::select! {
                    ending = &mut ending => break ending.ok(),
                    progress = progress_of(&mut decoding) => {
                        let made = match progress {
                            Progress::Begun => None,
                            Progress::Made(Ok(input)) => Some(input),
                            Progress::Made(Err(error)) => return owned.withdrawn(error),
                        };
                        if let Some(input) = &made {
                            decoding = None;
                            request.payload = input.clone();
                        }
                        if std::mem::take(&mut held) {
                            // It has waited: its model may be elsewhere by now, or another one of that name, or its cluster lost.
                            let made_for = Some(request.model.as_ref());
                            let other = self.choose(name, made_for, &not_here).filter(|(_, at, _)| *at != index);
                            let here = cluster.route(name).filter(|r| r.info.reads_and_answers_as(&request.model));
                            match here {
                                Some(here) if other.is_none_or(|(other, _, route)| !takes(&other, &route)) => {
                                    cluster.release(sequence, &here, made.as_ref());
                                }
                                _ => {
                                    cluster.withdraw(sequence);
                                    break Some(Ending::NotHere);
                                }
                            }
                        } else if let Some(input) = &made {
                            cluster.supply(sequence, input);
                        }
                    }
                    () = tokio::time::sleep_until(end_by.into()) => {
                        break held.then_some(Ending::Ended(EndReason::Dropped(DropReason::QueueExpired)));
                    }
                    () = self.ended.cancelled() => {
                        break Some(Ending::Ended(EndReason::Failed(FailReason::Draining)));
                    }
                }
            };
            // Only what has not run, and never will, where it was is sent elsewhere (invariant F1).
            let Some(Ending::NotHere) = ending else { return owned.end(ending, deadline) };
            not_here.push(index);
            match self
                .choose(name, Some(&request.model), &not_here)
                .filter(|(.., next)| next.info.state == ModelState::Ready)
            {
                _ if Instant::now() >= deadline => return owned.end(None, deadline),
                Some((next, ..)) if next.turns_away() => {
                    return owned.end(Some(Ending::Ended(EndReason::Failed(FailReason::Draining))), deadline);
                }
                Some(next) => (cluster, index, route) = next,
                None => return owned.end(ending, deadline),
            }
        }
    }
}

/// What happens next to a payload that is being made; never anything if none is.
async fn progress_of(decoding: &mut Option<Decoding>) -> Progress {
    match decoding {
        Some(decoding) => decoding.next().await,
        None => std::future::pending().await,
    }
}
