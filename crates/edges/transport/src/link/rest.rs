//! Whether a watched link rests, and what ends the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether a watched link rests: then the next written message makes the receiving end ask soon.
///
/// Each end writes its own flag before it reads the other one's, sequentially consistent: at least one of them sees a
/// message that is written while an answer arrives.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// A message was written since the last answer.
    pub(super) written: AtomicBool,
    /// The other end is to be asked soon, and was not asked since.
    pub(super) echo_wanted: AtomicBool,
    pub(super) on: AtomicBool,
    pub(super) ended: Notify,
}

impl Rest {
    /// A message is written.
    pub(super) fn written(&self) {
        self.written.store(true, Ordering::SeqCst);
        self.end();
    }

    /// The other end is to be asked soon.
    fn ask(&self) {
        self.echo_wanted.store(true, Ordering::SeqCst);
        self.end();
    }

    fn end(&self) {
        if self.on.load(Ordering::SeqCst) && self.on.swap(false, Ordering::SeqCst) {
            self.ended.notify_one();
        }
    }
}

/// Makes a watched link ask the other end soon whether it moves, also if it rests.
#[derive(Clone, Debug, Default)]
pub struct EchoTrigger(pub(super) Arc<Rest>);

impl EchoTrigger {
    /// Acts as if a message had been written.
    pub fn echo_soon(&self) {
        self.0.ask();
    }
}
