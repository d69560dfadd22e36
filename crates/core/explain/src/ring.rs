//! A ring of the newest items of a sequence.

/// Numbers its items from 0 and keeps the newest `limit`. Once full it stops allocating.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T> {
    items: Vec<T>,
    limit: usize,
    pushed: u64,
}

impl<T> Ring<T> {
    /// Keeps `limit` items, at least one. The memory is reserved at once and touched as it fills.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        Self { items: Vec::with_capacity(limit), limit, pushed: 0 }
    }

    /// The number of the next item.
    pub(crate) const fn next(&self) -> u64 {
        self.pushed
    }

    /// The number of the oldest item.
    pub(crate) const fn oldest(&self) -> u64 {
        self.pushed - self.items.len() as u64
    }

    pub(crate) fn push(&mut self, item: T) -> u64 {
        let number = self.pushed;
        if self.items.len() < self.limit {
            self.items.push(item);
        } else {
            let at = self.slot(number);
            self.items[at] = item;
        }
        self.pushed += 1;
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        (self.oldest()..self.pushed).contains(&number).then(|| &self.items[self.slot(number)])
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let slot = self.slot(number);
        (self.oldest()..self.pushed).contains(&number).then(|| &mut self.items[slot])
    }

    /// The items with their numbers, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.oldest()..self.pushed).rev().map(|number| (number, &self.items[self.slot(number)]))
    }

    const fn slot(&self, number: u64) -> usize {
        (number % self.limit as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_under_their_numbers() {
        let mut ring = Ring::new(3);
        assert_eq!((ring.get(0), ring.oldest(), ring.next()), (None, 0, 0));
        for item in 0..7_u32 {
            assert_eq!(ring.push(item * 10), u64::from(item));
        }
        assert_eq!(ring.newest_first().collect::<Vec<_>>(), [(6, &60), (5, &50), (4, &40)]);
        assert_eq!((ring.get(3), ring.get(4), ring.get(7)), (None, Some(&40), None));
        *ring.get_mut(5).unwrap() = 51;
        assert_eq!(ring.get(5), Some(&51));
        assert_eq!(ring.get_mut(2), None);
    }
}
