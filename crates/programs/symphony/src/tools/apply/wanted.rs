//! What is declared of a model, and what the cluster lacks of it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use symphony_policy::ModelPolicy;
use symphony_protocol::view::{ModelSpec, ModelView, Readiness, Traffic, View};
use symphony_repository::{RepositoryModel, versions};
use symphony_types::{Nanos, RequestValue, VersionedName};

use crate::inspect::subcluster_name;
use crate::suggestions::unknown;

/// A model as declared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) name: String,
    /// What it is loaded from; none to leave it as it is but for the rest.
    pub(super) source: Option<Source>,
    /// Without a source: what is set of each of its versions.
    pub(super) change: Change,
    /// How requests without a version are split; none to leave that as it is.
    pub(super) traffic: Option<Traffic>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// All versions of it that its repository serves, and no others.
    Repository(Box<RepositoryModel>),
    /// This one, whatever others there are.
    Spec(Box<ModelSpec>),
}

/// What can be set of a loaded model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Change {
    pub(super) slo: Option<Nanos>,
    pub(super) policy: Option<ModelPolicy>,
    pub(super) value: Option<RequestValue>,
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Everything that can be set, as a specification has it.
    fn all_of(spec: &ModelSpec) -> Self {
        Self { slo: Some(spec.slo), policy: Some(spec.policy), value: Some(spec.value) }
    }

    /// Without what is so already; and in words.
    fn against(self, spec: &ModelSpec) -> (Self, Vec<String>) {
        let slo = self.slo.filter(|slo| *slo != spec.slo);
        let policy = self.policy.filter(|policy| *policy != spec.policy);
        let value = self.value.filter(|value| *value != spec.value);
        let words = [
            slo.map(|slo| format!("SLO {} ms to {} ms", spec.slo.as_millis_f64(), slo.as_millis_f64())),
            policy.map(|policy| format!("policy {} to {policy}", spec.policy)),
            value.map(|value| format!("value {} to {value}", spec.value)),
        ];
        (Self { slo, policy, value }, words.into_iter().flatten().collect())
    }
}

/// What is to be done for a model, in this order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Load(Box<ModelSpec>),
    Change { name: String, change: Change, words: String },
    Unload(String),
    SetTraffic(Traffic),
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Load(spec) => write!(f, "load {}", spec.name),
            Self::Change { name, words, .. } => write!(f, "change {name}: {words}"),
            Self::Unload(name) => write!(f, "unload {name}"),
            Self::SetTraffic(traffic) => write!(f, "traffic: {traffic}"),
        }
    }
}

/// The steps for a model, and what is not as declared and stays so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ApplyPlan {
    pub(super) steps: Vec<Step>,
    pub(super) notes: Vec<String>,
    /// What is loaded as declared, and not ready.
    pub(super) unready: Vec<String>,
    /// No version of it is loaded yet.
    pub(super) is_new: bool,
}

/// What the cluster lacks of a model. `declared`: everything that is declared beside it.
///
/// # Errors
/// If it is loaded in a way that cannot be changed in place, or is not loaded and nothing says what to load; if it
/// names a sub-cluster or a version that will not be there.
pub(super) fn plan(view: &View, wanted: &Wanted, declared: &[Wanted]) -> Result<ApplyPlan, String> {
    let loaded: BTreeMap<_, _> = versions(view, &wanted.name).collect();
    let mut plan = ApplyPlan { is_new: loaded.is_empty(), ..ApplyPlan::default() };
    let is_to_come = || declared.iter().any(|other| other.source.is_some() && other.is_version_of(wanted));
    match &wanted.source {
        Some(Source::Spec(spec)) => {
            let loaded = view.model_named(&spec.name).map(|(_, model)| model);
            plan.is_new = loaded.is_none();
            plan.make(view, spec, loaded)?;
        }
        Some(Source::Repository(model)) => {
            for spec in model.versions.values() {
                plan.make(view, spec, loaded.get(spec.name.as_str()).copied())?;
            }
            let is_wanted = |name: &str| model.versions.values().any(|spec| spec.name == name);
            let left = loaded.keys().filter(|name| !is_wanted(name));
            plan.steps.extend(left.map(|name| Step::Unload((*name).to_owned())));
        }
        None if loaded.is_empty() && is_to_come() => plan.is_new = false,
        None if loaded.is_empty() => {
            let known = view.models.values().map(|model| model.spec.name.as_str());
            let message = unknown("model", &wanted.name, known, "symphony get models");
            return Err(format!("{message}; onnx, emulated or repository would say what to load"));
        }
        None => {
            for model in loaded.values() {
                plan.change(&model.spec, wanted.change);
            }
        }
    }
    if let Some(to) = &wanted.traffic {
        check_versions(&loaded, wanted, to, declared)?;
    }
    if let Some(to) = &wanted.traffic
        && view.traffic.get(&wanted.name).cloned().unwrap_or_default() != *to
    {
        plan.steps.push(Step::SetTraffic(to.clone()));
    }
    Ok(plan)
}

