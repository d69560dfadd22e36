//! The programs and what they measure, on a machine that does other things as well.

mod frames;
mod pull;
mod stress;
