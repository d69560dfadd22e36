//! Decides, step by step from the cluster's view, how to make a cluster serve a model or pipeline as its repository
//! describes it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::view::{ModelSpec, NoGpu, TRAFFIC_VERSIONS_MAX, Traffic, View};
use symphony_types::VersionedName;

use crate::canary::{CHECK_EVERY, Canary, Trial, TrialCounts, TrialStep};
use crate::model_config::Device;
use crate::repository::RepositoryModel;
use crate::subject::Subject;

/// A cluster's path to the wanted versions of a model, none of them to unload it, or to one of a pipeline.
///
/// New versions are loaded before old ones go, and the old ones stay if a new one cannot be loaded. Clients that name
/// no version are served by the latest that is ready, or by the cluster's traffic split, so they see no gap; an old
/// version goes when what was queued for it has its outcome. With a [`Canary`] the newest version first gets a part of
/// the requests, and is rolled back if it answers them badly.
#[derive(Clone, Debug)]
pub struct Rollout {
    name: String,
    subject: Subject,
    /// Given in this rollout: a failure of theirs is no old one.
    loaded: BTreeSet<String>,
    unloaded: BTreeSet<String>,
    trial: Option<Trial>,
    /// Since when old versions get nothing that names no version.
    left_since: Option<Instant>,
    /// The split that it has asked for last, and whether a view had it: a later change is another operator's.
    split: Option<Traffic>,
    split_seen: bool,
    /// It leaves no split behind.
    is_split: bool,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Have the cluster load this.
    Load(Box<ModelSpec>),
    /// Have the cluster serve the model of this name otherwise: with this SLO, policy and value.
    Change(Box<ModelSpec>),
    /// Have the cluster unload the model of this name.
    Unload(String),
    /// Have the cluster load this version of a pipeline.
    LoadPipeline(Box<PipelineDeclaration>),
    /// Have the cluster unload the version of a pipeline of this name.
    UnloadPipeline(String),
    /// Have the cluster split the requests for the model or pipeline that name no version.
    SetTraffic(String, Traffic),
    /// Wait until the view changes. If no GPU takes a version, its name, and why.
    Wait(Option<(String, NoGpu)>),
    /// Wait until the view changes: the new version of this pipeline cannot be asked yet.
    WaitForPipeline {
        /// Its name, without a version.
        pipeline: String,
        /// What it waits for.
        why: String,
    },
    /// Wait for this time, then go on with a view that has the load in it.
    WaitFor(Duration),
    /// The cluster is as wanted.
    Done,
    /// The versions cannot be served, for this reason; the previous ones still are.
    Failed(String),
}

impl Rollout {
    /// To serve the model, and no version of it that it does not have.
    #[must_use]
    pub fn to(model: &RepositoryModel) -> Self {
        let wanted = model.versions.values().map(|spec| (spec.name.clone(), spec.clone())).collect();
        Self::of(&model.name, Subject::Model(wanted, model.device))
    }

    /// To serve this version of a pipeline, and no other.
    #[must_use]
    pub fn to_pipeline(declaration: &PipelineDeclaration) -> Self {
        Self::of(&declaration.name, Subject::Pipeline(Box::new(declaration.clone())))
    }

    /// A rollout to no version of the model, or that only removes the version that `name` spells out as
    /// `NAME@VERSION`. What is queued for it fails.
    #[must_use]
    pub fn away(name: &str) -> Self {
        Self::of(name, Subject::Model(BTreeMap::new(), Device::Any))
    }

    fn of(name: &str, subject: Subject) -> Self {
        Self {
            name: name.to_owned(),
            subject,
            loaded: BTreeSet::new(),
            unloaded: BTreeSet::new(),
            trial: None,
            left_since: None,
            split: None,
            split_seen: false,
            is_split: false,
        }
    }

    /// The newest version is tried out before it gets all requests, if another one is served by then.
    #[must_use]
    pub fn with_canary(self, canary: Canary) -> Self {
        Self { trial: Some(Trial::of(canary)), ..self }
    }

