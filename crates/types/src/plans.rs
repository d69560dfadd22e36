//! The limit on batch plans.

/// The most plans of one GPU that have not ended: the running one and the next. More would only move the queue from the
/// scheduler, which can still reorder it, to the backend. A GPU that overruns its predictions gets the next plan only
/// after its report.
pub const GPU_PLANS_MAX: u32 = 2;
