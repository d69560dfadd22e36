//! How a bent clock is laid down in the control file.

use nix::time::{ClockId, clock_gettime};

/// The clocks that can be bent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The wall clock.
    Realtime,
    /// The one that timeouts are reckoned by; it may run fast or slow, but never jumps.
    Monotonic,
}

/// A clock's state; interposer.c has the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bend {
    pub(crate) on: bool,
    pub(crate) anchor_ns: i64,
    pub(crate) shown_ns: i64,
    pub(crate) rate_ppm: i64,
}

const MILLION: i128 = 1_000_000;

impl Clock {
    /// Where it lies in the control file.
    pub(crate) const fn at(self) -> u64 {
        match self {
            Self::Realtime => 64,
            Self::Monotonic => 128,
        }
    }

    /// What the kernel's clock shows, nanoseconds.
    pub(crate) fn real_ns(self) -> std::io::Result<i64> {
        let id = match self {
            Self::Realtime => ClockId::CLOCK_REALTIME,
            Self::Monotonic => ClockId::CLOCK_MONOTONIC,
        };
        let now = clock_gettime(id)?;
        Ok(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
    }
}

impl Bend {
    /// What the bent clock shows when the kernel's shows `real_ns`.
    pub(crate) fn shown(&self, real_ns: i64) -> i64 {
        if !self.on {
            return real_ns;
        }
        let passed = i128::from(real_ns - self.anchor_ns) * (MILLION + i128::from(self.rate_ppm)) / MILLION;
        self.shown_ns + i64::try_from(passed).unwrap_or(i64::MAX)
    }

    /// The clock with a new rate from `real_ns` on: without a leap except `jump_ns`.
    pub(crate) fn rebent(&self, real_ns: i64, jump_ns: i64, rate_ppm: i64) -> Self {
        Self { on: true, anchor_ns: real_ns, shown_ns: self.shown(real_ns).saturating_add(jump_ns), rate_ppm }
    }

    /// All but the version.
    pub(crate) fn encode(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        bytes[..4].copy_from_slice(&u32::from(self.on).to_ne_bytes());
        bytes[4..12].copy_from_slice(&self.anchor_ns.to_ne_bytes());
        bytes[12..20].copy_from_slice(&self.shown_ns.to_ne_bytes());
        bytes[20..].copy_from_slice(&self.rate_ppm.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_rate_begins_where_the_old_one_left_the_clock() {
        let fast = Bend::default().rebent(1_000_000, 0, 200_000);
        assert_eq!((fast.shown(1_000_000), fast.shown(2_000_000)), (1_000_000, 2_200_000));
        let jumped = fast.rebent(2_000_000, -500_000, 0);
        assert_eq!((jumped.shown(2_000_000), jumped.shown(2_000_100)), (1_700_000, 1_700_100));
    }
}
