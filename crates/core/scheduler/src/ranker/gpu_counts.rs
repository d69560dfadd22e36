//! GPU counts by class.

use symphony_types::{GPU_CLASSES_MAX, GpuClass, GpuClasses};

/// The number of GPUs of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuCounts(pub [u32; GPU_CLASSES_MAX]);

impl GpuCounts {
    /// The total over some classes.
    #[must_use]
    pub fn of(&self, classes: GpuClasses) -> u32 {
        GpuClass::all().filter(|&class| classes.has(class)).map(|class| self.0[class.index()]).sum()
    }
}
