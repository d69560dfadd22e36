//! Negotiates what carries the frames of one link ([`CarrierMessage`]). The link begins on its connection. It goes on
//! through shared memory if both ends want that and are on one host, otherwise over RDMA if both have it.
//!
//! ```text
//! dialling end  ── Ask ──▶            ◀── Offer ──   accepting end
//!               takes memory up over the host's socket, or else
//!               ── Join ──▶           ◀── Joined ──
//!               finds out that the other end is there, and then
//!               ── Switch ──▶         ◀── Switch ──
//!               ══ frames the other way ═════════▶
//! ```
//!
//! Frames pass on the connection meanwhile, until each direction changes over, in order. Afterwards the connection only
//! shows that the other end lives.

use std::sync::Arc;

use symphony_net::{
    Carrier, Carriers, Fabric, FabricEnd, FabricStreams, LinkPlace, PeerInfo, PendingRings, RingOffer, Rings,
};
use symphony_protocol::carrier::{CarrierMessage, CarrierOffer};
use symphony_protocol::data::{RdmaEndpoint, SharingOffer, SharingSecret};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::link::{Inbound, Outbound};
use crate::proof::proved;
use crate::rdma_endpoint::{from_wire, to_wire};

/// After this many messages the dialling end asks for another carrier. A link that is hardly used is not worth the
/// effort, and a new leader that opens a thousand links has more urgent things to do first.
pub(crate) const CARRY_AFTER_MESSAGES: u64 = 32;

/// The most negotiation messages that may wait for the writer of a link; each one is sent once.
pub(crate) const WRITER_COMMANDS_MAX: usize = 8;

/// Concurrent device calls of a process for its links; each takes a thread. A new leader opens a thousand links at
/// once, and the kernel does such work one call at a time anyway.
const DEVICE_CALLS_AT_ONCE: usize = 8;

/// What a link's writer is to do about the carrier.
#[derive(Debug)]
pub(crate) enum WriterCommand {
    /// Sends a carrier message.
    Send(CarrierMessage),
    /// Announces the change, and changes over.
    Switch(Box<dyn Outbound>),
}

/// Which end of a connection this is, and when it asks for another carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was dialled, and offers. With `true`, messages that come over the connection end the link.
    Accepted { must: bool },
    /// It dialled. It asks before its first message, and waits for the answer.
    AsksFirst,
    /// It dialled, and asks once the link is in use.
    AsksInUse,
    /// It dialled, and asks for shared memory when its user calls for it, or never.
    AsksWhenTold,
}

impl End {
    /// Messages after which the writer asks by itself.
    pub(crate) const fn asks_after(self) -> Option<u64> {
        match self {
            Self::AsksInUse => Some(CARRY_AFTER_MESSAGES),
            Self::Accepted { .. } | Self::AsksFirst | Self::AsksWhenTold => None,
        }
    }
}

/// The effect of a negotiation message.
#[derive(Debug)]
pub(crate) enum CarrierChange {
    /// The link goes on as it was.
    AsBefore,
    /// Further frames come from this source.
    Now(Box<dyn Inbound>),
    /// Another carrier is being set up; the receiver gets the reason if that fails.
    Making(oneshot::Receiver<String>),
    /// The other end offers nothing else.
    Refused,
    /// The link ends: the other end does not continue over the connection.
    Ended,
}

#[derive(Debug)]
enum State {
    /// No end has asked yet.
    New,
    /// The other end may take up the memory, or send its end of an RDMA connection.
    Offered { memory: Option<PendingRings>, fabric: Option<Arc<dyn Fabric>> },
    /// Another carrier is being set up beside the link.
    Making {
        /// Resolves before this end sends anything that lets the other one change over.
        made: oneshot::Receiver<Made>,
        /// The task that sets it up may wait for the other end of an RDMA connection.
        peer_end: Option<oneshot::Sender<RdmaEndpoint>>,
    },
    /// The negotiation is over.
    Done,
}

