//! The processes that keep a cluster from a level.

use symphony_types::{FrontendId, Level, Nanos};

use super::{FrontendView, View};

/// A frontend that the leader has not seen for this long has probably ended.
const GONE_AFTER: Nanos = Nanos::from_millis(60_000);

impl View {
    /// The running processes that do not know the level, or of which the leader of the control group does not know
    /// whether they do; each with the reason. Only linearizable answers list them.
    #[must_use]
    pub fn behind(&self, level: Level) -> Vec<String> {
        let lacks = |known: Option<Level>| match known {
            Some(known) if known >= level => None,
            Some(known) => Some(format!("knows level {known} at most")),
            None => Some("has not told what it knows: an older release, or not connected to the leader yet".to_owned()),
        };
        let schedulers = self.group.iter().filter_map(|(id, member)| {
            let is_up = self.nodes.get(id).is_some_and(|node| node.up);
            let why = if is_up { lacks(member.level)? } else { "is down; bring it up, or remove it".to_owned() };
            Some(format!("scheduler {id} {why}"))
        });
        let backends = self
            .backends
            .iter()
            .filter(|(_, backend)| backend.up)
            .filter_map(|(id, backend)| Some(format!("backend {} ({id}) {}", backend.name, lacks(backend.level)?)));
        // A frontend that is only cut off from the leader still serves, by the views of the other replicas: that it has
        // ended is the operator's to say.
        let frontends =
            self.frontends.iter().filter(|(_, frontend)| !frontend.has_left()).filter_map(|(id, frontend)| {
                let why = lacks(frontend.level)?;
                Some(format!("frontend {} ({id}) {}", frontend.name, gone(*id, frontend).unwrap_or(why)))
            });
        schedulers.chain(backends).chain(frontends).collect()
    }
}

/// What to do about a frontend that has probably ended without a goodbye.
fn gone(id: FrontendId, frontend: &FrontendView) -> Option<String> {
    let silent = frontend.silent.filter(|silent| *silent >= GONE_AFTER)?;
    let seconds = silent.get() / 1_000_000_000;
    Some(format!(
        "has not been seen by the leader for {seconds} s: bring it up, or, if it has ended, \
         symphony drain {id} --wait-s 0 and symphony members remove {id}"
    ))
}

#[cfg(test)]
mod tests {
    use symphony_types::{BackendId, NodeId};

    use super::*;
    use crate::view::{BackendView, GroupMemberView, GroupRole, NodeView};

    fn view() -> View {
        let new = Some(Level::NEWEST);
        let member = |level| GroupMemberView {
            control_addr: "a:1".into(),
            role: GroupRole::Voter,
            applied_index: 1,
            lag: 0,
            level,
            silent: None,
            stuck: None,
        };
        let frontend = FrontendView { name: "f".into(), level: new, silent: Some(Nanos::ZERO), ..Default::default() };
        View {
            nodes: [1, 2].map(|id| (NodeId::new(id), NodeView { up: true, ..NodeView::default() })).into(),
            group: [1, 2].map(|id| (NodeId::new(id), member(new))).into(),
            backends: [(
                BackendId::new(1),
                BackendView { name: "b".into(), up: true, level: new, ..BackendView::default() },
            )]
            .into(),
            frontends: [(FrontendId::new(1), frontend)].into(),
            ..View::default()
        }
    }

    fn behind(change: impl FnOnce(&mut View)) -> Vec<String> {
        let mut view = view();
        change(&mut view);
        view.behind(Level::NEWEST)
    }

    #[test]
    fn whoever_is_there_and_older_or_unheard_is_named_and_who_has_gone_is_not() {
        assert_eq!(behind(|_| {}), Vec::<String>::new());
        let (n2, b1, f1) = (NodeId::new(2), BackendId::new(1), FrontendId::new(1));
        let older = |view: &mut View| {
            view.group.get_mut(&n2).unwrap().level = Some(Level::OLDEST);
            view.backends.get_mut(&b1).unwrap().level = None;
            view.frontends.get_mut(&f1).unwrap().level = Some(Level::OLDEST);
        };
        let named = behind(older);
        let knows = |who: &str| format!("{who} knows level {} ", Level::OLDEST);
        let expected = [knows("scheduler n2"), "backend b (b1) has not told".into(), knows("frontend f (f1)")];
        assert!(
            named.len() == 3 && named.iter().zip(&expected).all(|(named, expected)| named.starts_with(expected)),
            "{named:?}"
        );
        assert_eq!(behind(|view| view.nodes.get_mut(&n2).unwrap().up = false).len(), 1, "it comes back one day");
        let gone = |view: &mut View| {
            older(view);
            view.group.remove(&n2);
            view.backends.get_mut(&b1).unwrap().up = false;
            view.frontends.clear();
        };
        assert_eq!(behind(gone), Vec::<String>::new());
        let silent = |view: &mut View| {
            let frontend = view.frontends.get_mut(&f1).unwrap();
            (frontend.level, frontend.silent) = (None, Some(GONE_AFTER));
        };
        let named = behind(silent);
        assert!(named.len() == 1 && named[0].contains("for 60 s") && named[0].ends_with("remove f1"), "{named:?}");
        let left = |view: &mut View| {
            let frontend = view.frontends.get_mut(&f1).unwrap();
            (frontend.level, frontend.leaving, frontend.drained) = (None, true, true);
        };
        assert_eq!(behind(left), Vec::<String>::new());
    }
}
