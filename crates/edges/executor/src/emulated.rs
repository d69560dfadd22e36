//! An executor that takes as long as a profile says, exactly or with seeded noise, and computes a checksum in place of
//! a model.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_types::{DataType, LatencyProfile, Nanos, Signature, TensorSpec};
use symphony_workload::{Execution, NoiseStream};

use crate::port::{BatchInputs, ExecuteError, ModelExecutor};
use crate::wait::wait_until;

/// The slowdown of an emulated GPU relative to its profile, in thousandths, or 0 if every batch fails; may be changed
/// while it runs.
#[derive(Debug)]
pub struct Pace(AtomicU32);

impl Pace {
    /// The largest slowdown, and the inverse of the largest speed-up: an emulation beyond that is meaningless.
    pub const FACTOR_MAX: f64 = 100.0;
    const ONE: u32 = 1000;

    /// Sets the factor, clamped to [`Self::FACTOR_MAX`].
    pub fn set(&self, factor: f64) {
        let factor = if factor.is_nan() { 1.0 } else { factor.clamp(1.0 / Self::FACTOR_MAX, Self::FACTOR_MAX) };
        self.0.store((factor * f64::from(Self::ONE)).round() as u32, Ordering::Relaxed);
    }

    /// From now on every batch fails at once.
    pub fn fail(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The duration for a profiled `latency`; none if the GPU fails.
    #[must_use]
    pub fn of(&self, latency: Duration) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            factor => Some(latency * factor / Self::ONE),
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicU32::new(Self::ONE))
    }
}

/// The deviation of one emulated GPU's batches from their profiles: the simulator's law, with random numbers of the
/// GPU's own that all of its models share. Without noise, the default, every batch takes exactly ℓ(b).
#[derive(Debug, Default)]
pub struct Noise(Option<Mutex<NoiseStream>>);

impl Noise {
    /// Lognormal, of mean one, with this standard deviation of the logarithm, for GPU number `gpu` under `seed`. Zero
    /// is no noise.
    #[must_use]
    pub fn lognormal(sigma: f64, seed: u64, gpu: u32) -> Self {
        let execution = Execution::lognormal(sigma);
        Self((!execution.is_exact()).then(|| Mutex::new(NoiseStream::new(execution, seed, gpu))))
    }

    /// The duration of the next batch with this nominal latency.
    fn stretch(&self, latency: Nanos) -> Nanos {
        let stretched =
            |stream: &Mutex<NoiseStream>| stream.lock().unwrap_or_else(PoisonError::into_inner).stretch(latency);
        self.0.as_ref().map_or(latency, stretched)
    }
}

/// Takes ℓ(b) per batch, exactly by default; each item's answer is the checksum of that item's inputs.
///
/// The answer depends only on the item itself, not on its place in the batch or on its neighbours. So a load generator
/// can verify that every answer belongs to its request (see [`item_checksum`]).
#[derive(Debug)]
pub struct EmulatedExecutor {
    profile: LatencyProfile,
    signature: Signature,
    pace: Arc<Pace>,
    noise: Arc<Noise>,
    /// End of this executor's last batch: the next one cannot have begun before. That batches of several models do not
    /// overlap either is up to the caller.
    free_at: Option<Instant>,
}

impl EmulatedExecutor {
    /// An emulated GPU with this profile, for a model with this signature.
    ///
    /// Any signature works: an output is filled by repeating the four bytes of the item's checksum, so the default one
    /// (see [`default_signature`]) returns the checksum as a number.
    #[must_use]
    pub fn new(profile: LatencyProfile, signature: Signature) -> Self {
        Self { profile, signature, pace: Arc::default(), noise: Arc::default(), free_at: None }
    }

    /// Emulates a GPU that is as slow as `pace` says, whenever it says so.
    #[must_use]
    pub fn paced(self, pace: Arc<Pace>) -> Self {
        Self { pace, ..self }
    }

    /// Emulates a GPU with this noise.
    #[must_use]
    pub fn noisy(self, noise: Arc<Noise>) -> Self {
        Self { noise, ..self }
    }
}

/// `INPUT0`, FP32, 16 numbers → `OUTPUT0`, UINT32, one number.
#[must_use]
pub fn default_signature() -> Signature {
    let input = TensorSpec { name: "INPUT0".into(), data_type: DataType::Fp32, item_shape: vec![16] };
    let output = TensorSpec { name: "OUTPUT0".into(), data_type: DataType::Uint32, item_shape: vec![1] };
    Signature { inputs: vec![input], outputs: vec![output] }
}

/// The CRC-32C of one item's bytes in all inputs, in the signature's order: what the emulated executor answers.
pub fn item_checksum<'a>(inputs: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    inputs.into_iter().fold(0, crc32c::crc32c_append)
}

impl ModelExecutor for EmulatedExecutor {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        batch.check(&self.signature, self.profile.batch_max())?;
        let requested_start = batch.start.unwrap_or_else(Instant::now);
        let begin = self.free_at.map_or(requested_start, |free_at| free_at.max(requested_start));
        // Drawn for failing batches, too: the pace of a GPU does not change its noise.
        let latency = self.noise.stretch(self.profile.latency(batch.items));
        let Some(takes) = self.pace.of(latency.into()) else {
            return Err(ExecuteError::Failed {
                items: batch.items,
                reason: "the emulated GPU was told to fail".into(),
            });
        };
        let end = begin + takes;

