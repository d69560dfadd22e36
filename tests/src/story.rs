//! Tests that are repeated when the machine itself has caused a failure.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{Shape, TestCluster};

/// How often a story is begun.
const ATTEMPTS: u32 = 3;

/// Starts a cluster and runs a test on it, which fails by panicking.
///
/// A machine that pauses for seconds makes live replicas look dead to each other, and the test then sees another
/// scenario: such an attempt decides nothing. It is recognised by the cluster's log, which reports a process as down
/// that the test did not end. Then the test is repeated, a bounded number of times. A test that fails while all live
/// processes count as alive has failed.
///
/// # Panics
/// If the cluster does not start, or the story fails.
pub fn tell(test: &str, shape: &Shape, story: impl Fn(&mut TestCluster)) {
    for attempt in 1..=ATTEMPTS {
        let mut cluster = TestCluster::start(test, shape).unwrap_or_else(|error| panic!("{error:#}"));
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| story(&mut cluster))) else { return };
        match cluster.false_alarm() {
            Some(alarm) if attempt < ATTEMPTS => eprintln!("attempt {attempt} decides nothing: {alarm}; once more"),
            alarm => {
                cluster.workspace.keep();
                eprintln!("its files are kept in {}; false alarm: {alarm:?}", cluster.workspace.path().display());
                resume_unwind(panic);
            }
        }
    }
}
