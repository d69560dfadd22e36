//! Pulling the inputs of one batch from several frontends at once (the Symphony paper, Figure 12), by every transport,
//! beside a plain copy of the same bytes.

mod owners;
mod run;

pub use run::{Options, Row, run};
