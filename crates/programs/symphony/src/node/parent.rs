//! A child of `symphony up` ends with it, however that ends: its standard input is a pipe whose other end only the
//! parent has, so that the kernel closes it with the parent.

use std::io::Read as _;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Set, to anything, by the parent.
pub(crate) const ENDS_WITH_PARENT: &str = "SYMPHONY_ENDS_WITH_PARENT";

/// How long the process may take to end by itself then: as long as service managers wait.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// If a parent asked for it: watches for the parent's end, then stops this process as SIGTERM does. On a thread of its
/// own, which ends the process also where its runtime hangs.
pub(crate) fn end_with_parent() {
    if std::env::var_os(ENDS_WITH_PARENT).is_none() {
        return;
    }
    let watching = std::thread::Builder::new().name("parent".into()).spawn(|| {
        // Nothing is ever written: the end of file, or whatever else is wrong with the pipe, is the parent's end.
        let _ = std::io::stdin().lock().read(&mut [0; 1]);
        tracing::warn!("the parent process has ended");
        let _ = kill(Pid::this(), Signal::SIGTERM);
        std::thread::sleep(ENDS_WITHIN);
        std::process::exit(1);
    });
    if let Err(error) = watching {
        tracing::warn!(%error, "the end of the parent process cannot be watched");
    }
}