/// Refuses to split requests among versions that are neither loaded nor declared.
fn check_versions(
    loaded: &BTreeMap<&str, &ModelView>,
    wanted: &Wanted,
    to: &Traffic,
    declared: &[Wanted],
) -> Result<(), String> {
    let others = declared.iter().filter(|other| other.is_version_of(wanted));
    let sources: Vec<_> = others.chain([wanted]).filter_map(|one| one.source.as_ref()).collect();
    // A roll-out unloads what its repository does not serve.
    let is_rolled_out = sources.iter().any(|source| matches!(source, Source::Repository(_)));
    let stay = loaded.keys().copied().filter(|_| !is_rolled_out);
    let come = sources.iter().flat_map(|source| match source {
        Source::Repository(model) => model.versions.values().map(|spec| spec.name.as_str()).collect::<Vec<_>>(),
        Source::Spec(spec) => vec![spec.name.as_str()],
    });
    let there: BTreeSet<_> = stay.chain(come).map(|name| VersionedName::parse(name).version).collect();
    let known: Vec<_> = there.iter().map(ToString::to_string).collect();
    match to.versions().find(|version| !there.contains(version)) {
        None => Ok(()),
        Some(version) => Err(format!(
            "`{}`: traffic: version {version} is neither loaded nor declared; expected one of: {}",
            wanted.name,
            known.join(", ")
        )),
    }
}

impl ApplyPlan {
    /// Makes the cluster serve a model as specified.
    fn make(&mut self, view: &View, spec: &ModelSpec, loaded: Option<&ModelView>) -> Result<(), String> {
        let Some(loaded) = loaded else {
            let known = || view.subclusters.values().map(|own| own.name.as_str());
            if !spec.subcluster.is_empty() && !known().any(|name| name == spec.subcluster) {
                let message = unknown("sub-cluster", &spec.subcluster, known(), "symphony get subclusters");
                return Err(format!("`{}`: {message}", spec.name));
            }
            self.steps.push(Step::Load(Box::new(spec.clone())));
            return Ok(());
        };
        let now = &loaded.spec;
        match loaded.readiness(view) {
            Readiness::Ready => {}
            Readiness::Failed(reason) => {
                self.notes.push(format!("{} failed to load: {reason}", now.name));
                self.unready.push(now.name.clone());
            }
            Readiness::NoGpu(_) | Readiness::Loading => self.unready.push(now.name.clone()),
        }
        // Plans move models: where one was loaded says where it began.
        let home = subcluster_name(view, loaded.subcluster);
        if !spec.subcluster.is_empty() && home != spec.subcluster {
            let to = &spec.subcluster;
            self.notes.push(format!(
                "{} is on {home}; `symphony plan move --model {} --to {to}` moves it",
                now.name, now.name
            ));
        }
        let as_wanted = ModelSpec {
            subcluster: spec.subcluster.clone(),
            slo: spec.slo,
            policy: spec.policy,
            value: spec.value,
            ..now.clone()
        };
        if as_wanted != *spec {
            let what = differences(now, spec);
            return Err(format!(
                "`{}` is loaded with another {what}; give the new one another version, or unload it first",
                now.name
            ));
        }
        self.change(now, Change::all_of(spec));
        Ok(())
    }

