//! Poisson arrivals, made before they are needed.

use symphony_types::{Nanos, Time};

/// Arrivals in the table, which is used again and again; long enough not to matter.
const TABLE: usize = 1 << 18;

/// An open-loop schedule of requests: when each arrives and for which model. It goes on whatever the scheduler does.
#[derive(Debug)]
pub(crate) struct Arrivals {
    table: Vec<(u32, u32)>,
    next: usize,
    due: Time,
}

impl Arrivals {
    /// Arrivals at `rate_rps` for models `0..models` from `start` on.
    pub(crate) fn new(rate_rps: f64, models: u32, seed: u64, start: Time) -> Self {
        let mut random = seed | 1;
        let mut draw = move || {
            // Xorshift: seeded, and no dependency for two numbers per request.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mean_gap_ns = 1e9 / rate_rps;
        let table = (0..TABLE)
            .map(|_| {
                let uniform = (draw() >> 11) as f64 / (1_u64 << 53) as f64;
                let gap_ns = -(1.0 - uniform).ln() * mean_gap_ns;
                (gap_ns.round() as u32, (draw() % u64::from(models)) as u32)
            })
            .collect();
        let mut arrivals = Self { table, next: 0, due: start };
        arrivals.schedule();
        arrivals
    }

    /// When the next one arrives.
    pub(crate) const fn due(&self) -> Time {
        self.due
    }

    /// The next one: when it arrives and for which model.
    pub(crate) fn take(&mut self) -> (Time, u32) {
        let taken = (self.due, self.table[self.next].1);
        self.next = (self.next + 1) % TABLE;
        self.schedule();
        taken
    }

    fn schedule(&mut self) {
        self.due += Nanos::new(self.table[self.next].0.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_the_rate_and_reach_every_model_also_after_the_table_has_ended() {
        let mut arrivals = Arrivals::new(1e6, 7, 3, Time::ZERO);
        let mut counts = [0_u32; 7];
        let mut last = Time::ZERO;
        for _ in 0..2 * TABLE {
            let (due, model) = arrivals.take();
            assert!(due >= last);
            last = due;
            counts[model as usize] += 1;
        }
        let rate = 2.0 * TABLE as f64 / last.as_secs_f64();
        assert!((rate / 1e6 - 1.0).abs() < 0.02, "{rate}");
        assert!(counts.iter().all(|&count| count > TABLE as u32 / 7), "{counts:?}");
    }
}
