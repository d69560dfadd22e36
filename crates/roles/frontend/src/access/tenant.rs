//! One tenant at this frontend: what it may do, and what it has asked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use symphony_config::{Right, TenantConfig};
use symphony_quotas::{Demand, TenantDemand, TenantShare, TokenBucket};
use symphony_types::{Nanos, RequestValue, Time};

use crate::oip::{InferError, QuotaKind};

/// Weight of the newest request in the mean cost of a request.
const COST_WEIGHT: f64 = 0.05;
/// The assumed items of a request until one has been read: an item, and this part of a second's GPU time. Without any
/// demand there would be no share, and without a share no request is ever read.
const UNREAD_ITEMS: f64 = 1.0;
const UNREAD_GPU_PART: f64 = 1e-3;
/// The longest wait that a refusal names: shares change within seconds.
const WAIT_MAX: Nanos = Nanos::from_millis(60_000);
/// The wait where there is no share at all: it follows the demand within this time.
const WAIT_WITHOUT_SHARE: Nanos = Nanos::from_millis(4000);
/// Weight of the newest second in what is asked for: shares follow loads, and not every burst.
const OFFERED_WEIGHT: f64 = 0.5;

/// A tenant, as the file has it now.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) config: TenantConfig,
    in_flight_max: usize,
    weight: RequestValue,
    state: Arc<TenantState>,
}

/// What outlives a change of the file.
#[derive(Debug)]
struct TenantState {
    quotas: Mutex<Quotas>,
    in_flight: AtomicUsize,
    counts: TenantCounts,
}

/// Its series.
#[derive(Clone, Debug, Default)]
pub(crate) struct TenantCounts {
    pub(crate) items: Counter,
    pub(crate) gpu_seconds: Counter<f64, std::sync::atomic::AtomicU64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Quotas {
    items: Option<Quota>,
    gpu_seconds: Option<Quota>,
}

/// One quota at this frontend.
#[derive(Clone, Copy, Debug)]
struct Quota {
    /// Over all frontends.
    whole: f64,
    /// Fills at the share of this one.
    bucket: TokenBucket,
    /// Asked for since the last report.
    requested: f64,
    /// Asked for in a second, as of the last report.
    offered: f64,
    /// The mean cost of a request; zero before the first one.
    cost: f64,
}

impl Quota {
    fn new(now: Time, whole: f64, frontends: u32) -> Self {
        let bucket = TokenBucket::full(now, whole / f64::from(frontends.max(1)));
        Self { whole, bucket, requested: 0.0, offered: 0.0, cost: 0.0 }
    }

    /// Follows a change of the file.
    fn follow(now: Time, before: Option<Self>, whole: Option<f64>, frontends: u32) -> Option<Self> {
        let whole = whole?;
        Some(match before {
            Some(mut quota) => {
                quota.bucket.set_rate(now, quota.bucket.per_second() * whole / quota.whole);
                Self { whole, ..quota }
            }
            None => Self::new(now, whole, frontends),
        })
    }

    fn asks(&mut self, cost: f64) {
        self.requested += cost;
        self.cost += if self.cost > 0.0 { COST_WEIGHT * (cost - self.cost) } else { cost };
    }

    /// A request was refused before it was read. Its cost still counts as demand.
    fn asks_unread(&mut self, guess: f64) {
        self.requested += if self.cost > 0.0 { self.cost } else { guess };
    }

    fn demand(&mut self, seconds: f64) -> Demand {
        // What is beyond the whole changes no share, and would be remembered for long after a flood.
        let newest = (std::mem::take(&mut self.requested) / seconds).min(self.whole);
        self.offered += OFFERED_WEIGHT * (newest - self.offered);
        Demand { quota: self.whole, offered: self.offered, held: self.bucket.per_second() }
    }
}

/// A tenant's place among the requests in flight, until this is dropped.
#[derive(Debug)]
pub(crate) struct TenantPlace(Arc<TenantState>);

impl Drop for TenantPlace {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tenant {
    /// As the file has it; `before` is the same tenant until now.
    pub(crate) fn new(
        now: Time,
        config: TenantConfig,
        in_flight_max: usize,
        frontends: u32,
        before: Option<&Self>,
        counts: impl FnOnce() -> TenantCounts,
    ) -> Self {
        let state = before.map_or_else(
            || Arc::new(TenantState { quotas: Mutex::default(), in_flight: AtomicUsize::new(0), counts: counts() }),
            |before| Arc::clone(&before.state),
        );
        {
            let mut quotas = state.quotas.lock().unwrap_or_else(PoisonError::into_inner);
            quotas.items = Quota::follow(now, quotas.items, config.items_per_s, frontends);
            quotas.gpu_seconds = Quota::follow(now, quotas.gpu_seconds, config.gpu_seconds_per_s, frontends);
        }
        let in_flight_max = config.requests_in_flight_max.map_or(in_flight_max, |max| max as usize);
        Self { weight: config.weight(), in_flight_max, config, state }
    }

