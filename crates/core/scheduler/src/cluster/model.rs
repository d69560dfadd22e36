//! What a policy for a cluster knows about a model.

use symphony_types::{GpuClass, LatencyProfile, Nanos, RequestValue, Time};

use crate::actions::Request;
use crate::{ClassProfiles, Delays};

/// A model as a [`ClusterPolicy`](crate::ClusterPolicy) knows it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterModel {
    /// ℓ(b) by class of GPU.
    pub profiles: ClassProfiles,
    /// The SLO, from arrival to answer. Requests may have deadlines of their own.
    pub slo: Nanos,
    /// The value of its requests relative to those of other models.
    pub value: RequestValue,
    /// The expected arrival rate in items per second; a host without foresight passes a measured rate, zero before it
    /// has one.
    pub rate_per_second: f64,
    /// Delays on the model's path.
    pub delays: Delays,
}

impl ClusterModel {
    /// A model without delays, of value one, whose rate is not known.
    #[must_use]
    pub fn new(profiles: impl Into<ClassProfiles>, slo: Nanos) -> Self {
        let (value, delays) = (RequestValue::ONE, Delays::default());
        Self { profiles: profiles.into(), slo, value, rate_per_second: 0.0, delays }
    }

    /// With these delays.
    #[must_use]
    pub fn with_delays(self, delays: Delays) -> Self {
        Self { delays, ..self }
    }

    /// With this value.
    #[must_use]
    pub fn with_value(self, value: RequestValue) -> Self {
        Self { value, ..self }
    }

    /// With this expected rate in items per second; a negative one and NaN become zero.
    #[must_use]
    pub fn with_rate(self, rate_per_second: f64) -> Self {
        Self { rate_per_second: rate_per_second.max(0.0), ..self }
    }

    /// ℓ of this many items on a class; [`Nanos::MAX`] if they do not run there.
    #[inline]
    #[must_use]
    pub fn latency(&self, class: GpuClass, items: u32) -> Nanos {
        self.profiles.get(class).map_or(Nanos::MAX, |profile| profile.latency(items))
    }

    /// The largest batch on a class; zero if the model does not run there.
    #[inline]
    #[must_use]
    pub fn batch_max(&self, class: GpuClass) -> u32 {
        self.profiles.get(class).map_or(0, LatencyProfile::batch_max)
    }

    /// The start of a batch that is decided now, on a GPU that is free at `free_at`: its inputs must have come.
    #[inline]
    #[must_use]
    pub fn start(&self, now: Time, free_at: Time, items: u32) -> Time {
        (now + self.delays.lead(items)).max(free_at)
    }

    /// The end of such a batch; [`Time::NEVER`] if it does not run on the class.
    #[inline]
    #[must_use]
    pub fn finish(&self, class: GpuClass, now: Time, free_at: Time, items: u32) -> Time {
        self.start(now, free_at, items) + self.latency(class, items)
    }

    /// When the request's batch must have ended: deadline − reply delay. [`Time::NEVER`] becomes the moment before it,
    /// so that an impossible batch never appears to meet it.
    #[inline]
    #[must_use]
    pub fn must_end_by(&self, request: &Request) -> Time {
        (request.deadline - self.delays.reply).min(Time::NEVER - Nanos::new(1))
    }

    /// The largest batch of at most `items` items that, decided now, ends by `by` on the class; zero if there is none.
    #[must_use]
    pub fn batch_within(&self, class: GpuClass, now: Time, free_at: Time, items: u64, by: Time) -> u32 {
        let most = items.min(u64::from(self.batch_max(class))) as u32;
        let (mut fits, mut too_large) = (0, most + 1);
        while too_large - fits > 1 {
            let middle = fits.midpoint(too_large);
            if self.finish(class, now, free_at, middle) <= by { fits = middle } else { too_large = middle }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> ClusterModel {
        let profile = LatencyProfile::from_line(1.0, 5.0, 8).unwrap();
        ClusterModel::new(profile, Nanos::from_millis(25))
    }

    #[test]
    fn a_class_without_a_profile_and_a_batch_that_is_too_large_never_end() {
        let (model, other) = (model(), GpuClass::new(1).unwrap());
        assert_eq!((model.batch_max(GpuClass::FIRST), model.batch_max(other)), (8, 0));
        for (class, items) in [(other, 1), (GpuClass::FIRST, 9), (GpuClass::FIRST, u32::MAX)] {
            assert_eq!(model.finish(class, Time::ZERO, Time::ZERO, items), Time::NEVER);
            assert_eq!(model.batch_within(other, Time::ZERO, Time::ZERO, u64::MAX, Time::NEVER - Nanos::new(1)), 0);
        }
        let endless = Request { deadline: Time::NEVER, ..request(1) };
        assert!(model.must_end_by(&endless) < Time::NEVER);
    }

    #[test]
    fn the_largest_batch_within_a_time_ends_in_it_and_the_next_does_not() {
        let model = model();
        for millis in 0..20 {
            let by = Time::ZERO + Nanos::from_millis(millis);
            let batch = model.batch_within(GpuClass::FIRST, Time::ZERO, Time::ZERO, 100, by);
            assert_eq!(u64::from(batch), millis.saturating_sub(5).min(8), "{millis} ms");
        }
    }

    fn request(items: u32) -> Request {
        Request {
            id: symphony_types::RequestId::default(),
            deadline: Time::ZERO,
            items,
            weight: RequestValue::ONE,
            variant: 0,
        }
    }
}
