//! A chain of matrix products.

use std::fmt;

use symphony_types::Nanos;

/// The sizes of links, in rows: a link multiplies two square matrices of this many rows. The largest keeps an H100 busy
/// for about 0.3 ms, the smallest for some microseconds, of which most is the launch: what is between is made of both.
pub const LINK_SIZES: [u32; 5] = [4096, 2048, 1024, 512, 256];
const _: () = {
    let mut size = 0;
    while size < LINK_SIZES.len() {
        assert!(LINK_SIZES[size].is_power_of_two(), "matrices are filled by copies of a power of two");
        size += 1;
    }
};
/// Links of one chain at most: each is enqueued by the host, which takes microseconds.
pub const LINKS_MAX: u32 = 8192;

/// How many links of each of [`LINK_SIZES`], which are done in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chain([u32; LINK_SIZES.len()]);

impl Chain {
    /// Links of one size, by its place in [`LINK_SIZES`].
    #[must_use]
    pub fn of(size: usize, times: u32) -> Self {
        let mut chain = Self::default();
        chain.0[size] = times;
        chain
    }

    /// The chain closest to `work`, for links that cost `cost` each: as many as fit of each size from the largest on,
    /// and one more of the smallest if that is closer.
    #[must_use]
    pub fn nearest(work: Nanos, cost: &[Nanos; LINK_SIZES.len()]) -> Self {
        let mut left = work.get();
        let mut chain = Self::default();
        let last = LINK_SIZES.len() - 1;
        for (size, (times, cost)) in chain.0.iter_mut().zip(cost).enumerate() {
            let cost = cost.get().max(1);
            let fit = if size == last { (left + cost / 2) / cost } else { left / cost };
            *times = fit.min(u64::from(LINKS_MAX)) as u32;
            left = left.saturating_sub(u64::from(*times) * cost);
        }
        chain
    }

    /// Rows of each kind of link and how often it is done.
    pub fn links(&self) -> impl Iterator<Item = (u32, u32)> {
        LINK_SIZES.into_iter().zip(self.0).filter(|&(_, times)| times > 0)
    }

    /// Links in all.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().fold(0, |sum, &times| sum.saturating_add(times))
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (index, (rows, times)) in self.links().enumerate() {
            let and = if index > 0 { " + " } else { "" };
            write!(f, "{and}{times} × {rows}²")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: [Nanos; 5] =
        [Nanos::new(300_000), Nanos::new(45_000), Nanos::new(12_000), Nanos::new(7_000), Nanos::new(5_000)];

    #[test]
    fn large_links_first_and_the_smallest_come_nearest() {
        let chain = Chain::nearest(Nanos::from_micros(1_000), &COST);
        // 3 × 300 + 2 × 45, and 10 µs are left: too few for 12, and 7 fit; of 3 that are then left, 5 are nearer than
        // none.
        assert_eq!(chain.to_string(), "3 × 4096² + 2 × 2048² + 1 × 512² + 1 × 256²");
        assert_eq!(chain.len(), 7);
        let none = Chain::nearest(Nanos::new(2_000), &COST);
        assert!(none.is_empty());
        assert_eq!(none.to_string(), "nothing");
    }

    #[test]
    fn a_cost_of_nothing_and_endless_work_are_bounded() {
        let chain = Chain::nearest(Nanos::new(u64::MAX / 4), &[Nanos::ZERO; 5]);
        assert_eq!(chain.links().map(|(_, times)| times).max(), Some(LINKS_MAX));
    }
}
