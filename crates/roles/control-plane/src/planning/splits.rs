//! Splits the budgets of pipelines while this replica leads the control group: by the measured rates, fan-outs, hops
//! and batch latencies, and anew when these have changed the budgets by more than a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use symphony_cluster_state::{ClusterState, Command, LoadedPipeline};
use symphony_pipeline::{CommittedSplit, Cost, DeclaredStage, PipelineDeclaration, WiredEdge, split, spread};
use symphony_types::{Finite, LatencyProfile, ModelId, Nanos, SubclusterId, VersionedName};
use tokio::task::JoinHandle;

use crate::planning::learnt_profiles::LearntProfiles;
use crate::planning::pipeline_book::{MeasuredPipeline, PipelineBook};

/// How often all pipelines are checked: a γ that doubles is noticed well within an epoch.
const SPLIT_EVERY: Duration = Duration::from_secs(2);

/// The part of the SLO by which a stage's budget must have changed for a new split: each one is an entry of the log,
/// and less than this moves no batch size that matters.
const CHANGE_MIN: f64 = 0.02;

/// Steps of the time grid: a split of 32 stages takes some milliseconds.
const STEPS: u32 = 1000;

/// Assumed until frontends have measured it: two frames and a turn of a lead (docs/concepts/request-path.md).
const HOP: Nanos = Nanos::from_micros(300);

/// A pipeline that keeps fewer GPUs busy than this, without batches, is split as if it kept as many busy. Batches that
/// gather for seconds save it a hundredth of a GPU, and leave the other stages no time to be late.
const GPUS_MIN: f64 = 0.1;

/// A version of a pipeline, and everything that its split follows from.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    declaration: PipelineDeclaration,
    /// The latencies of each stage's model.
    profiles: Vec<LatencyProfile>,
    measured: MeasuredPipeline,
    /// Of every stage request besides its batch: leaders take them off its deadline.
    delays: Nanos,
    committed: Option<CommittedSplit>,
}

impl Question {
    /// None if a stage's model has no profile for a GPU that would run it.
    pub(crate) fn of(
        state: &ClusterState,
        pipeline: &LoadedPipeline,
        learnt: &LearntProfiles,
        measured: MeasuredPipeline,
        delays: Nanos,
    ) -> Option<Self> {
        let declaration = pipeline.declaration.clone();
        let profile = |stage: &DeclaredStage| stage_profile(state, stage, learnt);
        let profiles = declaration.stages.iter().map(profile).collect::<Option<_>>()?;
        Some(Self { declaration, profiles, measured, delays, committed: pipeline.split.clone() })
    }

    /// The split.
    ///
    /// # Errors
    /// If the SLO cannot be met: which path is too long, and by how much.
    pub(crate) fn answer(&self) -> Result<CommittedSplit, String> {
        let given = self.declaration.pipeline(self.profiles.clone()).map_err(|refused| refused.to_string())?;
        let pipeline = given.with_gammas(&self.measured.gammas);
        let hop = self.measured.hop.unwrap_or(HOP);
        let measured_rps = self.measured.rate_rps.unwrap_or(0.0);
        let rate_rps = measured_rps.max(GPUS_MIN * pipeline.rate_of_one_gpu());
        let step = pipeline.slo().divided_by(STEPS).max(Nanos::new(1));
        let found = split(&pipeline, rate_rps, Cost::Deferred, step, hop).map_err(|error| error.to_string())?;
        let gammas = pipeline.edges().iter().map(|edge| Finite::try_from(edge.gamma)).collect::<Result<_, _>>();
        let budgets = spread(&pipeline, &found, rate_rps, Cost::Deferred, hop, self.delays);
        Ok(CommittedSplit {
            // Delays that leave a stage nothing are no reason for none.
            budgets_ns: budgets.iter().map(|budget| budget.get().max(1)).collect(),
            hop_ns: hop.get(),
            gammas: gammas.map_err(|error| error.to_string())?,
            rate_millirps: (measured_rps * 1000.0) as u64,
        })
    }

