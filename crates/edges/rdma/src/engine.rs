//! The thread that polls the device's completions. It polls without pause while completions arrive, and waits for an
//! event after a short idle time. A reader that finds its stream empty polls as well ([`Engine::look`]).

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

/// How long it polls after the last completion: longer than a READ on a good network, and too short to waste a core.
const SPIN: Duration = Duration::from_micros(30);

/// Dispatches completions to all connections of a fabric.
#[derive(Debug)]
pub(crate) struct Engine {
    ears: Arc<CompletionReader>,
    connections_max: usize,
    /// Batches per poll, enough for everything that was there when the poll began.
    looks_max: usize,
    stop: OwnedFd,
}

/// The poller's state: the thread's, or a reader's in between. One at a time, so that each connection sees its
/// completions in order.
#[derive(Debug)]
struct CompletionReader {
    queue: Arc<CompletionQueue>,
    /// By queue pair number.
    sessions: Listeners<Session>,
    heard: Mutex<Vec<Completion>>,
}

/// Notifies waiters when the thread ends, also by a panic, and refuses new ones.
struct Hears {
    ears: Arc<CompletionReader>,
    reason: Broken,
}

impl Hears {
    /// Tells the waiters why no more completions arrive.
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
        // An overflow of the completion queue breaks every connection.
        let connections_max = (device.completions_max / of_one).min(purpose.connections_max());
        let completions = connections_max * of_one;
        let queue = Arc::new(CompletionQueue::new(device, completions)?);
        let system = |error: rustix::io::Errno| RdmaError::system("no event to end a thread by", error.into());
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let ears = Arc::new(CompletionReader { queue, sessions: Listeners::default(), heard: Mutex::default() });
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

    /// Dispatches all completions up to now.
    pub(crate) fn look(&self) {
        for _ in 0..self.looks_max {
            // An error of the queue also ends the thread.
            if !self.ears.take().unwrap_or(false) {
                return;
            }
        }
    }

    /// Registers a session for the completions of its queue pair.
    pub(crate) fn join(&self, number: u32, session: &Arc<Session>) -> Result<(), RdmaError> {
        // Room in the queue is counted by connections: first remove what ended ones have left there.
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

impl CompletionReader {
    /// Dispatches completions. Returns whether there were any.
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

fn hear(ears: &CompletionReader, stop: &OwnedFd) -> io::Result<()> {
    let (queue, mut last) = (&ears.queue, Instant::now());
    loop {
        if ears.take()? {
            last = Instant::now();
        } else if last.elapsed() < SPIN {
            std::hint::spin_loop();
        } else {
            queue.arm()?;
            // Completions from before the arming raise no event.
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
