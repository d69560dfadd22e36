//! The carriers, each with both ends of a link.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use symphony_net::{
    Authority, Carrier, CarrierPreference, Carriers, Credentials, Endpoint, Fabric, Identity, Incoming, Net, Port,
    RingOffer, RingWriter, Rings, Role,
};
use symphony_protocol::carrier::CarrierMessage;
use symphony_protocol::data::RdmaEndpoint;
use symphony_protocol::dispatch::{ToFrontend, ToLeader};
use symphony_protocol::{FRAME_HEADER_BYTES, Frame, FrameHeader, Message};
use symphony_transport::{LinkError, LinkReceiver, LinkSender, connect_link, link_over};
use symphony_types::Level;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::pipes::{Device, Network};

/// How long a pair may take before another one is tried.
const PAIRED_WITHIN: Duration = Duration::from_secs(5);

/// The end that dialled.
pub(crate) type Dialled = (LinkSender<ToLeader>, LinkReceiver<ToFrontend>);
/// The end that was dialled.
pub(crate) type Accepted = (LinkSender<ToFrontend>, LinkReceiver<ToLeader>);

/// The dialling end, without a link: its bytes arrive as written.
pub(crate) struct Bare {
    pub(crate) writes: Box<dyn AsyncWrite + Send + Unpin>,
    _beside: Box<dyn Send>,
}

pub(crate) trait Subject {
    /// What carries frames from the first message on; later for a link that has to be in use.
    const CARRIER: Carrier;
    const SECURED: bool;
    const SPIN: Duration = Duration::ZERO;
    const REQUIRED: bool = true;
    /// So much less is sent where all of it would take too long.
    const LESS: usize = 1;

    /// A process's device.
    fn device(network: &Arc<Network>) -> Arc<dyn Fabric> {
        network.device(Device::Works)
    }

    async fn pair() -> (Dialled, Accepted) {
        // On a machine that is busy enough, connections are not made within the time that nodes have for them.
        loop {
            if let Some(pair) = Self::try_pair().await {
                return pair;
            }
        }
    }

    async fn try_pair() -> Option<(Dialled, Accepted)> {
        let scene = Scene::new::<Self>().await;
        let mut incoming = scene.incoming;
        let role = Role::Scheduler.into();
        let accepting = async {
            let (sender, mut receiver): Accepted = link_over(incoming.next().await.unwrap());
            // The dialling end waits for messages that are answered while the other end receives.
            while Self::REQUIRED && scene.accepts.links()[0].carrier != Self::CARRIER {
                tokio::select! {
                    biased;
                    frame = receiver.receive() => {
                        frame.expect_err("nobody has sent anything");
                        break;
                    }
                    () = tokio::task::yield_now() => {}
                }
            }
            (sender, receiver)
        };
        tokio::select! {
            (dialled, accepted) = async { tokio::join!(connect_link(&scene.dials, &scene.addr, &role), accepting) } => {
                dialled.ok().map(|dialled| (dialled, accepted))
            }
            // No connection came: it took too long.
            () = tokio::time::sleep(PAIRED_WITHIN) => None,
        }
    }

    async fn bare() -> (Accepted, Bare) {
        let scene = Scene::new::<Self>().await;
        let mut incoming = scene.incoming;
        let role = Role::Scheduler.into();
        let (dialled, accepted) = tokio::join!(scene.dials.dial(&scene.addr, &role), incoming.next());
        let (mut connection, mut accepted): (_, Accepted) = (dialled.unwrap(), link_over(accepted.unwrap()));
        if Self::CARRIER == Carrier::Tcp {
            return (accepted, Bare { writes: Box::new(connection), _beside: Box::new(()) });
        }
        let carriers = scene.dials.carriers();
        let agreed = async {
            write(&mut connection, &CarrierMessage::Ask).await;
            let CarrierMessage::Offer(offer) = receive_carrier_message(&mut connection).await else { panic!() };
            if let Some(rings) = carriers.rings() {
                let sharing = offer.sharing.unwrap();
                let offer = RingOffer { name: sharing.name, secret: sharing.secret.0 };
                let (reader, writer): (_, RingWriter) = rings.join(&offer).await.unwrap();
                write(&mut connection, &CarrierMessage::Switch).await;
                return Bare { writes: Box::new(writer), _beside: Box::new((reader, connection)) };
            }
            assert!(offer.rdma && offer.sharing.is_none());
            let end = carriers.fabric_with(connection.peer()).unwrap().begin().unwrap();
            write(&mut connection, &CarrierMessage::Join(to_wire(end.endpoint()))).await;
            let CarrierMessage::Joined(theirs) = receive_carrier_message(&mut connection).await else { panic!() };
            let (reader, mut writer) = end.join(from_wire(theirs)).unwrap();
            writer.prove().await.unwrap();
            write(&mut connection, &CarrierMessage::Switch).await;
            Bare { writes: Box::new(writer), _beside: Box::new((reader, connection)) }
        };
        let receiving = async {
            while scene.accepts.links()[0].carrier != Self::CARRIER {
                tokio::select! {
                    biased;
                    frame = accepted.1.receive() => panic!("{frame:?}"),
                    () = tokio::task::yield_now() => {}
                }
            }
        };
        let (bare, ()) = tokio::join!(agreed, receiving);
        (accepted, bare)
    }
}

/// Dials as nodes do.
pub(crate) async fn connect(net: &Net, addr: &str) -> Result<Dialled, LinkError> {
    connect_link::<ToLeader, ToFrontend>(net, addr, &Role::Scheduler.into()).await
}

