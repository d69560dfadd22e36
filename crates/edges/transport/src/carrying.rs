//! One link's end of the agreement on what carries its frames ([`Carry`]): on its connection it begins. It goes on
//! through shared memory if both ends want that and are on one host, else over RDMA if both have that.
//!
//! ```text
//! who dialled   ── Ask ──▶            ◀── Offer ──   who accepted
//!               takes memory up over the host's socket, or else
//!               ── Join ──▶           ◀── Joined ──
//!               finds out that the other end is there, and then
//!               ── Switch ──▶         ◀── Switch ──
//!               ══ frames the other way ═════════▶
//! ```
//!
//! Nobody waits meanwhile: frames pass on the connection until each direction changes over, in order. Afterwards the
//! connection tells that the other end lives, and nothing else.

use std::sync::Arc;

use symphony_net::{
    Carrier, Carriers, Fabric, FabricEnd, FabricStreams, LinkPlace, PeerInfo, RingAdmission, RingOffer, Rings,
};
use symphony_protocol::carry::{Carry, CarryOffer};
use symphony_protocol::data::{RdmaEndpoint, SharingOffer, SharingSecret};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::link::{Inbound, Outbound};
use crate::proof::proved;
use crate::rdma_endpoint::{heard, said};

/// Messages after which whoever dialled asks for another carrier: a link that is hardly used is not worth it, and one
/// that a new leader makes among a thousand has other things to do first.
pub(crate) const CARRY_AFTER_MESSAGES: u64 = 32;

/// What a link's end may have to say of its carrier before its writer comes to it: each word is said once.
pub(crate) const TURNS_MAX: usize = 8;

/// Calls to the device that a process has under way at a time for its links, each of which takes a thread: a new leader
/// makes a thousand links at once, and the kernel does such work one after the other anyway.
const DEVICE_CALLS_AT_ONCE: usize = 8;

/// What a link's writer does about its carrier.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Says this.
    Say(Carry),
    /// Says that it changes over, and does.
    Switch(Box<dyn Outbound>),
}

/// Which end of a connection this is, and when it asks for another carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was dialled, and offers. With `true`, messages that come over the connection end the link.
    Accepted { must: bool },
    /// It dialled, and asks before its first message and waits.
    AsksFirst,
    /// It dialled, and asks once the link is in use.
    AsksInUse,
    /// It dialled, and asks for shared memory when it is told to, or never.
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

/// What became of a word.
#[derive(Debug)]
pub(crate) enum Carried {
    /// The link goes on as it was.
    AsBefore,
    /// What comes next comes from here.
    Now(Box<dyn Inbound>),
    /// Another carrier is being made; says why if nothing comes of it.
    Making(oneshot::Receiver<String>),
    /// The other end has nothing else.
    Refused,
    /// The link ends, since the other end does not go on over its connection.
    Ended,
}

#[derive(Debug)]
enum State {
    /// Nobody asked yet.
    New,
    /// The other end may come for memory, or with its end of an RDMA connection.
    Offered { memory: Option<RingAdmission>, fabric: Option<Arc<dyn Fabric>> },
    /// Another carrier is being made, beside the link.
    Making {
        /// Before this end says anything that the other one could answer by changing over.
        made: oneshot::Receiver<Made>,
        /// Who makes it may wait for the other end of an RDMA connection.
        told: Option<oneshot::Sender<RdmaEndpoint>>,
    },
    /// It is decided.
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

/// Where a link's end stands.
#[derive(Debug)]
pub(crate) struct Carrying {
    end: End,
    state: State,
    /// Whether messages come another way than over the connection.
    moved: bool,
    turns: mpsc::Sender<Turn>,
    carriers: Carriers,
    place: LinkPlace,
    peer: PeerInfo,
}

impl Carrying {
    pub(crate) fn new(
        end: End,
        turns: mpsc::Sender<Turn>,
        carriers: Carriers,
        link: &'static str,
        peer: PeerInfo,
    ) -> Self {
        let place = carriers.opened(link, peer.to_string());
        Self { end, state: State::New, moved: false, turns, carriers, place, peer }
    }

    /// Whether a message that comes now should not have come.
    pub(crate) const fn refuses_messages(&self) -> bool {
        matches!(self.end, End::Accepted { must: true }) && !self.moved
    }

