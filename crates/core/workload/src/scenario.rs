//! A validated scenario, the input of `symphony sim`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use symphony_controllers::LearningSettings;
use symphony_policy::{AutoRule, PolicySpec, Refused};
use symphony_scheduler::{ClusterFacts, PolicyRegistry};
use symphony_types::{GPU_CLASSES_MAX, GpuClass, GpuId, LatencyProfile, Nanos, PROFILE_BATCH_MAX, RequestValue};

use crate::autoscale::Autoscale;
use crate::by_kind_text::ByKindText;
use crate::check::Check;
use crate::error::ScenarioError;
use crate::execution::Execution;
use crate::failure::Failure;
use crate::learning;
use crate::limits::{
    DURATION_S_MAX, PRICE_MAX, RATE_RPS_MAX, SCENARIO_GPUS_MAX, SCENARIO_MODELS_MAX, SEEDS_MAX, TIME_MS_MAX, ZIPF_MAX,
};
use crate::override_key;
use crate::pipelines::{OwnModels, PipelineLoad};
use crate::popularity::Popularity;
use crate::profile_csv::profile_from_csv;
use crate::profile_toml::profile_from_toml;
use crate::rate_profile::RateProfile;
use crate::slowdown::Slowdown;
use crate::specs::{GpuSpec, ModelSpec};
use crate::text::{ArrivalText, ModelText, PopularityText, ProfilesText, ScenarioText};
use crate::trace::Trace;
use crate::variants::Served;

/// Range of shapes of gamma gaps: below it numbers underflow; above it gaps are practically constant.
const GAMMA_SHAPES: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

/// The process that makes arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps.
    Uniform,
    /// Gamma gaps of this shape: below one burstier than Poisson.
    Gamma(f64),
    /// Recorded arrivals.
    Trace(Arc<Trace>),
}

/// Delays of the emulated network, exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// From a decision to the backend.
    pub control: Nanos,
    /// Fetching the input of one item.
    pub data_per_item: Nanos,
    /// From the end of execution to the client.
    pub reply: Nanos,
}

/// A validated scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file that it was read from, for messages.
    pub file: String,
    /// The overrides in force, as given; with `file` they make the command that repeats a run.
    pub overrides: Vec<String>,
    /// Its name, in results and messages.
    pub name: String,
    /// The policy that decides for all models.
    pub policy: PolicySpec,
    /// The policies that the program adds, among which the policy may be.
    pub policies: PolicyRegistry,
    /// Whether to leave whole GPUs idle, if the policy supports it.
    pub consolidate: bool,
    /// Rules of `auto` that are switched off, to measure their effect.
    pub without: Vec<AutoRule>,
    /// Requests that arrive in [warm-up, warm-up + duration) count.
    pub duration: Nanos,
    /// The time before counting begins.
    pub warmup: Nanos,
    /// One run per seed.
    pub seeds: Vec<u64>,
    /// Network delays.
    pub network: Network,
    /// GPUs by kind, in the order of the file; ids count on through it.
    pub gpus: Vec<GpuSpec>,
    /// Models in the order of the file; those of stages with a profile of their own follow.
    pub models: Vec<ModelSpec>,
    /// Pipelines in the order of the file.
    pub pipelines: Vec<PipelineLoad>,
    /// The period in which budgets of pipelines are split again by measured rates and fan-outs; without one they stay
    /// as they are split for the scenario's own.
    pub split_epoch: Option<Nanos>,
    /// Total rate in requests per second. With a trace it is the trace's own rate after `time_scale`.
    pub rate_rps: f64,
    /// The arrival process.
    pub arrival: Arrival,
    /// Noise of execution times.
    pub execution: Execution,
    /// GPUs that fail, in the order of time.
    pub failures: Vec<Failure>,
    /// GPUs that are slow for some time, by GPU and in the order of time.
    pub slow: Vec<Slowdown>,
    /// What to learn from the ends of batches; by default nothing.
    pub learning: LearningSettings,
    /// The autoscaler, if the number of GPUs follows the load; otherwise all of them serve all the time.
    pub autoscale: Option<Autoscale>,
}