/// Another carrier.
#[derive(Debug)]
struct Made {
    carrier: Carrier,
    inbound: Box<dyn Inbound>,
    /// None if the writer has it already.
    outbound: Option<Box<dyn Outbound>>,
}

/// The state of the negotiation at one end of a link.
#[derive(Debug)]
pub(crate) struct CarrierNegotiation {
    end: End,
    state: State,
    /// Whether messages no longer come over the connection.
    moved: bool,
    commands: mpsc::Sender<WriterCommand>,
    carriers: Carriers,
    place: LinkPlace,
    peer: PeerInfo,
}

impl CarrierNegotiation {
    pub(crate) fn new(
        end: End,
        commands: mpsc::Sender<WriterCommand>,
        carriers: Carriers,
        link: &'static str,
        peer: PeerInfo,
    ) -> Self {
        let place = carriers.opened(link, peer.to_string());
        Self { end, state: State::New, moved: false, commands, carriers, place, peer }
    }

    /// Whether a message that arrives now breaks the rules.
    pub(crate) const fn refuses_messages(&self) -> bool {
        matches!(self.end, End::Accepted { must: true }) && !self.moved
    }

    /// Tells the other end that its message came over the connection.
    pub(crate) fn refuse(&self) {
        self.carriers.refused();
        tracing::warn!(peer = %self.peer,
            "link refused: frames.required, and the peer has no other way than TCP in common with this process");
        self.send(CarrierMessage::Required);
    }

    /// Asks the other end, once.
    pub(crate) fn ask(&self) {
        let has_any = self.carriers.rings().is_some() || self.fabric().is_some();
        if has_any && matches!(self.state, State::New) {
            self.send(CarrierMessage::Ask);
        }
    }

    /// The carriers for a link to another host. A link whose user decides when to ask takes the carrier of its
    /// payloads.
    fn fabric(&self) -> Option<&Arc<dyn Fabric>> {
        if self.end == End::AsksWhenTold { None } else { self.carriers.fabric_with(&self.peer) }
    }

