//! The shares of frontends in the quotas of tenants.

use std::collections::{BTreeMap, BTreeSet};

use symphony_types::FrontendId;

use crate::split::share_of;
use crate::token_bucket::sound;

/// A frontend's report on one quota of a tenant, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// The whole quota, over all frontends.
    pub quota: f64,
    /// What its clients ask for.
    pub offered: f64,
    /// What it may give them now.
    pub held: f64,
}

/// The same of both quotas of a tenant; none of one that the tenant does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantDemand {
    /// Items per second.
    pub items: Option<Demand>,
    /// Seconds of GPU time.
    pub gpu_seconds: Option<Demand>,
}

/// What a frontend may give from now on, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantShare {
    /// Items per second.
    pub items: Option<f64>,
    /// Seconds of GPU time.
    pub gpu_seconds: Option<f64>,
}

/// One quota at one frontend.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    offered: f64,
    /// What may be given there: its last answer, or what it held before, if that is more. The answer may be lost.
    reserved: f64,
}

/// The frontends' reports on one quota of a tenant.
#[derive(Clone, Debug, Default)]
struct Parts {
    by_frontend: BTreeMap<FrontendId, Part>,
    /// What they are asked for, in ascending order: a report sorts nothing.
    offered: Vec<f64>,
}

impl Parts {
    fn put(&mut self, frontend: FrontendId, part: Part) {
        self.forget(frontend);
        self.offered.insert(self.offered.partition_point(|&offered| offered < part.offered), part.offered);
        self.by_frontend.insert(frontend, part);
    }

    fn forget(&mut self, frontend: FrontendId) {
        if let Some(part) = self.by_frontend.remove(&frontend) {
            self.offered.remove(self.offered.partition_point(|&offered| offered < part.offered));
        }
    }

    /// The share of this frontend, one of `count`, as far as it is free.
    fn share(&self, of: FrontendId, count: usize, quota: f64) -> f64 {
        let own = self.by_frontend.get(&of).map_or(0.0, |part| part.offered);
        let others = self.by_frontend.iter().filter(|&(&frontend, _)| frontend != of);
        let free = quota - others.map(|(_, part)| part.reserved).sum::<f64>();
        share_of(quota, count, &self.offered, own).min(free.max(0.0))
    }
}

/// After this many reports a frontend is given its share although others have not reported: they may never do.
const WAITING_REPORTS_MAX: u32 = 5;

/// The last demands of the frontends of a cluster, and what each was given.
///
/// A frontend that has reported keeps its part as long as it counts, since it keeps its share when it hears nothing,
/// and has given back only what it says that it no longer holds. While others have not reported, as when the leader is
/// new, it keeps what it holds; those that still have not then count for nothing: they know no tenants, or are gone.
///
/// A report costs a walk over the frontends for each quota in it.
#[derive(Clone, Debug, Default)]
pub struct QuotaBook {
    /// How often each has reported, up to [`WAITING_REPORTS_MAX`].
    reports: BTreeMap<FrontendId, u32>,
    /// Both quotas of each tenant.
    tenants: BTreeMap<String, [Parts; 2]>,
}

