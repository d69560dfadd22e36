//! The writing end's task: sends what has gathered with one system call.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use symphony_net::ClusterLevel;
use symphony_protocol::carrier::CarrierMessage;
use symphony_protocol::{Echo, Frame, Message};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, mpsc};

use super::Outbound;
use super::rest::Rest;
use crate::carrier_negotiation::WriterCommand;

/// A write gathers about this many bytes before it is sent.
const COALESCE_BYTES: usize = 256 << 10;

/// The task that writes gathered frames; ends with the last sender, with the connection, or at a frame that is too
/// large.
pub(super) struct Writer<M> {
    pub(super) stream: Box<dyn Outbound>,
    /// The connection, once another carrier has the frames: it only shows that this end lives.
    pub(super) beside: Option<Box<dyn Outbound>>,
    pub(super) frames: mpsc::Receiver<(M, Vec<Bytes>)>,
    pub(super) echoes: mpsc::Receiver<Echo>,
    pub(super) commands: mpsc::Receiver<WriterCommand>,
    /// Messages to write before this end asks for shared memory; none if it does not ask.
    pub(super) asks_after: Option<u64>,
    pub(super) close: Arc<Notify>,
    pub(super) rest: Arc<Rest>,
    /// What frames are written by; it may be raised while the link is open.
    pub(super) level: ClusterLevel,
    pub(super) peer: String,
    pub(super) bytes: BytesMut,
}

impl<M: Message> Writer<M> {
    pub(super) async fn run(mut self) {
        loop {
            let (mut next, mut command) = (None, None);
            tokio::select! {
                biased;
                first = self.frames.recv() => match first {
                    Some(first) => next = Some(first),
                    None => break,
                },
                () = self.close.notified() => break,
                Some(echo) = self.echoes.recv() => echo.encode(self.level.written(), &mut self.bytes),
                Some(first) = self.commands.recv() => command = Some(first),
            };
            if next.is_some() {
                self.rest.written();
            }
            let (mut fits, level) = (true, self.level.written());
            while let Some((message, tail)) = next {
                if let Err(error) = Frame::encode(&message, &tail, level, &mut self.bytes) {
                    tracing::error!(peer = %self.peer, %error, "a frame cannot be sent; the link ends");
                    fits = false;
                    break;
                }
                self.asks_after = self.asks_after.map(|left| left.saturating_sub(1));
                next = if self.bytes.len() < COALESCE_BYTES { self.frames.try_recv().ok() } else { None };
            }
            while let Ok(echo) = self.echoes.try_recv() {
                echo.encode(level, &mut self.bytes);
            }
            if self.asks_after.take_if(|left| *left == 0).is_some() {
                self.send(&CarrierMessage::Ask);
            }
            let carrier = self.run_commands(command);
            if let Err(error) = self.write().await {
                tracing::debug!(peer = %self.peer, %error, "link ended while writing");
                return;
            }
            // Both ends would wait for what is missing, each as long as it can. If the link has ended, both know.
            if !fits {
                break;
            }
            if let Some(carrier) = carrier {
                self.beside = Some(std::mem::replace(&mut self.stream, carrier));
            }
        }
        // What the receiver wanted to send when it gave the link up.
        let _ = self.run_commands(None);
        let _ = self.write().await;
        let _ = self.stream.shutdown().await;
        if let Some(mut beside) = self.beside {
            let _ = beside.shutdown().await;
        }
    }

    /// Sends the negotiation messages. Returns another carrier if this end changes over, which it has then announced.
    fn run_commands(&mut self, mut command: Option<WriterCommand>) -> Option<Box<dyn Outbound>> {
        while let Some(now) = command.take().or_else(|| self.commands.try_recv().ok()) {
            match now {
                WriterCommand::Send(message) => self.send(&message),
                WriterCommand::Switch(carrier) => {
                    self.send(&CarrierMessage::Switch);
                    return Some(carrier);
                }
            }
        }
        None
    }

    fn send(&mut self, message: &CarrierMessage) {
        Frame::encode(message, &[], self.level.written(), &mut self.bytes).expect("such a message is small");
    }

    /// Writes what has gathered.
    async fn write(&mut self) -> std::io::Result<()> {
        self.stream.write_all(&self.bytes).await?;
        self.bytes.clear();
        // Encrypted records may stay in a buffer until they are flushed.
        self.stream.flush().await
    }
}