    fn change(&mut self, now: &ModelSpec, change: Change) {
        let (change, words) = change.against(now);
        if !change.is_empty() {
            self.steps.push(Step::Change { name: now.name.clone(), change, words: words.join(", ") });
        }
    }
}

/// What is other than what cannot be changed in place.
fn differences(now: &ModelSpec, wanted: &ModelSpec) -> String {
    let differs = [
        ("source", now.source != wanted.source),
        ("signature", now.signature != wanted.signature),
        ("transforms", now.transforms != wanted.transforms),
        ("profile", now.profiles != wanted.profiles),
    ];
    let differs: Vec<_> = differs.into_iter().filter(|(_, differs)| *differs).map(|(what, _)| what).collect();
    differs.join(", ")
}

impl Wanted {
    /// Whether it is the other one, or a version of it.
    fn is_version_of(&self, other: &Self) -> bool {
        self.name == other.name || VersionedName::parse(&self.name).name == other.name
    }

    /// Whether two declarations would undo each other, or one of them be lost.
    fn clashes_with(&self, other: &Self) -> bool {
        let base = |wanted: &Self| VersionedName::parse(&wanted.name).name.to_owned();
        let is_all = |wanted: &Self| matches!(wanted.source, Some(Source::Repository(_)));
        self.name == other.name || base(self) == base(other) && (is_all(self) || is_all(other))
    }
}