    /// The cluster was told to load what is wanted: it is not told again, also if another operator has unloaded it.
    #[must_use]
    pub fn given(self) -> Self {
        Self { loaded: self.subject.names(), ..self }
    }

    /// What to do while the view is older than the last step.
    pub(crate) fn wait(&self) -> Next {
        self.subject.wait()
    }

    /// Decides by the newest view. A load or unload is returned once: the caller gives it, or gives the rollout up. A
    /// split is returned until the view has it.
    pub fn next(&mut self, view: &View, now: Instant) -> Next {
        if let Some(reason) = self.trial.as_ref().and_then(Trial::failure) {
            return Next::Failed(reason.to_owned());
        }
        if let Some(split) = &self.split {
            let is_so = view.traffic.get(&self.name).is_some_and(|known| known == split)
                || split.is_empty() && !view.traffic.contains_key(&self.name);
            if !is_so && self.split_seen {
                return Next::Failed(format!(
                    "the traffic of `{}` was split otherwise by another operator, and stays so",
                    self.name
                ));
            }
            self.split_seen |= is_so;
        }
        let newest = self.subject.wanted().last().copied();
        let sooner = self
            .keep_traffic(view, newest)
            .or_else(|| self.watch_trial(view, newest?))
            .or_else(|| self.load_wanted(view))
            .or_else(|| self.try_out(view, now, newest?));
        if let Some(next) = sooner {
            self.left_since = None;
            return next;
        }
        self.let_go(view, now, newest)
    }

    /// Before the newest version is loaded for a trial: the others go on to get everything.
    fn keep_traffic(&mut self, view: &View, newest: Option<u64>) -> Option<Next> {
        if self.trial.as_ref().is_none_or(Trial::has_begun) {
            return None;
        }
        let loaded = self.subject.loaded(view, &self.name);
        let ready = loaded.iter().filter(|(_, is_ready)| **is_ready);
        let mut serving: BTreeSet<_> = ready.map(|(loaded_as, _)| VersionedName::parse(loaded_as).version).collect();
        serving.retain(|version| Some(*version) != newest);
        let Some(&latest) = serving.last() else {
            // There is nothing to compare it with.
            self.trial = None;
            return None;
        };
        let now = view.traffic.get(&self.name);
        let mut kept = now.cloned().unwrap_or_default();
        kept.weights.retain(|version, _| serving.contains(version));
        // Copies are the first to be shed, and would count against it.
        kept.shadow.take_if(|shadow| Some(shadow.version) == newest);
        if kept.weights.is_empty() {
            kept.weights.insert(latest, 1);
        }
        if kept.weights.len() >= TRAFFIC_VERSIONS_MAX {
            let most = TRAFFIC_VERSIONS_MAX;
            let reason = format!("the traffic of `{}` is split among {most} versions, which is the most", self.name);
            return Some(Next::Failed(reason));
        }
        if now != Some(&kept) {
            return Some(self.set_split(kept, true));
        }
        if let Some(trial) = &mut self.trial {
            trial.begin(kept);
        }
        None
    }

    /// A version on trial that cannot be asked any more is rolled back.
    fn watch_trial(&mut self, view: &View, newest: u64) -> Option<Next> {
        let trial = self.trial.as_mut().filter(|trial| trial.is_under_way())?;
        let loaded_as = VersionedName { name: &self.name, version: newest }.loaded_as();
        if self.subject.loaded(view, &loaded_as).into_values().any(|is_ready| is_ready) {
            return None;
        }
        match trial.roll_back(newest, "it is not ready any more") {
            TrialStep::Split(traffic) => Some(self.set_split(traffic, true)),
            _ => None,
        }
    }

    /// Loads the wanted versions, and waits until they are ready.
    fn load_wanted(&mut self, view: &View) -> Option<Next> {
        self.subject.load(view, &mut self.loaded, &mut self.unloaded)
    }

