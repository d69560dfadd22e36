//! Where a model can be cut, and what it shares.

use symphony_types::CutDigest;

use super::ViewError;
use crate::control as pb;

/// Where a model can be cut, and what it shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrunkView {
    /// What it computes up to each cut point, the shallowest first: those that every reporting backend found.
    pub cuts: Vec<CutDigest>,
    /// The one of them up to which it shares its trunk with other models of its sub-cluster.
    pub shared: Option<CutDigest>,
}

/// Cut points as a message has them.
#[must_use]
pub fn cuts_to_pb(cuts: &[CutDigest]) -> Vec<Vec<u8>> {
    cuts.iter().map(|cut| cut.get().to_be_bytes().to_vec()).collect()
}

/// Cut points of a message; `what` names it in an error.
///
/// # Errors
/// If one is not 16 bytes long.
pub fn cuts_from_pb(cuts: &[Vec<u8>], what: &str) -> Result<Vec<CutDigest>, ViewError> {
    cuts.iter().map(|cut| digest(cut, what)).collect()
}

fn digest(cut: &[u8], what: &str) -> Result<CutDigest, ViewError> {
    let bytes = <[u8; 16]>::try_from(cut).map_err(|_| ViewError::Cut { what: what.to_owned(), bytes: cut.len() })?;
    Ok(CutDigest::new(u128::from_be_bytes(bytes)))
}

impl From<&TrunkView> for pb::Trunk {
    fn from(trunk: &TrunkView) -> Self {
        let shared = trunk.shared.map(|cut| cut.get().to_be_bytes().to_vec());
        Self { cuts: cuts_to_pb(&trunk.cuts), shared: shared.unwrap_or_default() }
    }
}

impl TrunkView {
    /// Of a message.
    pub(crate) fn from_pb(trunk: &pb::Trunk, model: &str) -> Result<Self, ViewError> {
        let what = format!("model `{model}`");
        let shared = (!trunk.shared.is_empty()).then(|| digest(&trunk.shared, &what)).transpose()?;
        Ok(Self { cuts: cuts_from_pb(&trunk.cuts, &what)?, shared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trunk_survives_the_wire_and_a_cut_of_another_length_does_not() {
        let cuts = [7, u128::MAX].map(CutDigest::new).to_vec();
        for shared in [None, Some(CutDigest::new(7))] {
            let trunk = TrunkView { cuts: cuts.clone(), shared };
            assert_eq!(TrunkView::from_pb(&pb::Trunk::from(&trunk), "m"), Ok(trunk));
        }
        let refused = cuts_from_pb(&[vec![1; 15]], "model `m`").unwrap_err().to_string();
        assert_eq!(refused, "model `m`: a cut point of 15 bytes; expected 16");
        let trunk = pb::Trunk { cuts: vec![], shared: vec![1; 17] };
        assert!(TrunkView::from_pb(&trunk, "m").is_err());
    }
}