/// Refuses two declarations that would undo each other, or of which one would be lost.
pub(super) fn check_names(all: &[Wanted]) -> Result<(), String> {
    for (place, wanted) in all.iter().enumerate() {
        if let Some(other) = all[..place].iter().find(|other| other.clashes_with(wanted)) {
            return Err(format!("`{}` and `{}` are declared both; expected one of them", other.name, wanted.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{ModelSource, Shadow};
    use symphony_types::ModelId;

    use super::*;

    /// The cluster of `top`'s tests: `m` on pool, `quiet` on spare.
    fn view() -> View {
        let mut view = crate::inspect::scene::view();
        view.models.values_mut().for_each(|model| model.spec.subcluster = "pool".into());
        view
    }

    fn spec(name: &str) -> ModelSpec {
        ModelSpec { name: name.into(), ..view().models[&ModelId::new(1)].spec.clone() }
    }

    fn one(spec: ModelSpec) -> Wanted {
        let name = spec.name.clone();
        Wanted { name, source: Some(Source::Spec(Box::new(spec))), change: Change::default(), traffic: None }
    }

    fn words(view: &View, wanted: &Wanted) -> Vec<String> {
        plan(view, wanted, &[]).unwrap().steps.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_as_declared_needs_nothing_and_what_differs_is_named() {
        assert_eq!(plan(&view(), &one(spec("m")), &[]), Ok(ApplyPlan::default()));
        let slower =
            ModelSpec { slo: Nanos::from_millis(60), value: RequestValue::from_number(4.0).unwrap(), ..spec("m") };
        assert_eq!(words(&view(), &one(slower)), ["change m: SLO 25 ms to 60 ms, value 1 to 4"]);
        let new = plan(&view(), &one(spec("new")), &[]).unwrap();
        assert_eq!((new.is_new, new.steps), (true, vec![Step::Load(Box::new(spec("new")))]));
        let other = ModelSpec { source: ModelSource::Onnx("/m.onnx".into()), ..spec("m") };
        let message = plan(&view(), &one(other), &[]).unwrap_err();
        assert!(message.contains("`m` is loaded with another source;"), "{message}");
        let elsewhere = ModelSpec { subcluster: "spare".into(), ..spec("m") };
        let elsewhere = plan(&view(), &one(elsewhere), &[]).unwrap();
        assert!(
            elsewhere.steps.is_empty() && elsewhere.notes[0].contains("plan move --model m --to spare"),
            "{elsewhere:?}"
        );
    }

    #[test]
    fn a_repository_has_all_versions_and_without_a_source_what_is_there_changes() {
        let versions = [2, 3].map(|version| (version, spec(&format!("m@{version}"))));
        let model = RepositoryModel {
            name: "m".into(),
            versions: versions.into(),
            device: symphony_repository::Device::Any,
            notes: Vec::new(),
        };
        let mut view = view();
        view.models.get_mut(&ModelId::new(2)).unwrap().spec = spec("m@2");
        let source = Some(Source::Repository(Box::new(model)));
        let wanted = Wanted { name: "m".into(), source, change: Change::default(), traffic: None };
        assert_eq!(words(&view, &wanted), ["load m@3", "unload m"]);
        let traffic = Traffic { weights: [(2, 1)].into(), shadow: Some(Shadow { version: 1, percent: 5 }) };
        let change = Change { slo: Some(Nanos::from_millis(30)), ..Change::default() };
        let wanted = Wanted { source: None, change, traffic: Some(traffic.clone()), ..wanted };
        let steps = words(&view, &wanted);
        assert_eq!(steps[..2], ["change m: SLO 25 ms to 30 ms", "change m@2: SLO 25 ms to 30 ms"]);
        assert!(steps[2].starts_with("traffic: 100"), "{steps:?}");
        view.traffic.insert("m".into(), traffic);
        assert_eq!(words(&view, &wanted).len(), 2, "it is split so already");
        let absent = Wanted { name: "absent".into(), ..wanted };
        let message = plan(&view, &absent, &[]).unwrap_err();
        assert!(message.contains("no model is named `absent`"), "{message}");
        let split = plan(&view, &absent, &[one(spec("absent")), one(spec("absent@2"))]).unwrap();
        assert!(matches!(split.steps.as_slice(), [Step::SetTraffic(_)]), "it comes first: {split:?}");
    }

    #[test]
    fn what_is_loaded_and_not_ready_is_waited_for() {
        let mut view = view();
        let holder = view.models.get_mut(&ModelId::new(1)).unwrap().holders.values_mut().next().unwrap();
        holder.state = Err("no file".into());
        let failed = plan(&view, &one(spec("m")), &[]).unwrap();
        assert_eq!((failed.unready, failed.steps), (vec!["m".to_owned()], Vec::new()));
        assert_eq!(failed.notes, ["m failed to load: no file"]);
        view.models.get_mut(&ModelId::new(1)).unwrap().holders = [].into();
        let loading = plan(&view, &one(spec("m")), &[]).unwrap();
        assert_eq!((loading.unready, loading.notes), (vec!["m".to_owned()], Vec::new()));
    }

    #[test]
    fn versions_and_sub_clusters_that_will_not_be_there_are_refused_before_anything_is_done() {
        let nowhere = ModelSpec { subcluster: "pol".into(), ..spec("new") };
        let message = plan(&view(), &one(nowhere), &[]).unwrap_err();
        assert!(message.contains("`new`: no sub-cluster is named `pol`; similar names: pool"), "{message}");
        let split = |versions: &[u64]| {
            let weights = versions.iter().map(|&version| (version, 1)).collect();
            Wanted { traffic: Some(Traffic { weights, shadow: None }), ..one(spec("m")) }
        };
        let message = plan(&view(), &split(&[1, 3]), &[one(spec("m@2"))]).unwrap_err();
        assert!(
            message.contains("`m`: traffic: version 3 is neither loaded nor declared; expected one of: 1, 2"),
            "{message}"
        );
        let both = plan(&view(), &split(&[1, 2]), &[one(spec("m@2"))]).unwrap();
        assert!(matches!(both.steps.as_slice(), [Step::SetTraffic(_)]), "m@2 may come after it: {both:?}");
    }

    #[test]
    fn declarations_that_undo_each_other_are_refused() {
        let names = |names: &[&str]| {
            let all: Vec<_> = names.iter().map(|name| one(spec(name))).collect();
            check_names(&all)
        };
        assert_eq!(names(&["m", "m@2", "n"]), Ok(()));
        assert!(names(&["m", "n", "m"]).unwrap_err().contains("`m` and `m` are declared both"));
    }
}
