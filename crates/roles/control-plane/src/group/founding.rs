//! What a replica asks the others before it joins Raft. With an empty disk: may it found the control group? Only if no
//! replica has one. With data: does another replica know of a later boot of it? With a state from a backup: does
//! another replica have a log?

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use symphony_cluster_state::Refusal;
use symphony_consensus::founding::{
    ANSWER_WITHIN, ASK_AGAIN_AFTER, FoundingError, MemberStatus, Newcomer, PeerState, Question,
};
use symphony_protocol::control as pb;
use symphony_protocol::view::{VIEW_BYTES_MAX, View};
use symphony_types::NodeId;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::config::ControlPlaneConfig;
use crate::error::Fatal;
use crate::group::boot_history::BootHistory;
use crate::group::propose::{AttemptError, Proposer};

/// How long a replica with data waits for the others. Live replicas answer at once; what the dead ones know comes
/// later, with the leader's appends and at registration.
const REJOIN_WAIT: Duration = Duration::from_millis(300);

/// Founds the group unless one exists, or begins it anew where it was restored, and answers the others' questions once
/// it may.
pub(crate) async fn found(config: &ControlPlaneConfig, proposer: &Proposer) -> Result<(), Fatal> {
    let peer_state = |node, question| peer_state(config, proposer, node, question);
    let (newcomer, group) = (newcomer(config), proposer.group());
    let taken = match group.begins_anew() {
        true => newcomer.begin(group, peer_state).await,
        false => newcomer.take_part(group, peer_state).await,
    };
    taken.map_err(|error| ends(config, error))
}

fn newcomer(config: &ControlPlaneConfig) -> Newcomer {
    Newcomer {
        node: config.node,
        voters: config.replicas.iter().map(|(&node, addrs)| (node, addrs.control.clone())).collect(),
        join: config.join,
        data_dir: config.data_dir.clone(),
        what: "cluster",
    }
}

/// What another replica of this cluster answers.
async fn peer_state(
    config: &ControlPlaneConfig,
    proposer: &Proposer,
    node: NodeId,
    question: Question,
) -> Result<PeerState, String> {
    let (log_entries, view) = ask(proposer, node, question).await?;
    if view.cluster != config.cluster {
        return Err(format!("a replica of the cluster `{}` answers there", view.cluster));
    }
    let newcomer_status = member_status(config.node, &view);
    Ok(PeerState { applied_index: view.applied_index, log_entries, newcomer_status })
}

/// The words with which a replica ends that takes no part.
fn ends(config: &ControlPlaneConfig, error: FoundingError) -> Fatal {
    let me = config.node;
    match error {
        FoundingError::Known => Fatal(format!(
            "scheduler {me} has an empty disk ({}), but the cluster knows it: what it voted for is forgotten. \
             Give it a new id (symphony members replace {} --with NEW --control HOST:PORT) or its old disk",
            config.data_dir.display(),
            me.get()
        )),
        FoundingError::Removed => Fatal(Refusal::NodeRemoved { node: me }.to_string()),
        error @ FoundingError::NotAlone { .. } => Fatal(format!(
            "scheduler {me} takes no part: {error}. If that one is to stay, empty {}",
            config.data_dir.display()
        )),
        error @ (FoundingError::Stranger | FoundingError::Group(_)) => Fatal(error.to_string()),
    }
}

/// Whether a view knows the replica that asks for it.
fn member_status(me: NodeId, view: &View) -> MemberStatus {
    if view.nodes.contains_key(&me) {
        MemberStatus::Known
    } else if view.removed_nodes.contains(&me) {
        MemberStatus::Removed
    } else {
        MemberStatus::New
    }
}

