//! One model's share of the shedding in its sub-cluster.

use symphony_types::{GpuClasses, Nanos, RequestValue, Time};

use crate::pool::account::Account;
use crate::pool::control::PRESSURE_VALID;
use crate::pool::pressure::Pressure;
use crate::why::ShedCause;

/// Drops beyond a model's share count against its later shedding up to this many requests, about a large batch. The
/// drops of longer bursts are forgotten, so that one bad moment does not spare a model for long.
const CREDIT_MAX: f64 = 32.0;

/// Classes of weights, each half an octave wide: within one, weights differ by less than a factor of 1.42.
const WEIGHT_CLASSES: usize = 40;
const _: () = assert!(weight_class(RequestValue::MIN) == 0 && weight_class(RequestValue::MAX) == WEIGHT_CLASSES - 1);

/// The class of a request's weight: twice the binary logarithm of its thousandths, rounded down.
pub(crate) const fn weight_class(weight: RequestValue) -> usize {
    let thousandths = weight.thousandths() as u64;
    (thousandths * thousandths).ilog2() as usize
}

/// Decides which requests of a model are shed, deterministically: the due share accumulates, and one request is shed
/// each time it reaches a whole one. Requests that were dropped for other reasons count, so no model loses more than
/// its share unless its drops alone exceed it.
///
/// A request of weight w counts as one of a model w times as valuable. Shares accumulate separately for each class of
/// weights: in one sum, the next request would be shed for what others have left due.
#[derive(Clone, Debug)]
pub(crate) struct Shedding {
    value: RequestValue,
    pressure: Pressure,
    /// When the pressure was received.
    updated_at: Time,
    /// When pressure was first and last received, without a pause longer than the window.
    pressed: Option<(Time, Time)>,
    /// Whether the overload was lasting at the last arrival.
    lasts: bool,
    /// Requests due to be shed, by class of weights; negative after more drops than were due.
    due: [f64; WEIGHT_CLASSES],
    /// GPU time per item: plain, and divided by the value.
    per_item: Nanos,
    per_item_by_value: Nanos,
    account: Account,
}

impl Shedding {
    /// For a model of this value; `per_item` is the GPU time of one item.
    pub(crate) fn new(value: RequestValue, per_item: Nanos) -> Self {
        let (pressure, updated_at, account) = (Pressure::NONE, Time::ZERO, Account::default());
        let per_item_by_value = by_value(per_item, value);
        Self {
            value,
            pressure,
            updated_at,
            pressed: None,
            lasts: false,
            due: [0.0; WEIGHT_CLASSES],
            per_item,
            per_item_by_value,
            account,
        }
    }

    /// Sets the GPU time per item after a change of the target batch.
    pub(crate) fn set_item_time(&mut self, per_item: Nanos) {
        self.per_item = per_item;
        self.per_item_by_value = by_value(per_item, self.value);
    }

    /// Takes the newest pressure.
    pub(crate) fn press(&mut self, now: Time, pressure: Pressure) {
        self.updated_at = now;
        if pressure == Pressure::NONE {
            self.relax();
        } else {
            self.pressure = pressure;
            let first =
                self.pressed.filter(|&(_, last)| now.since(last) <= PRESSURE_VALID).map_or(now, |(first, _)| first);
            self.pressed = Some((first, now));
        }
    }

    /// Whether the pressure is zero, whatever its age.
    fn relax(&mut self) {
        (self.pressure, self.due) = (Pressure::NONE, [0.0; WEIGHT_CLASSES]);
    }

    /// Whether the overload has lasted longer than any burst that ends within the window of the pressure: then the
    /// losses are what the GPUs cannot serve.
    pub(crate) const fn overload_lasts(&self) -> bool {
        self.lasts
    }

