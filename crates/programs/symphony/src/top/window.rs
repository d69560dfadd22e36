//! What is shown of the samples of the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

use super::screen::Screen;
use crate::inspect::sample::Sample;

/// The period of samples.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(1);

/// Recent samples.
#[derive(Debug)]
pub(crate) struct Window {
    over: Duration,
    samples: VecDeque<Sample>,
}

impl Window {
    /// No samples yet.
    pub(crate) const fn new(over: Duration) -> Self {
        Self { over, samples: VecDeque::new() }
    }

    /// The screen of a new sample: over the requested time, or as much of it as is known.
    pub(crate) fn take(&mut self, now: Sample) -> Screen {
        // The nearest sample: samples are rarely exactly whole seconds apart.
        let oldest_of_use = (now.at + ASK_EVERY / 2).saturating_sub(self.over);
        while self.samples.get(1).is_some_and(|next| next.at <= oldest_of_use) {
            self.samples.pop_front();
        }
        self.samples.push_back(now);
        // Not empty: the one that came is present.
        let (before, now) = (&self.samples[0], &self.samples[self.samples.len() - 1]);
        Screen::of(before, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::scene::sample;

    #[test]
    fn rates_are_over_the_time_that_was_asked_for_or_what_is_known_of_it() {
        let mut window = Window::new(Duration::from_secs(3));
        let spans: Vec<_> = (0..8).map(|at| window.take(sample(at)).json()["span_s"].as_f64().unwrap()).collect();
        assert_eq!(spans, [0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
        let late = |late_ms: u64| Sample { at: Duration::from_millis(8000 + late_ms), ..sample(8) };
        assert_eq!(
            [window.take(late(3)).json(), window.take(late(990)).json()].map(|json| json["span_s"].as_f64()),
            [Some(3.003), Some(2.99)]
        );
        assert_eq!(window.take(sample(20)).json()["span_s"], 11.01, "nothing was heard in between");
        assert!(window.samples.len() <= 3);
    }
}
