//! Reads a problem file and validates it.

use symphony_types::{LatencyProfile, Nanos, PROFILE_BATCH_MAX};
use symphony_workload::{profile_from_csv, profile_from_toml};

use crate::problem::{
    Gpu, GpuKind, KIND_PAIRS_MAX, KINDS_MAX, KindNeed, MODELS_MAX, Model, PARTS_MAX, POOL_GPUS_MAX, Part, PartKind,
    Pin, Problem, Steadiness,
};
use crate::problem_text::{ByKindText, GpuText, ModelText, PartText, PinText, ProblemText};
use crate::unsolved::Unsolved;

/// The longest time in milliseconds: about 11 days.
const TIME_MS_MAX: f64 = 1e9;
/// The most memory in MB: one TiB.
const MEMORY_MB_MAX: f64 = 1_048_576.0;
/// The highest rate in requests per second: one per nanosecond.
const RATE_RPS_MAX: f64 = 1e9;
/// The largest cost, weight and share.
const AMOUNT_MAX: f64 = 1e12;
/// Pairs of a model and a GPU kind in a file: their profiles are at most as large as those of that many models.
const PROFILES_MAX: usize = 2 * MODELS_MAX;

/// An invalid problem file, or an invalid file that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProblemError {
    /// The text is no TOML, a key is unknown or missing, or a value has the wrong type.
    #[error("{file}: {message}")]
    Text {
        /// The problem file.
        file: String,
        /// The parser's message with line and key.
        message: String,
    },
    /// A value is out of range.
    #[error("{file}: key `{key}`: expected {expected}, got {got}")]
    Value {
        /// The problem file.
        file: String,
        /// Dotted path of the key.
        key: String,
        /// The value or range that was expected.
        expected: String,
        /// What was found.
        got: String,
    },
}

impl Problem {
    /// Reads the problem `text` of `file`. `read_csv` returns the text of a CSV file, or why it cannot be read.
    ///
    /// # Errors
    /// If anything is unknown, missing or invalid; the message names file, key and what was expected.
    pub fn parse(
        file: &str,
        text: &str,
        read_csv: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, ProblemError> {
        let parsed: ProblemText = toml::from_str(text).map_err(|error| {
            let whole = error.to_string();
            let lines: Vec<_> = whole.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            ProblemError::Text { file: file.to_owned(), message: lines.join(" ") }
        })?;
        let problem = Reader { file, read_csv }.problem(&parsed)?;
        problem.check().map_err(|unsolved| ProblemError::Text {
            file: file.to_owned(),
            message: match unsolved {
                Unsolved::Bad(what) => what,
                infeasible @ Unsolved::Infeasible(_) => infeasible.to_string(),
            },
        })?;
        Ok(problem)
    }
}

struct Reader<'a> {
    file: &'a str,
    read_csv: &'a dyn Fn(&str) -> Result<String, String>,
}