    /// Which stage has less of the SLO than one item alone and the delays take, if one has.
    pub(crate) fn too_short(&self, split: &CommittedSplit) -> Option<String> {
        let stages = self.declaration.stages.iter().zip(&self.profiles).zip(&split.budgets_ns);
        let mut short = stages.filter_map(|((stage, profile), &budget_ns)| {
            let (budget, alone) = (Nanos::new(budget_ns), profile.latency(1));
            (budget < alone + self.delays).then_some((&stage.name, budget, alone))
        });
        let (stage, budget, alone) = short.next()?;
        let [slo, budget, alone, delays] =
            [Nanos::new(self.declaration.slo_ns), budget, alone, self.delays].map(Nanos::as_millis_f64);
        Some(format!(
            "its SLO of {slo} ms is too short: stage `{stage}` has {budget:.1} ms of it, one item alone takes \
             {alone} ms, and scheduler.delays add {delays} ms. With this split its requests will be dropped as \
             slo_unreachable"
        ))
    }

    /// The command that makes the cluster agree to a split, if it differs enough from what is agreed on.
    fn command(&self, found: CommittedSplit) -> Option<Command> {
        let slo_ns = self.declaration.slo_ns as f64;
        let is_new = self.committed.as_ref().is_none_or(|known| {
            let mut pairs = known.budgets_ns.iter().zip(&found.budgets_ns);
            pairs.any(|(&before, &after)| before.abs_diff(after) as f64 > CHANGE_MIN * slo_ns)
        });
        let (pipeline, version) = (self.declaration.name.clone(), self.declaration.version);
        is_new.then_some(Command::SetSplit { pipeline, version, split: found })
    }
}

/// The latencies of the model that answers a stage, as measured: of its newest version, on the slowest kind of GPU that
/// its sub-cluster has. A stage whose requests may go to either kind must be done on both.
fn stage_profile(state: &ClusterState, stage: &DeclaredStage, learnt: &LearntProfiles) -> Option<LatencyProfile> {
    let versions = state.models().iter().filter(|(_, model)| stage.asks(&model.spec.name));
    let (&id, model) = versions.max_by_key(|(_, model)| VersionedName::parse(&model.spec.name).version)?;
    let there = kinds(state, model.subcluster);
    let profiled = model.spec.profiles.iter();
    let here = |(kind, _): &(&String, &symphony_cluster_state::KindProfile)| there.contains(kind.as_str());
    let profiles: Vec<_> = match profiled.clone().any(|one| here(&one)) {
        true => profiled.filter(here).filter_map(|(kind, profile)| as_measured(id, kind, profile, learnt)).collect(),
        // Before the first backend comes.
        false => profiled.filter_map(|(kind, profile)| as_measured(id, kind, profile, learnt)).collect(),
    };
    let batch_max = profiles.iter().map(LatencyProfile::batch_max).min()?;
    let slowest = |batch: u32| profiles.iter().map(|profile| profile.latency(batch)).max().unwrap_or(Nanos::ZERO);
    let table: Vec<_> = (1..=batch_max).map(slowest).collect();
    LatencyProfile::from_table(&table).ok()
}

fn as_measured(
    id: ModelId,
    kind: &str,
    profile: &symphony_cluster_state::KindProfile,
    learnt: &LearntProfiles,
) -> Option<LatencyProfile> {
    let table: Vec<_> = profile.latency_ns.iter().map(|&ns| Nanos::new(ns)).collect();
    Some(learnt.measured(id, kind, LatencyProfile::from_table(&table).ok()?))
}

fn kinds(state: &ClusterState, subcluster: SubclusterId) -> BTreeSet<&str> {
    state.gpus_of(subcluster).map(|gpu| gpu.kind.as_str()).collect()
}

/// The questions of all pipelines.
pub(crate) fn questions(
    now: Instant,
    state: &ClusterState,
    book: &PipelineBook,
    learnt: &LearntProfiles,
    delays: Nanos,
) -> Vec<Question> {
    let known = |(loaded_as, pipeline): (&String, &LoadedPipeline)| {
        // As it was checked when it was loaded.
        let edges = pipeline.declaration.validate().ok()?.edges;
        let measured = book.measured(now, loaded_as, edges.len());
        Some(Known { pipeline: pipeline.clone(), edges, measured })
    };
    let known: Vec<_> = state.pipelines().iter().filter_map(known).collect();
    let question = |one: &Known| Question::of(state, &one.pipeline, learnt, one.measured_or_as_others(&known), delays);
    known.iter().filter_map(question).collect()
}

