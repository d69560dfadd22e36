//! How bytes move between processes: framed links (over TCP, shared memory or RDMA), payload reads, and clients of the
//! control services.

mod carrier_negotiation;
mod control_client;
mod data_link;
mod early_links;
mod echo;
mod federation_client;
mod frames;
mod frontend_end;
mod link;
mod linked_payloads;
mod local_link;
mod local_payloads;
mod payload;
mod payload_meter;
mod proof;
#[cfg(not(feature = "rdma"))]
#[path = "no_rdma.rs"]
mod rdma;
#[cfg(feature = "rdma")]
mod rdma;
mod rdma_endpoint;
mod read_times;
mod readiness;
mod sharing;
mod stuck;
mod until;

pub use control_client::{
    AGREE_WITHIN, CONTROL_CALL_TIMEOUT, ControlClient, ControlError, ViewReceiver, fresh_operation_id,
};
pub use early_links::EarlyLinks;
pub use echo::{EchoTimes, Movement};
pub use federation_client::{FederationClient, FederationViewReceiver};
pub use frontend_end::FrontendEnd;
pub use link::{
    CONNECT_TIMEOUT, EchoTrigger, HELLO_WITHIN, LINK_FRAMES_MAX, LinkError, LinkReceiver, LinkSender, SendError,
    connect_link, link_over,
};
pub use linked_payloads::LinkedPayloads;
pub use local_link::{LocalReceiver, local_link};
pub use local_payloads::LocalPayloads;
pub use payload::{PayloadFrontend, PayloadTransport, Payloads, ResultToFrontend, ReturnedResult};
pub use payload_meter::PayloadMeter;
pub use read_times::{PairReading, ReadCounts, ReadPath, Readings};
pub use sharing::{SharedInputs, SharingError, can_share, can_use_rdma};
pub use symphony_shared_memory::Placed as PlacedInput;
pub use until::until;
