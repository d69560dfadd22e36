//! What is to be divided, among what, and within which limits.

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
/// Pairs of a part and a GPU kind that it has, and of a model and a part: 2^24 of these are a table of 16 MiB.
pub const KIND_PAIRS_MAX: usize = 1 << 24;

/// A partitioning problem (seed 000, Appendix A).
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// GPU kinds; everything else names them by their place here.
    pub kinds: Vec<GpuKind>,
    /// The m models.
    pub models: Vec<Model>,
    /// The l parts.
    pub parts: Vec<Part>,
    /// GPUs to distribute, and those that belong to a part.
    pub gpus: Vec<Gpu>,
    /// w of equation 4, without unit: 1 if a percent of imbalance weighs the same in rate and in static memory. The
    /// equation's own w is this times R̄/S̄.
    pub memory_weight: f64,
    /// C_max of equation 11: what all moves against the plan in force may cost together; no limit if `None`.
    pub disruption_max: Option<f64>,
    /// When a plan in force stays.
    pub steadiness: Steadiness,
}

/// When a plan in force stays although another one would be better balanced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steadiness {
    /// It stays, without a search, while its objective is at most this: 0.01 is one percent of imbalance.
    pub keep_within: f64,
    /// It stays unless another one has an objective lower by this share of its own.
    pub gain_min_share: f64,
}

impl Default for Steadiness {
    fn default() -> Self {
        // Rates that are measured over an epoch are known to about a percent, and a move costs the loading of a model.
        Self { keep_within: 0.01, gain_min_share: 0.1 }
    }
}

/// A kind of GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuKind {
    /// As profiles name it.
    pub name: String,
    /// Memory of one GPU, in bytes.
    pub memory_bytes: u64,
}

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name, which plans use.
    pub name: String,
    /// r_i: requests per second.
    pub rate_rps: f64,
    /// Time for gathering and running a batch: the SLO less the delays of the path.
    pub slo: Nanos,
    /// What it needs on each kind, by the kind's place; `None` where it has no profile.
    pub needs: Vec<Option<KindNeed>>,
    /// What moving it costs, unloading and loading together: c_ij + c_ij' of equation 11. A model that comes or goes,
    /// or whose part is gone, costs nothing: that cannot be avoided.
    pub move_cost: f64,
    /// Where it has to be, if somebody says so.
    pub pin: Option<Pin>,
}

/// A model on one kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct KindNeed {
    /// ℓ(b).
    pub profile: LatencyProfile,
    /// s_i: memory that the loaded model holds, in bytes.
    pub static_memory_bytes: u64,
    /// d_i: further memory while its largest batch runs, in bytes.
    pub dynamic_memory_bytes: u64,
}

/// Where a model has to be.
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
    /// Its name, which plans use.
    pub name: String,
    /// R_max: requests per second that its rank thread (its rank threads, of a cluster) can take.
    pub rate_max_rps: f64,
    /// Its size against the others: the share of rate and memory it should have. Equal for equal parts.
    pub share: f64,
    /// The kinds of its GPUs. Every GPU of a sub-cluster holds all its models, so a model can only be here if it can
    /// run on each of them.
    pub kinds: Vec<PartKind>,
}

/// A kind of GPU in a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartKind {
    /// The kind's place in [`Problem::kinds`].
    pub kind: usize,
    /// S_max: memory for Σ static + max dynamic, in bytes. One GPU's in a sub-cluster; of a cluster, what its
    /// sub-clusters have together.
    pub memory_max_bytes: u64,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name, which plans use.
    pub name: String,
    /// Its kind's place in [`Problem::kinds`].
    pub kind: usize,
    /// The part that it belongs to and cannot leave; `None` if the plan decides.
    pub part: Option<usize>,
}

impl Model {
    /// s_i where kinds differ: the largest, by which parts are balanced (equation 8).
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

    /// Whether the part may have GPUs of the kind.
    pub(crate) fn part_has_kind(&self, part: usize, kind: usize) -> bool {
        self.parts[part].kinds.iter().any(|own| own.kind == kind)
    }

    /// Refuses what makes no sense, so that nothing after this needs to ask.
    ///
    /// # Errors
    /// [`Unsolved::Bad`] with the first thing at fault.
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

    /// What tells this problem from others; a plan carries it.
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
