//! One slot per model for its newest candidate, and a set of the slots that changed.
//!
//! A model thread overwrites its slot with every change; the rank thread reads only what changed, once. So its work
//! grows with turns and batches, not with requests (DESIGN section 7).

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use symphony_scheduler::Candidate;

/// The most models one sub-cluster serves: as many as the bits of 64 words, whose own bits fill one word.
pub const SUBCLUSTER_MODELS_MAX: usize = 64 * 64;

/// A model's word: grants answered so far, and its candidate.
pub(crate) type Offer = (u64, Option<Candidate>);

#[derive(Debug)]
pub(crate) struct OfferBoard {
    slots: Vec<ArrayQueue<Offer>>,
    dirty: Vec<AtomicU64>,
    /// Which words of `dirty` are not zero: a turn without offers costs one look, however many models there are.
    dirty_words: AtomicU64,
}

impl OfferBoard {
    /// For `models` models, at most [`SUBCLUSTER_MODELS_MAX`].
    pub(crate) fn new(models: usize) -> Self {
        assert!(models <= SUBCLUSTER_MODELS_MAX, "{models} models, the limit is {SUBCLUSTER_MODELS_MAX}");
        Self {
            slots: (0..models).map(|_| ArrayQueue::new(1)).collect(),
            dirty: (0..models.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            dirty_words: AtomicU64::new(0),
        }
    }

    /// The newest wins. The caller rings the bell, once for all it publishes.
    pub(crate) fn publish(&self, model: u32, offer: Offer) {
        let model = model as usize;
        self.slots[model].force_push(offer);
        // In this order: whoever sees the word's bit finds the model's, and whoever sees that finds the offer.
        self.dirty[model / 64].fetch_or(1 << (model % 64), Ordering::Release);
        self.dirty_words.fetch_or(1 << (model / 64), Ordering::Release);
    }

    /// Takes the offers published since the last call, and returns whether some were left because `limit` was reached.
    /// A word's models are taken together, so it may be a few more. The next call goes on behind `last_word`, the last
    /// word looked at: busy models with small ordinals do not keep the others waiting.
    pub(crate) fn take(&self, last_word: &mut u32, limit: usize, mut each: impl FnMut(u32, Offer)) -> bool {
        if self.dirty_words.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut words = self.dirty_words.swap(0, Ordering::Acquire);
        let mut taken = 0;
        while words != 0 {
            if taken >= limit {
                self.dirty_words.fetch_or(words, Ordering::Release);
                return true;
            }
            let first = (*last_word + 1) % 64;
            *last_word = (first + words.rotate_right(first).trailing_zeros()) % 64;
            let word = *last_word as usize;
            words &= !(1 << word);
            let mut bits = self.dirty[word].swap(0, Ordering::Acquire);
            while bits != 0 {
                let model = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(offer) = self.slots[model].pop() {
                    taken += 1;
                    each(model as u32, offer);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> OfferBoard {
        OfferBoard::new(130)
    }

    #[test]
    fn the_newest_offer_wins_and_is_read_once() {
        let board = board();
        board.publish(129, (1, None));
        board.publish(129, (2, None));
        board.publish(3, (9, None));
        let mut seen = Vec::new();
        let mut last_word = 63;
        assert!(!board.take(&mut last_word, 10, |model, offer| seen.push((model, offer))));
        assert_eq!(seen, [(3, (9, None)), (129, (2, None))]);
        assert!(!board.take(&mut last_word, 10, |model, _| panic!("model {model} again")));
    }

    #[test]
    fn what_exceeds_the_limit_is_taken_next_before_what_changed_again() {
        let board = board();
        for model in [1, 2, 70, 129] {
            board.publish(model, (1, None));
        }
        let (mut seen, mut last_word) = (Vec::new(), 63);
        assert!(board.take(&mut last_word, 2, |model, _| seen.push(model)));
        board.publish(1, (2, None));
        assert!(board.take(&mut last_word, 2, |model, _| seen.push(model)));
        assert!(!board.take(&mut last_word, 2, |model, _| seen.push(model)));
        assert_eq!(seen, [1, 2, 70, 129, 1]);
    }
}
