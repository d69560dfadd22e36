//! The sub-clusters that this node leads, and its answer to frontends that look for a leader.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use symphony_protocol::view::View;
use symphony_types::{BootId, NodeId, SubclusterId, Token};
use tokio::sync::watch;

use crate::lead::subcluster::Lead;

/// How long a frontend with a newer assignment than this node's waits here for the node to catch up. Shorter than the
/// frontend's timeout for a welcome.
const HELLO_WAITS_MAX: Duration = Duration::from_millis(200);

pub(crate) type LeadBySubcluster = HashMap<SubclusterId, Arc<Lead>>;

/// The leads of a node.
#[derive(Debug)]
pub(crate) struct Leads {
    pub(crate) me: (NodeId, BootId),
    pub(crate) led: RwLock<LeadBySubcluster>,
    pub(crate) view: watch::Receiver<Arc<View>>,
    /// Whether this node may lead: it has been in contact with the control group recently.
    pub(crate) contact: watch::Receiver<bool>,
    /// The number of changes of `led`.
    pub(crate) changes: watch::Sender<u64>,
}

/// The answer to a frontend.
#[derive(Debug)]
pub(crate) enum HelloAnswer {
    /// This node leads the sub-cluster.
    Leads(Arc<Lead>),
    /// Another node leads, or no node does under the requested token; carries the newest token known here.
    NotLeader(Token),
    /// This node has lost contact with the control group: it may not lead, and does not know the leader.
    Suspended,
}

impl Leads {
    pub(crate) fn read(&self) -> std::sync::RwLockReadGuard<'_, LeadBySubcluster> {
        self.led.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> std::sync::RwLockWriteGuard<'_, LeadBySubcluster> {
        self.led.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current leads.
    pub(crate) fn living(&self) -> Vec<(SubclusterId, Arc<Lead>)> {
        let led = self.read();
        led.iter().filter(|(_, lead)| !lead.ended.is_cancelled()).map(|(&id, lead)| (id, Arc::clone(lead))).collect()
    }

    /// The current leads that `wanted` accepts.
    pub(crate) fn of(&self, wanted: impl Fn(&Lead) -> bool) -> Vec<Arc<Lead>> {
        let led = self.read();
        led.values().filter(|lead| wanted(lead) && !lead.ended.is_cancelled()).cloned().collect()
    }

    fn answer(&self, subcluster: SubclusterId, token: Token) -> Option<HelloAnswer> {
        let view = Arc::clone(&self.view.borrow());
        let known = view.subclusters.get(&subcluster);
        let current = known.map_or(Token::default(), |s| s.token);
        // An assignment may reach a frontend before it reaches this node.
        if token > current {
            return None;
        }
        if token < current {
            return Some(HelloAnswer::NotLeader(current));
        }
        if !*self.contact.borrow() {
            return Some(HelloAnswer::Suspended);
        }
        if known.is_none_or(|s| s.leader != Some(self.me)) {
            return Some(HelloAnswer::NotLeader(current));
        }
        let led = self.read();
        match led.get(&subcluster).filter(|lead| lead.token == token) {
            Some(lead) if lead.ended.is_cancelled() => Some(HelloAnswer::NotLeader(current)),
            Some(lead) => Some(HelloAnswer::Leads(Arc::clone(lead))),
            None => None,
        }
    }

    /// The answer to a frontend. Waits up to [`HELLO_WAITS_MAX`] for an assignment that is still on its way here.
    pub(crate) async fn answer_hello(&self, subcluster: SubclusterId, token: Token) -> HelloAnswer {
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
                    return HelloAnswer::NotLeader(Token::default());
                }
            }
        };
        let answer = tokio::time::timeout(HELLO_WAITS_MAX, answered).await;
        answer.unwrap_or_else(|_| {
            if !*self.contact.borrow() {
                return HelloAnswer::Suspended;
            }
            let known = self.view.borrow().subclusters.get(&subcluster).map(|s| s.token);
            HelloAnswer::NotLeader(known.unwrap_or_default())
        })
    }
}
