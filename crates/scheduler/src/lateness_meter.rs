//! By how much plans end later than predicted: what has to come off deadlines besides the network's delays.

use symphony_types::Nanos;

/// Plans remembered. At twenty batches a second, six seconds: long enough to hold a machine's pauses, short enough to
/// forget them.
const WINDOW: usize = 128;
/// Plans between two looks at the window; a look sorts it.
const LOOK_EVERY: u32 = 16;
/// The quantile that is planned for: goodput allows one request in a hundred to be bad, half of them are left for what
/// no meter foresees.
const QUANTILE: f64 = 0.995;

/// The quantile of lateness over the last plans, in fixed memory.
#[derive(Clone, Debug)]
pub struct LatenessMeter {
    samples: [Nanos; WINDOW],
    filled: usize,
    next: usize,
    since_look: u32,
}

impl Default for LatenessMeter {
    fn default() -> Self {
        Self { samples: [Nanos::ZERO; WINDOW], filled: 0, next: 0, since_look: 0 }
    }
}

impl LatenessMeter {
    /// Notes that a plan ended `late` after its predicted end (zero if it was early). Every sixteenth time it returns
    /// the lateness to plan for.
    pub fn note(&mut self, late: Nanos) -> Option<Nanos> {
        self.samples[self.next] = late;
        self.next = (self.next + 1) % WINDOW;
        self.filled = (self.filled + 1).min(WINDOW);
        self.since_look += 1;
        if self.since_look < LOOK_EVERY {
            return None;
        }
        self.since_look = 0;
        let mut sorted = self.samples;
        let seen = &mut sorted[..self.filled];
        let rank = ((seen.len() - 1) as f64 * QUANTILE) as usize;
        Some(*seen.select_nth_unstable(rank).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pause_is_planned_for_only_while_it_is_remembered_with_others() {
        let mut meter = LatenessMeter::default();
        let looks = |meter: &mut LatenessMeter, late: u64, times: usize| {
            (0..times).filter_map(|_| meter.note(Nanos::from_micros(late))).collect::<Vec<_>>()
        };
        assert_eq!(looks(&mut meter, 100, 15), [], "too few to say anything");
        assert_eq!(looks(&mut meter, 100, 1), [Nanos::from_micros(100)]);
        looks(&mut meter, 100, 112);
        // One in 128 is the outlier that the quantile leaves out; two are a habit.
        assert_eq!(looks(&mut meter, 9000, 1), []);
        assert_eq!(looks(&mut meter, 100, 15), [Nanos::from_micros(100)]);
        assert_eq!(looks(&mut meter, 9000, 1), []);
        assert_eq!(looks(&mut meter, 100, 15), [Nanos::from_micros(9000)]);
        // A window later it is forgotten.
        assert_eq!(looks(&mut meter, 100, 128).last(), Some(&Nanos::from_micros(100)));
    }
}
