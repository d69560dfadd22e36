//! Which of the served models share a queue: those of a family whose trunk every backend in use runs for all of them
//! (docs/adr/0045-prefix-batching.md).

use std::collections::BTreeMap;

use symphony_protocol::execute::HostedModel;
use symphony_protocol::view::ModelView;
use symphony_types::{CutDigest, FamilyProfile, GpuClass, LatencyProfile, ModelId, Nanos, SUFFIX_PROFILES_MAX};

use crate::lead::served_as::ServedAs;

/// The shares of trunk and suffix are given in parts of this.
const SHARES_OF: u64 = 1_000_000;

/// What a backend hosts, by model.
pub(crate) type Hosting = BTreeMap<ModelId, HostedModel>;

/// Models that share a queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SharedQueue {
    pub(crate) trunk: CutDigest,
    /// By id; at least two, unless some have left since.
    members: Vec<Shares>,
    /// The shortest of their SLOs, and the policy that all have.
    pub(crate) how: ServedAs,
    /// How many kinds of GPUs it knows.
    kinds: usize,
}

/// The largest shares of a batch's time that a backend measured of a model's trunk and suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    model: ModelId,
    trunk: u32,
    suffix: u32,
}

/// A model that may share its queue, and those that it will share it with.
struct Forming {
    trunk: CutDigest,
    /// The shortest of their SLOs, and the policy that all have.
    how: ServedAs,
    /// The decision thread of all.
    thread: u32,
    /// By id.
    members: Vec<Shares>,
    /// By kind of GPUs; none if one of them has no profile for it.
    on_kinds: Vec<Option<OnKind>>,
}

/// What batches take on a kind of GPUs.
#[derive(Clone, Copy)]
struct OnKind {
    batch_max: u32,
    /// What the trunk takes for one row, in the slowest of the models.
    trunk: Nanos,
    /// The same of the suffix.
    suffix: Nanos,
}

impl SharedQueue {
    pub(crate) fn members(&self) -> impl Iterator<Item = ModelId> {
        self.members.iter().map(|member| member.model)
    }

    pub(crate) fn has(&self, model: ModelId) -> bool {
        self.members().any(|member| member == model)
    }

    /// A model is not served any more. What the others take at worst is less then, which is no reason to disturb them.
    pub(crate) fn leave(&mut self, model: ModelId) {
        self.members.retain(|member| member.model != model);
    }

    /// What its batches take, by class of GPUs, with the profiles of its models, which do not change while they are
    /// served: the slowest of the trunks, and the suffix of each. Without the kinds that one has no profile for.
    pub(crate) fn profiles(
        &self,
        models: &BTreeMap<ModelId, ModelView>,
        kinds: &[String],
    ) -> Vec<(GpuClass, FamilyProfile)> {
        let of_kind = |kind: &str| {
            let parts = |share: fn(&Shares) -> u32| {
                let part = |member: &Shares| {
                    let profile = models.get(&member.model)?.spec.profiles.get(kind)?;
                    profile_of_part(&profile.latency, share(member))
                };
                self.members.iter().map(part).collect::<Option<Vec<_>>>()
            };
            let trunk = parts(|member| member.trunk)?.into_iter().reduce(|one, other| one.slower_of(&other))?;
            FamilyProfile::new(trunk, &parts(|member| member.suffix)?).ok()
        };
        GpuClass::all().zip(kinds).filter_map(|(class, kind)| Some((class, of_kind(kind)?))).collect()
    }
}

/// What one of a batch's parts takes: this share of the latency in the model's profile.
fn part_of(whole: Nanos, share: u32) -> Nanos {
    let part = u128::from(whole.get()) * u128::from(share);
    Nanos::new(u64::try_from(part.div_ceil(u128::from(SHARES_OF))).unwrap_or(u64::MAX).max(1))
}

fn profile_of_part(whole: &LatencyProfile, share: u32) -> Option<LatencyProfile> {
    let parts: Vec<_> = whole.table().iter().map(|&latency| part_of(latency, share)).collect();
    LatencyProfile::from_table(&parts).ok()
}

