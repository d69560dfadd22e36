//! One slot per model for its newest candidate, and a set of the slots that changed.
//!
//! A model thread overwrites its slot with every request; the rank thread reads only what changed, once. So its work
//! grows with turns and batches, not with requests (DESIGN section 7).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use symphony_scheduler::Candidate;

use crate::inbox::Doorbell;

/// The most models one sub-cluster serves.
pub const SUBCLUSTER_MODELS_MAX: usize = 4096;

/// A model's word: grants answered so far, and its candidate.
pub(crate) type Offer = (u64, Option<Candidate>);

#[derive(Debug)]
pub(crate) struct OfferBoard {
    slots: Vec<ArrayQueue<Offer>>,
    dirty: Vec<AtomicU64>,
    bell: Arc<Doorbell>,
}

impl OfferBoard {
    /// For `models` models; `bell` wakes the rank thread.
    pub(crate) fn new(models: usize, bell: Arc<Doorbell>) -> Self {
        Self {
            slots: (0..models).map(|_| ArrayQueue::new(1)).collect(),
            dirty: (0..models.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            bell,
        }
    }

    /// The newest wins.
    pub(crate) fn publish(&self, model: u32, offer: Offer) {
        let model = model as usize;
        self.slots[model].force_push(offer);
        self.dirty[model / 64].fetch_or(1 << (model % 64), Ordering::Release);
        self.bell.ring();
    }

    /// Takes every offer published since the last call.
    pub(crate) fn take(&self, mut each: impl FnMut(u32, Offer)) {
        for (word, dirty) in self.dirty.iter().enumerate() {
            if dirty.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = dirty.swap(0, Ordering::Acquire);
            while bits != 0 {
                let model = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(offer) = self.slots[model].pop() {
                    each(model as u32, offer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_offer_wins_and_is_read_once() {
        let board = OfferBoard::new(130, Arc::new(Doorbell::default()));
        board.publish(129, (1, None));
        board.publish(129, (2, None));
        board.publish(3, (9, None));
        let mut seen = Vec::new();
        board.take(|model, offer| seen.push((model, offer)));
        assert_eq!(seen, [(3, (9, None)), (129, (2, None))]);
        board.take(|model, _| panic!("model {model} again"));
    }
}