    /// Gives the newest version its part of the requests, step by step.
    fn try_out(&mut self, view: &View, now: Instant, newest: u64) -> Option<Next> {
        let trial = self.trial.as_mut()?;
        let counts = |version| self.subject.counts(view, &VersionedName { name: &self.name, version }.loaded_as());
        let others = trial.others().filter_map(&counts).reduce(TrialCounts::and).unwrap_or_default();
        let counts = counts(newest).map(|newest| [newest, others]);
        match trial.step(now, view.traffic.get(&self.name), newest, counts) {
            TrialStep::Split(traffic) => Some(self.set_split(traffic, true)),
            TrialStep::Wait(wait) => Some(Next::WaitFor(wait)),
            TrialStep::Over => None,
        }
    }

    /// Unloads the versions that are not wanted, once nothing is queued for them.
    fn let_go(&mut self, view: &View, now: Instant, newest: Option<u64>) -> Next {
        let mut left = self.subject.loaded(view, &self.name);
        left.retain(|loaded_as, _| !self.subject.wants(loaded_as) && !self.unloaded.contains(loaded_as));
        let Some(first) = left.keys().next().cloned() else {
            let is_left = self.is_split && view.traffic.contains_key(&self.name);
            return if is_left { self.set_split(Traffic::default(), true) } else { Next::Done };
        };
        if let Some(newest) = newest {
            let leaving = left.keys().map(|loaded_as| VersionedName::parse(loaded_as).version).collect();
            if let Some(split) = self.split_without(view, &leaving, newest) {
                return split;
            }
            let since = *self.left_since.get_or_insert(now);
            let waited = now.saturating_duration_since(since);
            let mut asked = left.iter().filter(|(_, is_ready)| **is_ready);
            if asked.any(|(loaded_as, _)| !self.subject.is_idle(view, loaded_as, waited)) {
                return Next::WaitFor(CHECK_EVERY);
            }
        }
        self.unloaded.insert(first.clone());
        self.subject.unload(first)
    }

    /// The split in which the versions that leave get nothing, unless it is so already.
    fn split_without(&mut self, view: &View, leaving: &BTreeSet<u64>, newest: u64) -> Option<Next> {
        let wanted = self.subject.wanted();
        // One version may be loaded with and without its number, of which one leaves.
        let stays = |version: &u64| !leaving.contains(version) || wanted.contains(version);
        let split = match view.traffic.get(&self.name) {
            // Without a split the latest version gets everything.
            None if leaving.iter().all(|version| *version < newest) => return None,
            None => Traffic { weights: [(newest, 1)].into(), shadow: None },
            Some(now) => {
                let mut split = now.clone();
                split.weights.retain(|version, _| stays(version));
                split.shadow.take_if(|shadow| !stays(&shadow.version));
                if split.weights.is_empty() {
                    split.weights.insert(newest, 1);
                }
                if split == *now {
                    return None;
                }
                split
            }
        };
        let is_own = split.weights.keys().eq([&newest]);
        Some(self.set_split(split, is_own))
    }

