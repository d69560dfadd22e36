//! Faults of disks and clocks for real processes, by a library that stands between a program and libc.

mod bytes;
mod clock;
mod control;
mod record;
mod rule;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use clock::Clock;
pub use control::{Control, RULES_MAX};
pub use record::{Change, RecordError, changes};
pub use rule::{EIO, ENOSPC, Fault, Operations, Rule};

/// The compiled library.
#[must_use]
pub fn library() -> &'static Path {
    Path::new(env!("SYMPHONY_INTERPOSER_LIBRARY"))
}

/// Subjects a process that is about to be started to the faults of `control`, now and later.
pub fn attach(command: &mut Command, control: &Control) {
    command.env("LD_PRELOAD", library()).env("SYMPHONY_INTERPOSER_CONTROL", control.path());
}

/// What a process that is about to be started writes down.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Where; appended to, so that several processes make one record.
    pub to: PathBuf,
    /// Changes below this directory are recorded. As the kernel names it: absolute, without symbolic links.
    pub watch: PathBuf,
    /// What is written to this descriptor is recorded as a [`Change::Mark`], in order with everything else.
    pub mark_fd: Option<i32>,
    /// The process is killed right after this many changes.
    pub kill_after: Option<u64>,
}

impl Recording {
    /// Records what the process does. Syncs are recorded but not carried out: the record knows what they promise.
    pub fn attach(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", library())
            .env("SYMPHONY_INTERPOSER_RECORD", &self.to)
            .env("SYMPHONY_INTERPOSER_WATCH", &self.watch);
        skip_syncs(command);
        if let Some(fd) = self.mark_fd {
            command.env("SYMPHONY_INTERPOSER_MARK_FD", fd.to_string());
        }
        if let Some(count) = self.kill_after {
            command.env("SYMPHONY_INTERPOSER_KILL_AFTER", count.to_string());
        }
    }
}

/// Makes syncs of a process do nothing and succeed: for checks of files that are not needed afterwards.
pub fn skip_syncs(command: &mut Command) {
    command.env("LD_PRELOAD", library()).env("SYMPHONY_INTERPOSER_SKIP_SYNC", "1");
}