/// The queues that models share, of the `served` ones in the order of their ids. The others have their own. A queue
/// lives on one of the decision threads, by the ids of its models, and has at most as many models as a family's profile
/// can have different suffixes. `kinds` are the kinds of GPUs that are known.
pub(crate) fn shared_queues<'a>(
    served: impl Iterator<Item = (ModelId, &'a ModelView)>,
    hosting: &[&Hosting],
    threads: u32,
    kinds: &[String],
) -> Vec<SharedQueue> {
    let mut queues: Vec<Forming> = Vec::new();
    for one in served.filter_map(|(id, view)| Forming::of((id, view), hosting, threads, kinds)) {
        if !queues.iter_mut().any(|queue| queue.takes_in(&one)) {
            queues.push(one);
        }
    }
    let shared = queues.into_iter().filter(|queue| queue.members.len() > 1);
    shared.map(|Forming { trunk, how, members, .. }| SharedQueue { trunk, members, how, kinds: kinds.len() }).collect()
}

impl Forming {
    /// The model, if each of these backends runs it through the trunk of its family.
    fn of((id, view): (ModelId, &ModelView), hosting: &[&Hosting], threads: u32, kinds: &[String]) -> Option<Self> {
        let trunk = view.shared_trunk().filter(|_| !hosting.is_empty())?;
        let mut shares = Shares { model: id, trunk: 0, suffix: 0 };
        for hosted in hosting {
            let hosted = hosted.get(&id).filter(|hosted| hosted.trunk == trunk.get().to_be_bytes())?;
            shares.trunk = hosted.trunk_share.max(shares.trunk);
            shares.suffix = hosted.suffix_share.max(shares.suffix);
        }
        let on_kind = |kind: &String| {
            let profile = view.spec.profiles.get(kind);
            profile.map(|profile| {
                let (batch_max, row) = (profile.latency.batch_max(), profile.latency.latency(1));
                OnKind { batch_max, trunk: part_of(row, shares.trunk), suffix: part_of(row, shares.suffix) }
            })
        };
        let (how, thread) = (ServedAs::of(view), id.get() % threads);
        Some(Self { trunk, how, thread, members: vec![shares], on_kinds: kinds.iter().map(on_kind).collect() })
    }

    /// Takes in a model, unless one queue would drop requests that are served by queues of their own. It drops by what
    /// batches take at worst, so
    ///
    /// - the largest batches are equal: a queue's are no larger than those of each of its models, and requests may be;
    /// - the shortest SLO has room for two batches of one row at worst: a request that comes when a batch begins is in
    ///   time with the next one. Else the requests of a model with a short SLO would all go because of a slow one.
    fn takes_in(&mut self, one: &Self) -> bool {
        let place = |of: &Self| (of.trunk, of.how.policy, of.thread);
        if place(self) != place(one) || self.members.len() >= SUFFIX_PROFILES_MAX {
            return false;
        }
        let slo = self.how.slo.min(one.how.slo);
        let both: Vec<_> = self.on_kinds.iter().zip(&one.on_kinds).map(|(all, one)| (*all).zip(*one)).collect();
        let is_served = |&(all, one): &(OnKind, OnKind)| {
            all.batch_max == one.batch_max && all.slower_of(one).row_at_worst().saturating_mul(2) <= slo
        };
        if !both.iter().flatten().all(is_served) {
            return false;
        }
        self.how.slo = slo;
        self.members.extend(&one.members);
        self.on_kinds = both.into_iter().map(|both| both.map(|(all, one)| all.slower_of(one))).collect();
        true
    }
}

impl OnKind {
    /// Of models of both.
    fn slower_of(self, other: Self) -> Self {
        Self { trunk: self.trunk.max(other.trunk), suffix: self.suffix.max(other.suffix), ..self }
    }

