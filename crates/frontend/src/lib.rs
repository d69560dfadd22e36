//! The frontend: accepts requests, keeps their inputs, and gives each exactly one answer.

pub mod oip;
