//! The partitioning problem: models, parts and limits.

use std::collections::BTreeSet;

use symphony_types::{LatencyProfile, Nanos};

use crate::fingerprint::Fingerprint;
use crate::unsolved::Unsolved;

/// Models of one problem.
pub const MODELS_MAX: usize = 16_384;
/// Parts of one problem: as many as a cluster may have sub-clusters.
pub const PARTS_MAX: usize = 1024;
/// GPU kinds of one problem: as many as a model may have profiles for.
pub const KINDS_MAX: usize = 16;
/// GPUs of one problem: as many as a cluster may have.
pub const POOL_GPUS_MAX: usize = 65_536;
/// Pairs of a part and one of its GPU kinds, and of a model and a part: 2^24 of these are a table of 16 MiB.
pub const KIND_PAIRS_MAX: usize = 1 << 24;

/// Stands for unlimited or unknown memory.
pub const NO_LIMIT_BYTES: u64 = 1 << 40;
/// The fixed cost of a move, in bytes like its main cost: even a small model takes seconds of an operator's attention.
pub const MOVE_BYTES_LEAST: u64 = 1 << 20;

/// A partitioning problem (the Symphony paper, Appendix A).
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// GPU kinds; all other fields refer to them by index.
    pub kinds: Vec<GpuKind>,
    /// The m models.
    pub models: Vec<Model>,
    /// The l parts.
    pub parts: Vec<Part>,
    /// GPUs to distribute, and those that belong to a part.
    pub gpus: Vec<Gpu>,
    /// w of equation 4, without unit: at 1, a percent of imbalance in rate weighs as much as one in static memory. The
    /// equation's own w is this times R̄/S̄.
    pub memory_weight: f64,
    /// C_max of equation 11: the limit on the total cost of moves against the plan in force; `None` for no limit.
    pub disruption_max: Option<f64>,
    /// When the plan in force is kept.
    pub steadiness: Steadiness,
}

/// When the plan in force is kept although another one would be better balanced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// It is kept, without a search, while its objective is at most this: 0.01 is one percent of imbalance.
    pub keep_within: f64,
    /// It is kept unless another plan's objective is lower by this share of its own.
    pub gain_min_share: f64,
}

impl Default for Steadiness {
    fn default() -> Self {
        // Rates measured over an epoch are accurate to about a percent, and a move costs the loading of a model.
        Self { keep_within: 0.01, gain_min_share: 0.1 }
    }
}

/// A kind of GPU, with equal memory and latencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuKind {
    /// Its name in profiles.
    pub name: String,
    /// Memory of one GPU, in bytes.
    pub memory_bytes: u64,
}

/// A model to be placed in one part.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name, used in plans.
    pub name: String,
    /// r_i: requests per second.
    pub rate_rps: f64,
    /// Time for gathering and running a batch: SLO − delays.
    pub slo: Nanos,
    /// Its need on each kind, by kind index; `None` without a profile.
    pub needs: Vec<Option<KindNeed>>,
    /// The cost of a move, unloading and loading together: c_ij + c_ij' of equation 11. Models that are added or
    /// removed, or whose part no longer exists, cost nothing, since their moves are unavoidable.
    pub move_cost: f64,
    /// The required part, if any.
    pub pin: Option<Pin>,
}

/// A model on one GPU kind.
#[derive(Clone, Debug, PartialEq)]
pub struct KindNeed {
    /// ℓ(b).
    pub profile: LatencyProfile,
    /// s_i: memory that the loaded model holds, in bytes.
    pub static_memory_bytes: u64,
    /// d_i: additional memory while its largest batch runs, in bytes.
    pub dynamic_memory_bytes: u64,
}

/// A placement constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// In this part.
    Part(usize),
    /// In a part with GPUs of this kind only.
    Kind(usize),
}

/// A sub-cluster, or a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name, used in plans.
    pub name: String,
    /// R_max: the capacity in requests per second of its rank worker (of a cluster: of all its rank workers).
    pub rate_max_rps: f64,
    /// Its relative size: its target share of rate and memory. Equal for equal parts.
    pub share: f64,
    /// Its GPU kinds. Every GPU of a sub-cluster holds all its models, so a model must be able to run on each kind.
    pub kinds: Vec<PartKind>,
}

