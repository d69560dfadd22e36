//! Small writes at a steady rate, to whichever replica: the times of their acknowledgements show the gaps in commits,
//! and what they wrote shows afterwards whether anything acknowledged was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Writer, Writers};

/// Writes under way, at most: more than hang at one replica that others do not hear, at any rate that scenarios have.
/// If they held up the others, the writer would measure itself.
const WRITES_MAX: usize = 1024;
/// How long one write may take. More than a replica itself tries, so that a write that was given up is over.
const WRITE_WITHIN: Duration = Duration::from_millis(2500);
/// What is written: frontends without traffic.
const NAME: &str = "write-";

/// One acknowledged write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    pub(crate) at: Instant,
    /// What was written, and where.
    pub(crate) value: u64,
    pub(crate) place: u64,
}

/// The writer while it runs.
#[derive(Debug)]
pub(crate) struct Commits {
    written: Arc<Mutex<Written>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) acked: Vec<Acked>,
    /// Slots and values of writes without an answer.
    open: BTreeSet<(u64, u64)>,
}

/// One write after the other goes to a place, so that the last one acknowledged is the one to be found, unless it is
/// one whose fate was never known.
#[derive(Debug)]
struct WriterSlots {
    free: Vec<WriterSlot>,
    ever: u64,
}

#[derive(Debug)]
struct WriterSlot {
    number: u64,
    writer: Writer,
}

impl WriterSlots {
    fn another(&mut self, writers: &Writers) -> Result<WriterSlot> {
        self.ever += 1;
        Ok(WriterSlot { number: self.ever, writer: writers.writer(format!("{NAME}{}", self.ever))? })
    }
}

impl Commits {
    /// Writes `rate_rps` times per second, to the replicas in turn.
    pub(crate) fn start(writers: Writers, rate_rps: f64) -> Self {
        let written = Arc::new(Mutex::new(Written::default()));
        let stop = CancellationToken::new();
        let writing = write(writers, rate_rps, Arc::clone(&written), stop.clone());
        Self { written, stop, task: tokio::spawn(writing) }
    }

    /// Stops writing, and waits for what is under way.
    pub(crate) async fn finish(self) -> Written {
        self.stop.cancel();
        // It ends by itself: every write has its limit.
        let _ = self.task.await;
        std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn write(writers: Writers, rate_rps: f64, written: Arc<Mutex<Written>>, stop: CancellationToken) {
    if rate_rps <= 0.0 {
        return;
    }
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate_rps));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut places = WriterSlots { free: Vec::new(), ever: 0 };
    let mut writes = JoinSet::new();
    for value in 1_u64.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => break,
        }
        while let Some(ended) = writes.try_join_next() {
            places.free.extend(ended.ok());
        }
        if writes.len() >= WRITES_MAX {
            continue;
        }
        let place = places.free.pop().map_or_else(|| places.another(&writers), Ok);
        let prepared = place.and_then(|mut place| Ok((place.writer.nth(value as usize)?, place)));
        let (client, place) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                eprintln!("a write that could not be prepared: {error:#}");
                continue;
            }
        };
        let written = Arc::clone(&written);
        writes.spawn(async move {
            let request = pb::RegisterFrontendRequest {
                name: place.writer.name().to_owned(),
                boot_id: value,
                data_addr: "127.0.0.1:1".into(),
                console_addr: "127.0.0.1:1".into(),
                level: client.newest_level(),
            };
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let request = request.clone();
                async move { client.register_frontend(request).await }
            };
            let done = client.call(WRITE_WITHIN, call).await;
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            if done.is_ok() {
                written.acked.push(Acked { at: Instant::now(), value, place: place.number });
            } else {
                written.open.insert((place.number, value));
            }
            place
        });
    }
    while writes.join_next().await.is_some() {}
}

/// Acknowledged writes that the cluster does not hold any more, nor anything younger in their place, nor anything of
/// with an unknown time of writing: each as text.
pub(crate) fn lost(written: &Written, view: &View) -> Vec<String> {
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for ack in &written.acked {
        let value = last.entry(ack.place).or_default();
        *value = ack.value.max(*value);
    }
    let held = |place: u64| {
        let name = format!("{NAME}{place}");
        view.frontends.values().find(|f| f.name == name).map_or(0, |f| f.boot.get())
    };
    let gone = |place, value| held(place) < value && !written.open.contains(&(place, held(place)));
    let lost = last.iter().filter(|&(&place, &value)| gone(place, value));
    lost.map(|(&place, value)| format!("{NAME}{place}: {value} was acknowledged, {} is held", held(place))).collect()
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::FrontendView;
    use symphony_types::{BootId, FrontendId};

    use super::*;

    #[test]
    fn an_acknowledged_write_that_is_gone_or_went_back_is_lost() {
        let mut view = View::default();
        for (place, value) in [(1, 5), (2, 9)] {
            let frontend =
                FrontendView { name: format!("{NAME}{place}"), boot: BootId::new(value), ..FrontendView::default() };
            view.frontends.insert(FrontendId::new(place), frontend);
        }
        let acks = |acks: &[(u64, u64)]| {
            let ack = |&(place, value): &(u64, u64)| Acked { at: Instant::now(), value, place };
            Written { acked: acks.iter().map(ack).collect(), open: BTreeSet::from([(2, 9)]) }
        };
        let none: [&str; 0] = [];
        assert_eq!(lost(&acks(&[(2, 10)]), &view), none, "an older one without an answer may have come last");
        assert_eq!(lost(&acks(&[(1, 4), (1, 5), (2, 8)]), &view), none, "a younger one may be there without an answer");
        assert_eq!(lost(&acks(&[(1, 6)]), &view), ["write-1: 6 was acknowledged, 5 is held"], "went back");
        assert_eq!(lost(&acks(&[(1, 5), (3, 1)]), &view), ["write-3: 1 was acknowledged, 0 is held"], "gone");
    }
}