    pub(crate) fn may(&self, right: Right) -> bool {
        self.config.rights.has(right)
    }

    pub(crate) const fn weight(&self) -> RequestValue {
        self.weight
    }

    fn has_quota(&self) -> bool {
        self.config.items_per_s.is_some() || self.config.gpu_seconds_per_s.is_some()
    }

    fn quotas<T>(&self, read: impl FnOnce(&mut Quotas) -> T) -> T {
        read(&mut self.state.quotas.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn used_up(&self, kind: QuotaKind, wait: Nanos) -> InferError {
        let per_second = match kind {
            QuotaKind::Items => self.config.items_per_s,
            QuotaKind::GpuSeconds => self.config.gpu_seconds_per_s,
        };
        let per_second = per_second.unwrap_or_default().to_string();
        // A bucket that nothing fills has an infinite wait.
        let wait = if wait == Nanos::MAX { WAIT_WITHOUT_SHARE } else { wait.min(WAIT_MAX) };
        InferError::QuotaExceeded { tenant: self.config.name.clone(), kind, per_second, wait }
    }

    /// Gives a request a place, before it is read.
    ///
    /// # Errors
    /// If the tenant has used up a quota, or has as many requests in flight as it may.
    pub(crate) fn take_place(&self, now: Time) -> Result<TenantPlace, InferError> {
        if self.has_quota() {
            let looked = self.quotas(|quotas| {
                let looked = check_quotas(quotas, now);
                // It is not read, so that it costs little.
                if looked.is_err() {
                    if let Some(items) = &mut quotas.items {
                        items.asks_unread(UNREAD_ITEMS);
                    }
                    if let Some(gpu_seconds) = &mut quotas.gpu_seconds {
                        gpu_seconds.asks_unread(UNREAD_GPU_PART * gpu_seconds.whole);
                    }
                }
                looked
            });
            looked.map_err(|(kind, wait)| self.used_up(kind, wait))?;
        }
        let before = self.state.in_flight.fetch_add(1, Ordering::Relaxed);
        let place = TenantPlace(Arc::clone(&self.state));
        if before >= self.in_flight_max {
            let in_flight_max = self.in_flight_max;
            return Err(InferError::TenantBusy { tenant: self.config.name.clone(), in_flight_max });
        }
        Ok(place)
    }

    /// Takes from its quotas what a request costs.
    ///
    /// # Errors
    /// If one is used up; then nothing was taken.
    pub(crate) fn charge(&self, now: Time, items: u32, gpu_time: Nanos) -> Result<(), InferError> {
        let costs = [f64::from(items), gpu_time.as_secs_f64()];
        if self.has_quota() {
            let charged = self.quotas(|quotas| {
                let looked = check_quotas(quotas, now);
                for (quota, cost) in [&mut quotas.items, &mut quotas.gpu_seconds].into_iter().zip(costs) {
                    let Some(quota) = quota else { continue };
                    quota.asks(cost);
                    if looked.is_ok() {
                        let _ = quota.bucket.take(now, cost);
                    }
                }
                looked
            });
            charged.map_err(|(kind, wait)| self.used_up(kind, wait))?;
        }
        self.state.counts.items.inc_by(u64::from(items));
        self.state.counts.gpu_seconds.inc_by(costs[1]);
        Ok(())
    }

    /// What was asked for in the last `seconds`, and what may be given; none without quotas.
    pub(crate) fn demand(&self, seconds: f64) -> Option<TenantDemand> {
        if !self.has_quota() {
            return None;
        }
        let of = |quota: &mut Option<Quota>| quota.as_mut().map(|quota| quota.demand(seconds));
        Some(
            self.quotas(|quotas| TenantDemand {
                items: of(&mut quotas.items),
                gpu_seconds: of(&mut quotas.gpu_seconds),
            }),
        )
    }

    /// What this frontend may give from now on.
    pub(crate) fn take_share(&self, now: Time, share: TenantShare) {
        let set = |quota: &mut Option<Quota>, share: Option<f64>| {
            if let (Some(quota), Some(share)) = (quota, share) {
                // Never more than the file allows, even if the leader grants more.
                quota.bucket.set_rate(now, share.clamp(0.0, quota.whole));
            }
        };
        self.quotas(|quotas| {
            set(&mut quotas.items, share.items);
            set(&mut quotas.gpu_seconds, share.gpu_seconds);
        });
    }

    /// The parts of its quotas that this frontend may give.
    pub(crate) fn shares(&self) -> [Option<f64>; 2] {
        let part = |quota: Option<Quota>| quota.map(|quota| quota.bucket.per_second() / quota.whole);
        self.quotas(|quotas| [part(quotas.items), part(quotas.gpu_seconds)])
    }
}

/// Whether neither quota is used up.
fn check_quotas(quotas: &mut Quotas, now: Time) -> Result<(), (QuotaKind, Nanos)> {
    for (kind, quota) in [(QuotaKind::Items, &mut quotas.items), (QuotaKind::GpuSeconds, &mut quotas.gpu_seconds)] {
        if let Some(quota) = quota {
            quota.bucket.check_level(now).map_err(|wait| (kind, wait))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use symphony_config::TenantsFile;

    use super::*;

    fn tenant(lines: &str, before: Option<&Tenant>) -> Tenant {
        let text = format!("[[tenant]]\nname = \"a\"\ncertificates = [\"a\"]\n{lines}");
        let config = TenantsFile::parse(&text).unwrap().tenants.remove(0);
        Tenant::new(Time::ZERO, config, 2, 2, before, TenantCounts::default)
    }

    const fn millis(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn both_quotas_count_and_the_one_that_is_used_up_is_named() {
        let tenant = tenant("items_per_s = 20\ngpu_seconds_per_s = 0.2", None);
        // This is one of two frontends: half of the quota.
        for _ in 0..5 {
            assert_eq!(tenant.charge(Time::ZERO, 1, Nanos::from_millis(10)), Ok(()));
        }
        assert_eq!(tenant.charge(Time::ZERO, 1, Nanos::from_millis(60)), Ok(()), "the last one may cost more");
        let refused = tenant.charge(Time::ZERO, 1, Nanos::ZERO).unwrap_err();
        assert!(
            refused.to_string().contains("tenant `a` has used up its quota of 0.2 seconds of GPU time"),
            "{refused}"
        );
        assert_eq!(tenant.take_place(Time::ZERO).unwrap_err(), refused, "before it is read, too");
        let demand = tenant.demand(1.0).unwrap();
        let items = demand.items.unwrap();
        assert_eq!((items.quota, items.held), (20.0, 10.0));
        assert_eq!(items.offered, 0.5 * 8.0, "what was refused counts");
        tenant.take_share(millis(1000), TenantShare { items: Some(99.0), gpu_seconds: Some(0.2) });
        assert_eq!(tenant.shares(), [Some(1.0), Some(1.0)], "no more than the quota");
        assert!(tenant.charge(millis(2000), 1, Nanos::ZERO).is_ok());
    }

    #[test]
    fn who_is_asked_without_a_share_says_so_to_get_one() {
        let tenant = tenant("items_per_s = 20\ngpu_seconds_per_s = 0.2", None);
        tenant.take_share(Time::ZERO, TenantShare { items: Some(0.0), gpu_seconds: Some(0.0) });
        let wait = |refused: InferError| match refused {
            InferError::QuotaExceeded { wait, .. } => wait,
            other => panic!("{other}"),
        };
        for _ in 0..10 {
            assert_eq!(wait(tenant.take_place(Time::ZERO).unwrap_err()), WAIT_WITHOUT_SHARE);
        }
        let demand = tenant.demand(1.0).unwrap();
        let (items, gpu_seconds) = (demand.items.unwrap(), demand.gpu_seconds.unwrap());
        assert_eq!((items.offered, items.held), (5.0, 0.0));
        assert!((gpu_seconds.offered - 1e-3).abs() < 1e-12, "{gpu_seconds:?}");
        for _ in 0..1000 {
            assert!(tenant.take_place(Time::ZERO).is_err());
        }
        assert_eq!(tenant.demand(1.0).unwrap().items.unwrap().offered, 12.5, "a flood asks for the whole");
        tenant.take_share(Time::ZERO, TenantShare { items: Some(1e-9), gpu_seconds: Some(0.2) });
        assert_eq!(tenant.charge(millis(1), 1, Nanos::ZERO), Ok(()));
        assert_eq!(wait(tenant.take_place(millis(1)).unwrap_err()), WAIT_MAX, "a second takes a lifetime");
    }

    #[test]
    fn requests_in_flight_are_limited_by_tenant_and_a_change_of_the_file_keeps_what_was_used() {
        let before = tenant("items_per_s = 4", None);
        let (_first, second) = (before.take_place(Time::ZERO).unwrap(), before.take_place(Time::ZERO).unwrap());
        assert!(matches!(before.take_place(Time::ZERO), Err(InferError::TenantBusy { in_flight_max: 2, .. })));
        drop(second);
        for _ in 0..2 {
            before.charge(Time::ZERO, 1, Nanos::ZERO).unwrap();
        }
        let after = tenant("items_per_s = 8\nrequests_in_flight_max = 1\ngpu_seconds_per_s = 1", Some(&before));
        assert!(after.take_place(Time::ZERO).is_err(), "the bucket is still empty");
        assert!(matches!(after.take_place(millis(500)), Err(InferError::TenantBusy { in_flight_max: 1, .. })));
        assert_eq!(after.shares(), [Some(0.5), Some(0.5)]);
        let unlimited = tenant("", Some(&after));
        assert_eq!((unlimited.demand(1.0), unlimited.shares()), (None, [None, None]));
    }
}
