//! Decides what to measure, and derives a chain for each batch size.

use symphony_types::{LatencyProfile, Nanos};

use super::chain::{Chain, LINK_SIZES, LINKS_MAX};

/// The permitted deviation of a chain from ℓ(b), as a share of ℓ(b).
pub const TOLERANCE: f64 = 0.03;
/// Corrections of one batch size's chain. Each removes most of the remaining error; changing clocks need more than
/// one.
const CORRECTIONS_MAX: u32 = 6;
/// Links of the two measurements of one size: their difference is the links' alone. More of the smaller ones, so that
/// it is a millisecond and more on an H100 for each: what a host is late by is some tens of microseconds.
const FEW: u32 = 4;
const MANY: [u32; LINK_SIZES.len()] = [20, 40, 80, 160, 320];

/// A measurement to make: the duration of a batch of this many items with this chain, copies included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Items in the batch.
    pub batch: u32,
    /// What is computed.
    pub chain: Chain,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Measure this, and report how long it took.
    Measure(Trial),
    /// The chain of each batch size, the first one's for one item.
    Done(Vec<Chain>),
}

/// Why there are no chains.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CalibrationError {
    /// More work was not slower.
    #[error(
        "{many} products of {rows} rows took {many_ms} ms and {FEW} took {few_ms} ms; the device is too busy with something else to be \
         measured"
    )]
    NotSlower {
        /// Rows of the matrices.
        rows: u32,
        /// Links of the longer chain.
        many: u32,
        /// Time of the longer chain.
        many_ms: f64,
        /// Time of the shorter chain.
        few_ms: f64,
    },
    /// Even a batch without work takes too long.
    #[error(
        "ℓ({batch}) is {wanted_ms} ms, and a batch of {batch} takes {least_ms} ms on this device with nothing to compute"
    )]
    TooShort {
        /// Items in the batch.
        batch: u32,
        /// What the profile says.
        wanted_ms: f64,
        /// What copies and launch take.
        least_ms: f64,
    },
    /// The chain would be longer than allowed.
    #[error("ℓ({batch}) is {wanted_ms} ms, which takes more than {LINKS_MAX} products of one size on this device")]
    TooLong {
        /// Items in the batch.
        batch: u32,
        /// What the profile says.
        wanted_ms: f64,
    },
    /// The measurements do not come close enough.
    #[error(
        "ℓ({batch}) is {wanted_ms} ms, and the nearest chain, {chain}, took {took_ms} ms after {CORRECTIONS_MAX} corrections; a \
         tolerance of {tolerance} % was asked for"
    )]
    Missed {
        /// Items in the batch.
        batch: u32,
        /// What the profile says.
        wanted_ms: f64,
        /// What was measured last.
        took_ms: f64,
        /// The chain that was measured.
        chain: Chain,
        /// In per cent.
        tolerance: f64,
    },
}

/// The progress of a calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The links of a size, by its index; the time of the few links, once known.
    Link(usize, Option<Nanos>),
    /// A batch of this many items: first without work, to measure copies and launch.
    Batch { batch: u32, aim: Aim },
}

/// The search for a batch's chain.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aim {
    /// Not yet measured without work.
    Nothing,
    /// With this much work.
    Work { work: Nanos, least: Nanos, correction: u32 },
}

/// Finds, for each batch size of a profile, a chain that takes as long as the profile says, within a tolerance.
///
/// First it measures the cost of a link of each size, as the difference of two chains. Then for each batch size it
/// subtracts copies and launch from ℓ(b), takes the chain with the closest cost, and corrects it by measurements.
#[derive(Clone, Debug)]
pub struct Calibration {
    profile: LatencyProfile,
    tolerance: f64,
    cost: [Nanos; LINK_SIZES.len()],
    phase: Phase,
    pending: Option<Trial>,
    chains: Vec<Chain>,
}

impl Calibration {
    /// For this profile; `tolerance` is a share of ℓ(b), usually [`TOLERANCE`].
    #[must_use]
    pub fn new(profile: LatencyProfile, tolerance: f64) -> Self {
        let cost = [Nanos::ZERO; LINK_SIZES.len()];
        Self { profile, tolerance, cost, phase: Phase::Link(0, None), pending: None, chains: Vec::new() }
    }

    /// The next step after the last measurement took this long; the first call passes none.
    ///
    /// # Errors
    /// If the device cannot keep the profile, or the measurements contradict each other.
    pub fn step(&mut self, took: Option<Nanos>) -> Result<Step, CalibrationError> {
        if let (Some(trial), Some(took)) = (self.pending.take(), took) {
            match self.phase {
                Phase::Link(size, few) => self.link(size, few, took)?,
                Phase::Batch { batch, aim } => self.batch(batch, aim, trial.chain, took)?,
            }
        }
        if self.chains.len() == self.profile.batch_max() as usize {
            return Ok(Step::Done(self.chains.clone()));
        }
        let trial = match self.phase {
            Phase::Link(size, few) => {
                Trial { batch: 1, chain: Chain::of(size, if few.is_none() { FEW } else { MANY[size] }) }
            }
            Phase::Batch { batch, aim } => Trial { batch, chain: self.chain(aim) },
        };
        self.pending = Some(trial);
        Ok(Step::Measure(trial))
    }