    /// `is_own`: the split was not set by an operator, and is removed when the rollout is done.
    fn set_split(&mut self, traffic: Traffic, is_own: bool) -> Next {
        self.is_split |= is_own;
        if self.split.as_ref() != Some(&traffic) {
            (self.split, self.split_seen) = (Some(traffic.clone()), false);
        }
        Next::SetTraffic(self.name.clone(), traffic)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use symphony_pipeline::{CommittedSplit, DeclaredStage};
    use symphony_protocol::view::{
        BackendView, HolderView, LoadView, ModelLoadView, ModelSource, ModelView, PipelineLoadView, PipelineView,
        Shadow, SubclusterView,
    };
    use symphony_types::{BackendId, BootId, Epoch, ModelId, Nanos, RequestValue, Signature, SubclusterId, Token};

    use super::*;
    use crate::subject::versions;

    const BOOT: BootId = BootId::new(1);
    const BACKEND: BackendId = BackendId::new(1);
    const HOME: SubclusterId = SubclusterId::new(1);

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn at(seconds: u64) -> Instant {
        *START + Duration::from_secs(seconds)
    }

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
            let holder =
                |state: Result<(), &str>| (BACKEND, HolderView { boot: BOOT, state: state.map_err(str::to_owned) });
            let spec = ModelSpec { subcluster: "s".into(), ..spec(name) };
            let model = ModelView {
                spec,
                subcluster: HOME,
                moving: None,
                holders: state.map(holder).into_iter().collect(),
                trunk: None,
            };
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
        assert_eq!(rollout.next(&view(&[("m@1", READY), ("other", READY)]), at(0)), load("m@2"));
        assert_eq!(rollout.next(&view(&[("m@1", READY)]), at(0)), Next::Wait(None), "the view does not have it yet");
        assert_eq!(rollout.next(&view(&[("m@1", READY), ("m@2", None)]), at(0)), Next::Wait(None), "it loads");
        let both = view(&[("m@1", READY), ("m@2", READY), ("other", READY), ("m2", READY)]);
        assert!(matches!(rollout.next(&both, at(0)), Next::WaitFor(_)), "what is queued for it has its outcome first");
        assert!(matches!(rollout.next(&both, at(2)), Next::WaitFor(_)), "its SLO comes on top of the time of views");
        let mut again = rollout.clone();
        assert_eq!(rollout.next(&both, at(3)), Next::Unload("m@1".into()));
        assert_eq!(rollout.next(&both, at(3)), Next::Done, "the view is older than the unload");
        // If its lead reports what is queued, that counts, by a report from after views have followed.
        let with = |queued, age_s: u64| {
            let counts = ModelLoadView { queued, ..ModelLoadView::default() };
            let age = Nanos::from_millis(1000 * age_s);
            let load = LoadView { age, models: [(ModelId::new(0), counts)].into(), ..LoadView::default() };
            let mut view = both.clone();
            view.subclusters.values_mut().for_each(|home| home.load = Some(load.clone()));
            view
        };
        assert!(matches!(again.next(&with(1, 0), at(60)), Next::WaitFor(_)), "a client may wait beyond the SLO");
        assert!(matches!(again.next(&with(0, 2), at(3)), Next::WaitFor(_)), "it has come since");
        let not_ready = view(&[("m@1", READY), ("m@2", None)]);
        let mut back = again.clone();
        assert_eq!(again.next(&with(0, 0), at(3)), Next::Unload("m@1".into()));
        assert_eq!(back.next(&not_ready, at(60)), Next::Wait(None));
        assert!(matches!(back.next(&with(0, 0), at(61)), Next::WaitFor(_)), "it got requests again meanwhile");
    }

    #[test]
    fn a_version_that_fails_leaves_the_old_one_alone() {
        let mut rollout = Rollout::to(&model(&[2]));
        assert_eq!(rollout.next(&view(&[("m@1", READY)]), at(0)), load("m@2"));
        let failed = rollout.next(&view(&[("m@1", READY), ("m@2", BROKEN)]), at(0));
        assert_eq!(failed, Next::Failed("`m@2` was not loaded: no such file".into()));
    }

    fn all_to(version: u64) -> Traffic {
        Traffic { weights: [(version, 1)].into(), shadow: None }
    }

    #[test]
    fn a_roll_back_takes_the_requests_first_and_leaves_no_split_behind() {
        let mut rollout = Rollout::to(&model(&[1]));
        let mut now = view(&[("m@1", READY), ("m@2", READY)]);
        assert_eq!(rollout.next(&now, at(0)), Next::SetTraffic("m".into(), all_to(1)), "the latest would get them");
        assert_eq!(rollout.next(&now, at(9)), Next::SetTraffic("m".into(), all_to(1)), "the view does not have it yet");
        now.traffic.insert("m".into(), all_to(1));
        assert!(matches!(rollout.next(&now, at(10)), Next::WaitFor(_)), "it counts from here");
        assert_eq!(rollout.next(&now, at(13)), Next::Unload("m@2".into()));
        assert_eq!(rollout.next(&now, at(13)), Next::SetTraffic("m".into(), Traffic::default()));
        now.traffic.clear();
        assert_eq!(rollout.next(&now, at(13)), Next::Done);
        now.traffic.insert("m".into(), Traffic { weights: [(1, 1), (2, 1)].into(), shadow: None });
        assert_eq!(Rollout::to(&model(&[1, 2])).next(&now, at(0)), Next::Done, "a split that others made stays");
        let Next::Failed(reason) = rollout.next(&now, at(14)) else { panic!("somebody else has split it") };
        assert!(reason.contains("another operator"), "{reason}");
    }