impl Reader<'_> {
    fn refuse<T>(&self, key: &str, expected: &str, got: impl std::fmt::Display) -> Result<T, ProblemError> {
        let (file, key) = (self.file.to_owned(), key.to_owned());
        Err(ProblemError::Value { file, key, expected: expected.to_owned(), got: got.to_string() })
    }

    fn number(&self, key: &str, value: f64, min: f64, max: f64) -> Result<f64, ProblemError> {
        if (min..=max).contains(&value) {
            Ok(value)
        } else {
            self.refuse(key, &format!("a number from {min} to {max}"), value)
        }
    }

    fn positive(&self, key: &str, value: f64, max: f64) -> Result<f64, ProblemError> {
        if value > 0.0 && value <= max {
            Ok(value)
        } else {
            self.refuse(key, &format!("a number above 0, at most {max}"), value)
        }
    }

    /// MB of 2^20 bytes.
    fn bytes(&self, key: &str, megabytes: f64) -> Result<u64, ProblemError> {
        self.number(key, megabytes, 0.0, MEMORY_MB_MAX).map(|megabytes| (megabytes * f64::from(1 << 20)) as u64)
    }

    /// Repeats `count` times within the rest of `most`; once if there is no count.
    fn count(&self, key: &str, count: Option<u32>, there: usize, most: usize) -> Result<usize, ProblemError> {
        let count = count.unwrap_or(1);
        if count == 0 || there + count as usize > most {
            return self.refuse(key, &format!("1 or more, and at most {most} in all"), count);
        }
        Ok(count as usize)
    }

    fn problem(&self, text: &ProblemText) -> Result<Problem, ProblemError> {
        let kinds = self.kinds(text)?;
        let parts = self.parts(text, &kinds)?;
        let gpus = self.gpus(text, &kinds, &parts)?;
        let models = self.models(text, &kinds, &parts)?;
        let usual = Steadiness::default();
        Ok(Problem {
            memory_weight: self.number("memory_weight", text.memory_weight.unwrap_or(1.0), 0.0, AMOUNT_MAX)?,
            disruption_max: match text.disruption_max {
                Some(cost) => Some(self.number("disruption_max", cost, 0.0, AMOUNT_MAX)?),
                None => None,
            },
            steadiness: Steadiness {
                keep_within: self.number(
                    "keep_within",
                    text.keep_within.unwrap_or(usual.keep_within),
                    0.0,
                    AMOUNT_MAX,
                )?,
                gain_min_share: self.number(
                    "gain_min_share",
                    text.gain_min_share.unwrap_or(usual.gain_min_share),
                    1e-6,
                    1.0 - 1e-6,
                )?,
            },
            kinds,
            models,
            parts,
            gpus,
        })
    }

    fn kinds(&self, text: &ProblemText) -> Result<Vec<GpuKind>, ProblemError> {
        let mut kinds: Vec<GpuKind> = Vec::new();
        for (position, gpu) in text.gpu.iter().enumerate() {
            let key = format!("gpu.{position}.memory_mb");
            let memory_bytes = self.bytes(&key, self.positive(&key, gpu.memory_mb, MEMORY_MB_MAX)?)?;
            match kinds.iter().find(|kind| kind.name == gpu.kind) {
                None => kinds.push(GpuKind { name: gpu.kind.clone(), memory_bytes }),
                Some(same) if same.memory_bytes != memory_bytes => {
                    return self.refuse(
                        &key,
                        &format!("the same memory for every GPU of kind `{}`", gpu.kind),
                        gpu.memory_mb,
                    );
                }
                Some(_) => {}
            }
        }
        if kinds.is_empty() || kinds.len() > KINDS_MAX {
            return self.refuse("gpu", &format!("1 to {KINDS_MAX} GPU kinds"), kinds.len());
        }
        Ok(kinds)
    }

    fn kind(&self, key: &str, kinds: &[GpuKind], name: &str) -> Result<usize, ProblemError> {
        let known: Vec<_> = kinds.iter().map(|kind| kind.name.as_str()).collect();
        match known.iter().position(|known| *known == name) {
            Some(kind) => Ok(kind),
            None => self.refuse(key, &format!("one of the GPU kinds {}", known.join(", ")), format!("`{name}`")),
        }
    }

    fn part(&self, key: &str, parts: &[Part], name: &str) -> Result<usize, ProblemError> {
        match parts.iter().position(|part| part.name == name) {
            Some(part) => Ok(part),
            None => self.refuse(key, "the name of a part", format!("`{name}`")),
        }
    }

    fn parts(&self, text: &ProblemText, kinds: &[GpuKind]) -> Result<Vec<Part>, ProblemError> {
        let mut parts = Vec::new();
        for (position, part) in text.part.iter().enumerate() {
            let key = |name: &str| format!("part.{position}.{name}");
            let PartText { name, count, rate_max_rps, share, kinds: own, memory_mb } = part;
            let repeated = self.count(&key("count"), *count, parts.len(), PARTS_MAX)?;
            let own: Vec<usize> = match own {
                None => (0..kinds.len()).collect(),
                Some(own) => own.iter().map(|kind| self.kind(&key("kinds"), kinds, kind)).collect::<Result<_, _>>()?,
            };
            let memory = |kind: usize| match memory_mb {
                None => Ok(kinds[kind].memory_bytes),
                Some(memory_mb) => match memory_mb.of(&kinds[kind].name) {
                    Some(megabytes) => self.bytes(&key("memory_mb"), megabytes),
                    None => Ok(kinds[kind].memory_bytes),
                },
            };
            let kinds = own.into_iter().map(|kind| Ok(PartKind { kind, memory_max_bytes: memory(kind)? }));
            let of = Part {
                name: name.clone(),
                rate_max_rps: match rate_max_rps {
                    Some(rate) => self.positive(&key("rate_max_rps"), *rate, RATE_RPS_MAX)?,
                    None => f64::INFINITY,
                },
                share: self.positive(&key("share"), share.unwrap_or(1.0), AMOUNT_MAX)?,
                kinds: kinds.collect::<Result<_, ProblemError>>()?,
            };
            let names = names(name, *count, repeated);
            parts.extend(names.into_iter().map(|name| Part { name, ..of.clone() }));
        }
        if parts.is_empty() { self.refuse("part", "at least one [[part]]", "none") } else { Ok(parts) }
    }

    fn gpus(&self, text: &ProblemText, kinds: &[GpuKind], parts: &[Part]) -> Result<Vec<Gpu>, ProblemError> {
        let mut gpus: Vec<Gpu> = Vec::new();
        let mut numbered = vec![0_usize; kinds.len()];
        for (position, gpu) in text.gpu.iter().enumerate() {
            let key = |name: &str| format!("gpu.{position}.{name}");
            let GpuText { kind: name, count, names, part, .. } = gpu;
            let kind = self.kind(&key("kind"), kinds, name)?;
            let part = match part {
                Some(part) => Some(self.part(&key("part"), parts, part)?),
                None => None,
            };
            let names: Vec<String> = match (count, names) {
                (Some(0), None) => Vec::new(),
                (Some(_), None) => {
                    let count = self.count(&key("count"), *count, gpus.len(), POOL_GPUS_MAX)?;
                    let from = numbered[kind];
                    numbered[kind] += count;
                    (from..from + count).map(|number| format!("{name}-{number}")).collect()
                }
                (None, Some(names)) => names.clone(),
                _ => return self.refuse(&key("count"), "either count or names", "both or neither"),
            };
            gpus.extend(names.into_iter().map(|name| Gpu { name, kind, part }));
        }
        Ok(gpus)
    }

    fn models(&self, text: &ProblemText, kinds: &[GpuKind], parts: &[Part]) -> Result<Vec<Model>, ProblemError> {
        let most = MODELS_MAX.min(PROFILES_MAX / kinds.len()).min(KIND_PAIRS_MAX / parts.len());
        let mut models = Vec::new();
        for (position, model) in text.model.iter().enumerate() {
            let key = |name: &str| format!("model.{position}.{name}");
            let repeated = self.count(&key("count"), model.count, models.len(), most)?;
            let slo = Nanos::from_millis_f64(self.positive(&key("slo_ms"), model.slo_ms, TIME_MS_MAX)?);
            let needs = kinds.iter().map(|kind| self.need(position, model, &kind.name, slo));
            let of = Model {
                name: model.name.clone(),
                rate_rps: self.number(&key("rate_rps"), model.rate_rps, 0.0, RATE_RPS_MAX)?,
                slo,
                needs: needs.collect::<Result<_, _>>()?,
                move_cost: self.number(&key("move_cost"), model.move_cost.unwrap_or(1.0), 0.0, AMOUNT_MAX)?,
                pin: match &model.pin {
                    None => None,
                    Some(PinText::Part(pin)) => Some(Pin::Part(self.part(&key("pin.part"), parts, &pin.part)?)),
                    Some(PinText::Kind(pin)) => Some(Pin::Kind(self.kind(&key("pin.kind"), kinds, &pin.kind)?)),
                },
            };
            if of.needs.iter().all(Option::is_none) {
                let known: Vec<_> = kinds.iter().map(|kind| kind.name.as_str()).collect();
                let expected = format!("a profile for one of the GPU kinds {}", known.join(", "));
                return self.refuse(&key("alpha_ms"), &expected, "none");
            }
            let names = names(&model.name, model.count, repeated);
            models.extend(names.into_iter().map(|name| Model { name, ..of.clone() }));
        }
        if models.is_empty() { self.refuse("model", "at least one [[model]]", "none") } else { Ok(models) }
    }

    /// The model's need on a kind; `None` without a profile.
    fn need(
        &self,
        position: usize,
        model: &ModelText,
        kind: &str,
        slo: Nanos,
    ) -> Result<Option<KindNeed>, ProblemError> {
        let key = |name: &str| format!("model.{position}.{name}");
        let profile = match (&model.alpha_ms, &model.beta_ms, &model.profile, &model.profile_csv) {
            (Some(alpha), Some(beta), None, None) => {
                let (Some(alpha), Some(beta)) = (alpha.of(kind), beta.of(kind)) else { return Ok(None) };
                let alpha = self.number(&key("alpha_ms"), alpha, 0.0, TIME_MS_MAX)?;
                let beta = self.number(&key("beta_ms"), beta, 0.0, TIME_MS_MAX)?;
                let batch_max = model.batch_max.unwrap_or_else(|| batch_within(alpha, beta, slo));
                if batch_max == 0 || batch_max > PROFILE_BATCH_MAX {
                    return self.refuse(&key("batch_max"), &format!("1 to {PROFILE_BATCH_MAX}"), batch_max);
                }
                LatencyProfile::from_line(alpha, beta, batch_max)
                    .or_else(|error| self.refuse(&key("alpha_ms"), "a line that makes latencies", error))?
            }
            (None, None, Some(file), None) => match self.measured(&key("profile"), file, kind, profile_from_toml)? {
                Some(profile) => profile,
                None => return Ok(None),
            },
            (None, None, None, Some(file)) => match self.measured(&key("profile_csv"), file, kind, profile_from_csv)? {
                Some(profile) => profile,
                None => return Ok(None),
            },
            _ => {
                let expected = "alpha_ms and beta_ms, or profile, or profile_csv";
                return self.refuse(&format!("model.{position}"), expected, "another combination of these keys");
            }
        };
        let memory = |name: &str, text: &ByKindText| match text.of(kind) {
            Some(megabytes) => self.bytes(&key(name), megabytes),
            None => self.refuse(
                &key(name),
                &format!("a number for GPU kind `{kind}`, for which there is a profile"),
                "none",
            ),
        };
        Ok(Some(KindNeed {
            profile,
            static_memory_bytes: memory("static_mb", &model.static_mb)?,
            dynamic_memory_bytes: memory("dynamic_mb", &model.dynamic_mb)?,
        }))
    }

    /// Latencies of a kind from a file of measurements; `None` if it has none for that kind.
    fn measured(
        &self,
        key: &str,
        file: &str,
        kind: &str,
        read: fn(&str, &str) -> Result<LatencyProfile, String>,
    ) -> Result<Option<LatencyProfile>, ProblemError> {
        match (self.read_csv)(file).and_then(|text| read(&text, kind)) {
            Ok(profile) => Ok(Some(profile)),
            Err(message) if message.starts_with("has no rows for") => Ok(None),
            Err(message) => self.refuse(key, "latencies of this model", format!("{file}: {message}")),
        }
    }
}

/// The name itself, or numbered names if there is a count.
fn names(name: &str, count: Option<u32>, repeated: usize) -> Vec<String> {
    match count {
        None => vec![name.to_owned()],
        Some(_) => (0..repeated).map(|number| format!("{name}-{number}")).collect(),
    }
}

/// The largest batch within the SLO, at least one: larger ones would only cost memory.
fn batch_within(alpha_ms: f64, beta_ms: f64, slo: Nanos) -> u32 {
    let fits = |&batch: &u32| Nanos::from_millis_f64(alpha_ms.mul_add(f64::from(batch), beta_ms)) <= slo;
    (1..=PROFILE_BATCH_MAX).take_while(fits).last().unwrap_or(1)
}

#[cfg(test)]
mod tests;
