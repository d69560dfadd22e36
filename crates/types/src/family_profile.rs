//! ℓ of a family: models that share a trunk. A batch of it runs the trunk once for all rows, and each variant's suffix
//! on the rows of that variant (Nexus, section 6.3, prefix batching).

use crate::{LatencyProfile, Nanos};

/// The most variants of a family: counting the rows of a batch by variant then costs little beside forming it, and a
/// variant's number fits 16 bits.
pub const VARIANTS_MAX: u32 = 1024;
/// The most suffixes of a family whose profiles differ: the worst composition takes time in proportion to them, and
/// with this many a second or so at the largest batch of a profile.
pub const SUFFIX_PROFILES_MAX: usize = 64;

/// Latencies of a family on one kind of GPU, in nanoseconds over rows: the trunk's over all rows of a batch, and each
/// variant's suffix over its own rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyProfile {
    trunk: LatencyProfile,
    /// The suffixes' profiles, each once.
    suffixes: Box<[LatencyProfile]>,
    /// Of each variant, the place in `suffixes`.
    suffix_of: Box<[u16]>,
    worst: LatencyProfile,
}

/// Why profiles make no family.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FamilyProfileError {
    /// There is no variant, or there are too many.
    #[error("the family has {got} variants; expected 1 to {VARIANTS_MAX}")]
    Variants {
        /// Variants given.
        got: usize,
    },
    /// Too many suffixes differ.
    #[error("the family has {got} suffixes with different profiles; at most {SUFFIX_PROFILES_MAX} are allowed")]
    Suffixes {
        /// Different profiles given.
        got: usize,
    },
}

/// The rows of a batch by variant. Reused from batch to batch, so that counting does not allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariantRows {
    /// By variant.
    rows: Vec<u32>,
    /// Whether a row is of a variant that is not there.
    unknown: bool,
}

impl VariantRows {
    /// No rows, for a family of this many variants.
    #[must_use]
    pub fn new(variants: u32) -> Self {
        Self { rows: vec![0; variants.min(VARIANTS_MAX) as usize], unknown: false }
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.rows.fill(0);
        self.unknown = false;
    }

    /// Counts further rows of a batch that are of a variant.
    pub fn add(&mut self, variant: u32, rows: u32) {
        match self.rows.get_mut(variant as usize) {
            Some(known) => *known = known.saturating_add(rows),
            None => self.unknown |= rows > 0,
        }
    }
}

impl FamilyProfile {
    /// The trunk's profile, and that of each variant's suffix. The largest batch is the least of all these.
    ///
    /// # Errors
    /// If there is no suffix, or too many of them or of different ones.
    pub fn new(trunk: LatencyProfile, suffix_of_variants: &[LatencyProfile]) -> Result<Self, FamilyProfileError> {
        if suffix_of_variants.is_empty() || suffix_of_variants.len() > VARIANTS_MAX as usize {
            return Err(FamilyProfileError::Variants { got: suffix_of_variants.len() });
        }
        let mut suffixes: Vec<LatencyProfile> = Vec::new();
        let mut suffix_of = Vec::with_capacity(suffix_of_variants.len());
        for suffix in suffix_of_variants {
            let place = suffixes.iter().position(|known| known == suffix).unwrap_or(suffixes.len());
            if place == suffixes.len() {
                suffixes.push(suffix.clone());
            }
            suffix_of.push(place as u16);
        }
        if suffixes.len() > SUFFIX_PROFILES_MAX {
            return Err(FamilyProfileError::Suffixes { got: suffixes.len() });
        }
        Ok(Self::composed(trunk, suffixes, suffix_of))
    }

    /// A family whose suffixes all take as long.
    ///
    /// # Errors
    /// If there are no variants, or too many.
    pub fn alike(trunk: LatencyProfile, suffix: LatencyProfile, variants: u32) -> Result<Self, FamilyProfileError> {
        if !(1..=VARIANTS_MAX).contains(&variants) {
            return Err(FamilyProfileError::Variants { got: variants as usize });
        }
        Ok(Self::composed(trunk, vec![suffix], vec![0; variants as usize]))
    }

    fn composed(trunk: LatencyProfile, suffixes: Vec<LatencyProfile>, suffix_of: Vec<u16>) -> Self {
        let batch_max = suffixes.iter().map(LatencyProfile::batch_max).fold(trunk.batch_max(), u32::min);
        let mut apart = vec![0_u64; batch_max as usize + 1];
        for (place, suffix) in suffixes.iter().enumerate() {
            let variants = suffix_of.iter().filter(|&&of| usize::from(of) == place).count();
            let one: Vec<u64> = (0..=batch_max).map(|rows| suffix.latency(rows).get()).collect();
            // No batch has rows of more variants than it has rows.
            apart = worst_division(&apart, &worst_among(one, variants.min(batch_max as usize)));
        }
        let table: Vec<Nanos> =
            trunk.table().iter().zip(&apart[1..]).map(|(trunk, &apart)| *trunk + Nanos::new(apart)).collect();
        let worst = LatencyProfile::of_monotone(&table);
        Self { trunk, suffixes: suffixes.into(), suffix_of: suffix_of.into(), worst }
    }