    /// Tells the other end that it came over the connection.
    pub(crate) fn refuse(&self) {
        self.carriers.refused();
        tracing::warn!(peer = %self.peer,
            "link refused: frames.required, and the peer has no other way than TCP in common with this process");
        self.say(Carry::Required);
    }

    /// Asks the other end, once.
    pub(crate) fn ask(&self) {
        let has_any = self.carriers.rings().is_some() || self.fabric().is_some();
        if has_any && matches!(self.state, State::New) {
            self.say(Carry::Ask);
        }
    }

    /// What may carry this link to another host. Links that are told when to ask go where their payloads go.
    fn fabric(&self) -> Option<&Arc<dyn Fabric>> {
        if self.end == End::AsksWhenTold { None } else { self.carriers.fabric_with(&self.peer) }
    }

    /// Takes a word of the other end.
    ///
    /// # Errors
    /// If nobody who keeps the rules would have said that now.
    pub(crate) fn hear(&mut self, word: Carry) -> Result<Carried, &'static str> {
        let accepted = matches!(self.end, End::Accepted { .. });
        match (word, std::mem::replace(&mut self.state, State::Done)) {
            (Carry::Ask, State::New) if accepted => {
                self.offer();
                Ok(Carried::AsBefore)
            }
            (Carry::Offer(offer), State::New) if !accepted => Ok(Carried::Making(self.take_up(offer))),
            (Carry::Join(theirs), State::Offered { fabric: Some(fabric), .. }) => {
                self.join(fabric, theirs);
                Ok(Carried::AsBefore)
            }
            (Carry::Joined(theirs), State::Making { made, told: Some(told) }) => {
                // Who has given up has said so.
                let _ = told.send(theirs);
                self.state = State::Making { made, told: None };
                Ok(Carried::AsBefore)
            }
            (Carry::Switch, State::Offered { memory: Some(mut admission), .. }) => {
                let (reader, writer) = admission.streams().ok_or("it changes over to memory that nobody came for")?;
                let (inbound, outbound) = (Box::new(reader), Some(Box::new(writer) as _));
                Ok(self.changed_over(Made { carrier: Carrier::SharedMemory, inbound, outbound }))
            }
            (Carry::Switch, State::Making { mut made, .. }) => {
                let made = made.try_recv().map_err(|_| "it changes over to what is not made yet")?;
                Ok(self.changed_over(made))
            }
            (Carry::Decline, State::Offered { .. } | State::Making { .. }) if accepted => {
                self.carriers.refused();
                Ok(Carried::AsBefore)
            }
            (Carry::Refuse, State::New | State::Making { told: Some(_), .. }) if !accepted => {
                self.carriers.refused();
                if self.carriers.wish().expected {
                    tracing::warn!(peer = %self.peer, "frames travel by TCP: the peer has nothing else; see its frames.transport");
                }
                Ok(Carried::Refused)
            }
            (Carry::Required, _) if !accepted => {
                self.carriers.is_required_by(&self.peer.to_string());
                tracing::warn!(peer = %self.peer, "the peer takes no frames over TCP (frames.required)");
                Ok(Carried::Ended)
            }
            _ => Err("a word about the carrier out of turn"),
        }
    }

    /// Says what this process has.
    fn offer(&mut self) {
        let fabric = self.fabric().cloned();
        let (sharing, memory) = self.carriers.rings().map(Rings::offer).unzip();
        if sharing.is_none() && fabric.is_none() {
            return self.say(Carry::Refuse);
        }
        let sharing = sharing.map(|RingOffer { name, secret }| SharingOffer { name, secret: SharingSecret(secret) });
        self.say(Carry::Offer(CarryOffer { sharing, rdma: fabric.is_some() }));
        self.state = State::Offered { memory, fabric };
    }

    /// Takes up an offer, beside the link. The receiver hears why nothing came of it.
    fn take_up(&mut self, offer: CarryOffer) -> oneshot::Receiver<String> {
        let (makes, made) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let (fails, failed) = oneshot::channel();
        self.state = State::Making { made, told: Some(tell) };
        let (rings, fabric) = (self.carriers.rings().cloned(), self.fabric().cloned());
        let (turns, carriers, peer) = (self.turns.clone(), self.carriers.clone(), self.peer.clone());
        tokio::spawn(async move {
            let turn = match take_up(offer, rings, fabric, &turns, told).await {
                Ok((made, writer)) => {
                    // The other end may change over as soon as it hears that this one has.
                    if makes.send(made).is_err() {
                        return;
                    }
                    Turn::Switch(writer)
                }
                Err(GaveUp::Refused) => return,
                Err(GaveUp::Failed(reason)) => {
                    carriers.refused();
                    if carriers.wish().expected {
                        tracing::warn!(%peer, reason, "frames travel by TCP");
                    } else {
                        tracing::debug!(%peer, reason, "frames travel by TCP");
                    }
                    let _ = fails.send(reason);
                    Turn::Say(Carry::Decline)
                }
            };
            let _ = turns.send(turn).await;
        });
        failed
    }

