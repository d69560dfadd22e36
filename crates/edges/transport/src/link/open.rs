//! Opening of links: dialled, accepted, or over any other pair of byte streams.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use symphony_net::{Carriers, ClusterLevel, Connection, Expected, Net, PeerInfo};
use symphony_protocol::Message;
use tokio::sync::{Notify, mpsc};

use super::rest::Rest;
use super::streams::Streams;
use super::writer::Writer;
use super::{LINK_FRAMES_MAX, LinkError, LinkReceiver, LinkSender};
use crate::carrier_negotiation::{CarrierNegotiation, End, WRITER_COMMANDS_MAX};

/// How long a connection may take to be established.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// How long two connected processes may take to agree on another carrier where TCP is not allowed: four exchanges of
/// shared memory, or twice the time in which RDMA has to answer.
const AGREED_WITHIN: Duration = Duration::from_secs(1);

/// How long the accepting end waits for the first message, the hello. It comes after the two have agreed on a carrier.
pub const HELLO_WITHIN: Duration = Duration::from_secs(2);
const _: () = assert!(HELLO_WITHIN.as_nanos() > AGREED_WITHIN.as_nanos());

/// Echo requests and answers that may wait for the writer; the asking end waits for an answer before the next request.
const ECHOES_MAX: usize = 8;

/// Opens a link to `addr` (`host:port`), where `expected` must answer. Once it is in use, it goes on through shared
/// memory or over RDMA if both ends have that and want it; if another carrier is required, before its first message.
///
/// # Errors
/// If no connection is established within [`CONNECT_TIMEOUT`], another peer answers, or a carrier other than TCP is
/// required and not available.
pub async fn connect_link<Out, In>(
    net: &Net,
    addr: &str,
    expected: &Expected,
) -> Result<(LinkSender<Out>, LinkReceiver<In>), LinkError>
where
    Out: Message + Send + 'static,
    In: Message,
{
    let connection = dial(net, addr, expected).await?;
    let carriers = net.carriers();
    // Frames to an address that is routed over a proxy must pass the proxy.
    let routed = net.through(addr) != addr && !carriers.preference().expected;
    let has_any = carriers.rings().is_some() || carriers.fabric_with(connection.peer()).is_some();
    let end = if routed || !has_any {
        End::AsksWhenTold
    } else if carriers.must_leave_tcp_with(&connection.peer().to_string()) {
        End::AsksFirst
    } else {
        End::AsksInUse
    };
    let required = carriers.preference().required;
    let (sender, mut receiver) = link_of::<Out, In>(connection, end);
    if end == End::AsksFirst {
        let agreed = tokio::time::timeout(AGREED_WITHIN, receiver.leaves_tcp()).await;
        if let Err(error) = agreed.unwrap_or_else(|_| Err(receiver.only_tcp("it took too long"))) {
            // The next link tries again whether the peer still refuses TCP. Otherwise the two would never talk again
            // once that has changed.
            carriers.may_take_tcp(&receiver.peer().to_string());
            return Err(error);
        }
    } else if required {
        return Err(receiver.only_tcp("this process has none with that peer"));
    }
    Ok((sender, receiver))
}

/// Opens a link whose user decides when to go on through shared memory ([`LinkReceiver::share`]).
///
/// # Errors
/// If no connection is established within [`CONNECT_TIMEOUT`], or another peer answers.
pub(crate) async fn connect_data_link<Out, In>(
    net: &Net,
    addr: &str,
    expected: &Expected,
) -> Result<(LinkSender<Out>, LinkReceiver<In>), LinkError>
where
    Out: Message + Send + 'static,
    In: Message,
{
    Ok(link_of(dial(net, addr, expected).await?, End::AsksWhenTold))
}

async fn dial(net: &Net, addr: &str, expected: &Expected) -> Result<Connection, LinkError> {
    tokio::time::timeout(CONNECT_TIMEOUT, net.dial(addr, expected))
        .await
        .map_err(|_| LinkError::ConnectTimeout { peer: addr.to_owned() })?
        .map_err(|source| LinkError::Io { peer: addr.to_owned(), source })
}

/// Makes a link from an accepted connection. Must be called inside a tokio runtime.
pub fn link_over<Out, In>(connection: Connection) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    let must = connection.carriers().preference().required;
    link_of(connection, End::Accepted { must })
}

/// As [`link_over`], for a link whose user decides whether it continues without shared memory.
pub(crate) fn data_link_over<Out, In>(connection: Connection) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    link_of(connection, End::Accepted { must: false })
}

fn link_of<Out, In>(connection: Connection, end: End) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    let (info, carriers) = (connection.peer().clone(), connection.carriers().clone());
    let level = connection.level().clone();
    let (read, write) = connection.into_split();
    link_with((Box::new(read), Box::new(write)), info, (carriers, level), end)
}

/// Makes a link from two byte streams to a peer that is known by other means; its carrier never changes. Must be called
/// inside a tokio runtime.
pub(crate) fn link_over_streams<Out, In>(
    streams: Streams,
    info: PeerInfo,
    level: ClusterLevel,
) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    link_with(streams, info, (Carriers::default(), level), End::AsksWhenTold)
}

fn link_with<Out, In>(
    (read, write): Streams,
    info: PeerInfo,
    (carriers, level): (Carriers, ClusterLevel),
    end: End,
) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    let (queue, frames) = mpsc::channel(LINK_FRAMES_MAX);
    let close = Arc::new(Notify::new());
    let (echoes, echoed) = mpsc::channel(ECHOES_MAX);
    let (commands, carried) = mpsc::channel(WRITER_COMMANDS_MAX);
    let rest = Arc::<Rest>::default();
    let writer = Writer {
        stream: write,
        beside: None,
        frames,
        echoes: echoed,
        commands: carried,
        asks_after: end.asks_after(),
        close: Arc::clone(&close),
        rest: Arc::clone(&rest),
        level: level.clone(),
        peer: info.to_string(),
        bytes: BytesMut::new(),
    };
    tokio::spawn(writer.run());
    let carrying = CarrierNegotiation::new(end, commands, carriers, Out::NAME, info.clone());
    (LinkSender { queue, close }, LinkReceiver::new(read, carrying, echoes, rest, level, info))
}
