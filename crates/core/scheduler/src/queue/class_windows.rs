//! The queue from the viewpoint of each GPU class in the sub-cluster.

use std::ops::{Index, IndexMut};

use symphony_types::{GpuClass, GpuClasses};

use crate::queue::class_profiles::ClassProfiles;
use crate::queue::class_window::ClassWindow;

/// One window per class, at least one. The first is stored inline: usually all GPUs are of one class.
#[derive(Clone, Debug)]
pub(crate) struct ClassWindows {
    pub(crate) first: ClassWindow,
    others: Vec<ClassWindow>,
}

impl ClassWindows {
    /// For an empty queue, one window per class with a profile; `None` if there is none.
    pub(crate) fn new(profiles: &ClassProfiles) -> Option<Self> {
        let mut windows = profiles.iter().map(|(class, profile)| ClassWindow::new(class, profile.clone()));
        Some(Self { first: windows.next()?, others: windows.collect() })
    }

    /// Changes to those of these classes that have profiles, and returns the windows of the others. If none has a
    /// profile, nothing changes. `items` are queued.
    pub(crate) fn set_classes(
        &mut self,
        classes: GpuClasses,
        profiles: &ClassProfiles,
        items: u64,
    ) -> Vec<ClassWindow> {
        let mut former: Vec<_> = self.iter().cloned().collect();
        let followed = profiles.iter().filter(|&(class, _)| classes.has(class)).map(|(class, profile)| {
            let known = former.iter().position(|window| window.class == class);
            let unknown = || ClassWindow { items, ..ClassWindow::new(class, profile.clone()) };
            known.map_or_else(unknown, |at| former.swap_remove(at))
        });
        let mut followed: Vec<_> = followed.collect();
        if followed.is_empty() {
            return Vec::new();
        }
        self.first = followed.remove(0);
        self.others = followed;
        if self.is_single() {
            // A class that left its head to a faster class may have none any more.
            self.first.from = 0;
        }
        former
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// Whether all GPUs are of one class.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        self.others.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ClassWindow> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ClassWindow> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    /// The window of a class.
    pub(crate) fn position(&self, class: GpuClass) -> Option<usize> {
        self.iter().position(|window| window.class == class)
    }

    /// The largest batch of any class.
    pub(crate) fn batch_max(&self) -> u32 {
        self.others.iter().fold(self.first.profile.batch_max(), |max, window| max.max(window.profile.batch_max()))
    }

    /// A request was inserted at `index`.
    #[inline]
    pub(crate) fn inserted(&mut self, index: usize, items: u32) {
        self.first.inserted(index, items);
        for window in &mut self.others {
            window.inserted(index, items);
        }
    }

    /// The first requests, of one item each, were removed.
    pub(crate) fn removed_first(&mut self, requests: usize) {
        for window in self.iter_mut() {
            window.removed_first(requests);
        }
    }

    /// The request at `index` was removed.
    #[inline]
    pub(crate) fn removed(&mut self, index: usize, items: u32) {
        self.first.removed(index, items);
        for window in &mut self.others {
            window.removed(index, items);
        }
    }
}

impl Index<usize> for ClassWindows {
    type Output = ClassWindow;

    #[inline]
    fn index(&self, at: usize) -> &ClassWindow {
        if at == 0 { &self.first } else { &self.others[at - 1] }
    }
}

impl IndexMut<usize> for ClassWindows {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut ClassWindow {
        if at == 0 { &mut self.first } else { &mut self.others[at - 1] }
    }
}
