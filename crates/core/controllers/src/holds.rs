//! How long a value has been constant.

use symphony_types::{Nanos, Time};

/// Remembers since when a value has not changed.
#[derive(Clone, Debug)]
pub struct Holds<T>(Option<(T, Time)>);

impl<T> Default for Holds<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialEq> Holds<T> {
    /// How long the value has been constant, as far as observed.
    pub fn observe(&mut self, now: Time, value: T) -> Nanos {
        match &self.0 {
            Some((known, since)) if *known == value => now.since(*since),
            _ => {
                self.0 = Some((value, now));
                Nanos::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_begins_anew_also_when_it_is_back_at_once() {
        let at = |second: u64| Time::ZERO + Nanos::from_millis(1000 * second);
        let mut holds = Holds::default();
        assert_eq!(holds.observe(at(5), 1), Nanos::ZERO);
        assert_eq!(holds.observe(at(9), 1), Nanos::from_millis(4000));
        assert_eq!(holds.observe(at(10), 2), Nanos::ZERO);
        assert_eq!(holds.observe(at(11), 1), Nanos::ZERO);
        assert_eq!(holds.observe(at(13), 1), Nanos::from_millis(2000));
    }
}
