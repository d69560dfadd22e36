//! Requests without an outcome, for invariant S3.

/// The widest span of sequence numbers between the oldest open request and the newest: 16 bytes each, 256 MB.
pub(crate) const OPEN_SPAN_MAX: usize = 1 << 24;
/// Room at the beginning: enough for a hundred thousand requests per second with an SLO of 40 ms.
const OPEN_SPAN_MIN: usize = 1 << 12;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Sequence number plus one; zero is an empty slot.
    sequence_next: u64,
    model: u32,
}

/// The set of open requests: a ring addressed by sequence number, so that opening and closing cost one access.
#[derive(Clone, Debug)]
pub(crate) struct OpenRequests {
    ring: Vec<Slot>,
    open: u64,
}

impl OpenRequests {
    pub(crate) fn new() -> Self {
        Self { ring: vec![Slot::default(); OPEN_SPAN_MIN], open: 0 }
    }

    /// Requests without an outcome.
    pub(crate) fn len(&self) -> u64 {
        self.open
    }

    /// Opens the next request; sequence numbers only grow. False if an open request is too old for the ring to grow.
    #[inline]
    pub(crate) fn open(&mut self, sequence: u64, model: u32) -> bool {
        let mut slot = sequence as usize & (self.ring.len() - 1);
        while self.ring[slot].sequence_next != 0 {
            if self.ring.len() >= OPEN_SPAN_MAX {
                return false;
            }
            self.grow();
            slot = sequence as usize & (self.ring.len() - 1);
        }
        self.ring[slot] = Slot { sequence_next: sequence + 1, model };
        self.open += 1;
        true
    }

    /// Closes a request; false if it is not open, or belongs to another model.
    #[inline]
    pub(crate) fn close(&mut self, sequence: u64, model: u32) -> bool {
        let at = sequence as usize & (self.ring.len() - 1);
        let slot = &mut self.ring[at];
        if slot.sequence_next != sequence.wrapping_add(1) || slot.sequence_next == 0 || slot.model != model {
            return false;
        }
        *slot = Slot::default();
        self.open -= 1;
        true
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

    #[test]
    fn a_request_closes_once_and_only_for_its_model() {
        let mut requests = OpenRequests::new();
        assert!(requests.open(7, 1));
        assert!(!requests.close(7, 2));
        assert!(!requests.close(8, 1));
        assert!(!requests.close(u64::MAX, 0));
        assert!(requests.close(7, 1));
        assert!(!requests.close(7, 1));
        assert_eq!(requests.len(), 0);
    }

    #[test]
    fn old_open_requests_survive_the_growth_of_the_ring() {
        let mut requests = OpenRequests::new();
        let last = 5 * OPEN_SPAN_MIN as u64;
        for sequence in 0..=last {
            assert!(requests.open(sequence, 0));
            // Every second one stays open.
            assert!(sequence % 2 == 0 || requests.close(sequence, 0));
        }
        assert_eq!(requests.len(), last / 2 + 1);
        assert!((0..=last).step_by(2).all(|sequence| requests.close(sequence, 0)));
        assert_eq!(requests.len(), 0);
    }
}
