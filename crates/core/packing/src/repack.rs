//! Packing between epochs, so that few models move (the Nexus paper, section 6.1, last paragraph).

use crate::load::{Load, Residue};
use crate::node::PackedNode;
use crate::session::Session;
use crate::slots::{Slot, Slots, best_fit, merge, pack_residues};

/// A node of the new packing, and which one it was.
#[derive(Clone, Debug, PartialEq)]
pub struct RepackedNode {
    /// What the node runs from now on.
    pub node: PackedNode,
    /// Its index in the packing in force; `None` if it is new.
    pub from: Option<usize>,
}

/// The packing for changed sessions, beginning with the one in force, whose indices mean the same sessions.
///
/// A session keeps the GPUs that it fills, and its residue the node where it is. Overloaded nodes evict their cheapest
/// sessions, which are packed again, into nodes that stay if they fit. Then the lightest nodes are emptied where all of
/// their sessions fit elsewhere. Nodes in force come first, in their order.
#[must_use]
pub fn repack(sessions: &[Session<'_>], previous: &[PackedNode]) -> Vec<RepackedNode> {
    let mut loads: Vec<_> = sessions.iter().enumerate().map(|(index, session)| Load::of(index, session)).collect();
    let mut slots: Slots = vec![None; previous.len()];
    let alone = fullest_first(previous);
    keep_whole(previous, &alone, &mut loads, &mut slots);
    let shared = (0..previous.len()).filter(|&at| previous[at].sessions.len() > 1);
    let order: Vec<_> = shared.chain(alone).filter(|&at| slots[at].is_none()).collect();
    let mut unplaced = Vec::new();
    for at in order {
        let residues = previous[at].sessions.iter().filter_map(|p| loads.get_mut(p.session)?.residue.take());
        slots[at] = keep_shared(sessions, at, residues.collect(), &mut unplaced);
    }
    unplaced.extend(loads.iter_mut().filter_map(|load| load.residue.take()));
    for load in &loads {
        slots.extend((0..load.whole).map(|_| Some(Slot { node: load.full.clone(), from: None, full: true })));
    }
    pack_residues(sessions, &mut slots, unplaced);
    empty_light_nodes(sessions, &mut slots);
    slots.into_iter().flatten().map(|slot| RepackedNode { node: slot.node, from: slot.from }).collect()
}

/// How many sessions have to be loaded on nodes where they were not.
#[must_use]
pub fn moves(previous: &[PackedNode], repacked: &[RepackedNode]) -> usize {
    let comes = |repacked: &RepackedNode| {
        let was = repacked.from.and_then(|at| previous.get(at));
        repacked.node.sessions.iter().filter(|packed| !was.is_some_and(|was| was.runs(packed.session))).count()
    };
    repacked.iter().map(comes).sum()
}

/// Nodes with one session: the light ones can become a residue's, or be given up.
fn fullest_first(previous: &[PackedNode]) -> Vec<usize> {
    let mut alone: Vec<_> = (0..previous.len()).filter(|&at| previous[at].sessions.len() == 1).collect();
    alone.sort_by(|&a, &b| previous[b].occupancy.total_cmp(&previous[a].occupancy));
    alone
}

/// Whole GPUs stay where their session is alone.
fn keep_whole(previous: &[PackedNode], alone: &[usize], loads: &mut [Load], slots: &mut [Option<Slot>]) {
    for &at in alone {
        let load = previous[at].sessions.first().and_then(|packed| loads.get_mut(packed.session));
        if let Some(load) = load.filter(|load| load.whole > 0) {
            load.whole -= 1;
            slots[at] = Some(Slot { node: load.full.clone(), from: Some(at), full: true });
        }
    }
}

/// The node with as many of its residues as it can bear; the others are unplaced.
fn keep_shared(
    sessions: &[Session<'_>],
    at: usize,
    mut residues: Vec<Residue>,
    unplaced: &mut Vec<Residue>,
) -> Option<Slot> {
    residues.sort_by(|a, b| a.occupancy.total_cmp(&b.occupancy));
    loop {
        if residues.is_empty() {
            return None;
        }
        if let Some(node) = together(sessions, residues.iter()) {
            return Some(Slot { node, from: Some(at), full: false });
        }
        let without = |out: usize| residues.iter().enumerate().filter(move |&(at, _)| at != out).map(|(_, rest)| rest);
        let enough = (0..residues.len()).find(|&out| together(sessions, without(out)).is_some());
        unplaced.push(residues.remove(enough.unwrap_or(0)));
    }
}

/// One node for all of them, if they fit.
fn together<'a>(sessions: &[Session<'_>], mut residues: impl Iterator<Item = &'a Residue>) -> Option<PackedNode> {
    let first = residues.next()?.alone();
    residues.try_fold(first, |node, residue| merge(sessions, &node, residue))
}

/// Moves the sessions of light nodes to others where all of them fit. One pass: nodes only become fuller, so what did
/// not fit will not.
fn empty_light_nodes(sessions: &[Session<'_>], slots: &mut [Option<Slot>]) {
    let shared = |(at, slot): (usize, &Option<Slot>)| {
        let slot = slot.as_ref().filter(|slot| !slot.full)?;
        Some((slot.node.occupancy, at))
    };
    let mut order: Vec<_> = slots.iter().enumerate().filter_map(shared).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (_, at) in order {
        let Some(light) = slots[at].take() else { continue };
        let residue = |packed: &crate::PackedSession| {
            Residue::of(packed.session, &sessions[packed.session], packed.rate_per_second)
        };
        let mut residues: Vec<_> = light.node.sessions.iter().map(residue).collect();
        residues.sort_by(|a, b| b.occupancy.total_cmp(&a.occupancy));
        let mut undo = Vec::new();
        let all_fit = residues.iter().all(|residue| {
            let Some((place, merged)) = best_fit(sessions, slots, residue) else { return false };
            if let Some(slot) = &mut slots[place] {
                undo.push((place, std::mem::replace(&mut slot.node, merged)));
            }
            true
        });
        if all_fit {
            continue;
        }
        for (place, node) in undo.into_iter().rev() {
            if let Some(slot) = &mut slots[place] {
                slot.node = node;
            }
        }
        slots[at] = Some(light);
    }
}