    /// Handles a message of the other end.
    ///
    /// # Errors
    /// If a peer that follows the protocol would not have sent it now.
    pub(crate) fn receive(&mut self, message: CarrierMessage) -> Result<CarrierChange, &'static str> {
        let accepted = matches!(self.end, End::Accepted { .. });
        match (message, std::mem::replace(&mut self.state, State::Done)) {
            (CarrierMessage::Ask, State::New) if accepted => {
                self.offer();
                Ok(CarrierChange::AsBefore)
            }
            (CarrierMessage::Offer(offer), State::New) if !accepted => {
                Ok(CarrierChange::Making(self.accept_offer(offer)))
            }
            (CarrierMessage::Join(theirs), State::Offered { fabric: Some(fabric), .. }) => {
                self.join(fabric, theirs);
                Ok(CarrierChange::AsBefore)
            }
            (CarrierMessage::Joined(theirs), State::Making { made, peer_end: Some(peer_end) }) => {
                // An end that gives up announces it.
                let _ = peer_end.send(theirs);
                self.state = State::Making { made, peer_end: None };
                Ok(CarrierChange::AsBefore)
            }
            (CarrierMessage::Switch, State::Offered { memory: Some(mut pending), .. }) => {
                let (reader, writer) = pending.streams().ok_or("it changes over to memory that it has not joined")?;
                let (inbound, outbound) = (Box::new(reader), Some(Box::new(writer) as _));
                Ok(self.changed_over(Made { carrier: Carrier::SharedMemory, inbound, outbound }))
            }
            (CarrierMessage::Switch, State::Making { mut made, .. }) => {
                let made = made.try_recv().map_err(|_| "it changes over to what is not made yet")?;
                Ok(self.changed_over(made))
            }
            (CarrierMessage::Decline, State::Offered { .. } | State::Making { .. }) if accepted => {
                self.carriers.refused();
                Ok(CarrierChange::AsBefore)
            }
            (CarrierMessage::Refuse, State::New | State::Making { peer_end: Some(_), .. }) if !accepted => {
                self.carriers.refused();
                if self.carriers.preference().expected {
                    tracing::warn!(peer = %self.peer, "frames travel by TCP: the peer has nothing else; see its frames.transport");
                }
                Ok(CarrierChange::Refused)
            }
            (CarrierMessage::Required, _) if !accepted => {
                self.carriers.is_required_by(&self.peer.to_string());
                tracing::warn!(peer = %self.peer, "the peer takes no frames over TCP (frames.required)");
                Ok(CarrierChange::Ended)
            }
            _ => Err("a carrier message out of turn"),
        }
    }

    /// Offers what this process has.
    fn offer(&mut self) {
        let fabric = self.fabric().cloned();
        let (sharing, memory) = self.carriers.rings().map(Rings::offer).unzip();
        if sharing.is_none() && fabric.is_none() {
            return self.send(CarrierMessage::Refuse);
        }
        let sharing = sharing.map(|RingOffer { name, secret }| SharingOffer { name, secret: SharingSecret(secret) });
        self.send(CarrierMessage::Offer(CarrierOffer { sharing, rdma: fabric.is_some() }));
        self.state = State::Offered { memory, fabric };
    }

    /// Accepts an offer, beside the link. The receiver gets the reason if that fails.
    fn accept_offer(&mut self, offer: CarrierOffer) -> oneshot::Receiver<String> {
        let (makes, made) = oneshot::channel();
        let (tell, peer_end) = oneshot::channel();
        let (fails, failed) = oneshot::channel();
        self.state = State::Making { made, peer_end: Some(tell) };
        let (rings, fabric) = (self.carriers.rings().cloned(), self.fabric().cloned());
        let (commands, carriers, peer) = (self.commands.clone(), self.carriers.clone(), self.peer.clone());
        tokio::spawn(async move {
            let command = match accept_offer(offer, rings, fabric, &commands, peer_end).await {
                Ok((made, writer)) => {
                    // The other end may change over as soon as it learns that this one has.
                    if makes.send(made).is_err() {
                        return;
                    }
                    WriterCommand::Switch(writer)
                }
                Err(NotAccepted::Refused) => return,
                Err(NotAccepted::Failed(reason)) => {
                    carriers.refused();
                    if carriers.preference().expected {
                        tracing::warn!(%peer, reason, "frames travel by TCP");
                    } else {
                        tracing::debug!(%peer, reason, "frames travel by TCP");
                    }
                    let _ = fails.send(reason);
                    WriterCommand::Send(CarrierMessage::Decline)
                }
            };
            let _ = commands.send(command).await;
        });
        failed
    }

    /// Sets up this end of an RDMA connection, beside the link.
    fn join(&mut self, fabric: Arc<dyn Fabric>, theirs: RdmaEndpoint) {
        let (makes, made) = oneshot::channel();
        self.state = State::Making { made, peer_end: None };
        let (commands, carriers, peer) = (self.commands.clone(), self.carriers.clone(), self.peer.clone());
        tokio::spawn(async move {
            let joined = blocking(move || {
                let end = fabric.begin()?;
                let mine = to_wire(end.endpoint());
                Ok((mine, end.join(from_wire(theirs))?))
            });
            let message = match joined.await {
                Ok((mine, (reader, writer))) => {
                    let (inbound, outbound) = (Box::new(reader), Some(Box::new(writer) as _));
                    // Before the other end learns that it may change over.
                    if makes.send(Made { carrier: Carrier::Rdma, inbound, outbound }).is_err() {
                        return;
                    }
                    CarrierMessage::Joined(mine)
                }
                Err(reason) => {
                    carriers.refused();
                    tracing::warn!(%peer, reason, "no RDMA for frames with this peer");
                    CarrierMessage::Refuse
                }
            };
            let _ = commands.send(WriterCommand::Send(message)).await;
        });
    }

    /// The frames of the link's user go over RDMA, beside the link.
    pub(crate) fn carried_by_rdma(&self) {
        self.place.carried_by(Carrier::Rdma);
    }

    fn changed_over(&mut self, Made { carrier, inbound, outbound }: Made) -> CarrierChange {
        // Before this end announces it: the other one may check at once.
        self.moved = true;
        self.place.carried_by(carrier);
        tracing::debug!(peer = %self.peer, carrier = carrier.label(), "frames come another way");
        if let Some(outbound) = outbound {
            self.command(WriterCommand::Switch(outbound));
        }
        CarrierChange::Now(inbound)
    }

    fn send(&self, message: CarrierMessage) {
        self.command(WriterCommand::Send(message));
    }

    fn command(&self, command: WriterCommand) {
        // A writer that has ended sends nothing, and no peer sends so many messages that the others have to wait.
        let _ = self.commands.try_send(command);
    }
}

