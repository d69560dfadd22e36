//! GPUs that are idle, by class.

use symphony_types::{GPU_CLASSES_MAX, GpuClass, GpuClasses};

/// How many GPUs of each class are idle at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleGpus(pub [u32; GPU_CLASSES_MAX]);

impl IdleGpus {
    /// Those of some classes together.
    #[must_use]
    pub fn of(&self, classes: GpuClasses) -> u32 {
        GpuClass::all().filter(|&class| classes.has(class)).map(|class| self.0[class.index()]).sum()
    }
}