    #[test]
    fn of_a_split_that_others_made_only_what_leaves_is_taken() {
        let mut rollout = Rollout::to(&model(&[1, 2]));
        let mut now = view(&[("m@1", READY), ("m@2", READY), ("m@3", READY)]);
        let shadow = Some(Shadow { version: 1, percent: 5 });
        now.traffic.insert("m".into(), Traffic { weights: [(2, 9), (3, 1)].into(), shadow });
        let rest = Traffic { weights: [(2, 9)].into(), shadow };
        assert_eq!(rollout.next(&now, at(0)), Next::SetTraffic("m".into(), rest));
    }

    #[test]
    fn nobody_waits_for_a_version_that_was_never_ready() {
        let mut rollout = Rollout::to(&model(&[2]));
        assert_eq!(rollout.next(&view(&[("m@1", BROKEN), ("m@2", READY)]), at(0)), Next::Unload("m@1".into()));
    }

    #[test]
    fn a_canary_gets_nothing_until_it_is_ready_then_its_part_then_everything() {
        let canary = Canary { percents: vec![10], step: Duration::from_secs(60), bad_max: 0.01 };
        let mut rollout = Rollout::to(&model(&[2])).with_canary(canary.clone());
        let mut now = view(&[("m@1", READY)]);
        assert_eq!(rollout.next(&now, at(0)), Next::SetTraffic("m".into(), all_to(1)));
        now.traffic.insert("m".into(), all_to(1));
        assert_eq!(rollout.next(&now, at(0)), load("m@2"));
        let mut both = view(&[("m@1", READY), ("m@2", READY)]);
        both.traffic = now.traffic;
        let part = Traffic { weights: [(1, 90_000), (2, 10_000)].into(), shadow: None };
        assert_eq!(rollout.next(&both, at(5)), Next::SetTraffic("m".into(), part.clone()));
        both.traffic.insert("m".into(), part);
        assert!(matches!(rollout.next(&both, at(5)), Next::WaitFor(_)));
        let counts = |dropped, executed| {
            let counts = ModelLoadView { dropped, executed, ..ModelLoadView::default() };
            let token = Token::new(7);
            Some(LoadView { token, models: [(ModelId::new(1), counts)].into(), ..LoadView::default() })
        };
        let mut begins = both.clone();
        begins.subclusters.values_mut().for_each(|home| home.load = counts(100, 100));
        assert!(matches!(rollout.next(&begins, at(5)), Next::WaitFor(_)), "what it did before does not count");
        let (mut good, mut bad) = (both.clone(), both);
        good.subclusters.values_mut().for_each(|home| home.load = counts(100, 500));
        bad.subclusters.values_mut().for_each(|home| home.load = counts(350, 350));
        let mut other = rollout.clone();
        assert_eq!(other.next(&bad, at(6)), Next::SetTraffic("m".into(), all_to(1)), "it is rolled back");
        let Next::Failed(reason) = other.next(&bad, at(6)) else { panic!("it answers badly") };
        assert!(reason.contains("250 of 500"), "{reason}");

        let mut crashed = view(&[("m@1", READY), ("m@2", None)]);
        crashed.traffic = good.traffic.clone();
        let mut other = rollout.clone();
        assert_eq!(other.next(&crashed, at(6)), Next::SetTraffic("m".into(), all_to(1)), "it is rolled back");
        assert!(matches!(other.next(&crashed, at(6)), Next::Failed(_)));

        let all = Traffic { weights: [(2, 10_000)].into(), shadow: None };
        assert_eq!(rollout.next(&good, at(65)), Next::SetTraffic("m".into(), all.clone()));
        good.traffic.insert("m".into(), all);
        assert!(matches!(rollout.next(&good, at(65)), Next::WaitFor(_)));
        assert_eq!(rollout.next(&good, at(70)), Next::Unload("m@1".into()));
        assert_eq!(rollout.next(&good, at(70)), Next::SetTraffic("m".into(), Traffic::default()));

        let mut first = Rollout::to(&model(&[1])).with_canary(canary);
        assert_eq!(first.next(&view(&[]), at(0)), load("m@1"), "there is nothing to compare it with");
    }

