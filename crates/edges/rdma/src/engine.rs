//! The thread that polls the device's completions. It polls without pause while completions arrive, and waits for an
//! event after a short idle time. A reader that finds its stream empty polls as well
//! ([`Engine::dispatch_completions`]).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::error::{Broken, RdmaError};
use crate::listeners::{Listeners, NotJoined};
use crate::purpose::Purpose;
use crate::verbs::{COMPLETIONS_AT_ONCE, Completion, CompletionQueue, Device};

/// How long it polls after the last completion: longer than a READ on a good network, and too short to waste a core.
const SPIN: Duration = Duration::from_micros(30);

/// A connection, as the thread needs it.
pub(crate) trait CompletionHandler: Send + Sync + 'static {
    /// Handles a completion of its queue pair.
    fn done(&self, completion: &Completion);

    /// Breaks the connection; the first reason counts.
    fn fail(&self, reason: Broken);
}

/// Dispatches completions to all connections of a fabric.
#[derive(Debug)]
pub(crate) struct Engine<C: CompletionHandler> {
    reader: Arc<CompletionReader<C>>,
    connections_max: usize,
    /// Batches per poll, enough for everything that was there when the poll began.
    polls_max: usize,
    stop: OwnedFd,
}

/// The poller's state: the thread's, or a reader's in between. One at a time, so that each connection sees its
/// completions in order.
#[derive(Debug)]
struct CompletionReader<C> {
    queue: Arc<CompletionQueue>,
    /// By queue pair number.
    connections: Listeners<C>,
    completions: Mutex<Vec<Completion>>,
}

/// Notifies waiters when the thread ends, also by a panic, and refuses new ones.
struct PollerGuard<C: CompletionHandler> {
    reader: Arc<CompletionReader<C>>,
    reason: Broken,
}

impl<C: CompletionHandler> PollerGuard<C> {
    /// Sets the reason that waiters get.
    fn ends(&mut self, reason: Broken) {
        self.reason = reason;
    }
}

impl<C: CompletionHandler> Drop for PollerGuard<C> {
    fn drop(&mut self) {
        for connection in self.reader.connections.close() {
            connection.fail(self.reason);
        }
    }
}

impl<C: CompletionHandler> Engine<C> {
    pub(crate) fn start(device: &Arc<Device>, purpose: Purpose) -> Result<Self, RdmaError> {
        let of_one = purpose.completions();
        // An overflow of the completion queue breaks every connection.
        let connections_max = (device.completions_max / of_one).min(purpose.connections_max());
        let queue_entries = connections_max * of_one;
        let queue = Arc::new(CompletionQueue::new(device, queue_entries)?);
        let system = |error: rustix::io::Errno| RdmaError::system("no event to end a thread by", error.into());
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let reader =
            Arc::new(CompletionReader { queue, connections: Listeners::default(), completions: Mutex::default() });
        let mut guard = PollerGuard { reader: Arc::clone(&reader), reason: Broken::PollerEnded };
        let stops = stop.try_clone().map_err(|error| RdmaError::system("no event to end a thread by", error))?;
        std::thread::Builder::new()
            .name("rdma".to_owned())
            .spawn(move || {
                if let Err(error) = poll_completions(&guard.reader, &stops) {
                    tracing::error!(%error, "the thread that polls RDMA completions ended; every connection ends, and there are no new ones");
                    guard.ends(Broken::refused(&error));
                }
            })
            .map_err(|error| RdmaError::system("no thread", error))?;
        let polls_max = (queue_entries as usize).div_ceil(COMPLETIONS_AT_ONCE);
        Ok(Self { reader, connections_max: connections_max as usize, polls_max, stop })
    }

    pub(crate) fn queue(&self) -> &Arc<CompletionQueue> {
        &self.reader.queue
    }

    /// Dispatches all completions up to now.
    pub(crate) fn dispatch_completions(&self) {
        for _ in 0..self.polls_max {
            // An error of the queue also ends the thread.
            if !self.reader.take().unwrap_or(false) {
                return;
            }
        }
    }

    /// Registers a connection for the completions of its queue pair.
    pub(crate) fn join(&self, number: u32, connection: &Arc<C>) -> Result<(), RdmaError> {
        // Room in the queue is counted by connections: first remove what ended ones have left there.
        self.dispatch_completions();
        self.reader.connections.join(number, connection, self.connections_max).map_err(|refused| match refused {
            NotJoined::Full(there) => RdmaError::Full(there),
            NotJoined::Closed => Broken::PollerEnded.into(),
        })
    }

    pub(crate) fn leave(&self, number: u32) {
        self.reader.connections.leave(number);
    }
}

impl<C: CompletionHandler> Drop for Engine<C> {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

impl<C: CompletionHandler> CompletionReader<C> {
    /// Dispatches completions. Returns whether there were any.
    fn take(&self) -> io::Result<bool> {
        let mut completions = self.completions.lock().unwrap_or_else(PoisonError::into_inner);
        let any = self.queue.poll(&mut completions)?;
        for completion in completions.drain(..) {
            if let Some(connection) = self.connections.of(completion.queue_pair()) {
                connection.done(&completion);
            }
        }
        Ok(any)
    }
}

fn poll_completions<C: CompletionHandler>(reader: &CompletionReader<C>, stop: &OwnedFd) -> io::Result<()> {
    let (queue, mut last) = (&reader.queue, Instant::now());
    loop {
        if reader.take()? {
            last = Instant::now();
        } else if last.elapsed() < SPIN {
            std::hint::spin_loop();
        } else {
            queue.arm()?;
            // Completions from before the arming raise no event.
            if reader.take()? {
                continue;
            }
            let mut waits =
                [PollFd::from_borrowed_fd(queue.channel(), PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [event, stopped] = waits.map(|wait| !wait.revents().is_empty());
            if stopped {
                return Ok(());
            }
            if event {
                queue.take_event()?;
            }
            last = Instant::now();
        }
    }
}
