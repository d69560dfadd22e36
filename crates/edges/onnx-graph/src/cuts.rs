//! Cut points: single values through which every path from inputs to outputs passes.

use crate::hash::{ValueHash, batch_may_come_first};
use crate::onnx::TypeProto;
use crate::wiring::Wiring;

/// A value at which a model can be taken apart: every path from an input, or from an operator that draws at random, to
/// an output passes it. It is neither input nor output, and as far as the model states its first dimension can be the
/// batch. No graph states whether rows are independent of each other: outputs are compared when a family forms.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Its name in this model.
    pub value: String,
    /// What it computes.
    pub hash: ValueHash,
    /// Nodes up to here that lie on a path from inputs to outputs, the one that makes the value included.
    pub position: usize,
    /// Its type, if the model states it.
    pub value_type: Option<TypeProto>,
    /// Its place among the values of the graph.
    pub(crate) place: usize,
}

/// Which nodes lie on paths from inputs to outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    /// For each node: it depends on what clients give or draws at random, and an output depends on it.
    pub(crate) is_on_path: Vec<bool>,
}

/// Where cuts are in the order of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Separator {
    pub(crate) place: usize,
    pub(crate) position: usize,
}

impl Flow {
    pub(crate) fn of(wiring: &Wiring, is_random: &[bool]) -> Self {
        let mut depends = vec![false; wiring.values.len()];
        wiring.inputs().for_each(|place| depends[place] = true);
        let mut is_on_path = Vec::with_capacity(wiring.nodes.len());
        for (wires, &is_random) in wiring.nodes.iter().zip(is_random) {
            let is_live = is_random || wires.uses.iter().any(|&place| depends[place]);
            wires.makes.iter().for_each(|&place| depends[place] = is_live);
            is_on_path.push(is_live);
        }
        let mut is_wanted = vec![false; wiring.values.len()];
        wiring.outputs.iter().for_each(|&place| is_wanted[place] = true);
        for (wires, is_on_path) in wiring.nodes.iter().zip(&mut is_on_path).rev() {
            let node_is_wanted = wires.makes.iter().any(|&place| is_wanted[place]);
            if node_is_wanted {
                wires.uses.iter().for_each(|&place| is_wanted[place] = true);
            }
            *is_on_path &= node_is_wanted;
        }
        Self { is_on_path }
    }

    /// Nodes on paths.
    pub(crate) fn nodes(&self) -> usize {
        self.is_on_path.iter().filter(|&&is_on_path| is_on_path).count()
    }
}

/// All separators, in one pass. Nodes are sorted, so whatever lies on a path with a separator stands before it or
/// behind it: right after its node it is the only value that is made and still used, and no source is left.
pub(crate) fn separators(wiring: &Wiring, flow: &Flow, is_random: &[bool]) -> Vec<Separator> {
    let end = wiring.nodes.len();
    let on_path = || wiring.nodes.iter().zip(&flow.is_on_path).enumerate().filter(|(_, (_, is_on_path))| **is_on_path);
    let mut last_use = vec![None; wiring.values.len()];
    for (index, (wires, _)) in on_path() {
        wires.uses.iter().for_each(|&place| last_use[place] = Some(index));
    }
    wiring.outputs.iter().for_each(|&place| last_use[place] = Some(end));
    // Values whose last use is each node, or the end.
    let mut closes = vec![0_usize; end + 1];
    let mut open = 0;
    for last in wiring.inputs().filter_map(|place| last_use[place]) {
        closes[last] += 1;
        open += 1;
    }
    let mut sources_left = on_path().filter(|(index, _)| is_random[*index]).count();
    let mut found = Vec::new();
    for (position, (index, (wires, _))) in (1..).zip(on_path()) {
        open -= closes[index];
        sources_left -= usize::from(is_random[index]);
        let mut only = None;
        for &place in &wires.makes {
            if let Some(last) = last_use[place] {
                closes[last] += 1;
                open += 1;
                only = Some((place, last));
            }
        }
        if let Some((place, last)) = only
            && open == 1
            && sources_left == 0
            && last < end
        {
            found.push(Separator { place, position });
        }
    }
    found
}

/// The separators that can be cut points, with all that is known of them.
pub(crate) fn cuts<'a>(
    separators: &[Separator],
    wiring: &Wiring,
    hashes: &[ValueHash],
    type_of: impl Fn(&str) -> Option<&'a TypeProto>,
) -> Vec<Cut> {
    let cut = |&Separator { place, position }: &Separator| {
        let value = &wiring.values[place];
        let value_type = type_of(&value.name);
        batch_may_come_first(value_type).then(|| Cut {
            value: value.name.clone(),
            hash: hashes[place],
            position,
            value_type: value_type.cloned(),
            place,
        })
    };
    separators.iter().filter_map(cut).collect()
}

/// At most `max` of the cuts, spread evenly over what they cost, the first and the last among them. `cost` is that of
/// all that lies before a cut, such as its [`Cut::position`] or a latency; it grows from cut to cut.
#[must_use]
pub fn evenly(cuts: &[Cut], max: usize, cost: impl Fn(&Cut) -> f64) -> Vec<&Cut> {
    let (Some(first), Some(last)) = (cuts.first(), cuts.last()) else { return Vec::new() };
    if cuts.len() <= max {
        return cuts.iter().collect();
    }
    let (low, high) = (cost(first), cost(last));
    let mut kept = Vec::with_capacity(max);
    let mut next = 0;
    for number in 0..max {
        let share = if max == 1 { 1.0 } else { number as f64 / (max - 1) as f64 };
        let aim = low + (high - low) * share;
        // As many have to be left as are still to be kept.
        let beyond = cuts.len() - (max - number - 1);
        let distance = |place: &usize| (cost(&cuts[*place]) - aim).abs();
        let nearest = (next..beyond).min_by(|a, b| distance(a).total_cmp(&distance(b)));
        if let Some(place) = nearest {
            kept.push(&cuts[place]);
            next = place + 1;
        }
    }
    kept
}