/// A version of a pipeline, and what is measured of it.
#[derive(Debug)]
struct Known {
    pipeline: LoadedPipeline,
    edges: Vec<WiredEdge>,
    measured: MeasuredPipeline,
}

impl Known {
    /// What is measured of it, and where that is nothing yet, of the pipeline's other versions, beginning with the one
    /// that is asked most: it may take over all of their requests at once.
    fn measured_or_as_others(&self, known: &[Self]) -> MeasuredPipeline {
        let is_other = |other: &&Self| {
            let (own, other) = (&self.pipeline.declaration, &other.pipeline.declaration);
            own.name == other.name && own.version != other.version
        };
        let rate = |other: &Self| other.measured.rate_rps.unwrap_or(0.0);
        let mut others: Vec<_> = known.iter().filter(is_other).collect();
        others.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
        let gamma = |(at, edge): (usize, &WiredEdge)| {
            let is_same = |other: &&WiredEdge| (&other.spec.from, &other.spec.to) == (&edge.spec.from, &edge.spec.to);
            let of_other = |other: &&Self| {
                let pairs = other.edges.iter().zip(&other.measured.gammas);
                pairs.filter(|(edge, _)| is_same(edge)).map(|(_, &gamma)| gamma).find(|gamma| !gamma.is_nan())
            };
            let own = self.measured.gammas.get(at).copied().filter(|gamma| !gamma.is_nan());
            own.or_else(|| others.iter().find_map(of_other)).unwrap_or(f64::NAN)
        };
        let of_others = others.iter().filter_map(|other| other.measured.rate_rps).reduce(|one, other| one + other);
        MeasuredPipeline {
            // All of its requests may have been refused so far.
            rate_rps: self.measured.rate_rps.filter(|&rate| rate > 0.0).or(of_others),
            gammas: self.edges.iter().enumerate().map(gamma).collect(),
            hop: self.measured.hop.or_else(|| others.iter().find_map(|other| other.measured.hop)),
        }
    }
}

/// The answers that the cluster is to agree to, and the pipelines whose SLO cannot be met.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) commands: Vec<Command>,
    pub(crate) unmet: BTreeMap<String, String>,
}

fn answers(questions: &[Question]) -> Answers {
    let mut answers = Answers::default();
    for question in questions {
        match question.answer() {
            Ok(found) => answers.commands.extend(question.command(found)),
            Err(why) => drop(answers.unmet.insert(question.declaration.versioned().loaded_as(), why)),
        }
    }
    answers
}

/// Splits all pipelines now and then, on its own thread: the loop has other things to do.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    last: Option<Instant>,
    running: Option<JoinHandle<Answers>>,
    /// Pipelines that could not be split last time: each is logged once.
    unmet: BTreeMap<String, String>,
}