    /// Makes this end of an RDMA connection, beside the link.
    fn join(&mut self, fabric: Arc<dyn Fabric>, theirs: RdmaEndpoint) {
        let (makes, made) = oneshot::channel();
        self.state = State::Making { made, told: None };
        let (turns, carriers, peer) = (self.turns.clone(), self.carriers.clone(), self.peer.clone());
        tokio::spawn(async move {
            let joined = blocking(move || {
                let end = fabric.begin()?;
                let mine = said(end.endpoint());
                Ok((mine, end.join(heard(theirs))?))
            });
            let word = match joined.await {
                Ok((mine, (reader, writer))) => {
                    let (inbound, outbound) = (Box::new(reader), Some(Box::new(writer) as _));
                    // Before the other end hears that it may change over.
                    if makes.send(Made { carrier: Carrier::Rdma, inbound, outbound }).is_err() {
                        return;
                    }
                    Carry::Joined(mine)
                }
                Err(reason) => {
                    carriers.refused();
                    tracing::warn!(%peer, reason, "no RDMA for frames with this peer");
                    Carry::Refuse
                }
            };
            let _ = turns.send(Turn::Say(word)).await;
        });
    }

    /// The frames of the link's user go over RDMA beside it.
    pub(crate) fn carried_by_rdma(&self) {
        self.place.carried_by(Carrier::Rdma);
    }

    fn changed_over(&mut self, Made { carrier, inbound, outbound }: Made) -> Carried {
        // Before this end says so: whoever hears that may look at once.
        self.moved = true;
        self.place.carried_by(carrier);
        tracing::debug!(peer = %self.peer, carrier = carrier.label(), "frames come another way");
        if let Some(outbound) = outbound {
            self.turn(Turn::Switch(outbound));
        }
        Carried::Now(inbound)
    }

    fn say(&self, word: Carry) {
        self.turn(Turn::Say(word));
    }

    fn turn(&self, turn: Turn) {
        // A writer that has ended has nothing to say, and no peer says so many words that the others wait.
        let _ = self.turns.try_send(turn);
    }
}

/// Why nothing came of an offer.
enum GaveUp {
    /// This end could not, and the other one is to hear that.
    Failed(String),
    /// The other end has said so, or its link has ended.
    Refused,
}

/// Memory of this host if that is offered and works, else RDMA.
async fn take_up(
    offer: CarryOffer,
    rings: Option<Rings>,
    fabric: Option<Arc<dyn Fabric>>,
    turns: &mpsc::Sender<Turn>,
    told: oneshot::Receiver<RdmaEndpoint>,
) -> Result<(Made, Box<dyn Outbound>), GaveUp> {
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
    let Some(fabric) = fabric.filter(|_| offer.rdma) else { return Err(GaveUp::Failed(reason)) };
    let end = blocking(move || fabric.begin()).await.map_err(GaveUp::Failed)?;
    let _ = turns.send(Turn::Say(Carry::Join(said(end.endpoint())))).await;
    let theirs = told.await.map_err(|_| GaveUp::Refused)?;
    let (reader, writer) = join_and_prove(end, theirs).await.map_err(GaveUp::Failed)?;
    let made = Made { carrier: Carrier::Rdma, inbound: Box::new(reader), outbound: None };
    Ok((made, Box::new(writer)))
}

/// Connects to the other end, which is connected to this one already, and finds out whether it is there.
async fn join_and_prove(end: Box<dyn FabricEnd>, theirs: RdmaEndpoint) -> Result<FabricStreams, String> {
    let (reader, mut writer) = blocking(move || end.join(heard(theirs))).await?;
    proved(writer.prove()).await?;
    Ok((reader, writer))
}

/// Devices are asked by system calls, some of which take a while. Who comes when as many are under way as may be waits
/// for its turn.
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
