//! When requests are due: one seeded or recorded stream per model.

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp1, Gamma};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The process that makes arrivals.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalKind {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps.
    Uniform,
    /// Gamma gaps of this shape: below 1 burstier than Poisson, above 1 calmer (the Symphony paper, section 5).
    Gamma(f64),
}

/// A request of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueRequest {
    /// When it is due, since the start of the run.
    pub due: Duration,
    /// Its own time to the deadline, at most the model's, which is sent to the server; without one the model's holds.
    pub slo: Option<Duration>,
}

/// The due times of one model's requests since the start of the run, never decreasing. Drawn ones have no end; behind
/// the last recorded one comes [`Duration::MAX`].
#[derive(Clone, Debug)]
pub struct Arrivals(Times);

#[derive(Clone, Debug)]
enum Times {
    Drawn(Drawn),
    Recorded { requests: Arc<[DueRequest]>, next: usize },
}

#[derive(Clone, Debug)]
struct Drawn {
    kind: ArrivalKind,
    gamma: Option<Gamma<f64>>,
    rng: Xoshiro256PlusPlus,
    /// In mean gaps.
    at: f64,
    mean_gap_s: f64,
}

impl Arrivals {
    /// The stream determined by (seed, stream), at `rate_rps` requests per second.
    ///
    /// Returns none if the rate or the shape is not a positive, finite number.
    #[must_use]
    pub fn new(kind: ArrivalKind, rate_rps: f64, seed: u64, stream: u64) -> Option<Self> {
        let gamma = match kind {
            ArrivalKind::Gamma(shape) => Some(Gamma::new(shape, 1.0 / shape).ok()?),
            ArrivalKind::Poisson | ArrivalKind::Uniform => None,
        };
        if !rate_rps.is_finite() || rate_rps <= 0.0 {
            return None;
        }
        // Neighbouring streams of one seed become unrelated generators: an odd multiplier spreads them over all bits.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        // A random phase, or models of equal rate would all arrive in the same instants.
        let at = if kind == ArrivalKind::Uniform { rng.random::<f64>() - 1.0 } else { 0.0 };
        Some(Self(Times::Drawn(Drawn { kind, gamma, rng, at, mean_gap_s: 1.0 / rate_rps })))
    }

    /// Recorded requests, in the order of time.
    #[must_use]
    pub const fn recorded(requests: Arc<[DueRequest]>) -> Self {
        Self(Times::Recorded { requests, next: 0 })
    }

    /// The next due time.
    pub fn next_due(&mut self) -> Duration {
        match &mut self.0 {
            Times::Drawn(drawn) => drawn.next_due(),
            Times::Recorded { requests, next } => {
                *next += 1;
                requests.get(*next - 1).map_or(Duration::MAX, |request| request.due)
            }
        }
    }
}

impl Drawn {
    fn next_due(&mut self) -> Duration {
        self.at += match (self.kind, &self.gamma) {
            (ArrivalKind::Gamma(_), Some(gamma)) => gamma.sample(&mut self.rng),
            (ArrivalKind::Uniform, _) => 1.0,
            _ => self.rng.sample(Exp1),
        };
        Duration::try_from_secs_f64(self.at * self.mean_gap_s).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_kept_seeds_repeat_and_streams_differ() {
        for kind in [ArrivalKind::Poisson, ArrivalKind::Uniform, ArrivalKind::Gamma(0.5)] {
            let times = |seed, stream| {
                let mut arrivals = Arrivals::new(kind, 1000.0, seed, stream).unwrap();
                (0..20_000).map(|_| arrivals.next_due()).collect::<Vec<_>>()
            };
            let one = times(7, 0);
            assert!(one.is_sorted());
            let seconds = one.last().unwrap().as_secs_f64();
            assert!((19.0..21.0).contains(&seconds), "{kind:?}: 20000 arrivals at 1000/s took {seconds} s");
            assert_eq!(one, times(7, 0));
            assert_ne!(one, times(7, 1));
            assert_ne!(one, times(8, 0));
        }
    }

    #[test]
    fn senseless_rates_and_shapes_make_no_stream() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Arrivals::new(ArrivalKind::Poisson, rate, 1, 0).is_none(), "{rate}");
        }
        for shape in [0.0, -1.0, f64::NAN] {
            assert!(Arrivals::new(ArrivalKind::Gamma(shape), 1.0, 1, 0).is_none(), "{shape}");
        }
    }

    #[test]
    fn recorded_requests_are_due_as_they_are_and_then_none_is() {
        let due = |ms| DueRequest { due: Duration::from_millis(ms), slo: None };
        let mut arrivals = Arrivals::recorded([due(3), due(3), due(8)].into());
        let times: Vec<_> = (0..5).map(|_| arrivals.next_due()).collect();
        let ms = Duration::from_millis;
        assert_eq!(times, [ms(3), ms(3), ms(8), Duration::MAX, Duration::MAX]);
    }
}
