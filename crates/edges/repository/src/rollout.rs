//! Decides, step by step from the cluster's view, how to make a cluster serve a model as its repository describes it.

use std::collections::{BTreeMap, BTreeSet};

use symphony_protocol::view::{ModelSpec, ModelView, NoGpu, Readiness, View};
use symphony_types::VersionedName;

use crate::model_config::Device;
use crate::repository::RepositoryModel;

/// A cluster's path to the wanted versions of a model; no versions to unload it.
///
/// New versions are loaded before old ones go, and the old ones stay if a new one cannot be loaded. Clients that name
/// no version get the latest that is ready, so they see no gap.
#[derive(Clone, Debug)]
pub struct Rollout {
    name: String,
    wanted: BTreeMap<String, ModelSpec>,
    device: Device,
    /// Given in this rollout: a failure of theirs is no old one.
    loaded: BTreeSet<String>,
    unloaded: BTreeSet<String>,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Have the cluster load this.
    Load(Box<ModelSpec>),
    /// Have the cluster unload the model of this name.
    Unload(String),
    /// Wait until the view changes. If no GPU takes a version, its name, and why.
    Wait(Option<(String, NoGpu)>),
    /// The cluster is as it shall be.
    Done,
    /// The versions cannot be served, for this reason; the previous ones still are.
    Failed(String),
}

impl Rollout {
    /// To serve the model, and no version of it that it does not have.
    #[must_use]
    pub fn to(model: &RepositoryModel) -> Self {
        let wanted = model.versions.values().map(|spec| (spec.name.clone(), spec.clone())).collect();
        let (loaded, unloaded) = (BTreeSet::new(), BTreeSet::new());
        Self { name: model.name.clone(), wanted, device: model.device, loaded, unloaded }
    }

    /// A rollout to no version of the model, or that only removes the version that `name` spells out as
    /// `NAME@VERSION`.
    #[must_use]
    pub fn away(name: &str) -> Self {
        let (loaded, unloaded) = (BTreeSet::new(), BTreeSet::new());
        Self { name: name.to_owned(), wanted: BTreeMap::new(), device: Device::Any, loaded, unloaded }
    }

    /// Decides by the newest view. A load or unload is returned once: the caller gives it, or gives the rollout up.
    pub fn next(&mut self, view: &View) -> Next {
        let (mut waits, mut no_gpu, mut failed) = (false, None, None);
        for (name, spec) in &self.wanted {
            let Some((_, model)) = view.model_named(name) else {
                // Given already: the view is older than that.
                if !self.loaded.insert(name.clone()) {
                    waits = true;
                    continue;
                }
                return match self.check_device(view, spec) {
                    Ok(()) => Next::Load(Box::new(spec.clone())),
                    Err(reason) => Next::Failed(reason),
                };
            };
            if !is_same(&model.spec, spec) {
                return Next::Failed(format!(
                    "`{name}` is loaded with another specification; unload it first, or give the new one another version"
                ));
            }
            match model.readiness(view) {
                Readiness::Ready => {}
                // It failed before: files may have been put right since.
                Readiness::Failed(_) if !self.loaded.contains(name) && self.unloaded.insert(name.clone()) => {
                    return Next::Unload(name.clone());
                }
                Readiness::Failed(reason) if self.loaded.contains(name) => {
                    failed = Some(format!("`{name}` was not loaded: {reason}"));
                }
                Readiness::NoGpu(why) => no_gpu = no_gpu.or_else(|| Some((name.clone(), why))),
                Readiness::Failed(_) | Readiness::Loading => waits = true,
            }
        }
        if let Some(reason) = failed {
            return Next::Failed(reason);
        }
        if waits || no_gpu.is_some() {
            return Next::Wait(no_gpu);
        }
        let leftover = versions(view, &self.name).map(|(loaded_as, _)| loaded_as);
        let leftover = leftover.filter(|name| !self.wanted.contains_key(*name) && !self.unloaded.contains(*name)).min();
        match leftover.map(str::to_owned) {
            Some(name) => {
                self.unloaded.insert(name.clone());
                Next::Unload(name)
            }
            None => Next::Done,
        }
    }

    /// Whether the sub-cluster that the model would come to has such devices.
    fn check_device(&self, view: &View, spec: &ModelSpec) -> Result<(), String> {
        let homes: Vec<_> = view
            .subclusters
            .iter()
            .filter(|(_, subcluster)| spec.subcluster.is_empty() || subcluster.name == spec.subcluster)
            .map(|(&id, _)| id)
            .collect();
        let is_cpu = |executor: &str| executor.ends_with("-cpu");
        let unfit = view.backends.values().filter(|b| b.up && homes.contains(&b.subcluster)).find(|backend| match self
            .device
        {
            Device::Any => false,
            Device::Gpu => is_cpu(&backend.executor),
            Device::Cpu => !is_cpu(&backend.executor) && backend.executor != "emulated",
        });
        unfit.map_or(Ok(()), |backend| {
            let asked = if self.device == Device::Gpu { "KIND_GPU" } else { "KIND_CPU" };
            let (name, executor) = (&backend.name, &backend.executor);
            Err(format!(
                "instance_group asks for {asked}, and backend `{name}` of its sub-cluster runs executor {executor}"
            ))
        })
    }
}

