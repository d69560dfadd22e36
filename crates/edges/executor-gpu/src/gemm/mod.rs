//! Work for a GPU that takes as long as a profile says: chains of matrix products, sized by measurement.
//!
//! [`Calibration`] decides what to measure and derives the chains; it measures nothing itself, so the same
//! measurements give the same chains.

mod calibration;
mod chain;

pub use calibration::{Calibration, CalibrationError, Step, TOLERANCE, Trial};
pub use chain::{Chain, LINK_SIZES, LINKS_MAX};
