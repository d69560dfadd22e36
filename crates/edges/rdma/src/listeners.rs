//! The receivers of a device's completions.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// Listeners by number. After the close none is accepted: it would receive nothing.
#[derive(Debug)]
pub struct Listeners<T> {
    open: RwLock<Open<T>>,
}

#[derive(Debug)]
struct Open<T> {
    by_number: HashMap<u32, Weak<T>>,
    closed: bool,
}

/// Why a listener is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJoined {
    /// The limit is reached.
    Full(usize),
    /// Completions are no longer polled.
    Closed,
}

impl<T> Default for Listeners<T> {
    fn default() -> Self {
        Self { open: RwLock::new(Open { by_number: HashMap::new(), closed: false }) }
    }
}

impl<T> Listeners<T> {
    /// Registers the receiver of that number's completions.
    ///
    /// # Errors
    /// If there are `max` already, or they were closed.
    pub fn join(&self, number: u32, listener: &Arc<T>, max: usize) -> Result<(), NotJoined> {
        let mut open = self.write();
        if open.closed {
            return Err(NotJoined::Closed);
        }
        if open.by_number.len() >= max {
            return Err(NotJoined::Full(open.by_number.len()));
        }
        open.by_number.insert(number, Arc::downgrade(listener));
        Ok(())
    }

    /// Unregisters a listener.
    pub fn leave(&self, number: u32) {
        self.write().by_number.remove(&number);
    }

    /// The listener of that number.
    pub fn of(&self, number: u32) -> Option<Arc<T>> {
        self.read().by_number.get(&number).and_then(Weak::upgrade)
    }

    /// Refuses further listeners, and returns the present ones, to be notified.
    pub fn close(&self) -> Vec<Arc<T>> {
        let mut open = self.write();
        open.closed = true;
        open.by_number.values().filter_map(Weak::upgrade).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Open<T>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Open<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_let_in_whom_nobody_would_tell() {
        let listeners = Listeners::default();
        let [one, two, three] = [1, 2, 3].map(Arc::new);
        assert_eq!(listeners.join(1, &one, 2), Ok(()));
        assert_eq!(listeners.join(2, &two, 2), Ok(()));
        assert_eq!(listeners.join(3, &three, 2), Err(NotJoined::Full(2)));
        assert_eq!(listeners.of(2).as_deref(), Some(&2));
        listeners.leave(2);
        assert_eq!(listeners.of(2), None);
        drop(one);
        assert_eq!(listeners.of(1), None, "they are not kept alive");
        assert_eq!(listeners.join(2, &two, 2), Ok(()));
        assert_eq!(listeners.close(), [two]);
        assert_eq!(listeners.join(3, &three, 2), Err(NotJoined::Closed));
    }
}