        // The answers are computed within that time, not after it.
        outputs.resize_with(self.signature.outputs.len(), Vec::new);
        outputs.iter_mut().for_each(Vec::clear);
        for item in 0..batch.items as usize {
            let slices = self.signature.inputs.iter().zip(batch.tensors).map(|(spec, bytes)| {
                let size = spec.item_bytes();
                &bytes[item * size..(item + 1) * size]
            });
            let answer = item_checksum(slices).to_le_bytes();
            for (spec, output) in self.signature.outputs.iter().zip(outputs.iter_mut()) {
                output.extend(answer.iter().cycle().take(spec.item_bytes()));
            }
        }
        wait_until(end);
        self.free_at = Some(end);
        Ok(())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn batch_max(&self) -> u32 {
        self.profile.batch_max()
    }

    fn kind(&self) -> &'static str {
        "emulated"
    }

    fn counts_from_start(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn executor() -> EmulatedExecutor {
        EmulatedExecutor::new(LatencyProfile::from_line(1.0, 2.0, 4).unwrap(), default_signature())
    }

    #[test]
    fn being_called_late_does_not_add_up() {
        let mut executor = executor();
        let (input, mut outputs) = ([0_u8; 64], Vec::new());
        let first = Instant::now();
        for turn in 0..5 {
            // Back to back, each called only after the previous one ended, hence a little late.
            let start = Some(first + Duration::from_millis(3 * turn));
            executor.run(&BatchInputs { items: 1, tensors: &[&input], start }, &mut outputs).unwrap();
        }
        assert_eq!(executor.free_at, Some(first + Duration::from_millis(15)));
        assert!(first.elapsed() >= Duration::from_millis(15));
    }

    #[test]
    fn a_gpu_that_becomes_slow_takes_as_long_as_it_is_told_to() {
        let pace = Arc::new(Pace::default());
        let mut executor = executor().paced(Arc::clone(&pace));
        let (input, mut outputs, start) = ([0_u8; 64], Vec::new(), Instant::now());
        for (factor, ends_after_us) in [(1.0, 3_000), (2.0, 9_000), (0.5, 10_500), (f64::NAN, 13_500)] {
            pace.set(factor);
            executor.run(&BatchInputs { items: 1, tensors: &[&input], start: Some(start) }, &mut outputs).unwrap();
            assert_eq!(executor.free_at, Some(start + Duration::from_micros(ends_after_us)));
        }
    }

    #[test]
    fn with_noise_batches_take_what_the_gpus_own_stream_draws_whatever_its_models() {
        let latency = Nanos::from_millis_f64(3.0);
        let mut drawn = NoiseStream::new(Execution::lognormal(0.2), 9, 2);
        let noise = Arc::new(Noise::lognormal(0.2, 9, 2));
        let mut models = [(); 2].map(|()| executor().noisy(Arc::clone(&noise)));
        let (input, mut outputs) = ([0_u8; 64], Vec::new());
        for turn in 0..6 {
            let executor = &mut models[turn % 2];
            let start = Instant::now();
            executor.run(&BatchInputs { items: 1, tensors: &[&input], start: Some(start) }, &mut outputs).unwrap();
            assert_eq!(executor.free_at, Some(start + drawn.stretch(latency).into()));
        }
    }

    #[test]
    fn no_noise_is_exact() {
        let mut executor = executor().noisy(Arc::new(Noise::lognormal(0.0, 9, 2)));
        let (input, mut outputs, start) = ([0_u8; 64], Vec::new(), Instant::now());
        executor.run(&BatchInputs { items: 1, tensors: &[&input], start: Some(start) }, &mut outputs).unwrap();
        assert_eq!(executor.free_at, Some(start + Duration::from_millis(3)));
    }

    #[test]
    fn batches_that_would_overlap_run_one_after_the_other() {
        let mut executor = executor();
        let (input, mut outputs) = ([0_u8; 128], Vec::new());
        let start = Instant::now();
        for _ in 0..2 {
            let batch = BatchInputs { items: 2, tensors: &[&input], start: Some(start) };
            executor.run(&batch, &mut outputs).unwrap();
        }
        assert_eq!(executor.free_at, Some(start + Duration::from_millis(8)));
    }

    #[test]
    fn every_byte_of_every_input_changes_the_answer_and_outputs_are_filled() {
        let spec = |name: &str, data_type, shape: &[u32]| TensorSpec {
            name: name.into(),
            data_type,
            item_shape: shape.to_vec(),
        };
        let signature = Signature {
            inputs: vec![spec("a", DataType::Uint8, &[3]), spec("b", DataType::Int16, &[])],
            outputs: vec![spec("x", DataType::Uint32, &[1]), spec("y", DataType::Uint8, &[6])],
        };
        let mut executor = EmulatedExecutor::new(LatencyProfile::from_line(0.0, 0.001, 4).unwrap(), signature);
        let mut answer = |a: [u8; 3], b: [u8; 2]| {
            let mut outputs = vec![vec![9; 40]];
            executor.run(&BatchInputs { items: 1, tensors: &[&a, &b], start: None }, &mut outputs).unwrap();
            assert_eq!(outputs[1][..4], outputs[0]);
            assert_eq!(outputs[1][4..], outputs[0][..2]);
            assert_eq!(outputs[0], item_checksum([&a[..], &b[..]]).to_le_bytes());
            outputs.remove(0)
        };
        let base = answer([1, 2, 3], [4, 5]);
        for other in [answer([1, 2, 0], [4, 5]), answer([1, 2, 3], [0, 5]), answer([1, 2, 3], [4, 0])] {
            assert_ne!(base, other);
        }
    }
}