    #[test]
    fn where_no_gpu_takes_a_version_the_old_one_stays_and_what_a_backend_that_is_gone_said_does_not_count() {
        let mut rollout = Rollout::to(&model(&[1, 2]));
        let mut gone = view(&[("m@1", READY), ("m@2", BROKEN)]);
        gone.backends.values_mut().for_each(|backend| backend.up = false);
        assert_eq!(rollout.next(&gone, at(0)), Next::Wait(Some(("m@1".into(), NoGpu::AllDown))));
        gone.backends.clear();
        assert_eq!(rollout.next(&gone, at(0)), Next::Wait(Some(("m@1".into(), NoGpu::NoBackend))));
        let mut drained = view(&[("m@1", READY), ("m@2", None)]);
        drained.backends.values_mut().for_each(|backend| backend.duty = symphony_types::Duty::Draining);
        assert_eq!(rollout.next(&drained, at(0)), Next::Wait(Some(("m@1".into(), NoGpu::AllDraining))));
        assert_eq!(rollout.next(&view(&[("m@1", READY), ("m@2", READY)]), at(0)), Next::Done);
    }

    #[test]
    fn an_old_failure_is_tried_again_from_the_beginning() {
        let mut rollout = Rollout::to(&model(&[1, 2]));
        let before = view(&[("m@1", READY), ("m@2", BROKEN)]);
        assert_eq!(rollout.next(&before, at(0)), Next::Unload("m@2".into()));
        assert_eq!(rollout.next(&before, at(0)), Next::Wait(None), "the view is older than the unload");
        assert_eq!(rollout.next(&view(&[("m@1", READY)]), at(0)), load("m@2"));
        assert_eq!(rollout.next(&view(&[("m@1", READY), ("m@2", READY)]), at(0)), Next::Done);
    }

    #[test]
    fn what_is_loaded_otherwise_is_not_replaced_and_a_model_without_versions_is() {
        let mut slower = view(&[("m@1", READY)]);
        slower.models.values_mut().for_each(|model| model.spec.slo = Nanos::from_millis(51));
        let Next::Change(spec) = Rollout::to(&model(&[1])).next(&slower, at(0)) else {
            panic!("its SLO changes in place")
        };
        assert_eq!((spec.name.as_str(), spec.slo), ("m@1", Nanos::from_millis(50)));
        slower.models.values_mut().for_each(|model| model.spec.source = ModelSource::Onnx("other".into()));
        let Next::Failed(reason) = Rollout::to(&model(&[1])).next(&slower, at(0)) else { panic!("it is another one") };
        assert!(reason.contains("another specification"), "{reason}");
        let mut rollout = Rollout::to(&model(&[1]));
        let mut both = view(&[("m", READY), ("m@1", READY)]);
        assert_eq!(rollout.next(&both, at(0)), Next::SetTraffic("m".into(), all_to(1)), "both are version 1");
        both.traffic.insert("m".into(), all_to(1));
        assert!(matches!(rollout.next(&both, at(0)), Next::WaitFor(_)));
        assert_eq!(rollout.next(&both, at(3)), Next::Unload("m".into()));
    }

    #[test]
    fn a_model_goes_with_all_its_versions() {
        let mut rollout = Rollout::away("m");
        let all = view(&[("m@1", READY), ("m@2", BROKEN), ("mm@1", READY)]);
        assert_eq!(rollout.next(&all, at(0)), Next::Unload("m@1".into()));
        assert_eq!(rollout.next(&all, at(0)), Next::Unload("m@2".into()));
        assert_eq!(rollout.next(&all, at(0)), Next::Done);
    }

