//! Accepts leaders on the execute port.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use symphony_protocol::execute::{FromBackend, ToBackend};
use symphony_transport::accept_link;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::execution::Input;

/// Accepts until cancelled.
pub(crate) async fn accept_leaders(listener: TcpListener, inputs: UnboundedSender<Input>, ended: CancellationToken) {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
    loop {
        let accepted = tokio::select! {
            () = ended.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a leader");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let Ok((sender, mut receiver)) = accept_link::<FromBackend, ToBackend>(stream, peer.to_string()) else {
            continue;
        };
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let (inputs, ended) = (inputs.clone(), ended.clone());
        tokio::spawn(async move {
            let _ = inputs.send(Input::Connected(connection, sender));
            loop {
                let frame = tokio::select! {
                    () = ended.cancelled() => break,
                    frame = receiver.receive() => frame,
                };
                match frame {
                    Ok(frame) => {
                        if inputs.send(Input::FromLeader(connection, frame.message)).is_err() {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::debug!(%error, "execute link ended");
                        break;
                    }
                }
            }
            let _ = inputs.send(Input::Disconnected(connection));
        });
    }
}
