//! What happened, line by line, with simulated times. Two runs of a seed must write the same bytes.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;

/// The trace of a run; a cheap handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Rc<RefCell<String>>);

impl Trace {
    /// Notes that something happened now.
    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        let at = turmoil::sim_elapsed().unwrap_or_default();
        self.note_at(at, what);
    }

    /// Notes an event at `at`, from outside of the simulated hosts.
    pub(crate) fn note_at(&self, at: std::time::Duration, what: impl std::fmt::Display) {
        let _ = writeln!(self.0.borrow_mut(), "{:>9.3} {what}", at.as_secs_f64());
    }

    pub(crate) fn text(&self) -> String {
        self.0.borrow().clone()
    }
}