    /// Counts the arrival of a request of `items` items and this weight; returns the reason if it, or one of its class,
    /// is to be shed.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Time, items: u32, weight: RequestValue) -> Option<ShedCause> {
        let work = self.work(items);
        self.account.asked += work;
        self.asked_by_value(work, weight);
        // Then the window of the pressure lies entirely in the overload.
        self.lasts = self
            .pressed
            .is_some_and(|(first, last)| now.since(last) <= PRESSURE_VALID && last.since(first) >= PRESSURE_VALID);
        if self.pressure == Pressure::NONE {
            return None;
        }
        if self.is_out_of_date(now) {
            self.relax();
            return None;
        }
        let times = |factor: f64| Nanos::from_secs_f64(work.as_secs_f64() * factor);
        let value = self.value.times(weight);
        let share = self.pressure.share_of(value);
        self.account.called += times(share);
        self.account.called_in_full += times(self.pressure.share_in_full(value));
        let due = &mut self.due[weight_class(weight)];
        *due += share;
        if *due < 1.0 {
            return None;
        }
        *due -= 1.0;
        self.account.shed += work;
        Some(ShedCause { pressure: self.pressure, value })
    }

    /// GPU classes that could have met the request shed last.
    pub(crate) fn could_have_been_met_on(&mut self, classes: GpuClasses) {
        self.account.could_serve = self.account.could_serve.and(classes);
    }

    /// Counts a request that was dropped after it waited, although idle GPUs of these classes could have met it.
    pub(crate) fn dropped(&mut self, items: u32, weight: RequestValue, waited: Nanos, could_serve: GpuClasses) {
        let work = self.work(items);
        self.account.dropped += work;
        self.account.could_serve = self.account.could_serve.and(could_serve);
        if waited > PRESSURE_VALID {
            // Its arrival has left the window by now. Without it the loss would look like a larger share than it is.
            self.asked_by_value(work, weight);
        }
        if self.pressure != Pressure::NONE {
            let due = &mut self.due[weight_class(weight)];
            *due = (*due - 1.0).max(-CREDIT_MAX);
        }
    }

    /// The load since the last call.
    pub(crate) fn take_account(&mut self) -> Account {
        std::mem::take(&mut self.account)
    }

    /// Whether the model has lost more requests of this weight than their share, as far as remembered, so that less
    /// shedding cannot help them any more. This happens to models with smaller batches than others: those can wait
    /// longer in any order by time. The credit of other weights hides none of it.
    pub(crate) fn is_behind(&self, now: Time, weight: RequestValue) -> bool {
        self.pressure != Pressure::NONE
            && self.due[weight_class(weight)] < 1.0 - CREDIT_MAX
            && !self.is_out_of_date(now)
    }

    /// Whether the last pressure has expired.
    pub(crate) fn is_out_of_date(&self, now: Time) -> bool {
        now.since(self.updated_at) > PRESSURE_VALID
    }

    fn asked_by_value(&mut self, work: Nanos, weight: RequestValue) {
        // Most requests have one item, and weigh as much as others.
        let is_one = work == self.per_item && weight == RequestValue::ONE;
        let value = self.value.times(weight);
        self.account.asked_by_value += if is_one { self.per_item_by_value } else { by_value(work, value) };
        self.account.value_max = self.account.value_max.max(Some(value));
    }

    fn work(&self, items: u32) -> Nanos {
        self.per_item.saturating_mul(items.into())
    }
}