impl Scenario {
    /// Parses and validates the scenario `text` of `file`, with `overrides` of the form `key=value`. `read_csv` returns
    /// the text of a CSV file that the scenario names, or why it cannot be read.
    ///
    /// # Errors
    /// If anything is unknown, missing or invalid; the message names the key, what was expected, and the override or
    /// file at fault.
    pub fn parse(
        file: &str,
        text: &str,
        overrides: &[String],
        read_csv: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ScenarioError> {
        Self::parse_among(file, text, overrides, read_csv, &PolicyRegistry::new())
    }

    /// As [`parse`](Self::parse), where the program adds these policies.
    ///
    /// # Errors
    /// As there.
    pub fn parse_among(
        file: &str,
        text: &str,
        overrides: &[String],
        read_csv: &dyn Fn(&str) -> Result<String, String>,
        policies: &PolicyRegistry,
    ) -> Result<Self, ScenarioError> {
        let parsed = |overrides: &[String]| Self::parse_with(file, text, overrides, read_csv, policies);
        let error = match parsed(overrides) {
            Ok(scenario) => return Ok(scenario),
            Err(named @ ScenarioError::Set { .. }) => return Err(named),
            Err(error) => error,
        };
        let same = |others: &[String]| parsed(others).is_err_and(|other| other == error);
        Err(override_key::override_at_fault(overrides, &same).map_or_else(|| error.clone(), |set| error.set_by(set)))
    }

    fn parse_with(
        file: &str,
        text: &str,
        overrides: &[String],
        read_csv: &dyn Fn(&str) -> Result<String, String>,
        policies: &PolicyRegistry,
    ) -> Result<Self, ScenarioError> {
        let in_file = |error: toml::de::Error| ScenarioError::Text { file: file.to_owned(), message: one_line(&error) };
        let mut parsed: ScenarioText = toml::from_str(text).map_err(in_file)?;
        if !overrides.is_empty() {
            let mut table: toml::Table = toml::from_str(text).map_err(in_file)?;
            for assignment in overrides {
                let refused = |message| ScenarioError::Set { assignment: assignment.clone(), message };
                override_key::apply(&mut table, assignment).map_err(refused)?;
                // After each one, so that a message names the override at fault.
                parsed = table.clone().try_into().map_err(|error| refused(one_line(&error)))?;
            }
        }
        let check = Check { file, read_csv, policies };
        let own_models = OwnModels::add(&mut parsed);
        let mut scenario = check.scenario(&parsed).map_err(|error| own_models.named(error))?;
        scenario.overrides = overrides.to_vec();
        Ok(scenario)
    }

    /// Whether every batch takes exactly its planned time: there is no noise, and no profile is corrected.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.execution.is_exact() && self.slow.is_empty() && !self.learning.is_on()
    }

    /// All GPUs.
    #[must_use]
    pub fn gpu_count(&self) -> u32 {
        self.gpus.iter().map(|gpu| gpu.count).sum()
    }

    /// What all GPUs cost per hour; `None` if a kind has no price.
    #[must_use]
    pub fn price_per_hour(&self) -> Option<f64> {
        self.gpus.iter().map(|gpu| Some(f64::from(gpu.count) * gpu.price_per_hour?)).sum()
    }

    /// The class of each GPU, by id.
    pub fn gpu_classes(&self) -> impl Iterator<Item = GpuClass> {
        self.gpus.iter().flat_map(|gpu| std::iter::repeat_n(gpu.class, gpu.count as usize))
    }

    /// GPU classes: kinds on which some model's profile differs.
    #[must_use]
    pub fn class_count(&self) -> usize {
        self.models.first().map_or(1, |model| model.profiles.len())
    }

    /// Name of the kind that the GPU is of; `None` if there is no such GPU.
    #[must_use]
    pub fn gpu_kind(&self, gpu: GpuId) -> Option<&str> {
        let mut first = 0;
        self.gpus
            .iter()
            .find(|spec| {
                first += spec.count;
                gpu.get() < first
            })
            .map(|spec| spec.kind.as_str())
    }

