//! Invariants S4 and S5 between a model's queue and the ranker.

use symphony_scheduler::{ModelAction, Violation};
use symphony_types::{GpuId, Invariant};

/// A model answered a grant of `gpu` with these orders.
pub(crate) fn answered(gpu: GpuId, orders: &[ModelAction]) -> Result<(), Violation> {
    let (mut releases, mut used_until, mut released_at) = (0, None, None);
    for order in orders {
        match order {
            ModelAction::Release { gpu: released, free_at } if *released == gpu => {
                releases += 1;
                released_at = Some(*free_at);
            }
            ModelAction::Release { .. } => releases = u32::MAX - 1,
            ModelAction::Execute(plan) if plan.gpu == gpu && used_until.is_none() => used_until = Some(plan.end),
            ModelAction::Execute(_) => releases = u32::MAX - 1,
            _ => {}
        }
    }
    if releases != 1 || used_until.is_some_and(|end| released_at != Some(end)) {
        let detail =
            format!("the grant of {gpu} was answered by {orders:?}; expected one release, at the plan's end if used");
        return Err(Violation { invariant: Invariant::S4, detail });
    }
    Ok(())
}

/// An order that uses or releases this GPU, in answer to a grant or not.
#[inline]
pub(crate) fn granted(granted: bool, gpu: GpuId, order: &ModelAction) -> Result<(), Violation> {
    if granted {
        return Ok(());
    }
    let detail = format!("{gpu} is used or released without a grant: {order:?}");
    Err(Violation { invariant: Invariant::S4, detail })
}

/// The queue of a model after a step.
#[inline]
pub(crate) fn queued(model: u32, len: usize, requests_max: usize) -> Result<(), Violation> {
    if len <= requests_max {
        return Ok(());
    }
    let detail = format!("model {model} queues {len} requests; at most {requests_max} may wait");
    Err(Violation { invariant: Invariant::S5, detail })
}
