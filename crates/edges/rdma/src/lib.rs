//! RDMA: reliable connections, one-sided READs of a pool in another host's memory, and a stream of bytes over SENDs.
//!
//! Without the feature `verbs` only the parts without a device remain: the exchanged data, its parsing, and the flow
//! control.

mod endpoint;
mod flow;
mod interrupted;
mod key;
mod listeners;
mod port;
mod purpose;
mod segment;

#[cfg(feature = "verbs")]
mod engine;
#[cfg(feature = "verbs")]
mod error;
#[cfg(feature = "verbs")]
mod fabric;
#[cfg(feature = "verbs")]
mod landing;
#[cfg(feature = "verbs")]
mod remote_pool;
#[cfg(feature = "verbs")]
mod session;
#[cfg(feature = "verbs")]
mod verbs;

pub use endpoint::{Endpoint, EndpointError};
pub use flow::{Flow, FlowError};
pub use interrupted::uninterrupted;
pub use key::Key;
pub use listeners::{Listeners, NotJoined};
pub use port::{Port, PortError};
pub use purpose::Purpose;
pub use segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentError, SegmentKind};

#[cfg(feature = "verbs")]
pub use error::{Broken, RdmaError};
#[cfg(feature = "verbs")]
pub use fabric::{Fabric, Grant, Shown, Unpaired};
#[cfg(feature = "verbs")]
pub use landing::Landing;
#[cfg(feature = "verbs")]
pub use remote_pool::{READ_BYTES_MAX, RemotePool};
#[cfg(feature = "verbs")]
pub use session::{Pair, StreamReader, StreamWriter};
#[cfg(feature = "verbs")]
pub use verbs::Words;
