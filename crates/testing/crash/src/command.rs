//! What is written: bytes that follow from where they stand, and a state that remembers all of them.

use std::sync::{Arc, Mutex, PoisonError};

use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_consensus::StateMachine;
use symphony_consensus::storage::LogPosition;

/// The one command that may stand at `place`: a reader that gets another has been served damage.
pub(crate) fn command(seed: u64, place: LogPosition) -> Vec<u8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ place.term.rotate_left(40) ^ place.index.rotate_left(8));
    let length = match random.random_range(0..100) {
        0..70 => random.random_range(0..300),
        70..97 => random.random_range(300..5_000),
        // Larger than an engine's largest value: split, or over several pages.
        _ => random.random_range(60_000..150_000),
    };
    let mut bytes = vec![0; length];
    random.fill_bytes(&mut bytes);
    bytes
}

/// A hash over everything that was applied, and up to where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) index: u64,
    pub(crate) hash: u64,
}

impl Sum {
    fn add(&mut self, index: u64, command: &[u8]) {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let mut hash = (self.hash ^ index).wrapping_mul(PRIME);
        for chunk in command.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(PRIME).rotate_left(29);
        }
        *self = Self { index, hash };
    }

    /// Some pages, so that a snapshot can be torn.
    fn padding(self) -> Vec<u8> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.hash);
        let mut bytes = vec![0; random.random_range(100..20_000)];
        random.fill_bytes(&mut bytes);
        bytes
    }
}

/// The state, seen from outside as well.
#[derive(Debug, Clone, Default)]
pub(crate) struct Applied(Arc<Mutex<Sum>>);

impl Applied {
    pub(crate) fn sum(&self) -> Sum {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateMachine for Applied {
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<Vec<u8>, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(index, command);
        Ok(Vec::new())
    }

    fn snapshot(&self) -> Vec<u8> {
        let sum = self.sum();
        let mut bytes = sum.index.to_le_bytes().to_vec();
        bytes.extend(sum.hash.to_le_bytes());
        bytes.extend(sum.padding());
        bytes
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (numbers, padding) = bytes.split_at_checked(16).ok_or("state is too short")?;
        let number = |at: usize| numbers[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or_default();
        let sum = Sum { index: number(0), hash: number(8) };
        if padding != sum.padding() {
            return Err("state does not follow from its sum".to_owned());
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sum;
        Ok(())
    }
}