    fn chain(&self, aim: Aim) -> Chain {
        match aim {
            Aim::Nothing => Chain::default(),
            Aim::Work { work, .. } => Chain::nearest(work, &self.cost),
        }
    }

    fn link(&mut self, size: usize, few: Option<Nanos>, took: Nanos) -> Result<(), CalibrationError> {
        let Some(few) = few else {
            self.phase = Phase::Link(size, Some(took));
            return Ok(());
        };
        if took <= few {
            let (many_ms, few_ms) = (took.as_millis_f64(), few.as_millis_f64());
            return Err(CalibrationError::NotSlower { rows: LINK_SIZES[size], many: MANY[size], many_ms, few_ms });
        }
        self.cost[size] = Nanos::new(((took.get() - few.get()) / u64::from(MANY[size] - FEW)).max(1));
        self.phase = if size + 1 < LINK_SIZES.len() {
            Phase::Link(size + 1, None)
        } else {
            Phase::Batch { batch: 1, aim: Aim::Nothing }
        };
        Ok(())
    }

    fn batch(&mut self, batch: u32, aim: Aim, chain: Chain, took: Nanos) -> Result<(), CalibrationError> {
        let wanted = self.profile.latency(batch);
        let wanted_ms = wanted.as_millis_f64();
        let (work, least, correction) = match aim {
            Aim::Nothing => {
                if took.get() as f64 > wanted.get() as f64 * (1.0 + self.tolerance) {
                    return Err(CalibrationError::TooShort { batch, wanted_ms, least_ms: took.as_millis_f64() });
                }
                (wanted.saturating_sub(took), took, 0)
            }
            Aim::Work { work, least, correction } => {
                let error = took.get().abs_diff(wanted.get()) as f64;
                if error <= wanted.get() as f64 * self.tolerance {
                    self.chains.push(chain);
                    self.phase = Phase::Batch { batch: batch + 1, aim: Aim::Nothing };
                    return Ok(());
                }
                if correction == CORRECTIONS_MAX {
                    let (took_ms, tolerance) = (took.as_millis_f64(), self.tolerance * 100.0);
                    return Err(CalibrationError::Missed { batch, wanted_ms, took_ms, chain, tolerance });
                }
                // Changes the work by the missing time, scaled by the chain's measured time per unit of work.
                let (did, should) = (took.saturating_sub(least), wanted.saturating_sub(least));
                let share = should.get() as f64 / did.get().max(1) as f64;
                (Nanos::new((work.get() as f64 * share.clamp(0.25, 4.0)) as u64), least, correction + 1)
            }
        };
        if work.get() / self.cost[0].get().max(1) > u64::from(LINKS_MAX) {
            return Err(CalibrationError::TooLong { batch, wanted_ms });
        }
        self.phase = Phase::Batch { batch, aim: Aim::Work { work, least, correction } };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A device with a cost for each link, one for each batch and item, and noise.
    struct FakeGpu {
        cost: [u64; LINK_SIZES.len()],
        launch: u64,
        item: u64,
        /// Per mille by which a measurement may be off.
        noise: u64,
        /// Nanoseconds by which the host may be late to see an end.
        late: u64,
        /// How much dearer a link is in a long chain, in per cent: clocks fall under load.
        heat: u64,
        dice: u64,
        trials: u32,
    }

    impl FakeGpu {
        /// About what an H100 does with TF32.
        const fn h100() -> Self {
            let cost = [310_000, 44_000, 11_000, 7_000, 5_500];
            Self { cost, launch: 60_000, item: 25_000, noise: 0, late: 0, heat: 0, dice: 1, trials: 0 }
        }

        fn time(&mut self, trial: Trial) -> Nanos {
            self.trials += 1;
            let cost = |rows| self.cost[LINK_SIZES.iter().position(|&size| size == rows).unwrap()];
            let work: u64 = trial.chain.links().map(|(rows, times)| cost(rows) * u64::from(times)).sum();
            let work = if trial.chain.len() > MANY[0] { work + work * self.heat / 100 } else { work };
            let time = self.launch + self.item * u64::from(trial.batch) + work;
            self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let off = (self.dice >> 33) % (2 * self.noise + 1);
            let late = (self.dice >> 17) % (self.late + 1);
            Nanos::new(time + time * off / 1000 - time * self.noise / 1000 + late)
        }

        fn calibrate(&mut self, profile: &LatencyProfile) -> Result<Vec<Chain>, CalibrationError> {
            let mut calibration = Calibration::new(profile.clone(), TOLERANCE);
            let mut took = None;
            loop {
                match calibration.step(took)? {
                    Step::Measure(trial) => took = Some(self.time(trial)),
                    Step::Done(chains) => return Ok(chains),
                }
            }
        }
    }

    fn within(gpu: &mut FakeGpu, profile: &LatencyProfile, chains: &[Chain], tolerance: f64) {
        assert_eq!(chains.len(), profile.batch_max() as usize);
        for (batch, &chain) in (1..).zip(chains) {
            let (took, wanted) = (gpu.time(Trial { batch, chain }), profile.latency(batch));
            let error = took.get().abs_diff(wanted.get()) as f64 / wanted.get() as f64;
            assert!(error <= tolerance, "ℓ({batch}) = {wanted:?}: {chain} takes {took:?}");
        }
    }

    #[test]
    fn every_batch_size_gets_a_chain_that_takes_as_long_as_the_profile_says() {
        let profile = LatencyProfile::from_line(1.053, 5.072, 32).unwrap();
        let mut gpu = FakeGpu::h100();
        let chains = gpu.calibrate(&profile).unwrap();
        within(&mut gpu, &profile, &chains, TOLERANCE);
        assert!(chains[31].len() > chains[0].len());
        // Two for each link's cost; two for each batch, since nothing had to be corrected; and those of `within`.
        assert_eq!(gpu.trials, 2 * 5 + 2 * 32 + 32);
        assert_eq!(FakeGpu::h100().calibrate(&profile).unwrap(), chains, "the same measurements, the same chains");
    }

    #[test]
    fn a_device_that_slows_down_under_load_is_corrected_for() {
        let profile = LatencyProfile::from_line(1.0, 8.0, 16).unwrap();
        let mut gpu = FakeGpu { heat: 25, ..FakeGpu::h100() };
        let chains = gpu.calibrate(&profile).unwrap();
        within(&mut gpu, &profile, &chains, TOLERANCE);
        assert!(gpu.trials > 2 * 5 + 2 * 16 + 16, "corrections are measured, too");
    }

    #[test]
    fn a_host_that_is_late_by_more_than_small_products_take_still_measures_them() {
        let profile = LatencyProfile::from_line(1.053, 5.072, 32).unwrap();
        for dice in 0..100 {
            let mut gpu = FakeGpu { late: 150_000, dice, ..FakeGpu::h100() };
            gpu.calibrate(&profile).unwrap();
        }
    }

    #[test]
    fn what_the_device_cannot_keep_is_refused_in_words() {
        let short = LatencyProfile::from_line(0.01, 0.06, 4).unwrap();
        let error = FakeGpu::h100().calibrate(&short).unwrap_err().to_string();
        assert_eq!(error, "ℓ(1) is 0.07 ms, and a batch of 1 takes 0.085 ms on this device with nothing to compute");
        let long = LatencyProfile::from_line(1.0, 60_000.0, 1).unwrap();
        let error = FakeGpu::h100().calibrate(&long).unwrap_err().to_string();
        assert!(error.contains("more than 8192 products"), "{error}");
        let mut busy = FakeGpu { noise: 900, ..FakeGpu::h100() };
        let profile = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
        let error = busy.calibrate(&profile).unwrap_err().to_string();
        assert!(error.contains("too busy") || error.contains("corrections") || error.contains("nothing"), "{error}");
        let free = FakeGpu { cost: [0; 5], ..FakeGpu::h100() }.calibrate(&profile).unwrap_err();
        assert!(matches!(free, CalibrationError::NotSlower { rows: 4096, .. }), "{free}");
    }

    proptest! {
        /// Devices of all speeds with a little noise: done or refused, and what is done is near enough.
        #[test]
        fn it_ends_and_what_it_finds_is_near(
            scale in 1..60_u64, noise in 0..8_u64, heat in 0..30_u64, dice in any::<u64>(),
            alpha in 0.05..4.0_f64, beta in 0.2..20.0_f64, batch_max in 1..24_u32
        ) {
            let cost = FakeGpu::h100().cost.map(|cost| cost * scale / 10 + 1);
            let mut gpu = FakeGpu { cost, noise, heat, dice, ..FakeGpu::h100() };
            let profile = LatencyProfile::from_line(alpha, beta, batch_max).unwrap();
            if let Ok(chains) = gpu.calibrate(&profile) {
                // Noise hides in what was measured, and shows when it is measured again.
                within(&mut gpu, &profile, &chains, TOLERANCE + 2.5 * noise as f64 / 1000.0);
            }
            prop_assert!(gpu.trials <= 10 + batch_max * (3 + CORRECTIONS_MAX));
        }
    }
}