impl QuotaBook {
    /// Takes the report of one of `frontends`, all that may grant anything, and returns what it may grant from now on.
    ///
    /// The sum of what was given out grows to the quota and no further: what this frontend is to have beyond what is
    /// free, it gets once the others have reported, and have given theirs back.
    pub fn report(
        &mut self,
        from: FrontendId,
        frontends: &BTreeSet<FrontendId>,
        demands: &BTreeMap<String, TenantDemand>,
    ) -> BTreeMap<String, TenantShare> {
        let gone: Vec<_> = self.reports.keys().copied().filter(|known| !frontends.contains(known)).collect();
        for frontend in gone {
            self.reports.remove(&frontend);
            self.forget(frontend, |_| true);
        }
        self.forget(from, |tenant| !demands.contains_key(tenant));
        let reports = self.reports.get(&from).copied().unwrap_or(0) + 1;
        let others = || frontends.iter().filter(|&&frontend| frontend != from);
        let waits = reports <= WAITING_REPORTS_MAX && others().any(|other| !self.reports.contains_key(other));
        let count = others().count() + 1;
        let answer = |parts: &mut Parts, demand: Option<Demand>| {
            let Some(demand) = demand else {
                parts.forget(from);
                return None;
            };
            let quota = sound(demand.quota);
            let (offered, held) = (sound(demand.offered), sound(demand.held).min(quota));
            parts.put(from, Part { offered, reserved: held });
            let given = if waits { held } else { parts.share(from, count, quota) };
            parts.by_frontend.insert(from, Part { offered, reserved: given.max(held) });
            Some(given)
        };
        let mut shares = BTreeMap::new();
        for (tenant, demand) in demands {
            let [items, gpu_seconds] = self.tenants.entry(tenant.clone()).or_default();
            let (items, gpu_seconds) = (answer(items, demand.items), answer(gpu_seconds, demand.gpu_seconds));
            shares.insert(tenant.clone(), TenantShare { items, gpu_seconds });
        }
        if frontends.contains(&from) {
            self.reports.insert(from, reports.min(WAITING_REPORTS_MAX));
        } else {
            self.forget(from, |_| true);
        }
        shares
    }

    /// Forgets a frontend's reports on the tenants that `leave`.
    fn forget(&mut self, frontend: FrontendId, leave: impl Fn(&str) -> bool) {
        self.tenants.retain(|tenant, quotas| {
            if !leave(tenant) {
                return true;
            }
            quotas.iter_mut().for_each(|parts| parts.forget(frontend));
            quotas.iter().any(|parts| !parts.by_frontend.is_empty())
        });
    }

    /// Forgets all: another replica leads the group.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::split::split;

    fn all(count: u32) -> BTreeSet<FrontendId> {
        (1..=count).map(FrontendId::new).collect()
    }

    /// A report of one frontend of `count`: its share of a quota of 90.
    fn share(book: &mut QuotaBook, from: u32, count: u32, offered: f64, held: f64) -> f64 {
        let demand = TenantDemand { items: Some(Demand { quota: 90.0, offered, held }), gpu_seconds: None };
        let shares = book.report(FrontendId::new(from), &all(count), &BTreeMap::from([("t".to_owned(), demand)]));
        assert_eq!(shares["t"].gpu_seconds, None);
        shares["t"].items.unwrap()
    }