/// The next carrier message of the other end; none if another message comes.
pub(crate) async fn next_carrier_message(connection: &mut (impl AsyncRead + Unpin)) -> Option<CarrierMessage> {
    let mut head = [0; FRAME_HEADER_BYTES];
    connection.read_exact(&mut head).await.unwrap();
    let header = FrameHeader::parse(head, Level::NEWEST).unwrap();
    let mut body = vec![0; header.length()];
    connection.read_exact(&mut body).await.unwrap();
    header.is_carry().then(|| Frame::<CarrierMessage>::decode(header, body.into()).unwrap().message)
}

/// The next carrier message of the other end, where no other message can come.
pub(crate) async fn receive_carrier_message(connection: &mut (impl AsyncRead + Unpin)) -> CarrierMessage {
    next_carrier_message(connection).await.expect("a carrier message")
}

pub(crate) fn to_wire(Endpoint { queue_pair, first_packet, mtu, lid, gid }: Endpoint) -> RdmaEndpoint {
    RdmaEndpoint { queue_pair, first_packet, mtu, lid, gid }
}

pub(crate) fn from_wire(RdmaEndpoint { queue_pair, first_packet, mtu, lid, gid }: RdmaEndpoint) -> Endpoint {
    Endpoint { queue_pair, first_packet, mtu, lid, gid }
}

pub(crate) async fn write(connection: &mut (impl AsyncWrite + Unpin), message: &impl Message) {
    let mut bytes = BytesMut::new();
    Frame::encode(message, &[], Level::NEWEST, &mut bytes).unwrap();
    connection.write_all(&bytes).await.unwrap();
    connection.flush().await.unwrap();
}

/// Two processes: what either may use, and where the one is.
pub(crate) struct Scene {
    pub(crate) dials: Net,
    pub(crate) accepts: Carriers,
    pub(crate) incoming: Incoming,
    pub(crate) addr: String,
}

impl Scene {
    async fn new<S: Subject + ?Sized>() -> Self {
        let preference = CarrierPreference { expected: S::REQUIRED, required: S::REQUIRED };
        let network = Arc::<Network>::default();
        let carriers = || match S::CARRIER {
            Carrier::Tcp => Carriers::default(),
            Carrier::SharedMemory => Carriers::new(Some(Rings::start(S::SPIN).unwrap()), None, preference),
            Carrier::Rdma => Carriers::new(None, Some(S::device(&network)), preference),
        };
        Self::with(S::SECURED, carriers(), carriers()).await
    }

    pub(crate) async fn with(secured: bool, dials: Carriers, accepts: Carriers) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path(), "blue").unwrap();
        let net = |role, name| match secured {
            false => Net::plaintext(),
            true => {
                let issued = authority.issue(&Identity::new("blue", role, name).unwrap(), 1).unwrap();
                Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let port = Port::new("test", &[Role::Frontend], 64);
        let incoming = Incoming::new(listener, net(Role::Scheduler, "1").carried(accepts.clone()), port);
        Self { dials: net(Role::Frontend, "f").carried(dials), accepts, incoming, addr }
    }
}

/// The connection.
pub(crate) struct Tcp;

impl Subject for Tcp {
    const CARRIER: Carrier = Carrier::Tcp;
    const SECURED: bool = false;
}

/// The connection, with mutual TLS.
pub(crate) struct TcpSecured;

impl Subject for TcpSecured {
    const CARRIER: Carrier = Carrier::Tcp;
    const SECURED: bool = true;
}

/// Shared memory from the first message on, agreed on over mutual TLS.
pub(crate) struct SharedMemory;

impl Subject for SharedMemory {
    const CARRIER: Carrier = Carrier::SharedMemory;
    const SECURED: bool = true;
}

/// [`SharedMemory`], with readers that look for some time before they sleep.
pub(crate) struct SharedMemorySpinning;

impl Subject for SharedMemorySpinning {
    const CARRIER: Carrier = Carrier::SharedMemory;
    const SECURED: bool = true;
    const SPIN: Duration = Duration::from_micros(100);
}

/// A link that changes over in the middle, as nodes do unless they are told otherwise.
pub(crate) struct SharedMemoryInUse;

impl Subject for SharedMemoryInUse {
    const CARRIER: Carrier = Carrier::SharedMemory;
    const SECURED: bool = true;
    const REQUIRED: bool = false;
}

/// A fabric without a device, from the first message on.
pub(crate) struct Pipes;

impl Subject for Pipes {
    const CARRIER: Carrier = Carrier::Rdma;
    const SECURED: bool = true;
}

/// [`Pipes`] for a link that changes over in the middle.
pub(crate) struct PipesInUse;

impl Subject for PipesInUse {
    const CARRIER: Carrier = Carrier::Rdma;
    const SECURED: bool = true;
    const REQUIRED: bool = false;
}

// Needs a device: `make test-rdma` has one. That is software on an emulated processor.
#[cfg(feature = "rdma")]
const RDMA_LESS: usize = 20;

/// RDMA from the first message on.
#[cfg(feature = "rdma")]
pub(crate) struct Rdma;

#[cfg(feature = "rdma")]
impl Subject for Rdma {
    const CARRIER: Carrier = Carrier::Rdma;
    const SECURED: bool = true;
    const LESS: usize = RDMA_LESS;

    fn device(_: &Arc<Network>) -> Arc<dyn Fabric> {
        symphony_net::rdma_fabric(None).unwrap()
    }
}

/// RDMA for a link that changes over in the middle.
#[cfg(feature = "rdma")]
pub(crate) struct RdmaInUse;

#[cfg(feature = "rdma")]
impl Subject for RdmaInUse {
    const CARRIER: Carrier = Carrier::Rdma;
    const SECURED: bool = true;
    const REQUIRED: bool = false;
    const LESS: usize = RDMA_LESS;

    fn device(_: &Arc<Network>) -> Arc<dyn Fabric> {
        symphony_net::rdma_fabric(None).unwrap()
    }
}
