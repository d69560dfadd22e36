//! Models that begin alike.

use std::collections::BTreeMap;

use crate::cuts::Cut;
use crate::hash::ValueHash;
use crate::model::Model;

/// Models with the same trunk (Nexus, section 6.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// What the trunk computes.
    pub trunk: ValueHash,
    /// Its members, at least two. Any of them can give the trunk.
    pub variants: Vec<Variant>,
}

/// A member of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Its place among the models that were compared.
    pub model: usize,
    /// Where it is cut; the value may have another name in each model.
    pub cut: Cut,
}

/// The deepest cut point that all the models share, one for each model, in order.
#[must_use]
pub fn common_cut<'a>(models: &[&'a Model]) -> Option<Vec<&'a Cut>> {
    let (&first, others) = models.split_first()?;
    let by_hash = |&model: &&'a Model| model.cuts().iter().map(|cut| (cut.hash, cut)).collect();
    let others: Vec<BTreeMap<ValueHash, &'a Cut>> = others.iter().map(by_hash).collect();
    first.cuts().iter().rev().find_map(|cut| {
        let rest = others.iter().map(|cuts| cuts.get(&cut.hash).copied());
        std::iter::once(Some(cut)).chain(rest).collect()
    })
}

/// The families among the models: those that share the deepest trunk first, each model in one family at most. Whether a
/// shallower trunk for more models would be worth more depends on latencies: [`common_cut`] says what any of them
/// share.
#[must_use]
pub fn families(models: &[&Model]) -> Vec<Family> {
    let mut shared = BTreeMap::<ValueHash, Vec<(usize, &Cut)>>::new();
    for (index, model) in models.iter().enumerate() {
        for cut in model.cuts() {
            shared.entry(cut.hash).or_default().push((index, cut));
        }
    }
    // A model that computes something twice has more nodes before the same value: the fewest count.
    let depth = |members: &[(usize, &Cut)]| members.iter().map(|(_, cut)| cut.position).min();
    let mut shared: Vec<_> = shared.into_iter().filter(|(_, members)| members.len() > 1).collect();
    shared.sort_by_key(|(hash, members)| (std::cmp::Reverse(depth(members)), *hash));
    let mut is_member = vec![false; models.len()];
    let mut families = Vec::new();
    for (trunk, members) in shared {
        let free: Vec<_> = members.into_iter().filter(|&(model, _)| !is_member[model]).collect();
        if free.len() < 2 {
            continue;
        }
        free.iter().for_each(|&(model, _)| is_member[model] = true);
        let variants = free.into_iter().map(|(model, cut)| Variant { model, cut: cut.clone() }).collect();
        families.push(Family { trunk, variants });
    }
    families
}
