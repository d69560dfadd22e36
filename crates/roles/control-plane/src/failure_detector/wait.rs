//! Waiting on a plain thread for values from tasks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits until `future` is ready, or until that time if there is one; returns the value, if there is one. The future
/// must not need a runtime: timers and sockets do, channels do not.
pub(crate) fn wait_until<T>(until: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        if let Poll::Ready(given) = future.as_mut().poll(&mut context) {
            return Some(given);
        }
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(left) if left.is_zero() => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    #[test]
    fn it_ends_with_the_word_or_with_the_time_whichever_comes_first() {
        let waker = Arc::new(Notify::new());
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(wait_until(Some(soon), waker.notified()), None);
        assert!(Instant::now() >= soon);
        assert_eq!(wait_until(None, async { 7 }), Some(7), "without waiting");
        let other = Arc::clone(&waker);
        let wakes = thread::spawn(move || other.notify_one());
        assert_eq!(wait_until(None, waker.notified()), Some(()));
        wakes.join().unwrap();
    }
}
