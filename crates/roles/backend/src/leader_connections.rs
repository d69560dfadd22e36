//! Accepts leaders on the execute port.

use std::sync::atomic::{AtomicU64, Ordering};

use symphony_net::{Incoming, Role};
use symphony_protocol::Frame;
use symphony_protocol::execute::{FromBackend, ToBackend};
use symphony_transport::link_over;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::plan_intake::IntakeEvent;

/// Accepts until cancelled.
pub(crate) async fn accept_leaders(
    mut incoming: Incoming,
    events: UnboundedSender<IntakeEvent>,
    ended: CancellationToken,
) {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
    loop {
        let accepted = tokio::select! {
            () = ended.cancelled() => return,
            accepted = incoming.next() => accepted,
        };
        let Some(leader) = accepted else { return };
        let (sender, mut receiver) = link_over::<FromBackend, ToBackend>(leader);
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let (events, ended) = (events.clone(), ended.clone());
        tokio::spawn(async move {
            let _ = events.send(IntakeEvent::Connected(connection, sender));
            loop {
                let frame = tokio::select! {
                    () = ended.cancelled() => break,
                    frame = receiver.receive() => frame,
                };
                match frame {
                    // A replica may only lead under its own name.
                    Ok(Frame { message: ToBackend::Hello { node, .. }, .. })
                        if !receiver.peer().may_be(Role::Scheduler, &node.get().to_string()) =>
                    {
                        tracing::warn!(peer = %receiver.peer(), %node, "a leader presents another replica's id");
                        break;
                    }
                    Ok(frame) => {
                        if events.send(IntakeEvent::FromLeader(connection, frame.message)).is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::debug!(%error, "execute link ended");
                        break;
                    }
                }
            }
            let _ = events.send(IntakeEvent::Disconnected(connection));
        });
    }
}