/// Why an offer was not accepted.
enum NotAccepted {
    /// This end could not; the other end has to be told.
    Failed(String),
    /// The other end said so, or its link has ended.
    Refused,
}

/// Shared memory if it is offered and works, otherwise RDMA.
async fn accept_offer(
    offer: CarrierOffer,
    rings: Option<Rings>,
    fabric: Option<Arc<dyn Fabric>>,
    commands: &mpsc::Sender<WriterCommand>,
    peer_end: oneshot::Receiver<RdmaEndpoint>,
) -> Result<(Made, Box<dyn Outbound>), NotAccepted> {
    let mut reason = "the two have nothing in common; see frames.transport of both".to_owned();
    if let (Some(SharingOffer { name, secret: SharingSecret(secret) }), Some(rings)) = (offer.sharing, rings) {
        match rings.join(&RingOffer { name, secret }).await {
            Ok((reader, writer)) => {
                let made = Made { carrier: Carrier::SharedMemory, inbound: Box::new(reader), outbound: None };
                return Ok((made, Box::new(writer)));
            }
            Err(failed) => reason = failed,
        }
    }
    let Some(fabric) = fabric.filter(|_| offer.rdma) else { return Err(NotAccepted::Failed(reason)) };
    let end = blocking(move || fabric.begin()).await.map_err(NotAccepted::Failed)?;
    let _ = commands.send(WriterCommand::Send(CarrierMessage::Join(to_wire(end.endpoint())))).await;
    let theirs = peer_end.await.map_err(|_| NotAccepted::Refused)?;
    let (reader, writer) = join_and_prove(end, theirs).await.map_err(NotAccepted::Failed)?;
    let made = Made { carrier: Carrier::Rdma, inbound: Box::new(reader), outbound: None };
    Ok((made, Box::new(writer)))
}

/// Connects to the other end, which is connected to this one already, and checks that it answers.
async fn join_and_prove(end: Box<dyn FabricEnd>, theirs: RdmaEndpoint) -> Result<FabricStreams, String> {
    let (reader, mut writer) = blocking(move || end.join(from_wire(theirs))).await?;
    proved(writer.prove()).await?;
    Ok((reader, writer))
}

/// Device calls are system calls, some of which take a while. Beyond the limit of concurrent calls they wait for their
/// turn.
async fn blocking<T: Send + 'static>(what: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    static TURNS: Semaphore = Semaphore::const_new(DEVICE_CALLS_AT_ONCE);
    let _turn = TURNS.acquire().await.map_err(|error| error.to_string())?;
    tokio::task::spawn_blocking(what).await.map_err(|error| error.to_string())?
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_thousand_links_do_not_take_a_thousand_threads() {
        static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
        let call = || {
            blocking(|| {
                let under_way = UNDER_WAY.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::sleep(Duration::from_micros(500));
                UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
                Ok(under_way)
            })
        };
        let calls: Vec<_> = (0..1000).map(|_| tokio::spawn(call())).collect();
        let mut most = 0;
        for done in calls {
            most = most.max(done.await.unwrap().unwrap());
        }
        assert!((2..=DEVICE_CALLS_AT_ONCE).contains(&most), "{most} calls at once");
    }
}
