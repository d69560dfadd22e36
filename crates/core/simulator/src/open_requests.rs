//! Requests without an outcome, for invariant S3.

use symphony_types::Time;

/// The widest span of sequence numbers between the oldest open request and the newest: 40 bytes each, 640 MB.
pub(crate) const OPEN_SPAN_MAX: usize = 1 << 24;
/// Initial capacity: enough for 25 000 requests per second with an SLO of 40 ms.
const OPEN_SPAN_MIN: usize = 1 << 10;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestOrigin {
    #[default]
    Client,
    /// A pipeline: it is a stage request.
    Stage,
}

/// The simulator's own record of an open request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenRequest {
    pub(crate) arrived: Time,
    pub(crate) deadline: Time,
    pub(crate) model: u32,
    pub(crate) items: u16,
    pub(crate) variant: u16,
    pub(crate) origin: RequestOrigin,
    /// Whether it is in a plan on a GPU; otherwise the policy holds it.
    pub(crate) planned: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Sequence number plus one; zero is an empty slot.
    sequence_next: u64,
    request: OpenRequest,
}

/// The set of open requests: a ring addressed by sequence number, so that opening and closing cost one access.
#[derive(Clone, Debug)]
pub(crate) struct OpenRequests {
    ring: Vec<Slot>,
    open: u64,
    planned: u64,
}

impl OpenRequests {
    pub(crate) fn new() -> Self {
        Self { ring: vec![Slot::default(); OPEN_SPAN_MIN], open: 0, planned: 0 }
    }

    /// Requests without an outcome.
    pub(crate) const fn len(&self) -> u64 {
        self.open
    }

    /// The number of those that the policy holds.
    pub(crate) const fn waiting(&self) -> u64 {
        self.open - self.planned
    }

    /// Opens the next request; sequence numbers only grow. If the oldest open request is too old for the ring to grow,
    /// returns it.
    #[inline]
    pub(crate) fn open(&mut self, sequence: u64, request: OpenRequest) -> Option<OpenRequest> {
        let mut slot = sequence as usize & (self.ring.len() - 1);
        while self.ring[slot].sequence_next != 0 {
            if self.ring.len() >= OPEN_SPAN_MAX {
                return Some(self.ring[slot].request);
            }
            self.grow();
            slot = sequence as usize & (self.ring.len() - 1);
        }
        self.ring[slot] = Slot { sequence_next: sequence + 1, request };
        self.open += 1;
        None
    }

    /// Moves a request of `model` between the policy and a GPU; `None` if it is elsewhere or belongs to another model.
    #[inline]
    pub(crate) fn set_planned(&mut self, sequence: u64, model: u32, planned: bool) -> Option<OpenRequest> {
        let request = self.find(sequence)?;
        if request.model != model || request.planned == planned {
            return None;
        }
        request.planned = planned;
        let found = *request;
        if planned {
            self.planned += 1
        } else {
            self.planned -= 1
        }
        Some(found)
    }

    /// Closes a request of `model`; `None` if it is not open there, that is, with the policy or (`planned`) on a GPU.
    #[inline]
    pub(crate) fn close(&mut self, sequence: u64, model: u32, planned: bool) -> Option<OpenRequest> {
        let found = *self.find(sequence)?;
        if found.model != model || found.planned != planned {
            return None;
        }
        let at = sequence as usize & (self.ring.len() - 1);
        self.ring[at].sequence_next = 0;
        self.open -= 1;
        self.planned -= u64::from(planned);
        Some(found)
    }

    #[inline]
    fn find(&mut self, sequence: u64) -> Option<&mut OpenRequest> {
        let at = sequence as usize & (self.ring.len() - 1);
        let slot = &mut self.ring[at];
        (slot.sequence_next != 0 && slot.sequence_next == sequence.wrapping_add(1)).then_some(&mut slot.request)
    }

    fn grow(&mut self) {
        let mut larger = vec![Slot::default(); self.ring.len() * 2];
        for slot in self.ring.iter().filter(|slot| slot.sequence_next != 0) {
            // Sequences that differ modulo the old size differ modulo the new one.
            let at = (slot.sequence_next - 1) as usize & (larger.len() - 1);
            larger[at] = *slot;
        }
        self.ring = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: u32) -> OpenRequest {
        OpenRequest { model, ..OpenRequest::default() }
    }

    #[test]
    fn a_request_closes_once_and_only_for_its_model() {
        let mut requests = OpenRequests::new();
        assert_eq!(requests.open(7, of(1)), None);
        assert_eq!(requests.close(7, 2, false), None);
        assert_eq!(requests.close(8, 1, false), None);
        assert_eq!(requests.close(u64::MAX, 0, false), None);
        assert_eq!(requests.close(7, 1, true), None);
        assert_eq!(requests.close(7, 1, false), Some(of(1)));
        assert_eq!(requests.close(7, 1, false), None);
        assert_eq!(requests.len(), 0);
    }

    #[test]
    fn a_request_is_the_policys_or_a_gpus_never_both() {
        let mut requests = OpenRequests::new();
        assert_eq!(requests.open(0, of(1)), None);
        assert_eq!(requests.set_planned(0, 1, false), None, "it is the policy's already");
        assert_eq!(requests.set_planned(0, 2, true), None, "it is another model's");
        assert!(requests.set_planned(0, 1, true).is_some());
        assert_eq!((requests.len(), requests.waiting()), (1, 0));
        assert_eq!(requests.set_planned(0, 1, true), None, "it is on a GPU already");
        assert_eq!(requests.close(0, 1, false), None, "the policy has it not");
        assert!(requests.set_planned(0, 1, false).is_some());
        assert_eq!(requests.waiting(), 1);
        assert!(requests.set_planned(0, 1, true).is_some());
        assert!(requests.close(0, 1, true).is_some());
        assert_eq!((requests.len(), requests.waiting()), (0, 0));
    }

    #[test]
    fn old_open_requests_survive_the_growth_of_the_ring() {
        let mut requests = OpenRequests::new();
        let last = 5 * OPEN_SPAN_MIN as u64;
        for sequence in 0..=last {
            assert_eq!(requests.open(sequence, of(0)), None);
            // Every second one stays open.
            assert!(sequence % 2 == 0 || requests.close(sequence, 0, false).is_some());
        }
        assert_eq!(requests.len(), last / 2 + 1);
        assert!((0..=last).step_by(2).all(|sequence| requests.close(sequence, 0, false).is_some()));
        assert_eq!(requests.len(), 0);
    }
}
