//! GPU classes: the GPU kinds of one sub-cluster, as the scheduler's decisions number them.

use std::fmt;

/// The largest number of classes in a sub-cluster: a queue examines each of them at every arrival.
pub const GPU_CLASSES_MAX: usize = 8;

/// GPUs on which every model has the same latency profile: a GPU kind, as a dense number within its sub-cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuClass(u8);

impl GpuClass {
    /// The first class; the only one where all GPUs are of one kind.
    pub const FIRST: Self = Self(0);

    /// The class with this number; `None` from [`GPU_CLASSES_MAX`] on.
    #[must_use]
    pub const fn new(number: usize) -> Option<Self> {
        if number < GPU_CLASSES_MAX { Some(Self(number as u8)) } else { None }
    }

    /// The number, below [`GPU_CLASSES_MAX`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All possible classes, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..GPU_CLASSES_MAX as u8).map(Self)
    }
}

impl fmt::Display for GpuClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class-{}", self.0)
    }
}

/// A set of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GpuClasses(u8);

const _: () = assert!(GPU_CLASSES_MAX == u8::BITS as usize);

impl GpuClasses {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The set whose members are the bits set in `bits`.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// One bit per member.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether the set contains the class.
    #[must_use]
    pub const fn has(self, class: GpuClass) -> bool {
        self.0 & (1 << class.0) != 0
    }

    /// The intersection of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Adds the class.
    pub const fn insert(&mut self, class: GpuClass) {
        self.0 |= 1 << class.0;
    }
}

impl FromIterator<GpuClass> for GpuClasses {
    fn from_iter<I: IntoIterator<Item = GpuClass>>(classes: I) -> Self {
        let mut set = Self::NONE;
        classes.into_iter().for_each(|class| set.insert(class));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        assert_eq!(GpuClass::new(GPU_CLASSES_MAX), None);
        let set: GpuClasses = GpuClass::all().filter(|class| class.index() % 3 == 0).collect();
        let members: Vec<_> = GpuClass::all().filter(|&class| set.has(class)).map(GpuClass::index).collect();
        assert_eq!(members, [0, 3, 6]);
        assert_eq!(GpuClasses::from_bits(set.bits()), set);
        assert_eq!(GpuClasses::from_bits(0b11).and(GpuClasses::from_bits(0b110)).bits(), 0b111);
    }
}
