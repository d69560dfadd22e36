//! What a rollout is of: versions of a model, or one of a pipeline, and how far the cluster is with them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::view::{ModelSpec, ModelView, Readiness, VIEWS_FOLLOW_WITHIN, View};
use symphony_types::VersionedName;

use crate::canary::TrialCounts;
use crate::model_config::Device;
use crate::rollout::Next;

/// Frontends hold no request longer: by then nothing is queued.
const QUEUED_MAX: Duration = Duration::from_hours(1);

/// What is rolled out.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// Versions of a model by their names, for these devices; none to unload it.
    Model(BTreeMap<String, ModelSpec>, Device),
    /// A version of a pipeline.
    Pipeline(Box<PipelineDeclaration>),
}

impl Subject {
    /// The versions that are wanted.
    pub(crate) fn wanted(&self) -> BTreeSet<u64> {
        match self {
            Self::Model(wanted, _) => wanted.keys().map(|name| VersionedName::parse(name).version).collect(),
            Self::Pipeline(declaration) => [declaration.version].into(),
        }
    }

    /// Whether what is loaded under that name is wanted.
    pub(crate) fn wants(&self, loaded_as: &str) -> bool {
        match self {
            Self::Model(wanted, _) => wanted.contains_key(loaded_as),
            Self::Pipeline(declaration) => declaration.versioned().loaded_as() == loaded_as,
        }
    }

    /// What the cluster has of that name, and whether each can be asked.
    pub(crate) fn loaded(&self, view: &View, name: &str) -> BTreeMap<String, bool> {
        match self {
            Self::Model(..) => {
                versions(view, name).map(|(loaded_as, model)| (loaded_as.to_owned(), model.is_ready(view))).collect()
            }
            Self::Pipeline(_) => {
                let known = view.pipeline_versions(name).into_iter();
                known.map(|known| (known.declaration.versioned().loaded_as(), known.is_ready(view))).collect()
            }
        }
    }

    /// What the cluster has counted of a version; none if the view has no counts in it.
    pub(crate) fn counts(&self, view: &View, loaded_as: &str) -> Option<TrialCounts> {
        match self {
            Self::Model(..) => versions(view, loaded_as).next().and_then(|(name, _)| TrialCounts::of(view, name)),
            Self::Pipeline(_) => TrialCounts::of_pipeline(view, loaded_as),
        }
    }

    /// Whether nothing is queued for a version that gets no requests since `waited` ago. Nobody reports what frontends
    /// have of a pipeline: its requests end within the SLO.
    pub(crate) fn is_idle(&self, view: &View, loaded_as: &str, waited: Duration) -> bool {
        match self {
            Self::Model(..) => is_idle(view, loaded_as, waited),
            Self::Pipeline(_) => {
                let slo = view.pipelines.get(loaded_as).map_or(Duration::ZERO, |known| known.declaration.slo().into());
                waited >= VIEWS_FOLLOW_WITHIN + slo.min(QUEUED_MAX)
            }
        }
    }

    /// What to do while the view is older than the last step.
    pub(crate) fn wait(&self) -> Next {
        match self {
            Self::Model(..) => Next::Wait(None),
            Self::Pipeline(declaration) => {
                Next::WaitForPipeline { pipeline: declaration.name.clone(), why: "no replica has shown it".to_owned() }
            }
        }
    }

    /// The names of the versions that are wanted.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        match self {
            Self::Model(wanted, _) => wanted.keys().cloned().collect(),
            Self::Pipeline(declaration) => [declaration.versioned().loaded_as()].into(),
        }
    }

    /// Have the cluster unload what has this name.
    pub(crate) const fn unload(&self, loaded_as: String) -> Next {
        match self {
            Self::Model(..) => Next::Unload(loaded_as),
            Self::Pipeline(_) => Next::UnloadPipeline(loaded_as),
        }
    }

    /// The next step until all that is wanted is ready; none if it is. `given` are the names that were asked to be
    /// loaded, and `unloaded` those that were asked to go.
    pub(crate) fn load(
        &self,
        view: &View,
        given: &mut BTreeSet<String>,
        unloaded: &mut BTreeSet<String>,
    ) -> Option<Next> {
        match self {
            Self::Model(wanted, device) => load_models(wanted, *device, view, given, unloaded),
            Self::Pipeline(declaration) => load_pipeline(declaration, view, given, || self.wait()),
        }
    }
}

