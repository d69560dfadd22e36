//! Gives heartbeat threads priority: heartbeats are due every few milliseconds and take microseconds, and a replica
//! whose heartbeats wait for a core behind a thousand other threads is taken for dead.

use std::sync::Once;

/// Added to the nice value that the process was started with.
#[cfg(target_os = "linux")]
const NICE: i32 = -10;

/// The lowest nice value.
#[cfg(target_os = "linux")]
const NICE_LEAST: i32 = -20;

static REFUSED: Once = Once::new();

/// Raises the priority of the calling thread, and of threads that it starts later. Without permission (`CAP_SYS_NICE`,
/// or a limit such as systemd's `LimitNICE`) heartbeats get no priority, and a log line says so once.
pub(crate) fn raise() {
    if let Err(error) = raise_this_thread() {
        REFUSED.call_once(|| {
            tracing::info!(
                %error,
                "heartbeats may not go before other threads; on a machine without cores to spare replicas take each other for dead sooner"
            );
        });
    }
}

/// Undoes what the calling thread has inherited from a [raised](raise) one: it serves a caller that has not
/// authenticated yet, and that must not get cores before others.
pub(crate) fn lower() {
    // If raising was refused there is nothing to undo; lowering is always allowed.
    let _ = lower_this_thread();
}

/// On Linux each thread has its own nice value.
#[cfg(target_os = "linux")]
fn raise_this_thread() -> std::io::Result<()> {
    let me = Some(rustix::thread::gettid());
    let given = rustix::process::getpriority_process(me)?;
    Ok(rustix::process::setpriority_process(me, raised(given))?)
}

#[cfg(target_os = "linux")]
fn lower_this_thread() -> std::io::Result<()> {
    // The main thread keeps the nice value that the process was started with.
    let given = rustix::process::getpriority_process(Some(rustix::process::getpid()))?;
    Ok(rustix::process::setpriority_process(Some(rustix::thread::gettid()), given)?)
}

#[cfg(target_os = "linux")]
fn raised(given: i32) -> i32 {
    (given + NICE).max(NICE_LEAST)
}

#[cfg(not(target_os = "linux"))]
fn raise_this_thread() -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn lower_this_thread() -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn nice() -> i32 {
        rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap()
    }

    #[test]
    fn it_is_the_thread_s_own_and_of_what_it_starts_and_refusal_changes_nothing() {
        let given = nice();
        let raised = std::thread::spawn(move || {
            let allowed = raise_this_thread().is_ok();
            let expected = if allowed { raised(given) } else { given };
            let lowered = std::thread::spawn(|| {
                lower();
                nice()
            });
            (nice(), std::thread::spawn(nice).join().unwrap(), lowered.join().unwrap(), expected)
        });
        let (this, started, lowered, expected) = raised.join().unwrap();
        assert_eq!((this, started, lowered), (expected, expected, given));
        assert_eq!(nice(), given, "no other thread's");
    }
}
