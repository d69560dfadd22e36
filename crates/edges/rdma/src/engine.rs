//! The thread that hears what the device has done. It looks without a pause while there is something to hear, and waits
//! for an event when there has been nothing for a while. Whoever reads a stream and finds nothing looks as well
//! ([`Engine::look`]).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::error::{Broken, RdmaError};
use crate::listeners::{Listeners, NotJoined};
use crate::purpose::Purpose;
use crate::session::{Session, lock};
use crate::verbs::{COMPLETIONS_AT_ONCE, Completion, CompletionQueue, Device};

/// So long it looks on after the last completion: longer than a READ on a good network takes, shorter than anybody
/// minds a core.
const SPIN: Duration = Duration::from_micros(30);

/// Hears completions for all connections of a fabric.
#[derive(Debug)]
pub(crate) struct Engine {
    ears: Arc<Ears>,
    connections_max: usize,
    /// So often whoever looks finds everything that was there when it began.
    looks_max: usize,
    stop: OwnedFd,
}

/// What hears: the thread, or whoever looks. One at a time, so that each connection hears in order.
#[derive(Debug)]
struct Ears {
    queue: Arc<CompletionQueue>,
    /// By the number of their queue pair.
    sessions: Listeners<Session>,
    heard: Mutex<Vec<Completion>>,
}

/// Whatever ends the thread, also a panic: nobody waits for what it would have heard, and nobody new begins to.
struct Hears {
    ears: Arc<Ears>,
    reason: Broken,
}

impl Hears {
    /// Why nothing is heard any more, for those who wait.
    fn ends(&mut self, reason: Broken) {
        self.reason = reason;
    }
}

impl Drop for Hears {
    fn drop(&mut self) {
        for session in self.ears.sessions.close() {
            session.fail(self.reason);
        }
    }
}

impl Engine {
    pub(crate) fn start(device: &Arc<Device>, purpose: Purpose) -> Result<Self, RdmaError> {
        let of_one = purpose.completions();
        // A queue that runs over breaks every connection.
        let connections_max = (device.completions_max / of_one).min(purpose.connections_max());
        let completions = connections_max * of_one;
        let queue = Arc::new(CompletionQueue::new(device, completions)?);
        let system = |error: rustix::io::Errno| RdmaError::system("no event to end a thread by", error.into());
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let ears = Arc::new(Ears { queue, sessions: Listeners::default(), heard: Mutex::default() });
        let mut hears = Hears { ears: Arc::clone(&ears), reason: Broken::Unheard };
        let stops = stop.try_clone().map_err(|error| RdmaError::system("no event to end a thread by", error))?;
        std::thread::Builder::new()
            .name("rdma".to_owned())
            .spawn(move || {
                if let Err(error) = hear(&hears.ears, &stops) {
                    tracing::error!(%error, "RDMA completions are heard no more; every connection ends, and there are no new ones");
                    hears.ends(Broken::refused(&error));
                }
            })
            .map_err(|error| RdmaError::system("no thread", error))?;
        let looks_max = (completions as usize).div_ceil(COMPLETIONS_AT_ONCE);
        Ok(Self { ears, connections_max: connections_max as usize, looks_max, stop })
    }

    pub(crate) fn queue(&self) -> &Arc<CompletionQueue> {
        &self.ears.queue
    }

    /// Hears of everything that the device has done by now.
    pub(crate) fn look(&self) {
        for _ in 0..self.looks_max {
            // The thread finds what is wrong with the queue as well, and ends.
            if !self.ears.take().unwrap_or(false) {
                return;
            }
        }
    }

    /// From now on the session hears what is done for it.
    pub(crate) fn join(&self, number: u32, session: &Arc<Session>) -> Result<(), RdmaError> {
        // What ended connections leave in the queue has no place of its own there any more.
        self.look();
        self.ears.sessions.join(number, session, self.connections_max).map_err(|refused| match refused {
            NotJoined::Full(there) => RdmaError::Full(there),
            NotJoined::Closed => Broken::Unheard.into(),
        })
    }

    pub(crate) fn leave(&self, number: u32) {
        self.ears.sessions.leave(number);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

impl Ears {
    /// Tells everybody what was done for them. Whether there was anything.
    fn take(&self) -> io::Result<bool> {
        let mut heard = lock(&self.heard);
        let any = self.queue.poll(&mut heard)?;
        for completion in heard.drain(..) {
            if let Some(session) = self.sessions.of(completion.queue_pair()) {
                session.done(&completion);
            }
        }
        Ok(any)
    }
}

fn hear(ears: &Ears, stop: &OwnedFd) -> io::Result<()> {
    let (queue, mut last) = (&ears.queue, Instant::now());
    loop {
        if ears.take()? {
            last = Instant::now();
        } else if last.elapsed() < SPIN {
            std::hint::spin_loop();
        } else {
            queue.arm()?;
            // What came before it was armed is told by nobody.
            if ears.take()? {
                continue;
            }
            let mut waits =
                [PollFd::from_borrowed_fd(queue.channel(), PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [told, stopped] = waits.map(|wait| !wait.revents().is_empty());
            if stopped {
                return Ok(());
            }
            if told {
                queue.told()?;
            }
            last = Instant::now();
        }
    }
}
