//! The search for an order in which everything could have happened.

use std::collections::{BTreeMap, HashSet};

use crate::history::{End, History, Operation};
use crate::specification::Specification;

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Steps per key. The search is exponential in how many operations overlap; a history of a few clients needs about
    /// as many steps as it has operations.
    pub steps_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps_max: 20_000_000 }
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<K> {
    /// There is such an order for every key.
    Linearizable,
    /// There is none.
    Violation(Violation<K>),
    /// The limit was reached before either was certain.
    Undecided {
        /// Where.
        key: K,
    },
}

/// Why there is no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation<K> {
    /// The part of the service.
    pub key: K,
    /// The longest order found: places of operations in the history.
    pub ordered: Vec<usize>,
    /// The operation that had returned and could not be put anywhere after them.
    pub stuck_at: usize,
}

/// Whether a history is linearizable.
#[must_use]
pub fn check<S: Specification>(history: &History<S::Call, S::Answer>, limits: Limits) -> Verdict<S::Key> {
    let mut parts: BTreeMap<S::Key, Vec<usize>> = BTreeMap::new();
    for (place, operation) in history.operations().iter().enumerate() {
        let answer = match &operation.end {
            End::Failed { .. } => continue,
            End::Answered { answer, .. } => Some(answer),
            End::Unknown => None,
        };
        for key in S::keys(&operation.call, answer) {
            parts.entry(key).or_default().push(place);
        }
    }
    let mut undecided = None;
    for (key, places) in parts {
        match Search::<S>::new(&key, history.operations(), &places).run(limits) {
            SearchEnd::Order => {}
            SearchEnd::None { ordered, stuck_at } => return Verdict::Violation(Violation { key, ordered, stuck_at }),
            SearchEnd::Nothing => undecided = undecided.or(Some(key)),
        }
    }
    undecided.map_or(Verdict::Linearizable, |key| Verdict::Undecided { key })
}

enum SearchEnd {
    Order,
    None { ordered: Vec<usize>, stuck_at: usize },
    Nothing,
}

/// Calls and returns of one part, by time, as a doubly linked list from which what has been ordered is taken out and
/// put back in reverse. Place 0 is before the first, and the end.
struct Search<'a, S: Specification> {
    key: &'a S::Key,
    operations: &'a [Operation<S::Call, S::Answer>],
    events: Vec<Event>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Where the return of an operation is, by its number in this part; none if it never returned.
    returns: Vec<Option<usize>>,
    /// Operations that must be ordered and have not been.
    owed: usize,
}

#[derive(Clone, Copy)]
struct Event {
    is_call: bool,
    /// Number in this part.
    number: usize,
    /// Place in the history.
    place: usize,
}

impl<'a, S: Specification> Search<'a, S> {
    fn new(key: &'a S::Key, operations: &'a [Operation<S::Call, S::Answer>], places: &[usize]) -> Self {
        // Calls before returns of the same instant: then the two overlap, which is the reading without false
        // accusations.
        let mut timed = Vec::with_capacity(2 * places.len());
        for (number, &place) in places.iter().enumerate() {
            timed.push((operations[place].called_at, false, number, place));
            if let End::Answered { at, .. } = operations[place].end {
                timed.push((at, true, number, place));
            }
        }
        timed.sort_unstable();
        let nowhere = Event { is_call: false, number: usize::MAX, place: usize::MAX };
        let mut events = vec![nowhere];
        let mut returns = vec![None; places.len()];
        for (_, is_return, number, place) in timed {
            if is_return {
                returns[number] = Some(events.len());
            }
            events.push(Event { is_call: !is_return, number, place });
        }
        let count = events.len();
        let next = (1..count).chain([0]).collect();
        let previous = [count - 1].into_iter().chain(0..count - 1).collect();
        let owed = returns.iter().flatten().count();
        Self { key, operations, events, next, previous, returns, owed }
    }

    fn run(mut self, limits: Limits) -> SearchEnd {
        let mut state = S::State::default();
        let mut seen: HashSet<(Ordered, S::State)> = HashSet::new();
        // The way so far: the event of the call, the state before it, and the latest operation with it.
        let mut way: Vec<(usize, S::State, usize)> = Vec::new();
        let mut longest = (Vec::new(), None);
        let mut at = self.next[0];
        let mut steps = 0;
        while self.owed > 0 {
            steps += 1;
            if steps > limits.steps_max {
                return SearchEnd::Nothing;
            }
            let event = self.events[at];
            if at != 0 && event.is_call {
                if let Some(after) = self.apply(&state, event.place) {
                    let latest = way.last().map_or(0, |way| way.2).max(event.number);
                    self.lift(at);
                    if seen.insert((self.ordered(latest), after.clone())) {
                        way.push((at, std::mem::replace(&mut state, after), latest));
                        at = self.next[0];
                        continue;
                    }
                    self.unlift(at);
                }
                at = self.next[at];
                continue;
            }
            // Something has returned, or everything has been tried: what was ordered last goes elsewhere.
            if at != 0 && (longest.1.is_none() || way.len() > longest.0.len()) {
                longest = (way.iter().map(|&(call, ..)| self.events[call].place).collect(), Some(event.place));
            }
            let Some((call, before, _)) = way.pop() else {
                // Without a return nothing is owed, so something returned first.
                let (ordered, stuck_at) = longest;
                return SearchEnd::None { ordered, stuck_at: stuck_at.unwrap_or_default() };
            };
            state = before;
            self.unlift(call);
            at = self.next[call];
        }
        SearchEnd::Order
    }

    fn apply(&self, state: &S::State, place: usize) -> Option<S::State> {
        let operation = &self.operations[place];
        let answer = match &operation.end {
            End::Answered { answer, .. } => Some(answer),
            End::Failed { .. } | End::Unknown => None,
        };
        S::apply(self.key, state, &operation.call, answer)
    }

    /// What has been taken out of the list.
    fn ordered(&self, latest: usize) -> Ordered {
        let mut holes = Vec::new();
        let mut at = self.next[0];
        while at != 0 && (!self.events[at].is_call || self.events[at].number < latest) {
            if self.events[at].is_call {
                holes.push(self.events[at].number);
            }
            at = self.next[at];
        }
        Ordered { latest, holes }
    }

    fn lift(&mut self, call: usize) {
        self.take_out(call);
        if let Some(returns) = self.returns[self.events[call].number] {
            self.take_out(returns);
            self.owed -= 1;
        }
    }

    fn unlift(&mut self, call: usize) {
        if let Some(returns) = self.returns[self.events[call].number] {
            self.put_back(returns);
            self.owed += 1;
        }
        self.put_back(call);
    }

    fn take_out(&mut self, event: usize) {
        let (previous, next) = (self.previous[event], self.next[event]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn put_back(&mut self, event: usize) {
        let (previous, next) = (self.previous[event], self.next[event]);
        self.next[previous] = event;
        self.previous[next] = event;
    }
}

/// A set of operations that have been ordered, small because most of them are the earliest ones.
#[derive(PartialEq, Eq, Hash)]
struct Ordered {
    /// The latest of them, by number.
    latest: usize,
    /// Earlier ones that have not been ordered.
    holes: Vec<usize>,
}
