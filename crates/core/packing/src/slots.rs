//! `ScheduleResidue`: merging, and best fit.

use symphony_types::Nanos;

use crate::load::{DUTY_ROUNDING_S, ROUNDING, Residue, share};
use crate::node::{PackedNode, PackedSession};
use crate::session::Session;

/// A node that is being packed.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) node: PackedNode,
    /// The node in force that it was.
    pub(crate) from: Option<usize>,
    /// Whether one session fills it.
    pub(crate) full: bool,
}

/// Nodes that are being packed; `None` where there is no node, or no longer one.
pub(crate) type Slots = Vec<Option<Slot>>;

/// Gives each residue its best place, or a node of its own: largest occupancy first.
pub(crate) fn pack_residues(sessions: &[Session<'_>], slots: &mut Slots, mut residues: Vec<Residue>) {
    residues.sort_by(|a, b| b.occupancy.total_cmp(&a.occupancy));
    for residue in residues {
        match best_fit(sessions, slots, &residue) {
            Some((place, merged)) => {
                if let Some(slot) = &mut slots[place] {
                    slot.node = merged;
                }
            }
            None => slots.push(Some(Slot { node: residue.alone(), from: None, full: false })),
        }
    }
}

/// The place where the occupancy becomes largest, and the node with the residue.
pub(crate) fn best_fit(
    sessions: &[Session<'_>],
    slots: &[Option<Slot>],
    residue: &Residue,
) -> Option<(usize, PackedNode)> {
    let mut best: Option<(usize, PackedNode)> = None;
    for (place, slot) in slots.iter().enumerate() {
        if let Some(slot) = slot
            && !slot.full
            && let Some(merged) = merge(sessions, &slot.node, residue)
            && best.as_ref().is_none_or(|(_, best)| merged.occupancy > best.occupancy)
        {
            best = Some((place, merged));
        }
    }
    best
}

/// The node with an additional session, in the shorter of both duty cycles; `None` if it does not fit (Figure 7 of the
/// paper).
pub(crate) fn merge(sessions: &[Session<'_>], node: &PackedNode, residue: &Residue) -> Option<PackedNode> {
    let duty = node.duty.min(residue.duty);
    let mut busy = Nanos::ZERO;
    let mut merged = Vec::with_capacity(node.sessions.len() + 1);
    for packed in node.sessions.iter().chain([&residue.packed]) {
        let session = &sessions[packed.session];
        let gathered = (duty.as_secs_f64() - DUTY_ROUNDING_S) * packed.rate_per_second;
        let batch = (gathered - ROUNDING).ceil().max(1.0) as u32;
        let latency = session.profile.latency(batch);
        busy += latency;
        if busy > duty || duty + latency > session.slo {
            return None;
        }
        merged.push(PackedSession { batch, ..*packed });
    }
    Some(PackedNode { duty, sessions: merged, occupancy: share(busy, duty) })
}