/// Lets a replica with data join Raft, unless another replica knows of a boot of it that its disk does not.
pub(crate) async fn rejoin(
    config: &ControlPlaneConfig,
    proposer: &Proposer,
    boot_history: &BootHistory,
) -> Result<(), Fatal> {
    let (group, give_up) = (proposer.group(), Instant::now() + REJOIN_WAIT);
    let answer = |node| async move {
        loop {
            match ask(proposer, node, Question::Replica).await {
                Ok((_, view)) => return (node, view),
                Err(_) => sleep(ASK_AGAIN_AFTER).await,
            }
        }
    };
    let mut answers: FuturesUnordered<_> = proposer.others().into_iter().map(answer).collect();
    while let Ok(Some((by, view))) = timeout_at(give_up, answers.next()).await {
        if is_behind(config.node, boot_history, group.last_index(), &view) {
            tracing::error!(%by, "another replica knows of a later boot of this one");
            group.forget();
            return Err(Fatal::forgotten(config));
        }
    }
    group.set_open(true);
    Ok(())
}

/// Whether the view names a boot of this replica that its disk does not know.
pub(crate) fn names_another(me: NodeId, boot_history: &BootHistory, view: &View) -> bool {
    let named = view.nodes.get(&me).and_then(|node| node.boot);
    named.is_some_and(|boot| !boot_history.know(boot))
}

/// Whether that boot is a later one. A view no newer than this replica's log can only name earlier ones.
fn is_behind(me: NodeId, boot_history: &BootHistory, last_index: u64, view: &View) -> bool {
    #[cfg(feature = "planted-faults")]
    if symphony_consensus::planted::is(symphony_consensus::planted::Bug::BootsUnasked) {
        return false;
    }
    view.applied_index > last_index && names_another(me, boot_history, view)
}

/// How many entries another replica's log has had, and its view; or why it does not answer.
async fn ask(proposer: &Proposer, node: NodeId, question: Question) -> Result<(u64, View), String> {
    let linearizable = question == Question::Quorum;
    let client = proposer.client(node).map_err(|error| match error {
        AttemptError::Retry(why) => why,
        AttemptError::Fatal(error) => error.to_string(),
    })?;
    let mut client = client.max_decoding_message_size(VIEW_BYTES_MAX);
    let answer = timeout(ANSWER_WITHIN, client.get(pb::GetRequest { linearizable })).await;
    let answer = answer.map_err(|_| format!("no answer within {ANSWER_WITHIN:?}"))?;
    let answer = answer.map_err(|status| status.message().to_owned())?.into_inner();
    // Only its leader answers for a quorum.
    if question == Question::Replica && answer.replica != node.get() {
        return Err(format!("replica {} answers there", answer.replica));
    }
    let log_entries = answer.log_entries;
    Ok((log_entries, View::try_from(answer).map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::NodeView;
    use symphony_types::BootId;

    use super::*;

    const ME: NodeId = NodeId::new(3);

    #[test]
    fn who_is_registered_is_known_and_who_was_removed_is_not_new() {
        let there = View { nodes: [(ME, NodeView::default())].into(), ..View::default() };
        let removed = View { removed_nodes: [ME].into(), ..View::default() };
        let other = View { nodes: [(NodeId::new(1), NodeView::default())].into(), ..View::default() };
        let statuses = [there, removed, other].map(|view| member_status(ME, &view));
        assert_eq!(statuses, [MemberStatus::Known, MemberStatus::Removed, MemberStatus::New]);
    }

    #[test]
    fn who_has_seen_more_and_names_an_unknown_boot_shows_that_the_disk_is_an_older_copy() {
        let dir = tempfile::tempdir().unwrap();
        let boot_history = BootHistory::begin(dir.path(), false, BootId::new(7), None).unwrap();
        let view = |applied_index, boot: Option<u64>| {
            let node = NodeView { boot: boot.map(BootId::new), ..NodeView::default() };
            View { applied_index, nodes: [(ME, node)].into(), ..View::default() }
        };
        assert!(is_behind(ME, &boot_history, 20, &view(21, Some(8))));
        assert!(!is_behind(ME, &boot_history, 20, &view(21, Some(7))), "it knows that boot");
        assert!(!is_behind(ME, &boot_history, 20, &view(20, Some(8))), "an earlier boot, by one who lags");
        assert!(
            !is_behind(ME, &boot_history, 20, &view(21, None)) && !is_behind(ME, &boot_history, 20, &View::default())
        );
    }
}
