//! Will there be enough GPUs when the batches that now wait to grow want to start?

use symphony_types::{Nanos, Time};

/// Width of a bucket of time: finer than most windows.
const BUCKET: Nanos = Nanos::from_micros(250);
/// Buckets: one second ahead, which is longer than most batches run. What is further off is left out until it is nearer.
const BUCKETS: usize = 4096;
/// Buckets between two looks at what was further off.
const LOOK_EVERY: u64 = BUCKETS as u64 / 4;

/// No bucket.
const NOWHERE: u64 = u64::MAX;

/// Where a GPU or a batch stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The number of its bucket, counted from the origin of time.
    bucket: u64,
    /// It is left out, since it was further off than the ring reaches.
    far: bool,
    /// It is on the list of what to look at again.
    listed: bool,
}

impl Place {
    const NOWHERE: Self = Self { bucket: NOWHERE, far: false, listed: false };
}

/// Where a batch was told to be last.
#[derive(Clone, Copy, Debug)]
struct Told {
    bucket: u64,
    /// It is on the list of those that have moved.
    is_listed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Gpu,
    Batch,
}

/// What happens in some stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stretch {
    /// GPUs that come free.
    gpus: i32,
    /// Batches that want a GPU.
    batches: i32,
    /// The smallest balance, GPUs less batches, at the end of any of its buckets, begun with zero.
    least: i32,
}

impl Stretch {
    const fn balance(self) -> i32 {
        self.gpus - self.batches
    }

    const fn add(&mut self, what: What, by: i32) {
        match what {
            What::Gpu => self.gpus += by,
            What::Batch => self.batches += by,
        }
    }

    fn then(self, next: Self) -> Self {
        Self {
            gpus: self.gpus + next.gpus,
            batches: self.batches + next.batches,
            least: self.least.min(self.balance() + next.least),
        }
    }
}

/// When GPUs come free, and when batches want them.
///
/// A segment tree over a ring of buckets: a change costs O(log buckets), and so does the question for the moment at
/// which batches first outnumber GPUs. Never allocates after it was made, but to grow.
///
/// A batch moves with every arrival, and most of the time nobody asks before it moves again: where it was told to be is
/// written down, and the tree follows when a question needs it.
#[derive(Clone, Debug)]
pub(crate) struct Outlook {
    /// Leaves from `BUCKETS` on; node i covers the nodes 2i and 2i + 1.
    nodes: Box<[Stretch]>,
    /// The bucket that is now.
    current: u64,
    /// When to look again at what is far off.
    look_at: u64,
    far: Vec<(What, usize)>,
    /// GPUs that are free and batches that are wanted since before `current`.
    past: Stretch,
    /// GPUs and batches that stand in the next lap of the ring: before `current` in it, although they come after all others.
    next_lap: i32,
    gpus: Vec<Place>,
    batches: Vec<Place>,
    /// By batch.
    told: Vec<Told>,
    /// Batches that may stand elsewhere in the tree than they were told.
    moved: Vec<usize>,
    gpu_count: i32,
    batch_count: i32,
}

impl Outlook {
    /// Without anything in sight. `models` and `gpus` are dense slots.
    pub(crate) fn new(models: usize, gpus: usize) -> Self {
        let mut outlook = Self {
            nodes: vec![Stretch::default(); 2 * BUCKETS].into(),
            current: 0,
            look_at: LOOK_EVERY,
            far: Vec::new(),
            past: Stretch::default(),
            next_lap: 0,
            gpus: Vec::new(),
            batches: Vec::new(),
            told: Vec::new(),
            moved: Vec::new(),
            gpu_count: 0,
            batch_count: 0,
        };
        outlook.grow(models, gpus);
        outlook
    }

    /// Makes room for more models and GPUs.
    pub(crate) fn grow(&mut self, models: usize, gpus: usize) {
        self.batches.resize(models.max(self.batches.len()), Place::NOWHERE);
        self.gpus.resize(gpus.max(self.gpus.len()), Place::NOWHERE);
        self.told.resize(self.batches.len(), Told { bucket: NOWHERE, is_listed: false });
        self.moved.reserve(self.batches.len() - self.moved.len());
        // Everything may be far off, and is listed once.
        self.far.reserve(self.batches.len() + self.gpus.len() - self.far.len());
    }