/// A GPU kind in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartKind {
    /// Index of the kind in [`Problem::kinds`].
    pub kind: usize,
    /// S_max: memory for Σ static + max dynamic, in bytes. Of one GPU in a sub-cluster; of all sub-clusters together in
    /// a cluster.
    pub memory_max_bytes: u64,
}

/// A GPU to be given to one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name, used in plans.
    pub name: String,
    /// Index of its kind in [`Problem::kinds`].
    pub kind: usize,
    /// The part to which it is fixed; `None` if the plan decides.
    pub part: Option<usize>,
}

impl Model {
    /// s_i; if it differs by kind, the largest one, by which parts are balanced (equation 8).
    #[must_use]
    pub fn static_memory_bytes(&self) -> u64 {
        self.needs.iter().flatten().map(|need| need.static_memory_bytes).max().unwrap_or(0)
    }
}

impl Problem {
    /// Σ of all shares.
    pub(crate) fn shares(&self) -> f64 {
        self.parts.iter().map(|part| part.share).sum()
    }

    /// Whether the part may have GPUs of this kind.
    pub(crate) fn part_has_kind(&self, part: usize, kind: usize) -> bool {
        self.parts[part].kinds.iter().any(|own| own.kind == kind)
    }

    /// Rejects invalid problems, so that later code need not check.
    ///
    /// # Errors
    /// [`Unsolved::Bad`] with the first fault.
    pub fn check(&self) -> Result<(), Unsolved> {
        let bad = |what: String| Err(Unsolved::Bad(what));
        let count = |what: &str, got: usize, least: usize, most: usize| {
            if (least..=most).contains(&got) {
                Ok(())
            } else {
                Err(Unsolved::Bad(format!("{got} {what}; expected {least} to {most}")))
            }
        };
        count("models", self.models.len(), 1, MODELS_MAX)?;
        count("parts", self.parts.len(), 1, PARTS_MAX)?;
        count("GPU kinds", self.kinds.len(), 1, KINDS_MAX)?;
        count("GPUs", self.gpus.len(), 0, POOL_GPUS_MAX)?;
        count("pairs of a model and a part", self.models.len() * self.parts.len(), 1, KIND_PAIRS_MAX)?;
        unique("GPU kind", self.kinds.iter().map(|kind| kind.name.as_str()))?;
        unique("model", self.models.iter().map(|model| model.name.as_str()))?;
        unique("part", self.parts.iter().map(|part| part.name.as_str()))?;
        unique("GPU", self.gpus.iter().map(|gpu| gpu.name.as_str()))?;
        let amount = |x: f64| x.is_finite() && x >= 0.0;
        if !amount(self.memory_weight) {
            return bad(format!("memory_weight is {}; expected a number from 0 on", self.memory_weight));
        }
        if self.disruption_max.is_some_and(|cost| !amount(cost)) {
            return bad(format!("disruption_max is {:?}; expected a number from 0 on", self.disruption_max));
        }
        let Steadiness { keep_within, gain_min_share } = self.steadiness;
        if !(amount(keep_within) && gain_min_share > 0.0 && gain_min_share < 1.0) {
            return bad(format!(
                "keep_within is {keep_within} and gain_min_share is {gain_min_share}; expected a number from 0 on, and one \
                 between 0 and 1"
            ));
        }
        for model in &self.models {
            self.check_model(model)?;
        }
        for part in &self.parts {
            self.check_part(part)?;
        }
        for gpu in &self.gpus {
            let known = gpu.kind < self.kinds.len() && gpu.part.is_none_or(|part| part < self.parts.len());
            if !known {
                return bad(format!("GPU {} is of a kind, or in a part, that does not exist", gpu.name));
            }
            if let Some(part) = gpu.part.filter(|&part| !self.part_has_kind(part, gpu.kind)) {
                let (part, kind) = (&self.parts[part].name, &self.kinds[gpu.kind].name);
                return bad(format!(
                    "GPU {} is {kind} and belongs to {part}, which has no GPUs of that kind",
                    gpu.name
                ));
            }
        }
        Ok(())
    }

