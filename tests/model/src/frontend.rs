//! The frontend: owns requests until each has its outcome, and announces them to the leader.

use crate::broken::Broken;
use crate::log::{Entry, node_id, subcluster};
use crate::world::{Announcement, Request, World};
use crate::{Boot, Mutation, NODES, Scope};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frontend {
    pub(crate) boot: Boot,
    pub(crate) applied: u8,
    /// The node and the number of the link, and the assignment it is for.
    pub(crate) link: Option<(u8, u8, u8)>,
    pub(crate) requests: Vec<Fate>,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    Unborn,
    /// This many times announced.
    Waits {
        announced: u8,
    },
    Ended,
}

impl Frontend {
    pub(crate) fn new(boot: Boot, applied: u8, requests: u8) -> Self {
        Self { boot, applied, link: None, requests: vec![Fate::Unborn; requests as usize] }
    }

    pub(crate) fn waits(&self) -> bool {
        self.requests.iter().any(|fate| matches!(fate, Fate::Waits { .. }))
    }

    /// Marks and lists what waits.
    fn announce(&mut self, which: impl Fn(u8) -> bool) -> Vec<Request> {
        let boot = self.boot;
        let mut all = Vec::new();
        for (number, fate) in self.requests.iter_mut().enumerate() {
            if let Fate::Waits { announced } = fate
                && which(number as u8)
            {
                *announced = (*announced + 1).min(2);
                all.push(Request { boot, number: number as u8 });
            }
        }
        all
    }
}

impl World {
    /// A client's request comes; it is announced at once if there is a leader to tell.
    pub(crate) fn arrive(&mut self, number: u8) {
        self.frontend.requests[number as usize] = Fate::Waits { announced: 0 };
        if let Some((node, link, _)) = self.frontend.link {
            let requests = self.frontend.announce(|one| one == number);
            self.announcements.insert(Announcement { node, link, requests, redriven: false });
        }
    }

    /// The leader by the frontend's view, with the assignment.
    fn leader(&self) -> Option<(u8, u8)> {
        let entry = subcluster(self.log.state(self.frontend.applied))?;
        let leader = entry.leader?;
        let node = (0..NODES as u8).find(|&node| node_id(node) == leader.node)?;
        Some((node, entry.token.get() as u8))
    }

    /// The node that would welcome the frontend now, if it has no link.
    pub(crate) fn can_link(&self) -> Option<(u8, u8)> {
        let (node, since) = self.leader()?;
        let lead = self.schedulers[node as usize].lead.as_ref()?;
        (self.frontend.link.is_none() && lead.since == since).then_some((node, since))
    }

    /// Links, and announces everything without an outcome.
    pub(crate) fn link_frontend(&mut self, node: u8, since: u8) {
        let link = self.spent.links;
        self.spent.links += 1;
        self.frontend.link = Some((node, link, since));
        if let Some(lead) = &mut self.schedulers[node as usize].lead {
            lead.frontend = Some(link);
        }
        let requests = self.frontend.announce(|_| true);
        if !requests.is_empty() {
            self.announcements.insert(Announcement { node, link, requests, redriven: true });
        }
    }

    /// Lets go of a leader that is not the one of the view, or that has gone.
    pub(crate) fn check_link(&mut self) {
        let Some((node, link, since)) = self.frontend.link else { return };
        let lead = self.schedulers[node as usize].lead.as_ref();
        let there = lead.is_some_and(|lead| lead.since == since && lead.frontend == Some(link));
        if !there || self.leader().is_some_and(|leader| leader != (node, since)) {
            self.frontend.link = None;
            self.announcements.retain(|announcement| announcement.link != link);
        }
    }

    pub(crate) fn announced(&mut self, scope: &Scope, announcement: &Announcement) {
        let lead = self.schedulers[announcement.node as usize].lead.as_ref();
        if lead.is_some_and(|lead| lead.frontend == Some(announcement.link)) {
            self.receive_announced(scope, announcement.node, &announcement.requests, announcement.redriven);
        }
    }

    /// A result comes. It names the boot and the number it is for.
    pub(crate) fn result(&mut self, scope: &Scope, result: Request) {
        if result.boot != self.frontend.boot && !scope.has(Mutation::ResultsOfFormerBoots) {
            return;
        }
        let fate = &mut self.frontend.requests[result.number as usize];
        match *fate {
            Fate::Waits { announced } => {
                *fate = Fate::Ended;
                self.redriven_answered |= announced > 1;
                if result.boot != self.frontend.boot {
                    self.breaks(Broken::ForeignAnswer);
                }
            }
            Fate::Ended if scope.has(Mutation::EveryResultCounts) => self.breaks(Broken::TwoOutcomes),
            Fate::Ended | Fate::Unborn => {}
        }
    }

    /// The frontend dies and is back: its requests died with it, and it counts from the beginning.
    pub(crate) fn restart_frontend(&mut self, scope: &Scope) {
        let boot = self.frontend.boot + 1;
        self.log.append(Entry::FrontendUp(boot));
        let link = self.frontend.link.map(|(_, link, _)| link);
        self.announcements.retain(|announcement| Some(announcement.link) != link);
        self.frontend = Frontend::new(boot, self.log.last(), scope.requests);
    }
}