    /// The GPU comes free at this time; [`Time::NEVER`] takes it out.
    pub(crate) fn gpu(&mut self, gpu: usize, free_at: Time) {
        let bucket = bucket_of(free_at);
        self.gpu_count += in_sight(bucket) - in_sight(self.gpus[gpu].bucket);
        self.shift(What::Gpu, gpu, bucket);
    }

    /// The model's batch wants a GPU by this time; [`Time::NEVER`] takes it out.
    #[inline]
    pub(crate) fn batch(&mut self, model: usize, wanted: Time) {
        let bucket = bucket_of(wanted);
        let former = self.told[model];
        if bucket == former.bucket {
            return;
        }
        self.batch_count += in_sight(bucket) - in_sight(former.bucket);
        self.told[model] = Told { bucket, is_listed: true };
        if self.batches[model].far || bucket != NOWHERE && self.is_far(bucket) {
            // Whether it is left out is a matter of when it was told.
            self.shift(What::Batch, model, bucket);
        }
        if !former.is_listed {
            self.moved.push(model);
        }
    }

    /// Brings all batches where they were told to be.
    fn settle(&mut self) {
        while let Some(model) = self.moved.pop() {
            self.told[model].is_listed = false;
            self.shift(What::Batch, model, self.told[model].bucket);
        }
    }

    /// GPUs in sight, free or not.
    pub(crate) fn gpus(&self) -> usize {
        self.gpu_count as usize
    }

    /// GPUs that are free now.
    pub(crate) fn idle(&self) -> usize {
        self.past.gpus as usize
    }

    /// Lets time pass.
    #[inline]
    pub(crate) fn advance(&mut self, now: Time) {
        let current = now.as_nanos() / BUCKET.get();
        if current > self.current {
            self.pass(current);
        }
    }

    #[inline(never)]
    fn pass(&mut self, current: u64) {
        // After a whole turn of the ring nothing is left in it.
        let passed = (current - self.current).min(BUCKETS as u64);
        for bucket in self.current..self.current + passed {
            let leaf = (bucket % BUCKETS as u64) as usize;
            let stretch = self.nodes[BUCKETS + leaf];
            if stretch.gpus != 0 || stretch.batches != 0 {
                self.past.gpus += stretch.gpus;
                self.past.batches += stretch.batches;
                self.clear_leaf(leaf);
            }
        }
        if lap(current) != lap(self.current) {
            // The next lap has become this one.
            self.next_lap = 0;
        }
        self.current = current;
        if self.current >= self.look_at {
            self.look_at = self.current + LOOK_EVERY;
            self.look_again();
        }
    }

    /// Takes in what was too far off before.
    fn look_again(&mut self) {
        for at in (0..self.far.len()).rev() {
            let (what, slot) = self.far[at];
            let place = *self.place(what, slot);
            let still_far = place.far && self.is_far(place.bucket);
            if place.far && !still_far {
                self.add(what, place.bucket, 1);
            }
            if !still_far {
                *self.place(what, slot) = Place { far: false, listed: false, ..place };
                self.far.swap_remove(at);
            }
        }
    }

    /// Whether at some time ahead batches outnumber the GPUs that will have come free.
    pub(crate) fn is_crowded(&mut self) -> bool {
        // Free GPUs for all: true most of the time, and known at once.
        if self.past.gpus >= self.batch_count {
            return false;
        }
        self.settle();
        self.past.balance() + self.ahead().least < 0
    }

    /// All that lies ahead, in its order: the ring from the present bucket to its end, then from its beginning.
    fn ahead(&self) -> Stretch {
        if self.next_lap == 0 {
            return self.nodes[1];
        }
        let start = (self.current % BUCKETS as u64) as usize;
        self.over(start, BUCKETS).then(self.over(0, start))
    }