    #[test]
    fn a_version_goes_by_the_name_that_the_cluster_has_for_it_and_a_name_means_all() {
        let all = view(&[("m", READY), ("m@1", READY), ("m@2", READY), ("m@21", READY)]);
        let mut rollout = Rollout::away("m@2");
        assert_eq!(rollout.next(&all, at(0)), Next::Unload("m@2".into()));
        assert_eq!(rollout.next(&all, at(0)), Next::Done);
        assert_eq!(Rollout::away("m@3").next(&all, at(0)), Next::Done);
        let names = |name: &'static str| versions(&all, name).map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("m"), ["m", "m@1", "m@2", "m@21"], "also the one without a version");
        assert_eq!((names("m@1"), names("m@3")), (vec!["m@1"], vec![]));
    }

    /// A cluster with model `m`, which answers the one stage of these versions of pipeline `p`; without budgets they
    /// cannot be asked.
    fn pipelines(versions: &[(u64, bool)]) -> View {
        let mut view = view(&[("m", READY)]);
        for &(version, is_split) in versions {
            let split = is_split.then(|| CommittedSplit { budgets_ns: vec![1], ..CommittedSplit::default() });
            let known = PipelineView { declaration: pipeline(version), epoch: Epoch::new(1), split, load: None };
            view.pipelines.insert(known.declaration.versioned().loaded_as(), known);
        }
        view
    }

    fn pipeline(version: u64) -> PipelineDeclaration {
        let stage = DeclaredStage { name: "s".into(), model: "m".into(), inputs: [].into(), outputs: [].into() };
        PipelineDeclaration {
            name: "p".into(),
            version,
            slo_ns: 1_000_000_000,
            value: RequestValue::ONE,
            partial: false,
            items_max: 1,
            inputs: vec![],
            outputs: vec![],
            stages: vec![stage],
            edges: vec![],
        }
    }

    #[test]
    fn a_version_of_a_pipeline_is_ready_and_known_everywhere_before_the_others_go() {
        let mut rollout = Rollout::to_pipeline(&pipeline(2));
        let old = pipelines(&[(1, true)]);
        assert_eq!(rollout.next(&old, at(0)), Next::LoadPipeline(Box::new(pipeline(2))));
        let hidden = Next::WaitForPipeline { pipeline: "p".into(), why: "no replica has shown it".into() };
        assert_eq!(rollout.next(&old, at(0)), hidden, "the view is older than that");
        let mut given = Rollout::to_pipeline(&pipeline(2)).given();
        assert_eq!(given.next(&old, at(0)), hidden, "another operator may have unloaded it");
        let next = rollout.next(&pipelines(&[(1, true), (2, false)]), at(1));
        let Next::WaitForPipeline { pipeline: name, why } = next else { panic!("{next:?}") };
        assert!(name == "p" && why.contains("its budget is not split"), "{why}");
        let both = pipelines(&[(1, true), (2, true)]);
        assert!(matches!(rollout.next(&both, at(2)), Next::WaitFor(_)), "not every frontend has seen it");
        assert!(matches!(rollout.next(&both, at(4)), Next::WaitFor(_)), "its requests end within its SLO");
        assert_eq!(rollout.next(&both, at(5)), Next::UnloadPipeline("p@1".into()));
        assert_eq!(rollout.next(&pipelines(&[(2, true)]), at(5)), Next::Done);

        let mut other = both;
        other.pipelines.get_mut("p@2").unwrap().declaration.partial = true;
        let next = Rollout::to_pipeline(&pipeline(2)).next(&other, at(0));
        assert!(matches!(&next, Next::Failed(why) if why.contains("another declaration")), "{next:?}");
    }