    /// This scenario with a single class, whose profiles are the slowest of each model's at every batch size: for
    /// policies without GPU kinds, whose plans must hold on all GPUs.
    #[must_use]
    pub fn with_slowest_profiles(&self) -> Self {
        let mut scenario = self.clone();
        scenario.models.iter_mut().for_each(ModelSpec::slowest);
        scenario.gpus.iter_mut().for_each(|gpu| gpu.class = GpuClass::FIRST);
        scenario
    }
}

/// The parser's message on one line, with its position if there is one, and without Rust type names.
fn one_line(error: &toml::de::Error) -> String {
    const EXPECTED: &str = ", expected ";
    const PLAIN: [(&str, &str); 4] = [
        ("f64", "a number"),
        ("u32", "a whole number from 0 to 4294967295"),
        ("u64", "a whole number from 0 on"),
        ("a sequence", "a list"),
    ];
    let whole = error.to_string();
    let lines = whole.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    let Some((before, expected)) = line.rsplit_once(EXPECTED) else { return line };
    let (plain, rest) = if let Some(name) = expected.strip_prefix("struct ") {
        ("a table of keys", name.find(' ').map_or("", |end| &name[end..]))
    } else if let Some((rest, plain)) =
        PLAIN.iter().find_map(|(word, plain)| Some((expected.strip_prefix(word)?, *plain)))
    {
        (plain, rest)
    } else {
        return line;
    };
    format!("{before}{EXPECTED}{plain}{rest}")
}

