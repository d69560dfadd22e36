//! Whole clusters by one command.

mod demo;
mod up;
