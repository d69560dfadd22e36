//! The family of a queue's requests, by GPU class.

use symphony_types::{FamilyProfile, GPU_CLASSES_MAX, GpuClass, Nanos, VariantRows};

use crate::actions::Request;

/// The profiles of the family on each GPU class, and room to count the rows of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Families {
    by_class: [Option<FamilyProfile>; GPU_CLASSES_MAX],
    rows: VariantRows,
}

impl Families {
    /// Sets the family's profile on a class.
    pub(crate) fn set(&mut self, class: GpuClass, family: FamilyProfile) {
        self.rows = VariantRows::new(family.variants());
        self.by_class[class.index()] = Some(family);
    }

    /// What a batch of these requests takes on a class; `None` if one of their variants is unknown.
    pub(crate) fn exact<'a>(&mut self, class: GpuClass, requests: impl Iterator<Item = &'a Request>) -> Option<Nanos> {
        let family = self.by_class[class.index()].as_ref()?;
        self.rows.clear();
        for request in requests {
            self.rows.add(request.variant, request.items);
        }
        family.exact(&self.rows)
    }
}
