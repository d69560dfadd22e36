//! One model's part in what a sub-cluster has to give up.

use symphony_types::{Nanos, RequestValue, Time};

use crate::account::Account;
use crate::pressure::Pressure;
use crate::pressure_control::PRESSURE_VALID;
use crate::why::ShedCause;

/// Requests dropped beyond a model's part that count against its part later: those of a large batch. What a longer burst
/// loses is forgotten, so that nobody is spared for long because of one bad moment.
const CREDIT_MAX: f64 = 32.0;

/// Sheds a model's part of its requests as they arrive, the same number for the same arrivals: what is due adds up, and
/// each time it makes a whole request, one is shed. Requests that were dropped anyway count as part of it, so nobody gives
/// up more than the part unless more is lost anyhow.
#[derive(Clone, Debug)]
pub(crate) struct Shedding {
    value: RequestValue,
    pressure: Pressure,
    /// When the pressure was told.
    told: Time,
    /// Requests due to be shed; negative if more were dropped than was due.
    due: f64,
    /// GPU time of one item.
    per_item: Nanos,
    account: Account,
}

impl Shedding {
    /// For requests of this value; `per_item` is the GPU time of one item.
    pub(crate) fn new(value: RequestValue, per_item: Nanos) -> Self {
        let (pressure, told, account) = (Pressure::NONE, Time::ZERO, Account::default());
        Self { value, pressure, told, due: 0.0, per_item, account }
    }

    /// The model aims at another batch size.
    pub(crate) fn aim(&mut self, per_item: Nanos) {
        self.per_item = per_item;
    }

    /// The newest pressure.
    pub(crate) fn press(&mut self, now: Time, pressure: Pressure) {
        (self.pressure, self.told) = (pressure, now);
        if pressure == Pressure::NONE {
            self.due = 0.0;
        }
    }

    /// A request of `items` items arrives; if it is to be shed, why.
    pub(crate) fn arrived(&mut self, now: Time, items: u32) -> Option<ShedCause> {
        let work = self.work(items);
        let times = |factor: f64| Nanos::from_secs_f64(work.as_secs_f64() * factor);
        self.account.asked += work;
        self.account.asked_by_value += times(1.0 / self.value.number());
        if self.pressure == Pressure::NONE {
            return None;
        }
        if now.since(self.told) > PRESSURE_VALID {
            self.press(now, Pressure::NONE);
            return None;
        }
        let share = self.pressure.share_of(self.value);
        self.account.called += times(share);
        self.account.called_in_full += times(self.pressure.share_in_full(self.value));
        self.due += share;
        if self.due < 1.0 {
            return None;
        }
        self.due -= 1.0;
        self.account.shed += work;
        Some(ShedCause { pressure: self.pressure, value: self.value })
    }

    /// A request was dropped although it could have been met on an idle cluster.
    pub(crate) fn dropped(&mut self, items: u32) {
        self.account.dropped += self.work(items);
        if self.pressure != Pressure::NONE {
            self.due = (self.due - 1.0).max(-CREDIT_MAX);
        }
    }

    /// What has come since the last time.
    pub(crate) fn take_account(&mut self) -> Account {
        std::mem::take(&mut self.account)
    }

    /// Whether the model has lost more than its part, as far as that is remembered: shedding less cannot help it any more.
    /// That happens to models whose batches are smaller than those of others, and so can wait longer in any order by time.
    pub(crate) fn is_behind(&self) -> bool {
        self.pressure != Pressure::NONE && self.due < 1.0 - CREDIT_MAX
    }

    fn work(&self, items: u32) -> Nanos {
        self.per_item.saturating_mul(items.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Time = Time::from_nanos(1_000_000_000);

    fn pressed(share: f64, value: f64) -> Shedding {
        let mut shedding = Shedding::new(RequestValue::from_number(value).unwrap(), Nanos::from_millis(1));
        shedding.press(AT, Pressure::from_share(share));
        shedding
    }

    fn shed(shedding: &mut Shedding, arrivals: u32) -> u32 {
        (0..arrivals).map(|_| u32::from(shedding.arrived(AT, 1).is_some())).sum()
    }

    #[test]
    fn the_part_is_shed_evenly_and_exactly() {
        let mut shedding = pressed(0.25, 1.0);
        let first: Vec<bool> = (0..8).map(|_| shedding.arrived(AT, 1).is_some()).collect();
        assert_eq!(first, [false, false, false, true, false, false, false, true]);
        assert_eq!(shed(&mut shedding, 1000), 250);
        assert_eq!(shed(&mut pressed(0.25, 4.0), 1600), 100);
        assert_eq!(shed(&mut pressed(0.0, 1.0), 1000), 0);
        let cause = pressed(0.95, 0.5).arrived(AT, 1);
        assert_eq!(cause, None, "not even the first of those that shed most");
    }

    #[test]
    fn what_was_dropped_anyway_counts_up_to_a_bound() {
        let mut shedding = pressed(0.25, 1.0);
        for _ in 0..10 {
            shedding.dropped(1);
        }
        assert_eq!(shed(&mut shedding, 400), 90);
        for _ in 0..10_000 {
            shedding.dropped(1);
        }
        assert_eq!(shed(&mut shedding, 400), 100 - CREDIT_MAX as u32);
        for _ in 0..CREDIT_MAX as u32 {
            shedding.dropped(1);
            shedding.dropped(1);
        }
        assert!(shedding.is_behind());
        assert_eq!(shed(&mut shedding, 8), 0);
        assert!(!shedding.is_behind(), "two of eight were due to it");
        // Without pressure nothing adds up.
        shedding.press(AT, Pressure::NONE);
        shedding.dropped(1);
        shedding.press(AT, Pressure::from_share(0.5));
        assert_eq!(shed(&mut shedding, 4), 2);
    }

    #[test]
    fn a_pressure_that_nobody_renews_is_none() {
        let mut shedding = pressed(0.5, 1.0);
        assert_eq!(shed(&mut shedding, 4), 2);
        let late = AT + PRESSURE_VALID + Nanos::new(1);
        assert!((0..100).all(|_| shedding.arrived(late, 1).is_none()));
    }

    #[test]
    fn the_account_is_in_gpu_time_and_by_value() {
        let mut shedding = pressed(0.5, 2.0);
        for _ in 0..8 {
            shedding.arrived(AT, 10);
        }
        shedding.dropped(3);
        let ms = Nanos::from_millis;
        let expected = Account {
            asked: ms(80),
            asked_by_value: ms(40),
            shed: ms(20),
            dropped: ms(3),
            called: ms(20),
            called_in_full: ms(20),
        };
        assert_eq!(shedding.take_account(), expected);
        assert_eq!(shedding.take_account(), Account::default());
    }
}
