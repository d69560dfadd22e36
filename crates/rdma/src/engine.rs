//! The thread that hears what the device has done. It looks without a pause while there is something to hear, and waits for an
//! event when there has been nothing for a while.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::error::{Broken, RdmaError};
use crate::listeners::{Listeners, NotJoined};
use crate::session::Session;
use crate::verbs::{Completion, CompletionQueue, Device, RECEIVE_QUEUE, SEND_QUEUE};

/// So long it looks on after the last completion: longer than a READ on a good network takes, shorter than anybody minds a core.
const SPIN: Duration = Duration::from_micros(30);
/// Connections of one process at most.
const CONNECTIONS_MAX: u32 = 256;

/// Hears completions for all connections of a process.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) queue: Arc<CompletionQueue>,
    sessions: Arc<Sessions>,
    connections_max: usize,
    stop: OwnedFd,
}

/// By the number of their queue pair.
type Sessions = Listeners<Session>;

/// Whatever ends the thread, also a panic: nobody waits for what it would have heard, and nobody new begins to.
struct Hears {
    sessions: Arc<Sessions>,
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
        for session in self.sessions.close() {
            session.fail(self.reason);
        }
    }
}

impl Engine {
    pub(crate) fn start(device: &Arc<Device>) -> Result<Self, RdmaError> {
        let of_one = SEND_QUEUE + RECEIVE_QUEUE;
        // A queue that runs over breaks every connection.
        let connections_max = (device.completions_max / of_one).min(CONNECTIONS_MAX);
        let queue = Arc::new(CompletionQueue::new(device, connections_max * of_one)?);
        let system = |error: rustix::io::Errno| RdmaError::system("no event to end a thread by", error.into());
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)?;
        let sessions = Arc::<Sessions>::default();
        let (told, stops) = (Arc::clone(&queue), stop.try_clone());
        let mut hears = Hears { sessions: Arc::clone(&sessions), reason: Broken::Unheard };
        let stops = stops.map_err(|error| RdmaError::system("no event to end a thread by", error))?;
        std::thread::Builder::new()
            .name("rdma".to_owned())
            .spawn(move || {
                if let Err(error) = hear(&told, &hears.sessions, &stops) {
                    tracing::error!(%error, "RDMA completions are heard no more; every connection ends, and there are no new ones");
                    hears.ends(Broken::refused(&error));
                }
            })
            .map_err(|error| RdmaError::system("no thread", error))?;
        Ok(Self { queue, sessions, connections_max: connections_max as usize, stop })
    }

    /// From now on the session hears what is done for it.
    pub(crate) fn join(&self, number: u32, session: &Arc<Session>) -> Result<(), RdmaError> {
        self.sessions.join(number, session, self.connections_max).map_err(|refused| match refused {
            NotJoined::Full(there) => RdmaError::Full(there),
            NotJoined::Closed => Broken::Unheard.into(),
        })
    }

    pub(crate) fn leave(&self, number: u32) {
        self.sessions.leave(number);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

fn hear(queue: &CompletionQueue, sessions: &Sessions, stop: &OwnedFd) -> io::Result<()> {
    let (mut heard, mut last) = (Vec::new(), Instant::now());
    loop {
        if take(queue, sessions, &mut heard)? {
            last = Instant::now();
        } else if last.elapsed() < SPIN {
            std::hint::spin_loop();
        } else {
            queue.arm()?;
            // What came before it was armed is told by nobody.
            if take(queue, sessions, &mut heard)? {
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

fn take(queue: &CompletionQueue, sessions: &Sessions, heard: &mut Vec<Completion>) -> io::Result<bool> {
    let any = queue.poll(heard)?;
    for completion in heard.drain(..) {
        if let Some(session) = sessions.of(completion.queue_pair()) {
            session.done(&completion);
        }
    }
    Ok(any)
}