    /// The number of variants.
    #[must_use]
    pub fn variants(&self) -> u32 {
        self.suffix_of.len() as u32
    }

    /// ℓ(b) of the trunk, over the rows of all variants together.
    #[must_use]
    pub const fn trunk(&self) -> &LatencyProfile {
        &self.trunk
    }

    /// ℓ(b) of a variant's suffix, over its own rows; `None` if the family has no such variant.
    #[must_use]
    pub fn suffix(&self, variant: u32) -> Option<&LatencyProfile> {
        self.suffixes.get(usize::from(*self.suffix_of.get(variant as usize)?))
    }

    /// What batches take whatever their variants are: ℓ_T(b) + max over Σb_i = b of Σℓ_S_i(b_i). It is monotone, since
    /// one more row can go to any variant. With K suffixes α·b + β it is ℓ_T(b) + α·b + min(b, K)·β.
    #[must_use]
    pub const fn worst(&self) -> &LatencyProfile {
        &self.worst
    }

    /// What a batch of these rows takes: ℓ_T(b) + Σℓ_S_i(b_i), never more than [`worst`](Self::worst) says of as many
    /// rows. `None` if some are of no variant of this family.
    #[must_use]
    pub fn exact(&self, rows: &VariantRows) -> Option<Nanos> {
        if rows.unknown {
            return None;
        }
        let (mut batch, mut suffixes) = (0_u32, Nanos::ZERO);
        for (variant, &rows) in (0..).zip(&rows.rows).filter(|&(_, &rows)| rows > 0) {
            batch = batch.saturating_add(rows);
            suffixes += self.suffix(variant)?.latency(rows);
        }
        Some(if batch > self.worst.batch_max() { Nanos::MAX } else { self.trunk.latency(batch) + suffixes })
    }

    /// What a variant takes by itself, with a trunk of its own: ℓ_T(b) + ℓ_S(b).
    #[must_use]
    pub fn unshared(&self, variant: u32) -> Option<LatencyProfile> {
        let both = self.trunk.table().iter().zip(self.suffix(variant)?.table());
        let table: Vec<Nanos> = both.map(|(trunk, suffix)| *trunk + *suffix).collect();
        Some(LatencyProfile::of_monotone(&table))
    }

    /// The family on GPUs of both kinds: the slower trunk and the slower suffixes at every batch size. Both must have
    /// the same variants; further ones are left out.
    #[must_use]
    pub fn slower_of(&self, other: &Self) -> Self {
        let (mut suffixes, mut suffix_of) = (Vec::new(), Vec::new());
        let pairs = self.suffix_of.iter().zip(&other.suffix_of);
        for (&own, &others) in pairs {
            let slower = self.suffixes[usize::from(own)].slower_of(&other.suffixes[usize::from(others)]);
            let place = suffixes.iter().position(|known| *known == slower).unwrap_or(suffixes.len());
            if place == suffixes.len() {
                suffixes.push(slower);
            }
            suffix_of.push(place as u16);
        }
        Self::composed(self.trunk.slower_of(&other.trunk), suffixes, suffix_of)
    }
}

/// The worst division of rows between two groups: at each number of rows n, the largest a(i) + b(n − i).
fn worst_division(a: &[u64], b: &[u64]) -> Vec<u64> {
    let worst = |rows: usize| {
        let sums = a[..=rows].iter().zip(b[..=rows].iter().rev());
        sums.map(|(a, b)| a.saturating_add(*b)).max().unwrap_or(0)
    };
    (0..a.len().min(b.len())).map(worst).collect()
}

