//! Which versions of the operators a model imports.

use std::collections::BTreeMap;

use super::sum::{Sum, ValueHash};
use crate::onnx::OperatorSetIdProto;

/// ONNX's own domain, by its long name.
const ONNX_DOMAIN: &str = "ai.onnx";

/// A domain by its shortest name.
pub(crate) fn domain(name: &str) -> &str {
    if name == ONNX_DOMAIN { "" } else { name }
}

/// Which versions of each domain's operators are imported. More than one is unusual; then all of them count. Hashed
/// once, since there may be many imports, and many nodes that mean them.
#[derive(Clone, Debug)]
pub(crate) struct Versions {
    /// By domain: the highest version, and the hash of all.
    domains: BTreeMap<String, (i64, ValueHash)>,
    /// The hash of all domains.
    pub(super) whole: ValueHash,
}

impl Versions {
    pub(crate) fn of(imports: &[OperatorSetIdProto]) -> Self {
        let mut versions = BTreeMap::<String, Vec<i64>>::new();
        for import in imports {
            versions.entry(domain(import.domain()).to_owned()).or_default().push(import.version());
        }
        versions.values_mut().for_each(|versions| versions.sort_unstable());
        let start = Sum::of("domains").int(versions.len() as i64);
        let whole = versions.iter().fold(start, |sum, (domain, versions)| sum.text(domain).ints(versions)).hash();
        let of_domain = |(domain, versions): (String, Vec<i64>)| {
            let hash = Sum::of("versions").ints(&versions).hash();
            (domain, (versions.last().copied().unwrap_or_default(), hash))
        };
        Self { domains: versions.into_iter().map(of_domain).collect(), whole }
    }

    /// The one that is meant.
    pub(crate) fn highest(&self, of: &str) -> Option<i64> {
        self.domains.get(domain(of)).map(|&(highest, _)| highest)
    }

    pub(super) fn hash_of(&self, of: &str) -> Option<ValueHash> {
        self.domains.get(domain(of)).map(|&(_, hash)| hash)
    }
}
