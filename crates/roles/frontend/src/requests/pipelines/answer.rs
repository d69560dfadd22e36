//! The answer of a pipeline: its outputs, of the results of its stages.

use bytes::Bytes;
use symphony_types::FailReason;

use super::item::Item;
use super::tensors::output;
use crate::clusters::live_pipeline::LivePipeline;
use crate::oip::OutputRows;

/// Outputs in the order of the signature, item after item, and the information on their rows.
///
/// # Errors
/// If a result that is needed is not there, as no run leaves behind.
pub(super) fn answer(pipeline: &LivePipeline, items: &[Item]) -> Result<(Bytes, Vec<OutputRows>), FailReason> {
    let (mut parts, mut output_rows) = (Vec::new(), Vec::with_capacity(pipeline.wiring.outputs.len()));
    for (declared, wired) in pipeline.declaration.outputs.iter().zip(&pipeline.wiring.outputs) {
        let before = parts.len();
        let mut places = String::new();
        for (at, item) in items.iter().enumerate() {
            for ask in item.asks.iter().filter(|ask| ask.stage == wired.stage) {
                let Some(result) = &ask.result else { continue };
                let found = output(&result.info, &result.payload, &wired.output);
                let part = found.map(|(_, data)| data).filter(|data| data.len() == declared.tensor.item_bytes());
                parts.push(part.ok_or(FailReason::ExecutionFailed)?);
                if declared.any_rows {
                    add_place(&mut places, at, &ask.path);
                }
            }
        }
        let count = parts.len() - before;
        if !declared.any_rows && count != items.len() {
            return Err(FailReason::ExecutionFailed);
        }
        let count = u32::try_from(count).map_err(|_| FailReason::ExecutionFailed)?;
        output_rows.push(OutputRows { count, places: declared.any_rows.then_some(places) });
    }
    let payload = match parts.as_slice() {
        [only] => only.clone(),
        several => several.concat().into(),
    };
    Ok((payload, output_rows))
}

/// `0.2,0.5`: the item, and the rows that lead from it to here.
fn add_place(places: &mut String, item: usize, path: &[u32]) {
    if !places.is_empty() {
        places.push(',');
    }
    places.push_str(&item.to_string());
    for row in path {
        places.push('.');
        places.push_str(&row.to_string());
    }
}
