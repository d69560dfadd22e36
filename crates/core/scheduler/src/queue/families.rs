//! The family of a queue's requests, by GPU class.

use symphony_types::{FamilyProfile, GPU_CLASSES_MAX, GpuClass, Nanos, VariantRows};

use crate::actions::Request;

/// The profiles of the family on each GPU class, and room to count the rows of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Families {
    by_class: [Option<FamilyProfile>; GPU_CLASSES_MAX],
    /// How requests name the variants, in their order; empty if by their places in it.
    names: Box<[u32]>,
    rows: VariantRows,
}

impl Families {
    pub(crate) fn set(&mut self, class: GpuClass, family: FamilyProfile) {
        self.rows = VariantRows::new(family.variants());
        self.by_class[class.index()] = Some(family);
    }

    /// Requests name the variants like this, in ascending order, and not by their places.
    pub(crate) fn set_names(&mut self, names: &[u32]) {
        self.names = names.into();
    }

    /// What a batch of these requests takes on a class; `None` if one of their variants is unknown.
    pub(crate) fn exact<'a>(&mut self, class: GpuClass, requests: impl Iterator<Item = &'a Request>) -> Option<Nanos> {
        let family = self.by_class[class.index()].as_ref()?;
        self.rows.clear();
        for request in requests {
            let named = || self.names.binary_search(&request.variant).map_or(u32::MAX, |place| place as u32);
            let variant = if self.names.is_empty() { request.variant } else { named() };
            self.rows.add(variant, request.items);
        }
        family.exact(&self.rows)
    }
}
