//! `get --watch`: prints again what has changed.

use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::time::MissedTickBehavior;

/// The period of questions, as that of `top`: leaders report once a second.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Prints the first of the two texts of `ask`, and again whenever the second has changed, until Ctrl-C or until
/// standard output is closed. The argument of `ask` is whether nothing was printed yet.
///
/// # Errors
/// If the first question has no answer. Later ones are asked again.
pub(super) async fn run(ask: impl AsyncFn(bool) -> anyhow::Result<(String, String)>) -> anyhow::Result<()> {
    tokio::select! {
        ended = repeat(ask) => ended,
        stopped = tokio::signal::ctrl_c() => Ok(stopped?),
    }
}

async fn repeat(ask: impl AsyncFn(bool) -> anyhow::Result<(String, String)>) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut is_silent) = (None, false);
    loop {
        ticks.tick().await;
        if reader_is_gone() {
            std::process::exit(crate::READER_GONE);
        }
        match ask(last.is_none()).await {
            Ok((text, compared)) => {
                is_silent = false;
                if last.as_ref() != Some(&compared) {
                    print!("{text}");
                    last = Some(compared);
                }
            }
            Err(error) if last.is_none() => return Err(error),
            Err(error) => {
                if !std::mem::replace(&mut is_silent, true) {
                    eprintln!("symphony: {error:#}; asking again");
                }
            }
        }
    }
}

/// Whether standard output is a pipe or a terminal whose other end is closed. A page that never changes is never
/// printed, and so the closed output would never be noticed.
fn reader_is_gone() -> bool {
    let out = std::io::stdout();
    let mut fds = [PollFd::new(out.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    poll(&mut fds, PollTimeout::ZERO).is_ok() && fds[0].revents().is_some_and(|events| events.intersects(gone))
}