/// The cluster's copies of a model with their names: all versions and one that was loaded without a version, or only
/// the one that `name` spells out as `NAME@VERSION`.
pub fn versions<'a>(view: &'a View, name: &'a str) -> impl Iterator<Item = (&'a str, &'a ModelView)> {
    let one = VersionedName::parse(name).loaded_as() == name;
    let of = move |model: &&ModelView| {
        if one { model.spec.name == name } else { VersionedName::parse(&model.spec.name).name == name }
    };
    view.models.values().filter(of).map(|model| (model.spec.name.as_str(), model))
}

/// Whether they ask for the same. A cluster fills in the only sub-cluster there is.
fn is_same(loaded: &ModelSpec, wanted: &ModelSpec) -> bool {
    let subcluster = if wanted.subcluster.is_empty() { loaded.subcluster.clone() } else { wanted.subcluster.clone() };
    *loaded == ModelSpec { subcluster, ..wanted.clone() }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{BackendView, ModelSource, ReplicaView, SubclusterView};
    use symphony_types::{BackendId, BootId, ModelId, Nanos, RequestValue, Signature, SubclusterId};

    use super::*;

    const BOOT: BootId = BootId::new(1);
    const BACKEND: BackendId = BackendId::new(1);
    const HOME: SubclusterId = SubclusterId::new(1);

    fn spec(name: &str) -> ModelSpec {
        ModelSpec {
            name: name.into(),
            subcluster: String::new(),
            slo: Nanos::from_millis(50),
            source: ModelSource::Emulated,
            signature: Signature { inputs: vec![], outputs: vec![] },
            transforms: Default::default(),
            profiles: BTreeMap::new(),
            policy: Default::default(),
            value: RequestValue::ONE,
        }
    }

    fn model(versions: &[u64]) -> RepositoryModel {
        let spec = |&version| (version, spec(&VersionedName { name: "m", version }.loaded_as()));
        let versions = versions.iter().map(spec).collect();
        RepositoryModel { name: "m".into(), versions, device: Device::Any, notes: vec![] }
    }

    /// The backend's report on a model, if any.
    type BackendReport = Option<Result<(), &'static str>>;

    fn view(models: &[(&str, BackendReport)]) -> View {
        let model = |(index, &(name, state)): (usize, &(&str, BackendReport))| {
            let replica =
                |state: Result<(), &str>| (BACKEND, ReplicaView { boot: BOOT, state: state.map_err(str::to_owned) });
            let spec = ModelSpec { subcluster: "s".into(), ..spec(name) };
            let model =
                ModelView { spec, subcluster: HOME, moving: None, replicas: state.map(replica).into_iter().collect() };
            (ModelId::new(index as u32), model)
        };
        let backend = BackendView {
            name: "b".into(),
            boot: BOOT,
            up: true,
            subcluster: HOME,
            executor: "ort-cpu".into(),
            ..BackendView::default()
        };
        View {
            subclusters: [(HOME, SubclusterView { name: "s".into(), ..SubclusterView::default() })].into(),
            backends: [(BACKEND, backend)].into(),
            models: models.iter().enumerate().map(model).collect(),
            ..View::default()
        }
    }

    const READY: BackendReport = Some(Ok(()));
    const BROKEN: BackendReport = Some(Err("no such file"));

    fn load(name: &str) -> Next {
        Next::Load(Box::new(spec(name)))
    }

    #[test]
    fn a_new_version_is_ready_before_the_old_one_goes() {
        let mut rollout = Rollout::to(&model(&[2]));
        assert_eq!(rollout.next(&view(&[("m@1", READY), ("other", READY)])), load("m@2"));
        assert_eq!(rollout.next(&view(&[("m@1", READY)])), Next::Wait(None), "the view does not have it yet");
        assert_eq!(rollout.next(&view(&[("m@1", READY), ("m@2", None)])), Next::Wait(None), "it loads");
        let both = view(&[("m@1", READY), ("m@2", READY), ("other", READY), ("m2", READY)]);
        assert_eq!(rollout.next(&both), Next::Unload("m@1".into()));
        assert_eq!(rollout.next(&both), Next::Done, "the view is older than the unload");
    }

    #[test]
    fn a_version_that_fails_leaves_the_old_one_alone() {
        let mut rollout = Rollout::to(&model(&[2]));
        assert_eq!(rollout.next(&view(&[("m@1", READY)])), load("m@2"));
        let failed = rollout.next(&view(&[("m@1", READY), ("m@2", BROKEN)]));
        assert_eq!(failed, Next::Failed("`m@2` was not loaded: no such file".into()));
    }

    #[test]
    fn where_no_gpu_takes_a_version_the_old_one_stays_and_what_a_backend_that_is_gone_said_does_not_count() {
        let mut rollout = Rollout::to(&model(&[1, 2]));
        let mut gone = view(&[("m@1", READY), ("m@2", BROKEN)]);
        gone.backends.values_mut().for_each(|backend| backend.up = false);
        assert_eq!(rollout.next(&gone), Next::Wait(Some(("m@1".into(), NoGpu::AllDown))));
        gone.backends.clear();
        assert_eq!(rollout.next(&gone), Next::Wait(Some(("m@1".into(), NoGpu::NoBackend))));
        let mut drained = view(&[("m@1", READY), ("m@2", None)]);
        drained.backends.values_mut().for_each(|backend| backend.duty = symphony_types::Duty::Draining);
        assert_eq!(rollout.next(&drained), Next::Wait(Some(("m@1".into(), NoGpu::AllDraining))));
        assert_eq!(rollout.next(&view(&[("m@1", READY), ("m@2", READY)])), Next::Done);
    }

    #[test]
    fn an_old_failure_is_tried_again_from_the_beginning() {
        let mut rollout = Rollout::to(&model(&[1, 2]));
        let before = view(&[("m@1", READY), ("m@2", BROKEN)]);
        assert_eq!(rollout.next(&before), Next::Unload("m@2".into()));
        assert_eq!(rollout.next(&before), Next::Wait(None), "the view is older than the unload");
        assert_eq!(rollout.next(&view(&[("m@1", READY)])), load("m@2"));
        assert_eq!(rollout.next(&view(&[("m@1", READY), ("m@2", READY)])), Next::Done);
    }

    #[test]
    fn what_is_loaded_otherwise_is_not_replaced_and_a_model_without_versions_is() {
        let mut slower = view(&[("m@1", READY)]);
        slower.models.values_mut().for_each(|model| model.spec.slo = Nanos::from_millis(51));
        let Next::Failed(reason) = Rollout::to(&model(&[1])).next(&slower) else { panic!("it is another one") };
        assert!(reason.contains("another specification"), "{reason}");
        let mut rollout = Rollout::to(&model(&[1]));
        assert_eq!(rollout.next(&view(&[("m", READY), ("m@1", READY)])), Next::Unload("m".into()));
    }

    #[test]
    fn a_model_goes_with_all_its_versions() {
        let mut rollout = Rollout::away("m");
        let all = view(&[("m@1", READY), ("m@2", BROKEN), ("mm@1", READY)]);
        assert_eq!(rollout.next(&all), Next::Unload("m@1".into()));
        assert_eq!(rollout.next(&all), Next::Unload("m@2".into()));
        assert_eq!(rollout.next(&all), Next::Done);
    }

    #[test]
    fn a_version_goes_by_the_name_that_the_cluster_has_for_it_and_a_name_means_all() {
        let all = view(&[("m", READY), ("m@1", READY), ("m@2", READY), ("m@21", READY)]);
        let mut rollout = Rollout::away("m@2");
        assert_eq!(rollout.next(&all), Next::Unload("m@2".into()));
        assert_eq!(rollout.next(&all), Next::Done);
        assert_eq!(Rollout::away("m@3").next(&all), Next::Done);
        let names = |name: &'static str| versions(&all, name).map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("m"), ["m", "m@1", "m@2", "m@21"], "also the one without a version");
        assert_eq!((names("m@1"), names("m@3")), (vec!["m@1"], vec![]));
    }

    #[test]
    fn a_model_for_gpus_does_not_come_to_processors() {
        let on = |device, executor: &str| {
            let mut view = view(&[]);
            view.backends.values_mut().for_each(|backend| backend.executor = executor.into());
            Rollout::to(&RepositoryModel { device, ..model(&[1]) }).next(&view)
        };
        let Next::Failed(reason) = on(Device::Gpu, "ort-cpu") else { panic!("there are no GPUs") };
        assert_eq!(
            reason,
            "instance_group asks for KIND_GPU, and backend `b` of its sub-cluster runs executor ort-cpu"
        );
        assert!(matches!(on(Device::Cpu, "ort-cuda"), Next::Failed(_)));
        for (device, executor) in
            [(Device::Gpu, "emulated"), (Device::Gpu, "ort-cuda"), (Device::Cpu, "ort-cpu"), (Device::Any, "ort-cpu")]
        {
            assert_eq!(on(device, executor), load("m@1"), "{device:?} {executor}");
        }
    }
}
