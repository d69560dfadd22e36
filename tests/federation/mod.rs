//! Several clusters under a top-level group, as real processes.

mod backup;
mod canary;
mod loss;
mod moves;
mod operator_messages;
mod pipeline_across;
mod top_level;
mod wiped;
