//! One slot per model and class of GPUs for its newest candidate, and a set of the slots that changed.
//!
//! A model worker overwrites its slot with every change; the rank worker reads each changed slot once. So the rank
//! worker's work grows with turns and batches, not with requests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use symphony_scheduler::Candidate;
use symphony_types::{GPU_CLASSES_MAX, GpuClass};

/// The most models of one sub-cluster: one per bit of 64 words, whose own bits fill one word.
pub const SUBCLUSTER_MODELS_MAX: usize = 64 * 64;

/// A model's entry for a class of GPUs: grants answered so far, and its candidate.
pub(crate) type Offer = (u64, Option<Candidate>);

/// One board for each class of GPUs; boards beyond the first are made at the first offer for their class.
#[derive(Debug)]
pub(crate) struct OfferBoard {
    models: usize,
    classes: [OnceLock<ClassBoard>; GPU_CLASSES_MAX],
}

impl OfferBoard {
    /// For `models` models, at most [`SUBCLUSTER_MODELS_MAX`].
    pub(crate) fn new(models: usize) -> Self {
        assert!(models <= SUBCLUSTER_MODELS_MAX, "{models} models, the limit is {SUBCLUSTER_MODELS_MAX}");
        let board = Self { models, classes: [const { OnceLock::new() }; GPU_CLASSES_MAX] };
        board.of_class(GpuClass::FIRST);
        board
    }

    fn of_class(&self, class: GpuClass) -> &ClassBoard {
        self.classes[class.index()].get_or_init(|| ClassBoard::new(self.models))
    }

    /// Publishes an offer in place of the previous one. The caller wakes the rank worker once for all it publishes.
    pub(crate) fn publish(&self, model: u32, class: GpuClass, offer: Offer) {
        self.of_class(class).publish(model, offer);
    }

    /// Takes the offers published since the last call, and returns whether some remain because of `limit`. Models of
    /// one word are taken together, so each class may exceed the limit by a few. The next call continues behind
    /// `last_word`, the last word read: busy models with small ordinals do not starve the others. The limit holds for
    /// each class by itself, so neither does a busy class.
    pub(crate) fn take(
        &self,
        last_word: &mut [u32; GPU_CLASSES_MAX],
        limit: usize,
        mut each: impl FnMut(u32, GpuClass, Offer),
    ) -> bool {
        let mut more = false;
        for (class, last_word) in GpuClass::all().zip(last_word) {
            if let Some(board) = self.classes[class.index()].get() {
                more |= board.take(last_word, limit, |model, offer| each(model, class, offer));
            }
        }
        more
    }
}

/// Models whose bits are in one word.
const WORD_MODELS: usize = 64;

/// The slots of one class.
#[derive(Debug)]
struct ClassBoard {
    /// By word, each allocated at the first offer of its models. A lead of a few models has a few slots instead of
    /// thousands, which a take-over of a thousand leads would have to allocate at once.
    slots: Vec<OnceLock<Box<[ArrayQueue<Offer>]>>>,
    dirty: Vec<AtomicU64>,
    /// Which words of `dirty` are not zero: a turn without offers reads one word, for any number of models.
    dirty_words: AtomicU64,
}

impl ClassBoard {
    fn new(models: usize) -> Self {
        Self {
            slots: (0..models.div_ceil(WORD_MODELS)).map(|_| OnceLock::new()).collect(),
            dirty: (0..models.div_ceil(WORD_MODELS)).map(|_| AtomicU64::new(0)).collect(),
            dirty_words: AtomicU64::new(0),
        }
    }

    fn publish(&self, model: u32, offer: Offer) {
        let model = model as usize;
        let slots = || (0..WORD_MODELS).map(|_| ArrayQueue::new(1)).collect();
        self.slots[model / WORD_MODELS].get_or_init(slots)[model % WORD_MODELS].force_push(offer);
        // In this order: a reader that sees the word's bit finds the model's bit, and with it the offer.
        self.dirty[model / WORD_MODELS].fetch_or(1 << (model % WORD_MODELS), Ordering::Release);
        self.dirty_words.fetch_or(1 << (model / WORD_MODELS), Ordering::Release);
    }

    fn take(&self, last_word: &mut u32, limit: usize, mut each: impl FnMut(u32, Offer)) -> bool {
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
            let Some(slots) = self.slots[word].get() else { continue };
            while bits != 0 {
                let slot = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(offer) = slots[slot].pop() {
                    taken += 1;
                    each((word * WORD_MODELS + slot) as u32, offer);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: GpuClass = GpuClass::FIRST;
    const FROM_THE_FIRST: [u32; GPU_CLASSES_MAX] = [63; GPU_CLASSES_MAX];

    fn board() -> OfferBoard {
        OfferBoard::new(130)
    }

    #[test]
    fn the_newest_offer_wins_and_is_read_once() {
        let board = board();
        board.publish(129, CLASS, (1, None));
        board.publish(129, CLASS, (2, None));
        board.publish(3, CLASS, (9, None));
        let mut seen = Vec::new();
        let mut last_word = FROM_THE_FIRST;
        assert!(!board.take(&mut last_word, 10, |model, _, offer| seen.push((model, offer))));
        assert_eq!(seen, [(3, (9, None)), (129, (2, None))]);
        assert!(!board.take(&mut last_word, 10, |model, _, _| panic!("model {model} again")));
    }

    #[test]
    fn what_exceeds_the_limit_is_taken_next_before_what_changed_again() {
        let board = board();
        for model in [1, 2, 70, 129] {
            board.publish(model, CLASS, (1, None));
        }
        let (mut seen, mut last_word) = (Vec::new(), FROM_THE_FIRST);
        assert!(board.take(&mut last_word, 2, |model, _, _| seen.push(model)));
        board.publish(1, CLASS, (2, None));
        assert!(board.take(&mut last_word, 2, |model, _, _| seen.push(model)));
        assert!(!board.take(&mut last_word, 2, |model, _, _| seen.push(model)));
        assert_eq!(seen, [1, 2, 70, 129, 1]);
    }

    #[test]
    fn a_model_has_an_offer_for_each_class_and_no_class_waits_for_another() {
        let (board, slow) = (board(), GpuClass::new(2).unwrap());
        for model in [0, 70] {
            board.publish(model, CLASS, (1, None));
        }
        board.publish(0, slow, (2, None));
        let (mut seen, mut last_word) = (Vec::new(), FROM_THE_FIRST);
        assert!(board.take(&mut last_word, 1, |model, class, (answered, _)| seen.push((model, class, answered))));
        assert_eq!(seen, [(0, CLASS, 1), (0, slow, 2)]);
        assert!(!board.take(&mut last_word, 1, |model, class, (answered, _)| seen.push((model, class, answered))));
        assert_eq!(seen[2..], [(70, CLASS, 1)]);
    }
}