    /// When the n-th batch, counted from one, wants its GPU; [`Time::NEVER`] if there are not as many within reach.
    pub(crate) fn nth_batch(&mut self, n: usize) -> Time {
        self.settle();
        let n = n as i32;
        if n > self.past.batches + self.nodes[1].batches {
            return Time::NEVER;
        }
        if n <= self.past.batches {
            return self.start_of(self.current);
        }
        let start = (self.current % BUCKETS as u64) as usize;
        let mut left = n - self.past.batches;
        if self.next_lap > 0 {
            let until_end = self.over(start, BUCKETS).batches;
            // Batches before `start` in the ring come after those behind it.
            let skipped = self.over(0, start).batches;
            left = if left <= until_end { left + skipped } else { left - until_end };
        }
        let mut node = 1;
        while node < BUCKETS {
            node *= 2;
            if self.nodes[node].batches < left {
                left -= self.nodes[node].batches;
                node += 1;
            }
        }
        let leaf = (node - BUCKETS) as u64;
        let ahead = (leaf + BUCKETS as u64 - start as u64) % BUCKETS as u64;
        self.start_of(self.current + ahead)
    }

    fn start_of(&self, bucket: u64) -> Time {
        Time::from_nanos(bucket.saturating_mul(BUCKET.get()))
    }

    const fn is_far(&self, bucket: u64) -> bool {
        bucket >= self.current + BUCKETS as u64
    }

    fn place(&mut self, what: What, slot: usize) -> &mut Place {
        match what {
            What::Gpu => &mut self.gpus[slot],
            What::Batch => &mut self.batches[slot],
        }
    }

    /// Moves a GPU or a batch.
    fn shift(&mut self, what: What, slot: usize, bucket: u64) {
        let former = *self.place(what, slot);
        if bucket == former.bucket {
            return;
        }
        let was_seen = former.bucket != NOWHERE && !former.far;
        let far = bucket != NOWHERE && self.is_far(bucket);
        let is_seen = bucket != NOWHERE && !far;
        *self.place(what, slot) = Place { bucket, far, listed: former.listed || far };
        if far && !former.listed {
            self.far.push((what, slot));
        }
        if was_seen && is_seen && former.bucket.min(bucket) >= self.current {
            self.relocate(what, former.bucket, bucket);
        } else {
            if was_seen {
                self.add(what, former.bucket, -1);
            }
            if is_seen {
                self.add(what, bucket, 1);
            }
        }
    }

