//! How bytes move between processes: framed links over TCP, payload reads, and the client of the control surface.

mod control_client;
mod echo;
mod federation_client;
mod link;
mod local_link;
mod payload;
mod tcp_payloads;

pub use control_client::{CONTROL_CALL_TIMEOUT, ControlClient, ControlError, ViewReceiver, fresh_operation_id};
pub use echo::{EchoTimes, Movement};
pub use federation_client::{FederationClient, PlanReceiver};
pub use link::{
    CONNECT_TIMEOUT, LINK_FRAMES_MAX, LinkError, LinkReceiver, LinkSender, SendError, connect_link, link_over,
};
pub use local_link::{LocalReceiver, local_link};
pub use payload::{PayloadTransport, Payloads, ResultToOwner};
pub use tcp_payloads::TcpPayloads;
