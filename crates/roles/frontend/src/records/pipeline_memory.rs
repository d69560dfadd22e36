//! The last requests for pipelines and what became of their stage requests, for `symphony explain`: leaders know of
//! stage requests alone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_explain::{PipelineExplanation, StageExplanation};
use symphony_types::{Nanos, RequestId};

/// Requests and stage requests that are remembered, of some 250 bytes each: 16 MB, and a minute of 200 requests per
/// second with four stage requests each.
const REMEMBERED_MAX: usize = 1 << 16;
/// Stage requests that are remembered of one request: the outcomes of a fan-out are alike.
const STAGES_MAX: usize = 64;

/// A stage request that has ended. Times count from the arrival of its request.
#[derive(Clone, Debug)]
pub(crate) struct StageNote {
    pub(crate) stage: String,
    pub(crate) model: String,
    pub(crate) item: usize,
    pub(crate) request: Option<RequestId>,
    pub(crate) asked: Duration,
    pub(crate) ended: Duration,
    pub(crate) deadline: Nanos,
    pub(crate) outcome: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) execution: Option<Nanos>,
    /// Whether its request ended with it, for lack of its result.
    pub(crate) ended_request: bool,
}

/// The stage requests of one request that have ended.
#[derive(Debug, Default)]
pub(crate) struct StageLog(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    notes: Vec<StageNote>,
    /// Stage requests that are not among the notes.
    more: u64,
}

impl StageLog {
    /// One more has ended. Beyond [`STAGES_MAX`] the one that ends the request takes the last place.
    pub(crate) fn note(&self, note: StageNote) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.notes.len() < STAGES_MAX {
            noted.notes.push(note);
            return;
        }
        noted.more += 1;
        if note.ended_request
            && let Some(last) = noted.notes.last_mut()
        {
            *last = note;
        }
    }
}

/// A request that has its outcome.
#[derive(Debug)]
pub(crate) struct PipelineEnd {
    pub(crate) request: RequestId,
    pub(crate) pipeline: String,
    pub(crate) items: u32,
    pub(crate) outcome: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) took: Duration,
    pub(crate) allowed: Duration,
}

#[derive(Debug)]
struct Remembered {
    end: PipelineEnd,
    at: Instant,
    stages: Vec<StageNote>,
    more: u64,
}

impl Remembered {
    fn size(&self) -> usize {
        1 + self.stages.len()
    }

    fn explained(&self, now: Instant) -> PipelineExplanation {
        let PipelineEnd { request, pipeline, items, outcome, reason, took, allowed } = &self.end;
        let mut stages: Vec<_> = self.stages.iter().map(StageNote::explained).collect();
        stages.sort_by(|one, other| one.asked_ms.total_cmp(&other.asked_ms));
        PipelineExplanation {
            request: request.to_string(),
            items: *items,
            pipeline: pipeline.clone(),
            outcome: (*outcome).to_owned(),
            reason: (*reason).to_owned(),
            ended_ago_ms: millis(now.saturating_duration_since(self.at)),
            ended_ms: millis(*took),
            deadline_ms: millis(*allowed),
            stages,
            more: self.more,
        }
    }
}

impl StageNote {
    fn explained(&self) -> StageExplanation {
        StageExplanation {
            stage: self.stage.clone(),
            model: self.model.clone(),
            item: u32::try_from(self.item).unwrap_or(u32::MAX),
            request: self.request.map(|request| request.to_string()),
            asked_ms: millis(self.asked),
            ended_ms: millis(self.ended),
            deadline_ms: self.deadline.as_millis_f64(),
            outcome: self.outcome.to_owned(),
            reason: self.reason.to_owned(),
            execution_ms: self.execution.map(Nanos::as_millis_f64),
            ended_request: self.ended_request,
        }
    }
}

fn millis(time: Duration) -> f64 {
    Nanos::from(time).as_millis_f64()
}

/// The last ones.
#[derive(Debug, Default)]
pub(crate) struct PipelineMemory(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// Found by their ids: a request that ends waits while another is looked up.
    ends: HashMap<RequestId, Remembered>,
    /// The oldest first.
    order: VecDeque<RequestId>,
    size: usize,
}

impl PipelineMemory {
    /// Remembers a request instead of the oldest ones.
    pub(crate) fn remember(&self, end: PipelineEnd, log: &StageLog) {
        let noted = std::mem::take(&mut *log.0.lock().unwrap_or_else(PoisonError::into_inner));
        let Noted { notes: mut stages, more } = noted;
        // They stay, and no more come.
        stages.shrink_to_fit();
        let request = end.request;
        let remembered = Remembered { end, at: Instant::now(), stages, more };
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.size += remembered.size();
        ring.order.push_back(request);
        let mut forgotten = ring.ends.insert(request, remembered);
        loop {
            ring.size -= forgotten.map_or(0, |one| one.size());
            if ring.size <= REMEMBERED_MAX {
                return;
            }
            let Some(oldest) = ring.order.pop_front() else { return };
            forgotten = ring.ends.remove(&oldest);
        }
    }

    /// What became of a request, if it is remembered.
    pub(crate) fn explain(&self, request: RequestId) -> Option<PipelineExplanation> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.ends.get(&request).map(|remembered| remembered.explained(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::{BootId, FrontendId};

    use super::*;

    fn request(sequence: u64) -> RequestId {
        RequestId { frontend: FrontendId::new(1), boot: BootId::new(2), sequence }
    }

    fn note(item: usize, outcome: &'static str) -> StageNote {
        StageNote {
            stage: "detect".into(),
            model: "m".into(),
            item,
            request: None,
            asked: Duration::ZERO,
            ended: Duration::from_millis(1),
            deadline: Nanos::from_millis(2),
            outcome,
            reason: "",
            execution: None,
            ended_request: false,
        }
    }

    fn end(sequence: u64) -> PipelineEnd {
        PipelineEnd {
            request: request(sequence),
            pipeline: "p".into(),
            items: 1,
            outcome: "dropped",
            reason: "shed",
            took: Duration::from_millis(3),
            allowed: Duration::from_millis(4),
        }
    }

    #[test]
    fn the_oldest_are_forgotten_and_what_ended_a_large_one_is_not() {
        let memory = PipelineMemory::default();
        let requests = (REMEMBERED_MAX / (1 + STAGES_MAX)) as u64 + 1;
        for sequence in 1..=requests {
            let log = StageLog::default();
            (0..STAGES_MAX).for_each(|item| log.note(note(item, "in_time")));
            log.note(note(STAGES_MAX, "in_time"));
            log.note(StageNote { ended_request: true, ..note(STAGES_MAX + 1, "dropped") });
            log.note(note(STAGES_MAX + 2, "withdrawn"));
            memory.remember(end(sequence), &log);
        }
        assert!(memory.explain(request(1)).is_none() && memory.explain(request(2)).is_some());
        let explanation = memory.explain(request(requests)).unwrap();
        assert_eq!(
            (explanation.outcome.as_str(), explanation.reason.as_str(), explanation.ended_ms),
            ("dropped", "shed", 3.0)
        );
        assert_eq!((explanation.stages.len(), explanation.more), (STAGES_MAX, 3));
        let last = explanation.stages.last().unwrap();
        assert_eq!((last.item as usize, last.outcome.as_str(), last.deadline_ms), (STAGES_MAX + 1, "dropped", 2.0));
    }
}
