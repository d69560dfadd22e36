//! Reusable buffers. New buffers of this size come from the system and return to it each time, and each of their pages
//! costs a fault: together more than the copy.

use std::sync::{Arc, Mutex, PoisonError};

use zerocopy::IntoBytes as _;

/// The most buffers kept.
const BUFFERS_MAX: usize = 32;
/// Larger ones are not kept: 512 KiB, so that all of them take 16 MiB at most.
const BUFFER_WORDS_MAX: usize = (512 << 10) / 8;

/// Free buffers; a handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Vec<u64>>>>);

/// Bytes in such a buffer, which is returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Copied {
    words: Vec<u64>,
    length: usize,
    home: Buffers,
}

impl Buffers {
    /// An empty buffer for this many words.
    pub(crate) fn take(&self, words: usize) -> Vec<u64> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // A buffer that is too small is freed: sizes are those of a model's inputs, and rarely differ.
        kept.filter(|kept| kept.capacity() >= words).unwrap_or_else(|| Vec::with_capacity(words))
    }

    /// The first `length` bytes of `words`.
    pub(crate) fn lend(&self, words: Vec<u64>, length: usize) -> Copied {
        Copied { words, length, home: self.clone() }
    }

    fn give_back(&self, mut words: Vec<u64>) {
        if words.capacity() == 0 || words.capacity() > BUFFER_WORDS_MAX {
            return;
        }
        words.clear();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < BUFFERS_MAX {
            kept.push(words);
        }
    }
}

impl AsRef<[u8]> for Copied {
    fn as_ref(&self) -> &[u8] {
        &self.words.as_bytes()[..self.length]
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(buffers: &Buffers) -> usize {
        buffers.0.lock().unwrap().len()
    }

    #[test]
    fn a_buffer_is_used_again_once_nobody_has_it_and_no_more_than_some_are_kept() {
        let buffers = Buffers::default();
        let mut words = buffers.take(100);
        words.extend([7; 100]);
        let at = words.as_ptr();
        let lent = buffers.lend(words, 799);
        assert_eq!(lent.as_ref(), [&[7_u64; 100].as_bytes()[..799]].concat());
        assert_eq!(kept(&buffers), 0);
        drop(lent);
        let again = buffers.take(90);
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        drop(buffers.lend(again, 0));
        assert!(buffers.take(101).capacity() >= 101, "too small ones are let go");

        let lent: Vec<_> = (0..2 * BUFFERS_MAX).map(|_| buffers.lend(Vec::with_capacity(10), 0)).collect();
        drop(lent);
        assert_eq!(kept(&buffers), BUFFERS_MAX);
        let buffers = Buffers::default();
        drop(buffers.lend(Vec::with_capacity(BUFFER_WORDS_MAX + 1), 0));
        assert_eq!(kept(&buffers), 0);
    }
}