    /// What a batch of one row takes at worst.
    fn row_at_worst(self) -> Nanos {
        self.trunk + self.suffix
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{KindProfile, ModelSource, ModelSpec, TrunkView};
    use symphony_types::{RequestValue, Signature, SubclusterId, VariantRows};

    use super::*;

    const TRUNK: CutDigest = CutDigest::new(7);

    fn model(slo_ms: u64, policy: &str, trunk: Option<CutDigest>, profile: (f64, f64)) -> ModelView {
        let latency = LatencyProfile::from_line(profile.0, profile.1, 8).unwrap();
        let profile = KindProfile { latency, static_memory_bytes: 0, dynamic_memory_bytes: 0 };
        let spec = ModelSpec {
            name: "m".into(),
            subcluster: "s".into(),
            slo: Nanos::from_millis(slo_ms),
            source: ModelSource::Onnx("m.onnx".into()),
            signature: Signature { inputs: vec![], outputs: vec![] },
            transforms: Default::default(),
            profiles: [("cpu".to_owned(), profile)].into(),
            policy: policy.parse().unwrap(),
            value: RequestValue::ONE,
        };
        let trunk = trunk.map(|cut| TrunkView { cuts: vec![cut], shared: Some(cut) });
        ModelView { spec, subcluster: SubclusterId::new(1), moving: None, holders: BTreeMap::new(), trunk }
    }

    fn hosts(models: &[(u32, u32, u32)]) -> Hosting {
        let hosted = |&(id, trunk_share, suffix_share): &(u32, u32, u32)| {
            let (model, trunk) = (ModelId::new(id), TRUNK.get().to_be_bytes());
            (model, HostedModel { model, trunk_share, suffix_share, trunk })
        };
        models.iter().map(hosted).collect()
    }

    fn kinds() -> [String; 2] {
        ["cpu", "h100"].map(String::from)
    }

    fn queues(models: &[ModelView], hosting: &[&Hosting], threads: u32) -> Vec<SharedQueue> {
        shared_queues((1..).map(ModelId::new).zip(models), hosting, threads, &kinds())
    }

    /// What batches of the first queue take, with GPUs of these kinds.
    fn profiles(models: &[ModelView], queues: &[SharedQueue]) -> Vec<(GpuClass, FamilyProfile)> {
        let models = (1..).map(ModelId::new).zip(models.iter().cloned()).collect();
        queues[0].profiles(&models, &kinds())
    }

    fn members(queues: &[SharedQueue]) -> Vec<Vec<u32>> {
        queues.iter().map(|queue| queue.members().map(ModelId::get).collect()).collect()
    }

    #[test]
    fn models_share_a_queue_where_every_backend_in_use_runs_their_trunk() {
        let models = [
            model(50, "auto", Some(TRUNK), (1.0, 4.0)),
            model(40, "auto", Some(TRUNK), (1.0, 4.0)),
            model(40, "eager", Some(TRUNK), (1.0, 4.0)),
            model(40, "auto", Some(CutDigest::new(8)), (1.0, 4.0)),
            model(40, "auto", None, (1.0, 4.0)),
            model(90, "auto", Some(TRUNK), (1.0, 4.0)),
        ];
        let all = hosts(&[1, 2, 3, 4, 5, 6].map(|id| (id, 900_000, 100_000)));
        let found = queues(&models, &[&all], 1);
        assert_eq!(members(&found), [[1, 2, 6]], "of one policy and one trunk");
        assert_eq!(found[0].how.slo, Nanos::from_millis(40));
        assert_eq!(profiles(&models, &found).len(), 1, "there is no profile for the other kind");
        assert_eq!(members(&queues(&models, &[&all, &hosts(&[(1, 1, 1), (6, 1, 1)])], 1)), [[1, 6]]);
        assert_eq!(members(&queues(&models, &[&all, &hosts(&[(1, 1, 1)])], 1)), Vec::<Vec<u32>>::new());
        assert_eq!(members(&queues(&models, &[], 1)), Vec::<Vec<u32>>::new(), "nobody is known to host them");
        assert_eq!(members(&queues(&models, &[&all], 2)), [[2, 6]], "on one thread");
    }

    #[test]
    fn a_model_is_in_no_queue_that_would_drop_its_requests() {
        // Of 5 ms by themselves, and of 60 ms; each has a trunk of 4.5 ms.
        let light = |slo_ms| model(slo_ms, "auto", Some(TRUNK), (1.0, 4.0));
        let heavy = || model(200, "auto", Some(TRUNK), (1.0, 59.0));
        let (of_light, of_heavy) = ((900_000_u32, 100_000_u32), (75_000, 925_000));
        let shares = [of_light, of_heavy, of_light, of_heavy];
        let all = hosts(&(1_u32..).zip(shares).map(|(id, (trunk, suffix))| (id, trunk, suffix)).collect::<Vec<_>>());
        let found = queues(&[light(119), heavy(), light(10), heavy()], &[&all], 1);
        assert_eq!(members(&found), [[1, 3], [2, 4]], "two batches of 60 ms fit neither 119 nor 10 ms");
        let found = queues(&[light(120), heavy(), light(9), heavy()], &[&all], 1);
        assert_eq!(members(&found), [[1, 2, 4]], "two batches of 5 ms do not fit 9 ms");

        let mut smaller = light(50);
        smaller.spec.profiles.get_mut("cpu").unwrap().latency = LatencyProfile::from_line(1.0, 4.0, 4).unwrap();
        let all = hosts(&[1, 2, 3].map(|id| (id, 900_000, 100_000)));
        let found = queues(&[light(50), smaller, light(50)], &[&all], 1);
        assert_eq!(members(&found), [[1, 3]], "requests of up to 8 rows are taken for the one, and of 4 for the other");
    }

    #[test]
    fn the_parts_are_what_backends_measured_at_most_of_what_profiles_say() {
        let models = [model(50, "auto", Some(TRUNK), (1.0, 4.0)), model(50, "auto", Some(TRUNK), (1.5, 4.0))];
        let (one, other) =
            (hosts(&[(1, 900_000, 100_000), (2, 800_000, 200_000)]), hosts(&[(1, 850_000, 150_000), (2, 1, 1)]));
        let found = queues(&models, &[&one, &other], 1);
        let profiles = profiles(&models, &found);
        let [(class, family)] = &profiles[..] else { panic!("{profiles:?}") };
        assert_eq!(*class, GpuClass::FIRST);
        let us = |micros| Nanos::from_micros(micros);
        // Rows: 0.9·(b + 4) and 0.8·(1.5·b + 4).
        assert_eq!((family.trunk().latency(1), family.trunk().latency(8)), (us(4_500), us(12_800)));
        assert_eq!(family.suffix(0).unwrap().latency(2), us(900));
        assert_eq!(family.suffix(1).unwrap().latency(2), us(1_400));
        // No batch of one model takes less than its profile says.
        for rows in 1..=8 {
            let mut of_one = VariantRows::new(2);
            of_one.add(1, rows);
            assert!(family.exact(&of_one).unwrap() >= models[1].spec.profiles["cpu"].latency.latency(rows));
        }
    }

    #[test]
    fn who_leaves_leaves_the_queue_as_it_would_be_made_without_it() {
        let models = [(); 3].map(|()| model(50, "auto", Some(TRUNK), (1.0, 4.0)));
        let all = hosts(&[1, 2, 3].map(|id| (id, 900_000, 100_000)));
        let (mut before, left) = (queues(&models, &[&all], 1), queues(&models[..2], &[&all], 1));
        assert_ne!(before, left);
        before[0].leave(ModelId::new(3));
        assert_eq!(before, left);
        assert!(before[0].has(ModelId::new(2)) && !before[0].has(ModelId::new(3)));
        // Another measurement makes another queue.
        let slower = hosts(&[1, 2].map(|id| (id, 900_000, 300_000)));
        assert_ne!(queues(&models[..2], &[&slower], 1), left);
    }

    #[test]
    fn a_large_family_has_several_queues() {
        let models: Vec<_> = (0..SUFFIX_PROFILES_MAX + 3).map(|_| model(50, "auto", Some(TRUNK), (1.0, 4.0))).collect();
        let all = hosts(&(1..=models.len() as u32).map(|id| (id, 900_000, 100_000)).collect::<Vec<_>>());
        let sizes: Vec<_> = queues(&models, &[&all], 1).iter().map(|queue| queue.members().count()).collect();
        assert_eq!(sizes, [SUFFIX_PROFILES_MAX, 3]);
    }
}