    #[test]
    fn an_earlier_version_of_a_pipeline_gets_all_requests_before_the_later_one_goes() {
        let mut rollout = Rollout::to_pipeline(&pipeline(1));
        let mut both = pipelines(&[(1, true), (2, true)]);
        assert_eq!(rollout.next(&both, at(0)), Next::SetTraffic("p".into(), all_to(1)));
        both.traffic.insert("p".into(), all_to(1));
        assert!(matches!(rollout.next(&both, at(0)), Next::WaitFor(_)));
        assert_eq!(rollout.next(&both, at(3)), Next::UnloadPipeline("p@2".into()));
        let mut left = pipelines(&[(1, true)]);
        left.traffic = both.traffic;
        assert_eq!(rollout.next(&left, at(3)), Next::SetTraffic("p".into(), Traffic::default()));
        assert_eq!(rollout.next(&pipelines(&[(1, true)]), at(3)), Next::Done);
    }

    #[test]
    fn a_version_of_a_pipeline_gets_a_part_first_and_is_rolled_back_by_how_its_requests_end() {
        let canary = Canary { percents: vec![10], step: Duration::from_secs(60), bad_max: 0.01 };
        let mut rollout = Rollout::to_pipeline(&pipeline(2)).with_canary(canary);
        let mut now = pipelines(&[(1, true)]);
        assert_eq!(rollout.next(&now, at(0)), Next::SetTraffic("p".into(), all_to(1)));
        now.traffic.insert("p".into(), all_to(1));
        assert_eq!(rollout.next(&now, at(0)), Next::LoadPipeline(Box::new(pipeline(2))));
        let part = Traffic { weights: [(1, 90_000), (2, 10_000)].into(), shadow: None };
        let with = |loads: [(u64, u64, u64); 2]| {
            let mut both = pipelines(&[(1, true), (2, true)]);
            both.traffic.insert("p".into(), part.clone());
            for (pipeline, (since, ended, bad)) in both.pipelines.values_mut().zip(loads) {
                pipeline.load = Some(PipelineLoadView { since, ended, bad });
            }
            both
        };
        let mut both = with([(7, 100, 0), (7, 100, 100)]);
        both.traffic.clone_from(&now.traffic);
        assert_eq!(rollout.next(&both, at(1)), Next::SetTraffic("p".into(), part.clone()));
        let begins = with([(7, 100, 0), (7, 100, 100)]);
        assert!(matches!(rollout.next(&begins, at(1)), Next::WaitFor(_)), "what it did before does not count");
        let mut other = rollout.clone();
        let bad = with([(7, 1000, 0), (7, 200, 120)]);
        assert_eq!(other.next(&bad, at(2)), Next::SetTraffic("p".into(), all_to(1)), "it is rolled back");
        let Next::Failed(reason) = other.next(&bad, at(2)) else { panic!("its requests end badly") };
        assert!(reason.contains("20 of 100 requests were given up, late or failed"), "{reason}");
        let mut other = rollout.clone();
        let mut unready = with([(7, 100, 0), (7, 100, 100)]);
        unready.pipelines.get_mut("p@2").unwrap().split = None;
        assert_eq!(other.next(&unready, at(2)), Next::SetTraffic("p".into(), all_to(1)), "it cannot be asked any more");

        // Another leader of the group counts from nothing.
        let good = with([(9, 500, 0), (9, 60, 0)]);
        assert!(matches!(rollout.next(&good, at(30)), Next::WaitFor(_)));
        let all = Traffic { weights: [(2, 10_000)].into(), shadow: None };
        assert_eq!(rollout.next(&good, at(61)), Next::SetTraffic("p".into(), all.clone()));
        let mut last = good;
        last.traffic.insert("p".into(), all);
        assert!(matches!(rollout.next(&last, at(61)), Next::WaitFor(_)));
        assert_eq!(rollout.next(&last, at(64)), Next::UnloadPipeline("p@1".into()));
        assert_eq!(rollout.next(&last, at(64)), Next::SetTraffic("p".into(), Traffic::default()));
    }

    #[test]
    fn a_model_for_gpus_does_not_come_to_processors() {
        let on = |device, executor: &str| {
            let mut view = view(&[]);
            view.backends.values_mut().for_each(|backend| backend.executor = executor.into());
            Rollout::to(&RepositoryModel { device, ..model(&[1]) }).next(&view, at(0))
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