    fn add(&mut self, what: What, bucket: u64, by: i32) {
        if bucket < self.current {
            self.past.add(what, by);
            return;
        }
        let mut node = self.change_leaf(what, bucket, by);
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.of_children(node);
        }
    }

    /// Moves something within the ring. Most moves are short: what is common to both ways up is recomputed once, and only as far as it
    /// changes, which sums do not.
    fn relocate(&mut self, what: What, from: u64, to: u64) {
        let mut left = self.change_leaf(what, from, -1);
        let mut entered = self.change_leaf(what, to, 1);
        loop {
            (left, entered) = (left / 2, entered / 2);
            self.nodes[left] = self.of_children(left);
            if left == entered {
                break;
            }
            self.nodes[entered] = self.of_children(entered);
        }
        while left > 1 {
            left /= 2;
            let node = self.of_children(left);
            if node == self.nodes[left] {
                break;
            }
            self.nodes[left] = node;
        }
    }

    /// Returns the leaf of a bucket that is not past, changed.
    fn change_leaf(&mut self, what: What, bucket: u64, by: i32) -> usize {
        if lap(bucket) != lap(self.current) {
            self.next_lap += by;
        }
        let leaf = BUCKETS + (bucket % BUCKETS as u64) as usize;
        let stretch = &mut self.nodes[leaf];
        stretch.add(what, by);
        stretch.least = stretch.balance().min(0);
        leaf
    }

    fn of_children(&self, node: usize) -> Stretch {
        self.nodes[2 * node].then(self.nodes[2 * node + 1])
    }

    fn clear_leaf(&mut self, leaf: usize) {
        let mut node = BUCKETS + leaf;
        self.nodes[node] = Stretch::default();
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.of_children(node);
        }
    }

    /// The leaves `from..to` as one stretch.
    fn over(&self, from: usize, to: usize) -> Stretch {
        let (mut low, mut high) = (from + BUCKETS, to + BUCKETS);
        let (mut left, mut right) = (Stretch::default(), Stretch::default());
        while low < high {
            if low % 2 == 1 {
                left = left.then(self.nodes[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                right = self.nodes[high].then(right);
            }
            low /= 2;
            high /= 2;
        }
        left.then(right)
    }
}

/// The bucket of a time; none for [`Time::NEVER`].
#[inline]
fn bucket_of(time: Time) -> u64 {
    if time == Time::NEVER { NOWHERE } else { time.as_nanos() / BUCKET.get() }
}

/// One for what has a bucket.
#[inline]
fn in_sight(bucket: u64) -> i32 {
    i32::from(bucket != NOWHERE)
}

/// How many times the ring has turned before a bucket.
const fn lap(bucket: u64) -> u64 {
    bucket / BUCKETS as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(bucket: u64) -> Time {
        Time::from_nanos(bucket * BUCKET.get())
    }

    #[test]
    fn batches_that_outnumber_gpus_are_seen_before_it_happens() {
        let mut outlook = Outlook::new(3, 2);
        outlook.gpu(0, at(0));
        outlook.gpu(1, at(40));
        outlook.advance(at(10));
        assert_eq!((outlook.idle(), outlook.gpus()), (1, 2));
        outlook.batch(0, at(20));
        assert!(!outlook.is_crowded());
        outlook.batch(1, at(40));
        assert!(!outlook.is_crowded(), "the second GPU is free in time");
        outlook.batch(1, at(39));
        assert!(outlook.is_crowded());
        assert_eq!([1, 2, 3].map(|n| outlook.nth_batch(n)), [at(20), at(39), Time::NEVER]);
        outlook.batch(0, Time::NEVER);
        assert!(!outlook.is_crowded());
    }

    proptest! {
        #[test]
        fn agrees_with_a_scan(steps in prop::collection::vec((0_usize..12, any::<bool>(), 0_u64..9000, 0_u64..700), 1..80)) {
            let mut outlook = Outlook::new(12, 12);
            // Bucket of each GPU and batch, as the scan keeps them.
            let (mut gpus, mut batches) = ([None; 12], [None; 12]);
            let mut now = 0;
            for (slot, is_gpu, place, passes) in steps {
                now += passes;
                outlook.advance(at(now));
                let place = (place < 8000).then_some((now + place).saturating_sub(500));
                let time = place.map_or(Time::NEVER, at);
                if is_gpu {
                    outlook.gpu(slot, time);
                    gpus[slot] = place;
                } else {
                    outlook.batch(slot, time);
                    batches[slot] = place;
                }
                let start = (outlook.current % BUCKETS as u64) as usize;
                prop_assert_eq!(outlook.ahead(), outlook.over(start, BUCKETS).then(outlook.over(0, start)));
                prop_assert_eq!(outlook.gpus(), gpus.iter().flatten().count());
                prop_assert_eq!(outlook.idle(), gpus.iter().flatten().filter(|&&g| g < now).count());
                // What is nearer than this has been taken in; the rest has or has not.
                let reach = now + BUCKETS as u64 - LOOK_EVERY;
                let free = |by: u64| gpus.iter().flatten().filter(|&&g| g <= by).count();
                let wanted = |by: u64| batches.iter().flatten().filter(|&&b| b <= by).count();
                // The balance falls where a batch stands; before that, it is what the past left.
                let past = gpus.iter().flatten().filter(|&&g| g < now).count() < batches.iter().flatten().filter(|&&b| b < now).count();
                let ahead = batches.iter().flatten().any(|&b| b >= now && b < reach && wanted(b) > free(b));
                if past || ahead {
                    prop_assert!(outlook.is_crowded());
                } else if batches.iter().flatten().all(|&b| b < reach) && gpus.iter().flatten().all(|&g| g < reach) {
                    prop_assert!(!outlook.is_crowded());
                }
                let mut order: Vec<u64> = batches.iter().flatten().map(|&b| b.max(now)).collect();
                order.sort_unstable();
                for (n, &bucket) in (1..).zip(&order).filter(|&(_, &bucket)| bucket < reach) {
                    prop_assert_eq!(outlook.nth_batch(n), at(bucket));
                }
                prop_assert_eq!(outlook.nth_batch(order.len() + 1), Time::NEVER);
            }
        }
    }
}
