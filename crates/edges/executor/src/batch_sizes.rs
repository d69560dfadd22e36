//! Models that run batches of certain sizes only: other batches are padded to the next size.

use symphony_types::{LatencyProfile, PROFILE_BATCH_MAX};

/// The key under which an ONNX file may state, in its own metadata, which batch sizes it is to be run with: `1, 4, 16`.
pub const BATCH_SIZES_KEY: &str = "symphony.batch_sizes";
/// Sizes that a model may name: each may cost the runtime memory and preparations of its own.
const SIZES_MAX: usize = 64;
/// Limit for the text that lists them: the longest list, `4033, 4034, …`, has 382 bytes. A longer text is not quoted
/// in errors either.
const TEXT_BYTES_MAX: usize = 1024;

/// The batch sizes that a model runs, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSizes(Box<[u32]>);

impl BatchSizes {
    /// The one size of a model whose first dimension is fixed.
    ///
    /// # Errors
    /// If it is 0, or larger than a profile may be.
    pub fn fixed(size: u32) -> Result<Self, String> {
        Self::new(vec![size])
    }

    /// Parses sizes in the form of [`BATCH_SIZES_KEY`].
    ///
    /// # Errors
    /// If the text is not an ascending list of numbers.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("{} bytes long; expected at most {TEXT_BYTES_MAX}", text.len()));
        }
        let sizes = text.split(',').map(|size| size.trim().parse());
        let sizes = sizes.collect::<Result<Vec<_>, _>>();
        Self::new(sizes.map_err(|_| format!("`{text}`; expected numbers with commas between them, such as 1, 4, 16"))?)
    }

    fn new(sizes: Vec<u32>) -> Result<Self, String> {
        let ascend = sizes.is_sorted_by(|a, b| a < b);
        let fit = sizes.first().is_some_and(|&least| least > 0) && sizes.last() <= Some(&PROFILE_BATCH_MAX);
        if !ascend || !fit || sizes.len() > SIZES_MAX {
            let expected = format!("expected 1 to {SIZES_MAX} ascending numbers from 1 to {PROFILE_BATCH_MAX}");
            return Err(format!("{sizes:?}; {expected}"));
        }
        Ok(Self(sizes.into()))
    }

    /// The size that a batch of `items` is padded to; none if it exceeds the largest.
    #[must_use]
    pub fn filled(&self, items: u32) -> Option<u32> {
        self.0.get(self.0.partition_point(|&size| size < items)).copied()
    }

    /// Items of the largest batch that is run.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.0.last().copied().unwrap_or_default()
    }

    /// The batches to measure for a profile up to `batch_max`: the largest one for each padded size.
    pub(crate) fn measured(&self, batch_max: u32) -> Vec<u32> {
        let mut sizes: Vec<_> = self.0.iter().map(|&size| size.min(batch_max)).collect();
        sizes.dedup();
        sizes
    }

    /// Checks that a profile accounts for padding: a batch takes as long as the size it is padded to.
    ///
    /// # Errors
    /// Names the batch, both latencies, and what to do.
    pub fn check(&self, profile: &LatencyProfile) -> Result<(), String> {
        for batch in 1..=profile.batch_max() {
            let sizes = &self.0;
            let Some(filled) = self.filled(batch) else {
                let (largest, max) = (self.largest(), profile.batch_max());
                return Err(format!(
                    "its largest batch has {largest} items, and the profile says {max}; measure it again"
                ));
            };
            let (predicted, takes) = (profile.latency(batch), profile.latency(filled.min(profile.batch_max())));
            if predicted < takes {
                let (predicted, takes) = (predicted.as_millis_f64(), takes.as_millis_f64());
                return Err(format!(
                    "it runs batches of {sizes:?} only, and the profile says {predicted} ms for {batch} items, which are filled up to \
                     {filled} and take {takes} ms; measure it again with `symphony profile`"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::Nanos;

    use super::*;

    #[test]
    fn batches_are_filled_up_to_the_next_size() {
        let sizes = BatchSizes::parse(" 1, 4,16 ").unwrap();
        let filled: Vec<_> = [1, 2, 4, 5, 16, 17].map(|items| sizes.filled(items)).into();
        assert_eq!(filled, [Some(1), Some(4), Some(4), Some(16), Some(16), None]);
        assert_eq!(sizes.largest(), 16);
        assert_eq!(sizes.measured(16), [1, 4, 16]);
        assert_eq!(sizes.measured(6), [1, 4, 6], "a batch of 6 is filled up to 16");
        assert_eq!(sizes.measured(3), [1, 3]);
        assert_eq!(BatchSizes::fixed(8).unwrap().filled(1), Some(8));
    }

    #[test]
    fn what_is_no_list_of_sizes_is_refused() {
        for text in ["", "1,", "a", "0, 1", "4, 1", "4, 4", "1, 4097", "-1"] {
            assert!(BatchSizes::parse(text).unwrap_err().contains("expected"), "{text}");
        }
        let long = BatchSizes::parse(&"1".repeat(TEXT_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(long, "1025 bytes long; expected at most 1024", "it is not quoted");
        let longest: Vec<_> = (4033..=4096).map(|size: u32| size.to_string()).collect();
        assert_eq!(BatchSizes::parse(&longest.join(", ")).map(|sizes| sizes.largest()), Ok(4096));
        let many: Vec<_> = (1..=65).map(|size: u32| size.to_string()).collect();
        assert!(BatchSizes::parse(&many.join(",")).is_err());
        assert!(BatchSizes::fixed(0).is_err());
    }

    #[test]
    fn a_profile_must_account_for_what_is_filled_up() {
        let sizes = BatchSizes::parse("2, 4").unwrap();
        let profile = |us: &[u64]| {
            let table: Vec<_> = us.iter().map(|&us| Nanos::from_micros(us)).collect();
            LatencyProfile::from_table(&table).unwrap()
        };
        assert_eq!(sizes.check(&profile(&[20, 20, 40, 40])), Ok(()));
        assert_eq!(sizes.check(&profile(&[20, 20, 40])), Ok(()), "one that ends between two sizes");
        let hopeful = sizes.check(&profile(&[10, 20, 30, 40])).unwrap_err();
        assert!(hopeful.contains("says 0.01 ms for 1 items, which are filled up to 2 and take 0.02 ms"), "{hopeful}");
        let long = sizes.check(&profile(&[20, 20, 40, 40, 50])).unwrap_err();
        assert!(long.contains("its largest batch has 4 items, and the profile says 5"), "{long}");
    }
}