    fn check_model(&self, model: &Model) -> Result<(), Unsolved> {
        let Model { name, rate_rps, needs, move_cost, pin, .. } = model;
        let bad = |what: String| Err(Unsolved::Bad(format!("model {name}: {what}")));
        if !(rate_rps.is_finite() && *rate_rps >= 0.0) {
            return bad(format!("its rate is {rate_rps}; expected a number from 0 on"));
        }
        if !(move_cost.is_finite() && *move_cost >= 0.0) {
            return bad(format!("its move_cost is {move_cost}; expected a number from 0 on"));
        }
        if needs.len() != self.kinds.len() || needs.iter().all(Option::is_none) {
            return bad("expected one entry per GPU kind, and a profile for one of them at least".to_owned());
        }
        // Above, sums of bytes would not be exact in f64.
        const MEMORY_BYTES_MAX: u64 = 1 << 40;
        let most = needs.iter().flatten().map(|need| need.static_memory_bytes.max(need.dynamic_memory_bytes)).max();
        if most.is_some_and(|most| most > MEMORY_BYTES_MAX) {
            return bad(format!("it needs {most:?} bytes; expected at most {MEMORY_BYTES_MAX}"));
        }
        let known = match *pin {
            None => true,
            Some(Pin::Part(part)) => part < self.parts.len(),
            Some(Pin::Kind(kind)) => kind < self.kinds.len(),
        };
        if known { Ok(()) } else { bad("it is pinned to something that does not exist".to_owned()) }
    }

    fn check_part(&self, part: &Part) -> Result<(), Unsolved> {
        let Part { name, rate_max_rps, share, kinds } = part;
        let bad = |what: String| Err(Unsolved::Bad(format!("part {name}: {what}")));
        if rate_max_rps.is_nan() || *rate_max_rps <= 0.0 {
            return bad(format!("its rate_max_rps is {rate_max_rps}; expected a number above 0"));
        }
        if !(share.is_finite() && *share > 0.0) {
            return bad(format!("its share is {share}; expected a number above 0"));
        }
        let distinct: BTreeSet<_> = kinds.iter().map(|own| own.kind).collect();
        if kinds.is_empty() || distinct.len() < kinds.len() || distinct.iter().any(|&kind| kind >= self.kinds.len()) {
            return bad("expected one GPU kind at least, each once, and only such as exist".to_owned());
        }
        Ok(())
    }

    /// Identifies this problem in plans.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut print = Fingerprint::EMPTY.float(self.memory_weight).float(self.disruption_max.unwrap_or(-1.0));
        print = print.float(self.steadiness.keep_within).float(self.steadiness.gain_min_share);
        for kind in &self.kinds {
            print = print.text(&kind.name).number(kind.memory_bytes);
        }
        for model in &self.models {
            print = print.text(&model.name).float(model.rate_rps).number(model.slo.get()).float(model.move_cost);
            print = match model.pin {
                None => print.number(0),
                Some(Pin::Part(part)) => print.number(1).number(part as u64),
                Some(Pin::Kind(kind)) => print.number(2).number(kind as u64),
            };
            for need in &model.needs {
                print = print.number(u64::from(need.is_some()));
                if let Some(need) = need {
                    print = print.number(need.static_memory_bytes).number(need.dynamic_memory_bytes);
                    print = need.profile.table().iter().fold(print, |print, latency| print.number(latency.get()));
                }
            }
        }
        for part in &self.parts {
            print = print.text(&part.name).float(part.rate_max_rps).float(part.share).number(part.kinds.len() as u64);
            for own in &part.kinds {
                print = print.number(own.kind as u64).number(own.memory_max_bytes);
            }
        }
        for gpu in &self.gpus {
            print = print.text(&gpu.name).number(gpu.kind as u64).number(gpu.part.map_or(0, |part| part as u64 + 1));
        }
        print
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Unsolved> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || !seen.insert(name) {
            return Err(Unsolved::Bad(format!("{what} `{name}` is there twice, or has no name")));
        }
    }
    Ok(())
}