    #[test]
    fn a_share_grows_once_the_others_have_given_theirs_back() {
        let mut book = QuotaBook::default();
        assert_eq!(share(&mut book, 1, 1, 500.0, 90.0), 90.0, "the only one has all");
        assert_eq!(share(&mut book, 2, 2, 500.0, 45.0), 0.0, "nothing is free yet");
        assert_eq!(share(&mut book, 1, 2, 500.0, 90.0), 45.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 0.0), 0.0, "the other one may not have heard it");
        assert_eq!(share(&mut book, 1, 2, 500.0, 45.0), 45.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 0.0), 45.0);
        assert_eq!(share(&mut book, 1, 2, 10.0, 45.0), 10.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 45.0), 45.0);
        assert_eq!(share(&mut book, 1, 2, 10.0, 10.0), 10.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 45.0), 80.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 80.0), 80.0, "the other one is silent, and keeps its part");
        // Its part is free once the cluster has forgotten it.
        let gone: BTreeSet<_> = [FrontendId::new(2)].into();
        let demand =
            TenantDemand { items: Some(Demand { quota: 90.0, offered: 500.0, held: 80.0 }), gpu_seconds: None };
        let shares = book.report(FrontendId::new(2), &gone, &BTreeMap::from([("t".to_owned(), demand)]));
        assert_eq!(shares["t"].items, Some(90.0));
    }

    #[test]
    fn what_a_lost_answer_took_back_is_not_given_to_another() {
        let mut book = QuotaBook::default();
        assert_eq!(share(&mut book, 1, 2, 80.0, 80.0), 80.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 10.0), 10.0);
        for _ in 0..3 {
            assert_eq!(share(&mut book, 1, 2, 10.0, 80.0), 10.0, "each of these answers is lost");
            assert_eq!(share(&mut book, 2, 2, 500.0, 10.0), 10.0);
        }
        share(&mut book, 1, 2, 10.0, 10.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 10.0), 80.0);
    }

    #[test]
    fn what_is_held_is_kept_until_all_have_reported_or_some_never_do() {
        let mut book = QuotaBook::default();
        for _ in 0..WAITING_REPORTS_MAX {
            assert_eq!(share(&mut book, 1, 2, 500.0, 80.0), 80.0);
        }
        assert_eq!(share(&mut book, 1, 2, 500.0, 80.0), 90.0, "the other one has no tenants, or is gone");
        assert_eq!(share(&mut book, 2, 2, 500.0, 10.0), 0.0, "it is back");
        let mut book = QuotaBook::default();
        assert_eq!(share(&mut book, 1, 2, 500.0, 80.0), 80.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 10.0), 10.0, "as much as is free");
        assert_eq!(share(&mut book, 1, 2, 500.0, 80.0), 45.0);
        assert_eq!(share(&mut book, 1, 2, 500.0, 45.0), 45.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 10.0), 45.0);
    }

    #[test]
    fn tenants_that_a_report_no_longer_names_are_free_and_forgotten() {
        let mut book = QuotaBook::default();
        share(&mut book, 1, 2, 500.0, 90.0);
        share(&mut book, 2, 2, 500.0, 0.0);
        assert_eq!(share(&mut book, 2, 2, 500.0, 0.0), 0.0, "the other one holds it");
        book.report(FrontendId::new(1), &all(2), &BTreeMap::new());
        assert_eq!(share(&mut book, 2, 2, 500.0, 0.0), 90.0);
        book.report(FrontendId::new(2), &all(2), &BTreeMap::new());
        assert!(book.tenants.is_empty());
        // A frontend that is not of the cluster gets an answer, and leaves nothing behind.
        assert_eq!(share(&mut book, 9, 2, 500.0, 0.0), 90.0);
        assert!(book.tenants.is_empty() && !book.reports.contains_key(&FrontendId::new(9)));
    }

    proptest! {
        #[test]
        fn no_more_than_the_quota_is_given_out_and_steady_demands_get_their_shares(
            reports in prop::collection::vec((1_u32..5, 0.0_f64..200.0, any::<bool>()), 0..60),
            steady in prop::collection::vec(0.0_f64..200.0, 4),
        ) {
            let mut book = QuotaBook::default();
            let mut held = [22.5; 4];
            for (at, held) in held.iter_mut().enumerate() {
                *held = share(&mut book, at as u32 + 1, 4, 0.0, *held);
            }
            for (from, offered, arrives) in reports {
                let at = from as usize - 1;
                let given = share(&mut book, from, 4, offered, held[at]);
                if arrives {
                    held[at] = given;
                }
                prop_assert!(held.iter().sum::<f64>() <= 90.0 + 1e-9, "{held:?}");
            }
            // All demands are known, large shares shrink, the frontends report that, small ones grow.
            for _ in 0..4 {
                for (at, &offered) in steady.iter().enumerate() {
                    held[at] = share(&mut book, at as u32 + 1, 4, offered, held[at]);
                    prop_assert!(held.iter().sum::<f64>() <= 90.0 + 1e-9, "{held:?}");
                }
            }
            for (held, expected) in held.iter().zip(split(90.0, &steady)) {
                prop_assert!((held - expected).abs() < 1e-6, "{held} of {expected}");
            }
        }
    }
}
