//! Copies out of memory that other processes may write at the same time.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;

/// Appends the words. Each byte is one that was stored there, but bytes stored together need not be read together.
/// need not be read together.
#[cfg(target_arch = "x86_64")]
pub(crate) fn append(words: &[AtomicU64], to: &mut Vec<u64>) {
    to.reserve(words.len());
    let end = to.spare_capacity_mut().as_mut_ptr();
    // As wide as the processor can. Loads of atomics are not put together by the compiler, which takes twice as long
    // where the bytes are not in the nearest cache. SAFETY: it stands for a relaxed load of each byte of `words`, which
    // atomics allow, whatever other processes store; it writes as many bytes to memory that was reserved and is not
    // shared; the direction flag is clear, as the calling convention has it.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") size_of_val(words) => _,
            inout("rsi") words.as_ptr() => _,
            inout("rdi") end => _,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: `words.len()` more were reserved, and have just been written.
    unsafe { to.set_len(to.len() + words.len()) };
}

/// Appends what the words are.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn append(words: &[AtomicU64], to: &mut Vec<u64>) {
    to.extend(words.iter().map(|word| word.load(std::sync::atomic::Ordering::Relaxed)));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_was_there_is_appended() {
        let value = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for count in [0, 1, 2, 7, 64, 1000] {
            let words: Vec<_> = (0..count).map(|n| AtomicU64::new(value(n))).collect();
            let mut to = vec![u64::MAX];
            append(&words, &mut to);
            assert!(to.iter().copied().eq([u64::MAX].into_iter().chain((0..count).map(value))));
        }
    }

    #[test]
    fn whoever_stores_meanwhile_each_byte_is_one_that_was_stored() {
        const WORDS: usize = 4096;
        let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    for value in [u64::MAX, 0] {
                        words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
                    }
                }
            });
            for _ in 0..200 {
                let mut to = Vec::new();
                append(&words, &mut to);
                let strange = |word: &&u64| word.to_ne_bytes().iter().any(|byte| ![0, 0xff].contains(byte));
                assert_eq!((to.len(), to.iter().find(strange)), (WORDS, None));
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
}
