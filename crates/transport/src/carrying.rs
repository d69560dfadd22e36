//! One link's end of the agreement on what carries its frames ([`Carry`]): on its connection it begins, and through shared memory it goes
//! on if both ends want that and are on one host.
//!
//! ```text
//! who dialled   ── Ask ──▶            ◀── Offer ──   who accepted
//!               takes it up over the host's socket
//!               ── Switch ──▶         ◀── Switch ──
//!               ══ frames by rings ══════════════▶
//! ```
//!
//! Nobody waits meanwhile: frames pass on the connection until each direction changes over, in order. Afterwards the connection tells that
//! the other end lives, and nothing else.

use symphony_net::{Carrier, Carriers, LinkPlace, RingAdmission, RingOffer, RingStreams};
use symphony_protocol::carry::Carry;
use symphony_protocol::data::{SharingOffer, SharingSecret};
use tokio::sync::{mpsc, oneshot};

use crate::link::{Inbound, Outbound};

/// Messages after which whoever dialled asks for shared memory: a link that is hardly used is not worth it, and one that a new leader makes
/// among a thousand has other things to do first.
pub(crate) const SHARE_AFTER_MESSAGES: u64 = 32;

/// What a link's end may have to say of its carrier before its writer comes to it: each word is said once.
pub(crate) const TURNS_MAX: usize = 8;

/// What a link's writer does about its carrier.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Says this.
    Say(Carry),
    /// Says that it changes over, and does.
    Switch(Box<dyn Outbound>),
}

/// Which end of a connection this is, and when it asks for shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was dialled, and offers. With `true`, messages that come otherwise end the link.
    Accepted { must: bool },
    /// It dialled, and asks before its first message and waits.
    AsksFirst,
    /// It dialled, and asks once the link is in use.
    AsksInUse,
    /// It dialled, and asks when it is told to, or never.
    AsksWhenTold,
}

