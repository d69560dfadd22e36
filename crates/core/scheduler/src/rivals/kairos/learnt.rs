//! Latencies learnt from the ends of queries (the Kairos paper, section 5.1).

use symphony_types::Nanos;

/// What queries of one model took on one class: a straight line over their sizes at first, and the mean of each size
/// once it has been seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Learnt {
    /// By items: the sum of latencies in nanoseconds, and their number.
    sizes: Vec<(f64, u32)>,
    line: LineSums,
}

/// The sums of an ordinary least squares fit of latency (y, nanoseconds) over items (x).
#[derive(Clone, Copy, Debug, Default)]
struct LineSums {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Learnt {
    /// Makes room for queries of up to this many items.
    pub(super) fn reserve(&mut self, items_max: u32) {
        let len = items_max as usize + 1;
        if self.sizes.len() < len {
            self.sizes.resize(len, (0.0, 0));
        }
    }

    /// A query of this many items took this long.
    pub(super) fn measured(&mut self, items: u32, latency: Nanos) {
        self.reserve(items);
        let (x, y) = (f64::from(items), latency.get() as f64);
        let (sum, count) = &mut self.sizes[items as usize];
        *sum += y;
        *count = count.saturating_add(1);
        let line = &mut self.line;
        *line = LineSums { n: line.n + 1.0, x: line.x + x, y: line.y + y, xx: line.xx + x * x, xy: line.xy + x * y };
    }

    /// What a query of this many items will take; `None` before the first measurement.
    pub(super) fn latency(&self, items: u32) -> Option<Nanos> {
        match self.sizes.get(items as usize) {
            Some(&(sum, count)) if count > 0 => Some(nanos(sum / f64::from(count))),
            _ => self.line.at(f64::from(items)).map(nanos),
        }
    }
}

impl LineSums {
    fn at(&self, x: f64) -> Option<f64> {
        if self.n == 0.0 {
            return None;
        }
        let spread = self.n * self.xx - self.x * self.x;
        // Of a single size, or with latencies that fall with size, which they do not: the mean.
        let slope = if spread > 0.0 { ((self.n * self.xy - self.x * self.y) / spread).max(0.0) } else { 0.0 };
        Some(slope.mul_add(x - self.x / self.n, self.y / self.n))
    }
}

fn nanos(nanos: f64) -> Nanos {
    Nanos::new(nanos.max(0.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_the_first_sizes_tells_of_all_until_they_are_seen() {
        let ms = Nanos::from_millis;
        let mut learnt = Learnt::default();
        assert_eq!(learnt.latency(5), None);
        learnt.measured(10, ms(15));
        assert_eq!(learnt.latency(100), Some(ms(15)), "one size tells of no slope");
        learnt.measured(30, ms(35));
        assert_eq!((learnt.latency(20), learnt.latency(100)), (Some(ms(25)), Some(ms(105))), "5 ms and 1 ms an item");
        // The table counts where it has an entry, whatever the line says.
        learnt.measured(20, ms(40));
        learnt.measured(20, ms(50));
        assert_eq!((learnt.latency(20), learnt.latency(10)), (Some(ms(45)), Some(ms(15))));
        assert!(learnt.latency(0).is_some_and(|latency| latency < ms(45)));
    }
}