fn load_models(
    wanted: &BTreeMap<String, ModelSpec>,
    device: Device,
    view: &View,
    given: &mut BTreeSet<String>,
    unloaded: &mut BTreeSet<String>,
) -> Option<Next> {
    let (mut waits, mut no_gpu, mut failed) = (false, None, None);
    for (name, spec) in wanted {
        let Some((_, model)) = view.model_named(name) else {
            // Given already: the view is older than that.
            if !given.insert(name.clone()) {
                waits = true;
                continue;
            }
            return Some(match check_device(device, view, spec) {
                Ok(()) => Next::Load(Box::new(spec.clone())),
                Err(reason) => Next::Failed(reason),
            });
        };
        if !is_same(&model.spec, spec) {
            let as_wanted = ModelSpec { slo: spec.slo, policy: spec.policy, value: spec.value, ..model.spec.clone() };
            if is_same(&as_wanted, spec) {
                return Some(Next::Change(Box::new(as_wanted)));
            }
            return Some(Next::Failed(format!(
                "`{name}` is loaded with another specification; unload it first, or give the new one another version"
            )));
        }
        match model.readiness(view) {
            Readiness::Ready => {}
            // It failed before: files may have been put right since.
            Readiness::Failed(_) if !given.contains(name) && unloaded.insert(name.clone()) => {
                return Some(Next::Unload(name.clone()));
            }
            Readiness::Failed(reason) if given.contains(name) => {
                failed = Some(format!("`{name}` was not loaded: {reason}"));
            }
            Readiness::NoGpu(why) => no_gpu = no_gpu.or_else(|| Some((name.clone(), why))),
            Readiness::Failed(_) | Readiness::Loading => waits = true,
        }
    }
    waits |= no_gpu.is_some();
    failed.map(Next::Failed).or_else(|| waits.then_some(Next::Wait(no_gpu)))
}

fn load_pipeline(
    wanted: &PipelineDeclaration,
    view: &View,
    given: &mut BTreeSet<String>,
    wait: impl Fn() -> Next,
) -> Option<Next> {
    let loaded_as = wanted.versioned().loaded_as();
    let Some(known) = view.pipelines.get(&loaded_as) else {
        // Given already: the view is older than that, or another operator has unloaded it since.
        let is_new = given.insert(loaded_as);
        return Some(if is_new { Next::LoadPipeline(Box::new(wanted.clone())) } else { wait() });
    };
    if known.declaration != *wanted {
        return Some(Next::Failed(format!(
            "`{loaded_as}` is loaded with another declaration; unload it first, or give the new one another version"
        )));
    }
    known.unready(view).map(|why| Next::WaitForPipeline { pipeline: wanted.name.clone(), why })
}

/// Whether the sub-cluster that the model would come to has such devices.
fn check_device(device: Device, view: &View, spec: &ModelSpec) -> Result<(), String> {
    let homes: Vec<_> = view
        .subclusters
        .iter()
        .filter(|(_, subcluster)| spec.subcluster.is_empty() || subcluster.name == spec.subcluster)
        .map(|(&id, _)| id)
        .collect();
    let is_cpu = |executor: &str| executor.ends_with("-cpu");
    let mut there = view.backends.values().filter(|b| b.up && homes.contains(&b.subcluster));
    let unfit = there.find(|backend| match device {
        Device::Any => false,
        Device::Gpu => is_cpu(&backend.executor),
        Device::Cpu => !is_cpu(&backend.executor) && backend.executor != "emulated",
    });
    unfit.map_or(Ok(()), |backend| {
        let requested = if device == Device::Gpu { "KIND_GPU" } else { "KIND_CPU" };
        let (name, executor) = (&backend.name, &backend.executor);
        Err(format!(
            "instance_group asks for {requested}, and backend `{name}` of its sub-cluster runs executor {executor}"
        ))
    })
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

/// Whether nothing is queued for a version of a model that gets no requests since `waited` ago: by its lead's word from
/// after all views had that, or else when its SLO has passed, too.
fn is_idle(view: &View, loaded_as: &str, waited: Duration) -> bool {
    let Some((id, model)) = view.model_named(loaded_as) else { return true };
    let load = view.subclusters.get(&model.subcluster).and_then(|home| home.load.as_ref());
    match load.map(|load| (load.age, load.models.get(&id).map_or(0, |counts| counts.queued))) {
        Some((age, 0)) => waited >= VIEWS_FOLLOW_WITHIN + Duration::from(age),
        Some(_) => waited >= QUEUED_MAX,
        None => waited >= VIEWS_FOLLOW_WITHIN + Duration::from(model.spec.slo).min(QUEUED_MAX),
    }
}

/// Whether they ask for the same. A cluster fills in the only sub-cluster there is.
fn is_same(loaded: &ModelSpec, wanted: &ModelSpec) -> bool {
    let subcluster = if wanted.subcluster.is_empty() { loaded.subcluster.clone() } else { wanted.subcluster.clone() };
    *loaded == ModelSpec { subcluster, ..wanted.clone() }
}