/// The lower the value of work, the more it counts.
fn by_value(work: Nanos, value: RequestValue) -> Nanos {
    Nanos::from_secs_f64(work.as_secs_f64() / value.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_CLASS: GpuClasses = GpuClasses::from_bits(1);
    const AT: Time = Time::from_nanos(1_000_000_000);

    fn pressed(share: f64, value: f64) -> Shedding {
        let mut shedding = Shedding::new(RequestValue::from_number(value).unwrap(), Nanos::from_millis(1));
        shedding.press(AT, Pressure::from_share(share));
        shedding
    }

    fn shed(shedding: &mut Shedding, arrivals: u32) -> u32 {
        (0..arrivals).map(|_| u32::from(shedding.arrived(AT, 1, RequestValue::ONE).is_some())).sum()
    }

    #[test]
    fn the_part_is_shed_evenly_and_exactly() {
        let mut shedding = pressed(0.25, 1.0);
        let first: Vec<bool> = (0..8).map(|_| shedding.arrived(AT, 1, RequestValue::ONE).is_some()).collect();
        assert_eq!(first, [false, false, false, true, false, false, false, true]);
        assert_eq!(shed(&mut shedding, 1000), 250);
        assert_eq!(shed(&mut pressed(0.25, 4.0), 1600), 100);
        assert_eq!(shed(&mut pressed(0.0, 1.0), 1000), 0);
        let cause = pressed(0.95, 0.5).arrived(AT, 1, RequestValue::ONE);
        assert_eq!(cause, None, "not even the first of those that shed most");
    }

    #[test]
    fn requests_of_one_model_are_shed_by_their_weights_whatever_their_order() {
        let weights = [0.5, 1.0, 4.0].map(|number| RequestValue::from_number(number).unwrap());
        let shed_of = |order: &[usize], value: f64| {
            let (mut shedding, mut lost) = (pressed(0.25, value), [0; 3]);
            for &which in order.iter().cycle().take(3000) {
                lost[which] += u32::from(shedding.arrived(AT, 1, weights[which]).is_some());
            }
            (lost, shedding.take_account())
        };
        // A thousand of each, but for the second order.
        let (lost, account) = shed_of(&[0, 1, 2], 1.0);
        assert_eq!(lost, [500, 250, 62], "in inverse proportion");
        assert_eq!(account.value_max, Some(weights[2]));
        let ms = Nanos::from_millis;
        assert_eq!((account.asked, account.asked_by_value), (ms(3000), ms(2000 + 1000 + 250)));
        assert_eq!((account.called, account.shed), (Nanos::from_micros(812_500), ms(812)));
        assert_eq!(shed_of(&[2, 2, 0], 1.0).0, [500, 0, 125]);
        assert_eq!(shed_of(&[2, 1, 0], 2.0).0, [250, 125, 31], "and to the value of the model");
        // A drop spares its own class only.
        let mut shedding = pressed(0.25, 1.0);
        for _ in 0..10 {
            shedding.dropped(1, weights[2], Nanos::ZERO, ONE_CLASS);
        }
        let lost =
            |shedding: &mut Shedding, weight| (0..100).filter(|_| shedding.arrived(AT, 1, weight).is_some()).count();
        assert_eq!((lost(&mut shedding, weights[1]), lost(&mut shedding, weights[2])), (25, 0));
    }

    #[test]
    fn classes_of_weights_are_half_an_octave_wide() {
        let class = |number| weight_class(RequestValue::from_number(number).unwrap());
        assert_eq!([0.5, 1.0, 1.5, 2.0, 4.0, 8.0].map(class), [17, 19, 21, 21, 23, 25]);
    }

    #[test]
    fn what_was_dropped_anyway_counts_up_to_a_bound() {
        let mut shedding = pressed(0.25, 1.0);
        for _ in 0..10 {
            shedding.dropped(1, RequestValue::ONE, Nanos::ZERO, ONE_CLASS);
        }
        assert_eq!(shed(&mut shedding, 400), 90);
        for _ in 0..10_000 {
            shedding.dropped(1, RequestValue::ONE, Nanos::ZERO, ONE_CLASS);
        }
        assert_eq!(shed(&mut shedding, 400), 100 - CREDIT_MAX as u32);
        for _ in 0..CREDIT_MAX as u32 {
            shedding.dropped(1, RequestValue::ONE, Nanos::ZERO, ONE_CLASS);
            shedding.dropped(1, RequestValue::ONE, Nanos::ZERO, ONE_CLASS);
        }
        let one = RequestValue::ONE;
        assert!(shedding.is_behind(AT, one));
        assert!(!shedding.is_behind(AT + PRESSURE_VALID + Nanos::new(1), one), "nobody has told it any more");
        assert_eq!(shed(&mut shedding, 8), 0);
        assert!(!shedding.is_behind(AT, one), "two of eight were due to it");
        // Without pressure nothing accumulates.
        shedding.press(AT, Pressure::NONE);
        shedding.dropped(1, RequestValue::ONE, Nanos::ZERO, ONE_CLASS);
        shedding.press(AT, Pressure::from_share(0.5));
        assert_eq!(shed(&mut shedding, 4), 2);
    }

    #[test]
    fn one_weight_is_behind_whatever_the_others_have_left_due() {
        let [one, heavy] = [1.0, 4.0].map(|number| RequestValue::from_number(number).unwrap());
        let mut shedding = pressed(0.25, 1.0);
        for _ in 0..CREDIT_MAX as u32 {
            shedding.dropped(1, heavy, Nanos::ZERO, ONE_CLASS);
        }
        // Shares that are nearly due in other classes would hide it in a sum.
        for weight in [0.1, 0.2, 0.3, 0.5].map(|number| RequestValue::from_number(number).unwrap()) {
            shedding.arrived(AT, 1, weight);
        }
        assert!(shedding.is_behind(AT, heavy) && !shedding.is_behind(AT, one));
        // Two that are half behind are not behind together.
        let mut shedding = pressed(0.25, 1.0);
        for _ in 0..CREDIT_MAX as u32 / 2 {
            shedding.dropped(1, one, Nanos::ZERO, ONE_CLASS);
            shedding.dropped(1, heavy, Nanos::ZERO, ONE_CLASS);
        }
        assert!(!shedding.is_behind(AT, one) && !shedding.is_behind(AT, heavy));
    }

    #[test]
    fn a_pressure_that_nobody_renews_is_none() {
        let mut shedding = pressed(0.5, 1.0);
        assert_eq!(shed(&mut shedding, 4), 2);
        let late = AT + PRESSURE_VALID + Nanos::new(1);
        assert!((0..100).all(|_| shedding.arrived(late, 1, RequestValue::ONE).is_none()));
    }

    #[test]
    fn overload_lasts_once_pressure_has_come_for_a_second_without_a_pause_of_a_second() {
        let ms = |ms: u64| AT + Nanos::from_millis(ms);
        let mut shedding = pressed(0.5, 1.0);
        // Whether the overload lasts for what arrives at that time, with a pressure of that share then.
        let mut is_lasting = |at_ms: u64, share: f64| {
            shedding.press(ms(at_ms), Pressure::from_share(share));
            shedding.arrived(ms(at_ms), 1, RequestValue::ONE);
            shedding.overload_lasts()
        };
        assert!((0..20).all(|tick| !is_lasting(tick * 50, 0.5)), "a burst is over within a second");
        assert!((20..40).all(|tick| is_lasting(tick * 50, 0.5)));
        assert!(
            is_lasting(2_000, 0.0) && is_lasting(2_900, 0.0) && is_lasting(2_950, 0.5),
            "a pause shorter than the window"
        );
        assert!(is_lasting(3_950, 0.0), "as long as the window");
        assert!(!is_lasting(4_000, 0.0) && !is_lasting(4_050, 0.5), "longer");
        assert!(!is_lasting(5_000, 0.5) && is_lasting(5_050, 0.5));
    }

    #[test]
    fn the_account_is_in_gpu_time_and_by_value() {
        let mut shedding = pressed(0.5, 2.0);
        for _ in 0..8 {
            shedding.arrived(AT, 10, RequestValue::ONE);
        }
        shedding.dropped(3, RequestValue::ONE, Nanos::ZERO, ONE_CLASS);
        let ms = Nanos::from_millis;
        let expected = Account {
            asked: ms(80),
            asked_by_value: ms(40),
            shed: ms(20),
            dropped: ms(3),
            called: ms(20),
            called_in_full: ms(20),
            could_serve: ONE_CLASS,
            value_max: RequestValue::from_number(2.0),
            ..Account::default()
        };
        assert_eq!(shedding.take_account(), expected);
        assert_eq!(shedding.take_account(), Account::default());
        // A request that came before the window.
        shedding.dropped(4, RequestValue::ONE, PRESSURE_VALID + Nanos::new(1), ONE_CLASS);
        let account = shedding.take_account();
        assert_eq!([account.dropped, account.asked, account.asked_by_value], [ms(4), Nanos::ZERO, ms(2)]);
    }
}
