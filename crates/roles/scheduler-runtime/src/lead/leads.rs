//! What this node leads, and what frontends are told that ask for it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use symphony_protocol::view::View;
use symphony_types::{BootId, NodeId, SubclusterId, Token};
use tokio::sync::watch;

use crate::lead::subcluster::LedSubcluster;

/// How long a frontend that knows of a newer assignment than this node waits for it here: less than it waits for a
/// welcome.
const HELLO_HELD_FOR: Duration = Duration::from_millis(200);

pub(crate) type LedBySubcluster = HashMap<SubclusterId, Arc<LedSubcluster>>;

/// The leads of a node.
#[derive(Debug)]
pub(crate) struct Leads {
    pub(crate) me: (NodeId, BootId),
    pub(crate) led: RwLock<LedBySubcluster>,
    pub(crate) view: watch::Receiver<Arc<View>>,
    /// Whether this node may lead: it has been in contact with the control group lately.
    pub(crate) contact: watch::Receiver<bool>,
    /// Counts the changes of `led`.
    pub(crate) changes: watch::Sender<u64>,
}

/// What a frontend is told.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Here it is led.
    Leads(Arc<LedSubcluster>),
    /// Somebody else leads, or nobody under that token; the token that is known.
    NotLeader(Token),
    /// This node has lost the control group: it may not lead, and does not know who does.
    Suspended,
}

impl Leads {
    pub(crate) fn read(&self) -> std::sync::RwLockReadGuard<'_, LedBySubcluster> {
        self.led.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> std::sync::RwLockWriteGuard<'_, LedBySubcluster> {
        self.led.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are led now.
    pub(crate) fn living(&self) -> Vec<(SubclusterId, Arc<LedSubcluster>)> {
        let led = self.read();
        led.iter().filter(|(_, lead)| !lead.ended.is_cancelled()).map(|(&id, lead)| (id, Arc::clone(lead))).collect()
    }

    /// Those that are led now and that `wanted` names.
    pub(crate) fn of(&self, wanted: impl Fn(&LedSubcluster) -> bool) -> Vec<Arc<LedSubcluster>> {
        let led = self.read();
        led.values().filter(|lead| wanted(lead) && !lead.ended.is_cancelled()).cloned().collect()
    }

    fn answer(&self, subcluster: SubclusterId, token: Token) -> Option<Answer> {
        let view = Arc::clone(&self.view.borrow());
        let known = view.subclusters.get(&subcluster);
        let current = known.map_or(Token::default(), |s| s.token);
        // An assignment may reach a frontend before it reaches this node.
        if token > current {
            return None;
        }
        if token < current {
            return Some(Answer::NotLeader(current));
        }
        if !*self.contact.borrow() {
            return Some(Answer::Suspended);
        }
        if known.is_none_or(|s| s.leader != Some(self.me)) {
            return Some(Answer::NotLeader(current));
        }
        let led = self.read();
        match led.get(&subcluster).filter(|lead| lead.token == token) {
            Some(lead) if lead.ended.is_cancelled() => Some(Answer::NotLeader(current)),
            Some(lead) => Some(Answer::Leads(Arc::clone(lead))),
            None => None,
        }
    }

    /// The answer to a frontend; waits for an assignment that is on its way here, a moment.
    pub(crate) async fn ask(&self, subcluster: SubclusterId, token: Token) -> Answer {
        let (mut view, mut changes) = (self.view.clone(), self.changes.subscribe());
        let answered = async {
            loop {
                view.mark_unchanged();
                changes.mark_unchanged();
                if let Some(answer) = self.answer(subcluster, token) {
                    return answer;
                }
                let more = tokio::select! {
                    changed = view.changed() => changed.is_ok(),
                    changed = changes.changed() => changed.is_ok(),
                };
                if !more {
                    return Answer::NotLeader(Token::default());
                }
            }
        };
        let held = tokio::time::timeout(HELLO_HELD_FOR, answered).await;
        held.unwrap_or_else(|_| {
            if !*self.contact.borrow() {
                return Answer::Suspended;
            }
            let known = self.view.borrow().subclusters.get(&subcluster).map(|s| s.token);
            Answer::NotLeader(known.unwrap_or_default())
        })
    }
}