impl Splitter {
    /// Another replica leads the group, or this one does again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Begins the next round if it is due, or takes the answers of the previous one. `ask` gathers the questions.
    pub(crate) async fn turn(&mut self, now: Instant, ask: impl FnOnce() -> Vec<Question>) -> Vec<Command> {
        if let Some(running) = self.running.take_if(|running| running.is_finished()) {
            return match running.await {
                Ok(Answers { commands, unmet }) => {
                    for (name, why) in unmet.iter().filter(|(name, _)| !self.unmet.contains_key(*name)) {
                        tracing::warn!(pipeline = name.as_str(), "its budget cannot be split: {why}");
                    }
                    self.unmet = unmet;
                    commands
                }
                Err(error) => {
                    tracing::error!(%error, "the budgets of pipelines were not split");
                    Vec::new()
                }
            };
        }
        let is_due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= SPLIT_EVERY);
        if is_due && self.running.is_none() {
            self.last = Some(now);
            let questions = ask();
            if !questions.is_empty() {
                self.running = Some(tokio::task::spawn_blocking(move || answers(&questions)));
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use symphony_cluster_state::{Action, Operation};
    use symphony_pipeline::{DeclaredEdge, InputData, PipelineInput, PipelineOutput};
    use symphony_protocol::view::PipelineCounts;
    use symphony_types::{DataType, FrontendId, Level, OperationId, RequestValue, Signature, TensorSpec};

    use super::*;
    use crate::planning::problem::tests::{cluster_from, loaded_as};

    fn tensor(name: &str, item_shape: &[u32]) -> TensorSpec {
        TensorSpec { name: name.into(), data_type: DataType::Fp32, item_shape: item_shape.to_vec() }
    }

    /// Two stages: `a` gives sixteen rows, for each of which `b` is asked.
    fn declaration() -> PipelineDeclaration {
        let names = |one: &str, other: &str| BTreeMap::from([(one.to_owned(), other.to_owned())]);
        let stage = |name: &str, from: &str, to: &str| DeclaredStage {
            name: name.into(),
            model: name.into(),
            inputs: names("x", from),
            outputs: names("y", to),
        };
        let data = InputData::Tensor { data_type: DataType::Fp32, item_shape: vec![4] };
        PipelineDeclaration {
            name: "p".into(),
            version: 1,
            slo_ns: 100_000_000,
            value: RequestValue::ONE,
            partial: false,
            items_max: 1,
            inputs: vec![PipelineInput { name: "in".into(), data }],
            outputs: vec![PipelineOutput { tensor: tensor("out", &[4]), any_rows: true }],
            stages: vec![stage("a", "in", "mid"), stage("b", "mid", "out")],
            edges: vec![DeclaredEdge {
                from: "a".into(),
                to: "b".into(),
                gamma: Finite::try_from(2.0).unwrap(),
                for_each: true,
                condition: None,
                most: None,
                crop: None,
            }],
        }
    }

    pub(crate) fn with_pipeline() -> ClusterState {
        let mut state = ClusterState::default();
        state.found_at(Level::WITH_PIPELINES);
        let mut state = cluster_from(state, &["left"]);
        let signature =
            |from: &[u32], to: &[u32]| Signature { inputs: vec![tensor("x", from)], outputs: vec![tensor("y", to)] };
        loaded_as(&mut state, "a", "left", signature(&[4], &[16, 4]));
        loaded_as(&mut state, "b", "left", signature(&[4], &[4]));
        load(&mut state, 1);
        state
    }

    /// The pipeline in this version, beside those that there are.
    pub(crate) fn load(state: &mut ClusterState, version: u64) {
        let (id, actor) = (OperationId::new(state.applied_index().into()), "operator/ann".to_owned());
        let action = Action::LoadPipeline(PipelineDeclaration { version, ..declaration() });
        let command = Command::Operate(Operation { id, actor, at_unix_ms: 0, avoid: None, action });
        let outcome = state.apply(state.applied_index() + 1, &command).outcome;
        assert!(outcome.is_ok(), "{outcome:?}");
    }

    #[test]
    fn a_version_without_counts_is_split_by_those_of_the_others() {
        let mut state = with_pipeline();
        load(&mut state, 2);
        load(&mut state, 3);
        let (now, from) = (Instant::now(), FrontendId::new(1));
        let mut book = PipelineBook::new(Duration::from_secs(5));
        let asks = |state: &ClusterState, book: &PipelineBook| -> Vec<MeasuredPipeline> {
            let all = questions(now, state, book, &LearntProfiles::default(), Nanos::ZERO);
            all.into_iter().map(|question| question.measured).collect()
        };
        let nothing = asks(&state, &book);
        assert!(nothing.iter().all(|one| one.rate_rps.is_none() && one.gammas[0].is_nan()), "{nothing:?}");
        let counts = |version, items, rows| {
            let within = Nanos::from_millis(1000);
            let (edges, hops) = (vec![(items, rows * items)], Nanos::from_millis(items));
            let counts = PipelineCounts { version, within, items, edges, hops, hop_count: items, ..Default::default() };
            ("p".to_owned(), counts)
        };
        // The first one is asked most; of the second too little is known to say how its results fan out.
        book.take(now, &state, from, [counts(1, 200, 7), counts(2, 10, 3)]);
        let [first, second, third] = &asks(&state, &book)[..] else { panic!("three versions") };
        assert_eq!((first.rate_rps, second.rate_rps, third.rate_rps), (Some(200.0), Some(10.0), Some(210.0)));
        assert_eq!([&first.gammas, &second.gammas, &third.gammas], [&[7.0]; 3]);
        assert_eq!((third.hop, second.hop), (first.hop, first.hop));
        book.take(now, &state, from, [counts(3, 100, 2)]);
        let third = &asks(&state, &book)[2];
        assert_eq!((third.rate_rps, &third.gammas[..]), (Some(100.0), &[2.0][..]));
    }

    fn question(state: &ClusterState, measured: MeasuredPipeline) -> Question {
        Question::of(state, &state.pipelines()["p@1"], &LearntProfiles::default(), measured, Nanos::ZERO).unwrap()
    }

    #[test]
    fn a_pipeline_is_split_when_it_comes_and_again_when_it_has_changed_much() {
        let mut state = with_pipeline();
        let first = question(&state, MeasuredPipeline::default()).answer().unwrap();
        assert_eq!(first.hop(), HOP);
        let budgets: u64 = first.budgets_ns.iter().sum();
        assert!(budgets + HOP.get() <= 100_000_000 && budgets > 95_000_000, "{first:?}");
        let delays = Nanos::from_millis(50);
        let delayed = Question { delays, ..question(&state, MeasuredPipeline::default()) }.answer().unwrap();
        let late = Question { delays, ..question(&state, MeasuredPipeline::default()) }.too_short(&delayed).unwrap();
        assert!(late.starts_with("its SLO of 100 ms is too short: stage `"), "{late}");
        assert_eq!(question(&state, MeasuredPipeline::default()).too_short(&first), None);
        // 6 of 12.3 ms, and 56 of 112.3.
        assert!(delayed.budgets_ns[0] > first.budgets_ns[0] + 500_000, "{delayed:?}, without delays {first:?}");
        let command = question(&state, MeasuredPipeline::default()).command(first.clone()).unwrap();
        let outcome = state.apply(state.applied_index() + 1, &command).outcome;
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(state.pipelines()["p@1"].split, Some(first.clone()));

        assert_eq!(question(&state, MeasuredPipeline::default()).command(first.clone()), None, "nothing has changed");
        // Ten thousand requests a second, each for sixteen rows.
        let busy = MeasuredPipeline { rate_rps: Some(1e4), gammas: vec![16.0], hop: Some(Nanos::from_millis(1)) };
        let problem = question(&state, busy);
        let second = problem.answer().unwrap();
        assert_eq!((second.gammas[0].get(), second.rate_millirps), (16.0, 10_000_000));
        // Whatever the rate, what no batch needs is spread in proportion: 6 to 6 ms, then 13.8 to 14.1 with the hop.
        let is_far = (0..2).any(|at| first.budgets_ns[at].abs_diff(second.budgets_ns[at]) > 2_000_000);
        assert_eq!(problem.command(second.clone()).is_some(), is_far);
        let far = CommittedSplit { budgets_ns: vec![20_000_000, 70_000_000], ..second };
        assert!(problem.command(far).is_some(), "that is another division");
    }

    #[test]
    fn a_pipeline_that_is_rarely_asked_keeps_time_for_each_stage() {
        let state = with_pipeline();
        let measured = |rate_rps| MeasuredPipeline { rate_rps: Some(rate_rps), gammas: vec![1.0], hop: None };
        for rate_rps in [0.0, 0.5, 1.0, 10.0] {
            let mut long = question(&state, measured(rate_rps));
            long.declaration.slo_ns = 4_000_000_000;
            let found = long.answer().unwrap();
            // Two stages of the same profile. At one request a second, one of them would gather three for 3 of 4 s.
            assert!(found.budgets_ns.iter().all(|&budget| budget >= 1_500_000_000), "{rate_rps} per second: {found:?}");
            assert_eq!(found.rate_millirps, (rate_rps * 1000.0) as u64);
        }
    }

    #[test]
    fn an_slo_that_no_split_meets_is_told_with_its_path() {
        let state = with_pipeline();
        let mut short = question(&state, MeasuredPipeline::default());
        short.declaration.slo_ns = 5_000_000;
        let Answers { commands, unmet } = answers(&[short]);
        assert!(commands.is_empty() && unmet["p@1"].contains("a → b"), "{unmet:?}");
    }
}
