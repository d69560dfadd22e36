//! The profiles ℓ(b) of one model, one per GPU class.

use symphony_types::{GPU_CLASSES_MAX, GpuClass, LatencyProfile};

/// The latency profiles of a model by GPU class. A class without a profile never serves the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassProfiles([Option<LatencyProfile>; GPU_CLASSES_MAX]);

impl ClassProfiles {
    /// The profile on GPUs of this class.
    #[must_use]
    pub const fn get(&self, class: GpuClass) -> Option<&LatencyProfile> {
        self.0[class.index()].as_ref()
    }

    /// Replaces the profile by which batches on GPUs of the class are planned.
    pub fn set(&mut self, class: GpuClass, profile: LatencyProfile) {
        self.0[class.index()] = Some(profile);
    }

    /// The classes with a profile, in order.
    pub fn iter(&self) -> impl Iterator<Item = (GpuClass, &LatencyProfile)> {
        GpuClass::all().filter_map(|class| Some((class, self.get(class)?)))
    }
}

/// This profile for a single class.
impl From<LatencyProfile> for ClassProfiles {
    fn from(profile: LatencyProfile) -> Self {
        let mut profiles = [const { None }; GPU_CLASSES_MAX];
        profiles[GpuClass::FIRST.index()] = Some(profile);
        Self(profiles)
    }
}

/// Profiles by class; if a class occurs twice, the last one counts.
impl FromIterator<(GpuClass, LatencyProfile)> for ClassProfiles {
    fn from_iter<I: IntoIterator<Item = (GpuClass, LatencyProfile)>>(profiles: I) -> Self {
        let mut by_class = Self([const { None }; GPU_CLASSES_MAX]);
        profiles.into_iter().for_each(|(class, profile)| by_class.set(class, profile));
        by_class
    }
}