impl End {
    /// Messages after which the writer asks by itself.
    pub(crate) const fn asks_after(self) -> Option<u64> {
        match self {
            Self::AsksInUse => Some(SHARE_AFTER_MESSAGES),
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
    /// The other end offers its memory.
    Offered(RingOffer),
    /// There will be no shared memory between the two.
    Refused,
    /// The link ends, since the other end does not go on without shared memory.
    Ended,
}

#[derive(Debug)]
enum State {
    /// Nobody asked yet.
    New,
    /// The other end may come.
    Offered(RingAdmission),
    /// The offer is being taken up.
    Joining(oneshot::Receiver<Box<dyn Inbound>>),
    /// It is decided.
    Done,
}

/// Where a link's end stands.
#[derive(Debug)]
pub(crate) struct Carrying {
    end: End,
    state: State,
    shares: bool,
    turns: mpsc::Sender<Turn>,
    carriers: Carriers,
    place: LinkPlace,
    peer: String,
}

impl Carrying {
    pub(crate) fn new(
        end: End,
        turns: mpsc::Sender<Turn>,
        carriers: Carriers,
        link: &'static str,
        peer: String,
    ) -> Self {
        let place = carriers.opened(link, peer.clone());
        Self { end, state: State::New, shares: false, turns, carriers, place, peer }
    }

    /// Whether a message that comes now should not have come.
    pub(crate) const fn refuses_messages(&self) -> bool {
        matches!(self.end, End::Accepted { must: true }) && !self.shares
    }

    /// Tells the other end that it came without.
    pub(crate) fn refuse(&self) {
        self.carriers.refused();
        tracing::warn!(peer = %self.peer, "link refused: frames.required, and the peer shares no memory with this process");
        self.say(Carry::MustShare);
    }

    /// Asks the other end, once.
    pub(crate) fn ask(&self) {
        if self.carriers.rings().is_some() && matches!(self.state, State::New) {
            self.say(Carry::Ask);
        }
    }

    /// Takes a word of the other end.
    ///
    /// # Errors
    /// If nobody who keeps the rules would have said that now.
    pub(crate) fn hear(&mut self, word: Carry) -> Result<Carried, &'static str> {
        let accepted = matches!(self.end, End::Accepted { .. });
        match (word, std::mem::replace(&mut self.state, State::Done)) {
            (Carry::Ask, State::New) if accepted => {
                let Some(rings) = self.carriers.rings() else {
                    self.say(Carry::Refuse);
                    return Ok(Carried::AsBefore);
                };
                let (offer, admission) = rings.offer();
                self.state = State::Offered(admission);
                let secret = SharingSecret(offer.secret);
                self.say(Carry::Offer(SharingOffer { name: offer.name, secret }));
                Ok(Carried::AsBefore)
            }
            (Carry::Offer(SharingOffer { name, secret: SharingSecret(secret) }), State::New) if !accepted => {
                Ok(Carried::Offered(RingOffer { name, secret }))
            }
            (Carry::Switch, State::Offered(mut admission)) => {
                let (reader, writer) = admission.streams().ok_or("it changes over to memory that nobody came for")?;
                // Before this end says so: whoever hears that may look at once.
                self.changed_over();
                self.turn(Turn::Switch(Box::new(writer)));
                Ok(Carried::Now(Box::new(reader)))
            }
            (Carry::Switch, State::Joining(mut joined)) => {
                let reader = joined.try_recv().map_err(|_| "it changes over to memory that nobody has joined")?;
                self.changed_over();
                Ok(Carried::Now(reader))
            }
            (Carry::Decline, State::Offered(_)) => {
                self.carriers.refused();
                Ok(Carried::AsBefore)
            }
            (Carry::Refuse, State::New) if !accepted => {
                self.carriers.refused();
                if self.carriers.wish().expected {
                    tracing::warn!(peer = %self.peer, "frames travel by TCP: the peer shares no memory; see its frames.transport");
                }
                Ok(Carried::Refused)
            }
            (Carry::MustShare, _) if !accepted => {
                self.carriers.is_required_by(&self.peer);
                tracing::warn!(peer = %self.peer, "the peer requires shared memory for frames (frames.required)");
                Ok(Carried::Ended)
            }
            _ => Err("a word about the carrier out of turn"),
        }
    }

    /// Takes up an offer, beside the link.
    pub(crate) fn join_beside(&mut self, offer: RingOffer) {
        let Some(rings) = self.carriers.rings().cloned() else { return };
        let joins = self.joining();
        let (turns, carriers, peer) = (self.turns.clone(), self.carriers.clone(), self.peer.clone());
        tokio::spawn(async move {
            let turn = match rings.join(&offer).await {
                Ok(streams) => joined(streams, joins),
                Err(reason) => {
                    carriers.refused();
                    if carriers.wish().expected {
                        tracing::warn!(%peer, reason, "frames travel by TCP");
                    } else {
                        tracing::debug!(%peer, reason, "frames travel by TCP");
                    }
                    Turn::Say(Carry::Decline)
                }
            };
            let _ = turns.send(turn).await;
        });
    }

    /// Takes up an offer and waits for it.
    ///
    /// # Errors
    /// Why nothing came of it.
    pub(crate) async fn join(&mut self, offer: &RingOffer) -> Result<(), String> {
        let rings = self.carriers.rings().cloned().ok_or("this process shares none")?;
        let streams = rings.join(offer).await?;
        let joins = self.joining();
        self.turn(joined(streams, joins));
        Ok(())
    }

    fn joining(&mut self) -> oneshot::Sender<Box<dyn Inbound>> {
        let (joins, joined) = oneshot::channel();
        self.state = State::Joining(joined);
        joins
    }

    pub(crate) fn carried_by_rdma(&self) {
        self.place.carried_by(Carrier::Rdma);
    }

    fn changed_over(&mut self) {
        self.shares = true;
        self.place.carried_by(Carrier::SharedMemory);
        tracing::debug!(peer = %self.peer, "frames come through shared memory");
    }

    fn say(&self, word: Carry) {
        self.turn(Turn::Say(word));
    }

    fn turn(&self, turn: Turn) {
        // A writer that has ended has nothing to say, and no peer says so many words that the others wait.
        let _ = self.turns.try_send(turn);
    }
}

/// What the writer does once there is memory: the other end may change over as soon as it hears that this one has.
fn joined((reader, writer): RingStreams, joins: oneshot::Sender<Box<dyn Inbound>>) -> Turn {
    let _ = joins.send(Box::new(reader));
    Turn::Switch(Box::new(writer))
}