impl Check<'_> {
    fn scenario(&self, text: &ScenarioText) -> Result<Scenario, ScenarioError> {
        let policy = self.policy(text)?;
        let duration_s = self.positive("duration_s", text.duration_s, DURATION_S_MAX)?;
        let warmup_s = self.number("warmup_s", text.warmup_s, 0.0, DURATION_S_MAX)?;
        if text.seeds.is_empty() || text.seeds.len() > SEEDS_MAX {
            return self.refuse("seeds", &format!("1 to {SEEDS_MAX} seeds"), text.seeds.len());
        }
        let delay = |key: &str, us: f64| {
            self.number(&format!("network.{key}"), us, 0.0, TIME_MS_MAX * 1e3)
                .map(|us| Nanos::from_millis_f64(us / 1e3))
        };
        let network = Network {
            control: delay("ctrl_us", text.network.ctrl_us)?,
            data_per_item: delay("data_us_per_item", text.network.data_us_per_item)?,
            reply: delay("reply_us", text.network.reply_us)?,
        };
        let mut gpus = self.gpus(text)?;
        let gpu_count = gpus.iter().map(|gpu| gpu.count).sum();
        let mut models = self.models(text, &gpus)?;
        self.memory(text)?;
        self.classify(&mut gpus, &mut models)?;
        let popularity = self.popularity(&text.workload.popularity)?;
        let mut pipelines = self.pipelines(text, &models, network)?;
        self.share_rate(text, popularity, &mut models, &mut pipelines)?;
        let arrival = self.arrival(&text.workload.arrival, &models)?;
        let split_epoch = self.pipelines_run(text, &arrival)?;
        let rate_rps = match (&arrival, text.workload.rate_rps) {
            (Arrival::Trace(trace), _) => trace.rate_rps(),
            (_, Some(rate_rps)) => rate_rps,
            (_, None) => return self.refuse("workload.rate_rps", "the total rate in requests per second", "nothing"),
        };
        let rate_rps = match &arrival {
            Arrival::Trace(_) if !(rate_rps > 0.0 && rate_rps <= RATE_RPS_MAX) => {
                let expected =
                    format!("a mean rate above 0, at most {RATE_RPS_MAX} requests per second, after scaling");
                return self.refuse("workload.arrival.trace_csv", &expected, rate_rps);
            }
            Arrival::Trace(_) => rate_rps,
            _ => self.positive("workload.rate_rps", rate_rps, RATE_RPS_MAX)?,
        };
        self.rate_profiles(text, &arrival, &mut models, &mut pipelines)?;
        let failures = Failure::check(self, &text.failure, gpu_count)?;
        let slow = Slowdown::check(self, &text.slow, gpu_count)?;
        let learning = learning::check(self, text, &policy)?;
        self.families_run(text, &policy, &learning)?;
        let autoscale = Autoscale::check(self, text, &policy, &gpus, &models)?;
        let scenario = Scenario {
            file: self.file.to_owned(),
            overrides: Vec::new(),
            name: text.name.clone(),
            policy,
            policies: self.policies.clone(),
            consolidate: text.consolidate,
            without: text.without.clone(),
            duration: Nanos::from_secs_f64(duration_s),
            warmup: Nanos::from_secs_f64(warmup_s),
            seeds: text.seeds.clone(),
            network,
            gpus,
            models,
            pipelines,
            split_epoch,
            rate_rps,
            execution: Execution::check(self, &text.execution)?,
            failures,
            slow,
            learning,
            autoscale,
            arrival,
        };
        Ok(match text.profiles {
            ProfilesText::OwnKind => scenario,
            ProfilesText::SlowestKind => scenario.with_slowest_profiles(),
        })
    }

    /// The policy, with the options that it understands.
    fn policy(&self, text: &ScenarioText) -> Result<PolicySpec, ScenarioError> {
        let added: Vec<_> = self.policies.names().collect();
        let policy = match text.policy.parse_among(&added) {
            Ok(policy) => policy,
            Err(Refused { below, expected, got }) => return self.refuse(format!("policy{below}"), &expected, got),
        };
        if let PolicySpec::Registered(_) = policy
            && let Err(error) = self.policies.build(&policy, &ClusterFacts::simulated(0))
        {
            return self.refuse("policy", "options that it takes", error);
        }
        Ok(policy)
    }

    /// Converts profiles by kind to profiles by class: kinds on which no model's profile differs form one class.
    fn classify(&self, gpus: &mut [GpuSpec], models: &mut [ModelSpec]) -> Result<(), ScenarioError> {
        let kinds = kinds_of(gpus);
        // The first kind of each class, and the class of each kind.
        let (mut firsts, mut class_of) = (Vec::new(), Vec::new());
        for kind in 0..kinds.len() {
            let alike = |&first: &usize| models.iter().all(|model| model.is_alike_on(first, kind));
            let class = firsts.iter().position(alike).unwrap_or(firsts.len());
            if class == firsts.len() {
                firsts.push(kind);
            }
            class_of.push(class);
        }
        if firsts.len() > GPU_CLASSES_MAX {
            return self.refuse("gpu", &format!("at most {GPU_CLASSES_MAX} GPU kinds that differ"), firsts.len());
        }
        for gpu in gpus {
            let class = kinds.iter().position(|kind| *kind == gpu.kind).map_or(0, |kind| class_of[kind]);
            gpu.class = GpuClass::new(class).unwrap_or_default();
        }
        // Models that share profiles by kind continue to share them by class.
        let mut shared: Option<[Arc<[LatencyProfile]>; 2]> = None;
        for model in models {
            let [_, by_class] = match shared.take().filter(|[by_kind, _]| Arc::ptr_eq(by_kind, &model.profiles)) {
                Some(same) => shared.insert(same),
                None => {
                    let by_class = firsts.iter().map(|&kind| model.profiles[kind].clone()).collect();
                    shared.insert([Arc::clone(&model.profiles), by_class])
                }
            };
            model.profiles = Arc::clone(by_class);
            if let Some(variants) = model.variants.as_mut().filter(|_| firsts.len() < kinds.len()) {
                variants.profiles = firsts.iter().map(|&kind| variants.profiles[kind].clone()).collect();
            }
        }
        Ok(())
    }

    fn gpus(&self, text: &ScenarioText) -> Result<Vec<GpuSpec>, ScenarioError> {
        let mut total = 0_u32;
        let mut gpus = Vec::with_capacity(text.gpu.len());
        for (position, gpu) in text.gpu.iter().enumerate() {
            total = total.saturating_add(gpu.count);
            if gpu.count == 0 || total > SCENARIO_GPUS_MAX {
                let expected = format!("1 or more, and at most {SCENARIO_GPUS_MAX} GPUs in all");
                return self.refuse(format!("gpu.{position}.count"), &expected, gpu.count);
            }
            if let Some(memory_mb) = gpu.memory_mb {
                self.positive(&format!("gpu.{position}.memory_mb"), memory_mb, 1e9)?;
            }
            if let Some(price_per_hour) = gpu.price_per_hour {
                self.positive(&format!("gpu.{position}.price_per_hour"), price_per_hour, PRICE_MAX)?;
            }
            let (kind, memory_mb, price_per_hour) = (gpu.kind.clone(), gpu.memory_mb, gpu.price_per_hour);
            gpus.push(GpuSpec { kind, count: gpu.count, memory_mb, price_per_hour, class: GpuClass::FIRST });
        }
        if gpus.is_empty() { self.refuse("gpu", "at least one [[gpu]]", "none") } else { Ok(gpus) }
    }

    /// The expanded models; `share` still holds the weight, and `profiles` are by kind.
    fn models(&self, text: &ScenarioText, gpus: &[GpuSpec]) -> Result<Vec<ModelSpec>, ScenarioError> {
        let mut models: Vec<ModelSpec> = Vec::new();
        for (position, model) in text.model.iter().enumerate() {
            let key = |name: &str| format!("model.{position}.{name}");
            let count = model.count.unwrap_or(1) as usize;
            if count == 0 || models.len().saturating_add(model.models()) > SCENARIO_MODELS_MAX {
                let expected = format!("1 or more, and at most {SCENARIO_MODELS_MAX} models in all");
                return self.refuse(key("count"), &expected, count);
            }
            let slo = Nanos::from_millis_f64(self.positive(&key("slo_ms"), model.slo_ms, TIME_MS_MAX)?);
            let weight = self.number(&key("weight"), model.weight.unwrap_or(1.0), 0.0, 1e12)?;
            let value = self.value(&key("value"), model.value.unwrap_or(1.0))?;
            let deadline = self.deadline(&key("deadline"), model.deadline.as_ref(), slo)?;
            // Batches that no request's deadline allows would only cost memory and search time.
            let within = Nanos::new(deadline.max()).max(slo);
            let kinds = kinds_of(gpus);
            let profiles: Vec<_> =
                kinds.iter().map(|kind| self.profile(position, model, within, kind)).collect::<Result<_, _>>()?;
            let Served { profiles, variants, shares } = self.served(position, model, &kinds, profiles, within)?;
            let batch_max = profiles.iter().map(LatencyProfile::batch_max).max().unwrap_or(1);
            let profiles: Arc<[_]> = profiles.into();
            let items = self.items(&key("items"), model.items.as_ref(), batch_max)?;
            for instance in 0..count {
                let name = match model.count {
                    Some(_) => format!("{}-{instance}", model.name),
                    None => model.name.clone(),
                };
                for (variant, share) in shares.iter().enumerate() {
                    models.push(ModelSpec {
                        name: if shares.len() > 1 { format!("{name}-{variant}") } else { name.clone() },
                        profiles: Arc::clone(&profiles),
                        variants: variants.clone(),
                        slo,
                        deadline: deadline.clone(),
                        items: items.clone(),
                        share: weight * share,
                        value,
                        rate_profile: None,
                    });
                }
            }
        }
        if models.is_empty() {
            return self.refuse("model", "at least one [[model]]", "none");
        }
        let mut names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => self.refuse("model", "names that differ", format!("`{}` twice", pair[0])),
            None => Ok(models),
        }
    }

    pub(crate) fn value(&self, key: &str, number: f64) -> Result<RequestValue, ScenarioError> {
        match RequestValue::from_number(number) {
            Some(value) => Ok(value),
            None => self.refuse(key, &format!("{} to {}", RequestValue::MIN, RequestValue::MAX), number),
        }
    }

    /// ℓ(b) of a model on GPUs of `kind`.
    fn profile(
        &self,
        position: usize,
        model: &ModelText,
        slo: Nanos,
        kind: &str,
    ) -> Result<LatencyProfile, ScenarioError> {
        let key = |name: &str| format!("model.{position}.{name}");
        if let Some(batch_max) = model.batch_max
            && !(1..=PROFILE_BATCH_MAX).contains(&batch_max)
        {
            return self.refuse(key("batch_max"), &format!("1 to {PROFILE_BATCH_MAX}"), batch_max);
        }
        let measured = |name: &str, file: &String, read: fn(&str, &str) -> Result<LatencyProfile, String>| {
            let text = self.csv(&key(name), file)?;
            let profile = read(&text, kind).map_err(|message| self.csv_refused(&key(name), file, message))?;
            let fits = profile.table().partition_point(|&latency| latency <= slo) as u32;
            let batch_max = model.batch_max.unwrap_or(fits.max(1)).min(profile.batch_max());
            LatencyProfile::from_table(&profile.table()[..batch_max as usize])
                .or_else(|error| self.refuse(key(name), "a profile", error))
        };
        match (&model.profile_csv, &model.profile, &model.alpha_ms, &model.beta_ms) {
            (None, None, Some(alpha_ms), Some(beta_ms)) => {
                let alpha_ms = self.of_kind(&key("alpha_ms"), alpha_ms, kind)?;
                let beta_ms = self.of_kind(&key("beta_ms"), beta_ms, kind)?;
                let batch_max = model.batch_max.unwrap_or_else(|| batch_within(alpha_ms, beta_ms, slo));
                match LatencyProfile::from_line(alpha_ms, beta_ms, batch_max) {
                    Ok(profile) => Ok(profile),
                    Err(error) => self.refuse(key("alpha_ms"), "a line that makes a profile", error),
                }
            }
            (Some(file), None, None, None) => measured("profile_csv", file, profile_from_csv),
            (None, Some(file), None, None) => measured("profile", file, profile_from_toml),
            _ => {
                let expected = "alpha_ms and beta_ms, or profile, or profile_csv";
                self.refuse(format!("model.{position}"), expected, "another combination of these keys")
            }
        }
    }

    /// α or β on GPUs of `kind`: one number for all, or one per kind. As in a CSV file, further kinds are allowed.
    pub(crate) fn of_kind(&self, key: &str, text: &ByKindText, kind: &str) -> Result<f64, ScenarioError> {
        match text {
            ByKindText::Same(value) => self.number(key, *value, 0.0, TIME_MS_MAX),
            ByKindText::Each(values) => match values.get(kind) {
                Some(&value) => self.number(&format!("{key}.{kind}"), value, 0.0, TIME_MS_MAX),
                None => {
                    let known: Vec<_> = values.keys().map(String::as_str).collect();
                    let expected = format!("a number for the scenario's GPU kind `{kind}`");
                    self.refuse(key, &expected, format!("only {}", known.join(", ")))
                }
            },
        }
    }

    fn rate_profiles(
        &self,
        text: &ScenarioText,
        arrival: &Arrival,
        models: &mut [ModelSpec],
        pipelines: &mut [PipelineLoad],
    ) -> Result<(), ScenarioError> {
        let profile = |key: &str, rows: &Option<Vec<[f64; 2]>>| match rows {
            None => Ok(None),
            Some(_) if matches!(arrival, Arrival::Trace(_)) => {
                self.refuse(key, "no profile with a trace, which brings its own rate", "one")
            }
            Some(rows) => RateProfile::check(self, key, rows).map(Some),
        };
        let of_all = profile("workload.rate_profile", &text.workload.rate_profile)?.map(Arc::new);
        let both = |own: Option<RateProfile>| match (own, &of_all) {
            (Some(own), Some(of_all)) => Some(Arc::new(own.times(of_all))),
            (Some(own), None) => Some(Arc::new(own)),
            (None, of_all) => of_all.clone(),
        };
        let mut models = models.iter_mut();
        for (position, model) in text.model.iter().enumerate() {
            let both = both(profile(&format!("model.{position}.rate_profile"), &model.rate_profile)?);
            models.by_ref().take(model.models()).for_each(|model| model.rate_profile.clone_from(&both));
        }
        for (position, (load, pipeline)) in pipelines.iter_mut().zip(&text.pipeline).enumerate() {
            load.rate_profile = both(profile(&format!("pipeline.{position}.rate_profile"), &pipeline.rate_profile)?);
        }
        Ok(())
    }

    fn popularity(&self, text: &PopularityText) -> Result<Popularity, ScenarioError> {
        let key = "workload.popularity";
        match text {
            PopularityText::Name(name) => match name.as_str() {
                "weights" => Ok(Popularity::Weights),
                "uniform" => Ok(Popularity::Uniform),
                _ => self.refuse(key, "\"weights\", \"uniform\" or { zipf = s }", format!("\"{name}\"")),
            },
            PopularityText::Zipf(table) => {
                self.number("workload.popularity.zipf", table.zipf, 0.0, ZIPF_MAX).map(Popularity::Zipf)
            }
        }
    }

    fn arrival(&self, text: &ArrivalText, models: &[ModelSpec]) -> Result<Arrival, ScenarioError> {
        let key = "workload.arrival";
        match text {
            ArrivalText::Name(name) => match name.as_str() {
                "poisson" => Ok(Arrival::Poisson),
                "uniform" => Ok(Arrival::Uniform),
                _ => {
                    let expected = "\"poisson\", \"uniform\", { gamma = shape } or { trace_csv = \"file\" }";
                    self.refuse(key, expected, format!("\"{name}\""))
                }
            },
            ArrivalText::Gamma(table) => self
                .number("workload.arrival.gamma", table.gamma, *GAMMA_SHAPES.start(), *GAMMA_SHAPES.end())
                .map(Arrival::Gamma),
            ArrivalText::Trace(table) => {
                let key = "workload.arrival.trace_csv";
                let scale =
                    self.positive("workload.arrival.time_scale", table.time_scale.unwrap_or(1.0), DURATION_S_MAX)?;
                let text = self.csv(key, &table.trace_csv)?;
                let positions: HashMap<&str, u32> =
                    models.iter().map(|model| model.name.as_str()).zip(0_u32..).collect();
                for (name, model) in &table.map {
                    if !positions.contains_key(model.as_str()) {
                        let key = format!("workload.arrival.map.{name}");
                        return self.refuse(key, "a model of the scenario", format!("`{model}`"));
                    }
                }
                let mut unmet: BTreeSet<&str> = table.map.keys().map(String::as_str).collect();
                let named = |name: &str| {
                    unmet.remove(name);
                    positions.get(table.map.get(name).map_or(name, String::as_str)).copied()
                };
                let trace = Trace::from_csv(&text, scale, named)
                    .map_err(|message| self.csv_refused(key, &table.trace_csv, message))?;
                if let Some(unmet) = unmet.first() {
                    let (key, got) = ("workload.arrival.map", format!("`{unmet}`, which no row of it names"));
                    return self.refuse(key, "names that the trace has", got);
                }
                Ok(Arrival::Trace(Arc::new(trace)))
            }
        }
    }
}

/// The kinds, each once, in the order in which they appear.
fn kinds_of(gpus: &[GpuSpec]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for gpu in gpus {
        if !kinds.contains(&gpu.kind) {
            kinds.push(gpu.kind.clone());
        }
    }
    kinds
}

/// The largest batch whose latency is within the SLO, at least one, at most [`PROFILE_BATCH_MAX`].
fn batch_within(alpha_ms: f64, beta_ms: f64, slo: Nanos) -> u32 {
    let fits = |batch: u32| Nanos::from_millis_f64(alpha_ms.mul_add(f64::from(batch), beta_ms)) <= slo;
    let (mut fit, mut too_large) = (0, PROFILE_BATCH_MAX + 1);
    while too_large - fit > 1 {
        let middle = fit.midpoint(too_large);
        if fits(middle) { fit = middle } else { too_large = middle }
    }
    fit.max(1)
}
