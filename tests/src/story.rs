//! Stories that are told again when the machine told another one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{Shape, TestCluster};

/// How often a story is begun.
const ATTEMPTS: u32 = 3;

/// Starts a cluster and tells a story about it, which fails by panicking.
///
/// A machine that pauses for seconds makes replicas that live look dead to each other, and whatever the story was about
/// is then another one: such an attempt decides nothing. It is recognised by the cluster's own words, that somebody is
/// down whom the test did not kill, and the story is told again, a bounded number of times. A story that fails while
/// all that live are held to live has failed.
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
