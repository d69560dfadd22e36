//! Distributes GPUs by the needs of the models, with as few changes of parts as possible.

use std::collections::BTreeMap;

use crate::instance::{Instance, load_of};
use crate::partition_plan::PartitionPlan;
use crate::problem::Problem;

/// GPUs by part and kind, in the problem's order. A GPU whose kind no part may have is left out.
pub(crate) type Gpus = Vec<Vec<Vec<usize>>>;

/// A part during the distribution.
struct Part {
    /// GPUs that its models need, by kind.
    needed: Vec<f64>,
    /// GPUs that it has, by kind.
    counts: Vec<u32>,
    kinds: Vec<usize>,
    has_models: bool,
}

impl Part {
    fn load(&self) -> f64 {
        self.load_with(None, 0)
    }

    /// The load of its GPUs with one more, or one less, of a kind.
    fn load_with(&self, kind: Option<usize>, change: i64) -> f64 {
        let count = |own: usize| match kind {
            Some(kind) if kind == own => (i64::from(self.counts[own]) + change).max(0) as u32,
            _ => self.counts[own],
        };
        let none = (0..self.counts.len()).all(|own| count(own) == 0);
        if none {
            // Models without requests need a place, too.
            return if self.has_models { f64::INFINITY } else { 0.0 };
        }
        load_of((0..self.counts.len()).map(count), |kind| self.needed[kind])
    }

    fn gpus(&self) -> u32 {
        self.counts.iter().sum()
    }
}

/// Distributes the GPUs. GPUs that belong to a part or that the plan in force has in a part stay there; new ones go one
/// by one to the part with the highest load. Then, while a part has too few, it gets one from the part that misses it
/// least, as long as the larger of the two loads falls. Applied to their own result, the rules move nothing.
pub(crate) fn distribute(
    problem: &Problem,
    instance: &Instance,
    models: &[u32],
    previous: Option<&PartitionPlan>,
) -> Gpus {
    let mut parts: Vec<Part> = problem
        .parts
        .iter()
        .map(|part| Part {
            needed: vec![0.0; problem.kinds.len()],
            counts: vec![0; problem.kinds.len()],
            kinds: part.kinds.iter().map(|own| own.kind).collect(),
            has_models: false,
        })
        .collect();
    for (model, &part) in models.iter().enumerate() {
        let part = &mut parts[part as usize];
        part.has_models = true;
        for &kind in &part.kinds {
            part.needed[kind] += instance.gpus[kind][model];
        }
    }
    let part_named: BTreeMap<&str, usize> =
        problem.parts.iter().enumerate().map(|(part, of)| (of.name.as_str(), part)).collect();
    let mut before: BTreeMap<&str, usize> = BTreeMap::new();
    for part in previous.iter().flat_map(|plan| &plan.parts) {
        let Some(&at) = part_named.get(part.name.as_str()) else { continue };
        before.extend(part.gpus.iter().flat_map(|gpus| &gpus.names).map(|name| (name.as_str(), at)));
    }
    let mut part_of: Vec<Option<usize>> = Vec::with_capacity(problem.gpus.len());
    for gpu in &problem.gpus {
        let stays = before.get(gpu.name.as_str()).copied().filter(|&part| problem.part_has_kind(part, gpu.kind));
        let part = gpu.part.or(stays);
        if let Some(part) = part {
            parts[part].counts[gpu.kind] += 1;
        }
        part_of.push(part);
    }

    // Kinds that few parts may have go first, since the others can compensate.
    let takers = |kind: usize| (0..problem.parts.len()).filter(|&part| problem.part_has_kind(part, kind)).count();
    let mut open: Vec<usize> = (0..problem.gpus.len()).filter(|&gpu| part_of[gpu].is_none()).collect();
    let takers_of: Vec<usize> = (0..problem.kinds.len()).map(takers).collect();
    open.sort_by_key(|&gpu| (takers_of[problem.gpus[gpu].kind], gpu));
    for gpu in open {
        let kind = problem.gpus[gpu].kind;
        let may = (0..parts.len()).filter(|&part| parts[part].kinds.contains(&kind));
        let busiest = may.max_by(|&a, &b| {
            let (a_load, b_load) = (parts[a].load(), parts[b].load());
            a_load.total_cmp(&b_load).then(parts[b].gpus().cmp(&parts[a].gpus())).then(b.cmp(&a))
        });
        if let Some(part) = busiest {
            parts[part].counts[kind] += 1;
            part_of[gpu] = Some(part);
        }
    }
    relieve(problem, &mut parts, &mut part_of);
    let mut gpus = vec![vec![Vec::new(); problem.kinds.len()]; problem.parts.len()];
    for (gpu, part) in part_of.into_iter().enumerate() {
        if let Some(part) = part {
            gpus[part][problem.gpus[gpu].kind].push(gpu);
        }
    }
    gpus
}

/// Moves GPUs to parts with too few until no move helps.
fn relieve(problem: &Problem, parts: &mut [Part], part_of: &mut [Option<usize>]) {
    // GPUs that may move, by part and kind; the last ones go first, as when GPUs are released.
    let mut movable: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (gpu, of) in problem.gpus.iter().enumerate().filter(|(_, of)| of.part.is_none()) {
        if let Some(part) = part_of[gpu] {
            movable.entry((part, of.kind)).or_default().push(gpu);
        }
    }
    let mut stuck = vec![false; parts.len()];
    // Every move lowers the larger of two loads, so no state repeats; the limit guards against rounding.
    for _ in 0..4 * problem.gpus.len() + parts.len() {
        let short = (0..parts.len()).filter(|&part| !stuck[part] && parts[part].load() > 1.0);
        let Some(busiest) = short.max_by(|&a, &b| parts[a].load().total_cmp(&parts[b].load()).then(b.cmp(&a))) else {
            return;
        };
        let now = parts[busiest].load();
        let helps = |&(&(giver, kind), gpus): &(&(usize, usize), &Vec<usize>)| {
            giver != busiest
                && !gpus.is_empty()
                && parts[busiest].kinds.contains(&kind)
                && parts[busiest].load_with(Some(kind), 1) < now
                && parts[giver].load_with(Some(kind), -1) < now
        };
        let left = |(giver, kind): (usize, usize)| parts[giver].load_with(Some(kind), -1);
        let giver = movable
            .iter()
            .filter(helps)
            .map(|(&from, _)| from)
            .min_by(|&a, &b| left(a).total_cmp(&left(b)).then(a.cmp(&b)));
        let Some((giver, kind)) = giver else {
            stuck[busiest] = true;
            continue;
        };
        let Some(gpu) = movable.get_mut(&(giver, kind)).and_then(Vec::pop) else { return };
        parts[giver].counts[kind] -= 1;
        parts[busiest].counts[kind] += 1;
        part_of[gpu] = Some(busiest);
        movable.entry((busiest, kind)).or_default().push(gpu);
        stuck.fill(false);
    }
}