/// The worst division among so many variants that take `one` each, by repeated doubling.
fn worst_among(one: Vec<u64>, mut variants: usize) -> Vec<u64> {
    let (mut all, mut power) = (vec![0; one.len()], one);
    while variants > 0 {
        if variants % 2 == 1 {
            all = worst_division(&all, &power);
        }
        variants /= 2;
        if variants > 0 {
            power = worst_division(&power, &power);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(alpha_ms: f64, beta_ms: f64, batch_max: u32) -> LatencyProfile {
        LatencyProfile::from_line(alpha_ms, beta_ms, batch_max).unwrap()
    }

    fn rows_of(variants: u32, rows: &[u32]) -> VariantRows {
        let mut counted = VariantRows::new(variants);
        (0..).zip(rows).for_each(|(variant, &rows)| counted.add(variant, rows));
        counted
    }

    #[test]
    fn affine_suffixes_compose_as_the_formula_says() {
        let family = FamilyProfile::alike(line(1.0, 5.0, 64), line(0.25, 0.5, 64), 20).unwrap();
        for batch in 1..=64 {
            let by_formula = 1.25 * f64::from(batch) + 5.0 + 0.5 * f64::from(batch.min(20));
            assert_eq!(family.worst().latency(batch), Nanos::from_millis_f64(by_formula), "{batch}");
        }
        assert_eq!(family.exact(&rows_of(20, &[3, 0, 1])), Some(Nanos::from_millis_f64(4.0 + 5.0 + 1.0 + 1.0)));
        assert_eq!(family.unshared(7), Some(line(1.25, 5.5, 64)));
        assert_eq!(family.unshared(20), None);
    }

    #[test]
    fn what_is_no_family_is_refused_and_a_foreign_variant_has_no_latency() {
        let trunk = || line(1.0, 1.0, 8);
        assert_eq!(FamilyProfile::new(trunk(), &[]), Err(FamilyProfileError::Variants { got: 0 }));
        let many = FamilyProfile::alike(trunk(), trunk(), VARIANTS_MAX + 1);
        assert_eq!(many, Err(FamilyProfileError::Variants { got: VARIANTS_MAX as usize + 1 }));
        let differ: Vec<_> = (0..=SUFFIX_PROFILES_MAX).map(|n| line(1.0, n as f64, 8)).collect();
        let got = SUFFIX_PROFILES_MAX + 1;
        assert_eq!(FamilyProfile::new(trunk(), &differ), Err(FamilyProfileError::Suffixes { got }));
        let family = FamilyProfile::alike(trunk(), line(0.5, 0.5, 4), 2).unwrap();
        assert_eq!(family.worst().batch_max(), 4, "no suffix runs more");
        assert_eq!(family.exact(&rows_of(2, &[1, 1, 1])), None);
        assert_eq!(family.exact(&rows_of(3, &[1, 1, 1])), None);
        assert_eq!(family.exact(&rows_of(2, &[3, 2])), Some(Nanos::MAX));
        assert_eq!(family.exact(&rows_of(2, &[])), Some(Nanos::ZERO));
    }

    #[test]
    fn the_slower_of_two_kinds_is_slower_than_both() {
        let family = |alpha, beta| FamilyProfile::alike(line(alpha, 4.0, 16), line(0.1, beta, 16), 3).unwrap();
        let (one, two) = (family(1.0, 2.0), family(2.0, 1.0));
        assert_eq!(one.slower_of(&two), family(2.0, 2.0));
    }

    /// The latencies of all divisions of `batch` rows among the suffixes.
    fn divisions(suffixes: &[LatencyProfile], batch: u32) -> Vec<(Vec<u32>, u64)> {
        let Some((first, rest)) = suffixes.split_first() else {
            return if batch == 0 { vec![(vec![], 0)] } else { vec![] };
        };
        let with = move |own: u32| {
            let others = divisions(rest, batch - own).into_iter();
            others.map(move |(mut rows, takes)| {
                rows.insert(0, own);
                (rows, takes + first.latency(own).get())
            })
        };
        (0..=batch).flat_map(with).collect()
    }

    fn table(steps: &[u64]) -> LatencyProfile {
        let mut latency = 0;
        let sums = steps.iter().map(|step| {
            latency += step;
            Nanos::new(latency.max(1))
        });
        LatencyProfile::from_table(&sums.collect::<Vec<_>>()).unwrap()
    }

    proptest! {
        #[test]
        fn worst_is_the_largest_of_all_divisions_and_exact_is_each(
            trunk in prop::collection::vec(1_u64..50, 6),
            suffixes in prop::collection::vec(prop::collection::vec(0_u64..9, 6), 1..5),
            twice in any::<bool>(),
        ) {
            let trunk = table(&trunk);
            let mut suffixes: Vec<_> = suffixes.iter().map(|steps| table(steps)).collect();
            if twice {
                suffixes.push(suffixes[0].clone());
            }
            let family = FamilyProfile::new(trunk.clone(), &suffixes).unwrap();
            let mut before = Nanos::ZERO;
            for batch in 1..=6 {
                let mut most = 0;
                for (rows, takes) in divisions(&suffixes, batch) {
                    let exact = family.exact(&rows_of(suffixes.len() as u32, &rows));
                    prop_assert_eq!(exact, Some(trunk.latency(batch) + Nanos::new(takes)));
                    most = most.max(takes);
                }
                let worst = family.worst().latency(batch);
                prop_assert_eq!(worst, trunk.latency(batch) + Nanos::new(most));
                prop_assert!(worst >= before);
                before = worst;
            }
        }

        #[test]
        fn many_variants_are_composed_as_one_by_one(steps in prop::collection::vec(0_u64..9, 12), variants in 1_u32..40) {
            let (trunk, suffix) = (line(1.0, 1.0, 12), table(&steps));
            let alike = FamilyProfile::alike(trunk.clone(), suffix.clone(), variants).unwrap();
            prop_assert_eq!(&alike, &FamilyProfile::new(trunk, &vec![suffix.clone(); variants as usize]).unwrap());
            let one: Vec<u64> = (0..=12).map(|rows| suffix.latency(rows).get()).collect();
            let mut apart = vec![0; 13];
            (0..variants).for_each(|_| apart = worst_division(&apart, &one));
            for batch in 1..=12 {
                let expected = alike.trunk().latency(batch) + Nanos::new(apart[batch as usize]);
                prop_assert_eq!(alike.worst().latency(batch), expected);
            }
        }
    }
}
