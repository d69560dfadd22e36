//! The control port: Raft, `symphony.v1.Control` and KEDA's external scaler side by side.

use std::future::Future;
use std::time::Duration;

use symphony_cluster_state::{BACKENDS_MAX, BACKUP_BYTES_MAX, COMMAND_BYTES_MAX, FRONTENDS_MAX, NODES_MAX};
use symphony_consensus::RaftServer;
use symphony_net::sockets::Listener;
use symphony_net::{Incoming, Net, Port, Role};
use symphony_protocol::control::control_server::ControlServer;
use symphony_protocol::externalscaler::external_scaler_server::ExternalScalerServer;
use symphony_protocol::port_limits::{HEADER_BYTES_MAX, STREAMS_PER_CONNECTION_MAX};
use symphony_protocol::view::VIEW_BYTES_MAX;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::api::authorize::AuthorizeLayer;
use crate::api::service::ControlService;
use crate::group::state_machine::SharedState;
use crate::planning::ScalerService;

/// A silent connection is pinged this often, and closed without an answer within [`KEEP_ALIVE_ANSWERED_WITHIN`]. This
/// only frees the place of a watcher whose host has vanished. Watchers ping by themselves, every ten seconds; pinging
/// a thousand of them as often would double that cost.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// How long the answer to a ping may take.
const KEEP_ALIVE_ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of a request: a model with every profile takes about as much in protobuf as in the log.
const REQUEST_BYTES_MAX: usize = 2 * COMMAND_BYTES_MAX;

/// Bytes of an answer: a view, or a backup and the few bytes around it.
const ANSWER_BYTES_MAX: usize = BACKUP_BYTES_MAX + 64;
const _: () = assert!(ANSWER_BYTES_MAX >= VIEW_BYTES_MAX);

/// Bytes of a request of an autoscaler.
const SCALER_BYTES_MAX: usize = 64 << 10;

/// Concurrent connections: one of each backend and frontend, eight of each replica (three lanes of Raft and commands,
/// and those being given up), and some of operators.
const CONNECTIONS_MAX: usize = BACKENDS_MAX + FRONTENDS_MAX + 8 * NODES_MAX + 128;

const CONTROL: Port = Port::new("scheduler.control", &Role::ALL, CONNECTIONS_MAX);

/// Serves until stopped; then calls in progress are aborted with their connections.
pub(crate) fn serve(
    listener: Listener,
    net: Net,
    raft: RaftServer,
    (control, scaler): (ControlService, ScalerService),
    state: SharedState,
    stop: CancellationToken,
) -> impl Future<Output = Result<(), tonic::transport::Error>> {
    let control = ControlServer::new(control)
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    let router = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_ANSWERED_WITHIN))
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .layer(AuthorizeLayer { state })
        .add_service(raft)
        .add_service(control)
        .add_service(ExternalScalerServer::new(scaler).max_decoding_message_size(SCALER_BYTES_MAX));
    let incoming = Incoming::new(listener, net, CONTROL);
    router.serve_with_incoming_shutdown(incoming.into_stream(), stop.cancelled_owned())
}
