//! Which of the served models share a queue: those of a family whose trunk every backend in use runs for all of them
//! (docs/adr/0045-prefix-batching.md).

use std::collections::BTreeMap;

use symphony_protocol::execute::HostedModel;
use symphony_protocol::view::ModelView;
use symphony_types::{CutDigest, FamilyProfile, GpuClass, LatencyProfile, ModelId, Nanos, SUFFIX_PROFILES_MAX};

use crate::lead::served_as::ServedAs;

/// The shares of trunk and suffix are told in parts of this.
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

/// A model that may share its queue.
#[derive(Clone, Copy)]
struct Candidate {
    trunk: CutDigest,
    how: ServedAs,
    shares: Shares,
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
                    part_of(&profile.latency, share(member))
                };
                self.members.iter().map(part).collect::<Option<Vec<_>>>()
            };
            let trunk = parts(|member| member.trunk)?.into_iter().reduce(|one, other| one.slower_of(&other))?;
            FamilyProfile::new(trunk, &parts(|member| member.suffix)?).ok()
        };
        GpuClass::all().zip(kinds).filter_map(|(class, kind)| Some((class, of_kind(kind)?))).collect()
    }
}

/// Of a batch, what one of its parts takes: so much of what the model's profile says.
fn part_of(whole: &LatencyProfile, share: u32) -> Option<LatencyProfile> {
    let part = |latency: &Nanos| {
        let part = u128::from(latency.get()) * u128::from(share);
        Nanos::new(u64::try_from(part.div_ceil(u128::from(SHARES_OF))).unwrap_or(u64::MAX).max(1))
    };
    LatencyProfile::from_table(&whole.table().iter().map(part).collect::<Vec<_>>()).ok()
}

/// The queues that models share, of the `served` ones in the order of their ids. The others have their own. A queue
/// lives on one of so many decision threads, by the ids of its models, and has at most as many models as a family's
/// profile can have different suffixes. `kinds` is how many kinds of GPUs are known.
pub(crate) fn shared_queues<'a>(
    served: impl Iterator<Item = (ModelId, &'a ModelView)>,
    hosting: &[&Hosting],
    threads: u32,
    kinds: usize,
) -> Vec<SharedQueue> {
    let mut queues: Vec<Vec<Candidate>> = Vec::new();
    for candidate in served.filter_map(|(id, view)| candidate(id, view, hosting)) {
        let place = |one: &Candidate| (one.trunk, one.how.policy, one.shares.model.get() % threads);
        let has_room = |queue: &&mut Vec<Candidate>| {
            let is_same = queue.first().is_some_and(|first| place(first) == place(&candidate));
            is_same && queue.len() < SUFFIX_PROFILES_MAX
        };
        match queues.iter_mut().find(has_room) {
            Some(queue) => queue.push(candidate),
            None => queues.push(vec![candidate]),
        }
    }
    queues.iter().filter(|queue| queue.len() > 1).filter_map(|queue| shared_queue(queue, kinds)).collect()
}

/// The model, if each of these backends runs it through the trunk of its family.
fn candidate(id: ModelId, view: &ModelView, hosting: &[&Hosting]) -> Option<Candidate> {
    let trunk = view.shared_trunk()?;
    let mut shares = Shares { model: id, trunk: 0, suffix: 0 };
    for hosted in hosting {
        let hosted = hosted.get(&id).filter(|hosted| hosted.trunk == trunk.get().to_be_bytes())?;
        shares.trunk = hosted.trunk_share.max(shares.trunk);
        shares.suffix = hosted.suffix_share.max(shares.suffix);
    }
    (!hosting.is_empty()).then(|| Candidate { trunk, how: ServedAs::of(view), shares })
}

fn shared_queue(queue: &[Candidate], kinds: usize) -> Option<SharedQueue> {
    let first = queue.first()?;
    let slo = queue.iter().map(|model| model.how.slo).min()?;
    let members = queue.iter().map(|model| model.shares).collect();
    Some(SharedQueue { trunk: first.trunk, members, how: ServedAs { slo, ..first.how }, kinds })
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

    fn queues(models: &[ModelView], hosting: &[&Hosting], threads: u32) -> Vec<SharedQueue> {
        shared_queues((1..).map(ModelId::new).zip(models), hosting, threads, 2)
    }

    /// What batches of the first queue take, with GPUs of these kinds.
    fn profiles(models: &[ModelView], queues: &[SharedQueue]) -> Vec<(GpuClass, FamilyProfile)> {
        let models = (1..).map(ModelId::new).zip(models.iter().cloned()).collect();
        queues[0].profiles(&models, &["cpu".to_owned(), "h100".to_owned()])
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
