//! The budget that batches are planned for: the SLO, or what arriving requests really have.

use symphony_types::Nanos;

use crate::meters::rate_meter::BUCKETS;

/// Older minima are forgotten after this many updates: the number of buckets in the five seconds of the rate meter.
const UPDATES: u32 = BUCKETS as u32;
/// A step is the SLO over this: fifty requests that a pause of a machine holds up on their way move the aim by less
/// than what passes for the SLO.
const STEPS: u64 = 8192;
/// Steps down for each step up: they balance where one request in ten has less.
const STEPS_DOWN: u64 = 9;
/// Closer to the SLO than the SLO over this is the SLO: requests lose some of it on their way to the queue.
const SAME: u64 = 16;

/// The time from arrival to deadline that requests have, in fixed memory.
///
/// Below the SLO it is what nine in ten of them have. Above the SLO it is what all recent ones have: the SLO is
/// promised also to the few that come with no more, and a larger target batch would give them up.
#[derive(Clone, Debug)]
pub(crate) struct Aim {
    slo: Nanos,
    /// The aim of the last update.
    budget: Nanos,
    /// What nine in ten have, but no more than the SLO.
    most_have: Nanos,
    /// The shortest budget of this period; [`Nanos::MAX`] if none has come.
    shortest: Nanos,
    /// The shortest of the previous period.
    former: Nanos,
    updates: u32,
}

impl Aim {
    /// At the SLO, until requests say otherwise.
    pub(crate) const fn at(slo: Nanos) -> Self {
        Self { slo, budget: slo, most_have: slo, shortest: Nanos::MAX, former: Nanos::MAX, updates: 0 }
    }

    /// The budget to plan for.
    #[inline]
    pub(crate) const fn budget(&self) -> Nanos {
        self.budget
    }

    /// Records the time from a request's arrival to its deadline.
    #[inline]
    pub(crate) fn record(&mut self, budget: Nanos) {
        self.shortest = self.shortest.min(budget);
        let (budget, step) = (budget.min(self.slo), self.slo.get() / STEPS);
        self.most_have = if budget < self.most_have {
            (self.most_have - Nanos::new(step * STEPS_DOWN)).max(budget)
        } else {
            (self.most_have + Nanos::new(step)).min(budget)
        };
    }

    /// Takes over what was recorded; returns whether the aim has changed. Call it about every 50 ms.
    pub(crate) fn update(&mut self) -> bool {
        self.updates += 1;
        if self.updates > UPDATES {
            (self.former, self.shortest, self.updates) = (self.shortest, Nanos::MAX, 1);
        }
        let shortest = self.shortest.min(self.former);
        let all_have_more = shortest > self.slo && shortest < Nanos::MAX;
        let measured = if all_have_more { shortest } else { self.most_have };
        let is_same = measured.get().abs_diff(self.slo.get()) <= self.slo.get() / SAME;
        let budget = if is_same { self.slo } else { measured };
        std::mem::replace(&mut self.budget, budget) != budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Nanos = Nanos::from_millis(80);

    fn aim_after(budgets: impl IntoIterator<Item = Nanos>) -> Nanos {
        let mut aim = Aim::at(SLO);
        budgets.into_iter().for_each(|budget| aim.record(budget));
        aim.update();
        aim.budget()
    }

    fn ms(budgets: impl IntoIterator<Item = u64>) -> Nanos {
        aim_after(budgets.into_iter().map(Nanos::from_millis))
    }

    #[test]
    fn the_aim_is_the_slo_where_requests_have_it_less_what_they_lose_on_their_way() {
        assert_eq!(ms([]), SLO);
        assert_eq!(ms([80; 10_000]), SLO);
        assert_eq!(ms((0..10_000).map(|n| 80 - n % 6)), SLO);
        assert_eq!(ms((0..10_000).map(|n| 84 - n % 3)), SLO, "or a little more");
        // Fifty that were held up together, and enough of them to be no accident.
        assert_eq!(ms([80; 1_000].into_iter().chain([10; 50])), SLO);
        assert!(ms([80; 1_000].into_iter().chain([10; 500])) < SLO);
    }

    #[test]
    fn below_the_slo_one_request_in_ten_has_less_than_the_aim() {
        // From 50 to 100 ms, evenly: a tenth have less than 55.
        let aim = aim_after((0..20_000).map(|n| Nanos::from_micros(50_000 + n * 7_919 % 50_000)));
        assert!(aim > Nanos::from_millis(53) && aim < Nanos::from_millis(57), "{aim}");
        let one_in_five = ms((0..20_000).map(|n| if n % 5 == 0 { 20 } else { 80 }));
        assert!(one_in_five < Nanos::from_millis(21), "{one_in_five}");
        assert_eq!(ms((0..20_000).map(|n| if n % 20 == 0 { 20 } else { 80 })), SLO, "one in twenty");
        assert_eq!(ms([20; 2_000]), Nanos::from_millis(20));
        // It goes back as it came, more slowly.
        assert_eq!(ms([20; 2_000].into_iter().chain([80; 8_192])), SLO);
    }

    #[test]
    fn above_the_slo_all_recent_requests_have_the_aim() {
        let (more, mut aim) = (Nanos::from_millis(200), Aim::at(SLO));
        aim.record(more);
        assert!(aim.update() && !aim.update(), "the second time it is the same");
        assert_eq!(aim.budget(), more);
        // One that has the SLO and no more keeps it there for one to two periods.
        aim.record(SLO);
        aim.record(more);
        for _ in 2..2 * UPDATES {
            aim.record(more);
            aim.update();
            assert_eq!(aim.budget(), SLO);
        }
        aim.record(more);
        assert!(aim.update());
        assert_eq!(aim.budget(), more);
        // Nothing is known after a silence.
        for _ in 0..2 * UPDATES {
            aim.update();
        }
        assert_eq!(aim.budget(), SLO);
    }
}
