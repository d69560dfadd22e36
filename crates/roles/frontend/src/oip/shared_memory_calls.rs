//! Calls about shared memory: whose regions they mean, and what they do on threads for such work.

use std::sync::Arc;

use symphony_types::FailReason;

use super::outputs::{Content, Output};
use super::refusal_text::invalid;
use super::shared_regions::{Regions, SharedOutput};
use super::{Caller, InFlightPermit, InferError, InferenceService};

impl<'a> Regions<'a> {
    pub(crate) fn of<S: InferenceService>(service: &'a S, caller: &'a Caller) -> Self {
        match service.shared_regions() {
            None => Self::Off,
            Some(_) if !caller.is_local() => Self::Far,
            Some(all) => Self::Of { all, owner: caller.name() },
        }
    }
}

/// Registers a region of the caller's, on a thread for such work: opening its object may wait, and so may closing
/// others to make room.
pub(crate) async fn register<S: InferenceService>(
    service: &Arc<S>,
    caller: Caller,
    name: String,
    key: String,
    offset: u64,
    bytes: u64,
) -> Result<(), InferError> {
    let service = Arc::clone(service);
    let registering =
        tokio::task::spawn_blocking(move || Regions::of(&*service, &caller).register(&name, &key, offset, bytes));
    // The runtime gives such work up only when it shuts down.
    registering.await.map_err(|_| InferError::Failed(FailReason::Draining))?
}

/// Writes outputs where they were asked for. The writing goes on if the client leaves meanwhile, and so it keeps the
/// call's place.
pub(crate) async fn place(
    outputs: &mut [Output<'_>],
    shared: &[SharedOutput],
    permit: Arc<InFlightPermit>,
) -> Result<(), InferError> {
    let mut writes = Vec::with_capacity(shared.len());
    for SharedOutput { at, tensor } in shared {
        let Some(output) = outputs.get_mut(*at) else { continue };
        let Content::Elements(data_type, data) = &output.content else { continue };
        let (data_type, data) = (*data_type, data.clone());
        if data.len() as u64 > tensor.bytes {
            return Err(invalid(format!(
                "output `{}` has {} bytes in this answer, and shared_memory_byte_size is {}; expected that many at least",
                output.name,
                data.len(),
                tensor.bytes
            )));
        }
        let written = tensor.beginning(data.len() as u64);
        writes.push((output.name.to_owned(), written.clone(), data));
        output.content = Content::Placed(data_type, written);
    }
    let write = move || {
        let _permit = permit;
        writes.into_iter().try_for_each(|(name, tensor, data)| {
            tensor.write(&data).map_err(|error| match error {
                InferError::InvalidRequest(reason) => invalid(format!("output `{name}`: {reason}")),
                other => other,
            })
        })
    };
    // Memory that was swapped out waits for a disk. The runtime gives such work up only when it shuts down.
    tokio::task::spawn_blocking(write).await.map_err(|_| InferError::Failed(FailReason::Draining))?
}
