//! A backend's execution between a leader and frontends that the test plays, one file for each subject.

mod failures;
mod fakes;
mod leaders;
mod plans;
mod scene;
mod staging;
