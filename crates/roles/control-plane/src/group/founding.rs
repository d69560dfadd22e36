//! What a replica asks the others before it joins Raft. With an empty disk: may it found the control group? Only if no
//! replica has one. With data: does another replica know of a later boot of it?

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use symphony_cluster_state::Refusal;
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_types::NodeId;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::config::ControlPlaneConfig;
use crate::error::Fatal;
use crate::group::boot_history::BootHistory;
use crate::group::propose::Proposer;

/// How long to wait for all other replicas if a group exists. After that the answers of a majority, this replica
/// included, are enough to join. Founding a group takes all answers: a replica that is down may hold the state of a
/// group whose other disks are lost.
const LOOK_AROUND_FOR: Duration = Duration::from_secs(1);

/// How often a waiting replica logs which others it waits for.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How long a replica with data waits for the others. Live replicas answer at once; what the dead ones know comes
/// later, with the leader's appends and at registration.
const LOOK_BACK_FOR: Duration = Duration::from_millis(300);

/// Pause between two rounds of questions.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(25);

/// How long one replica may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(250);

/// What another replica said of the group.
#[derive(Clone, Debug, Default)]
struct Answer {
    view: View,
    /// Of its log, applied or not. One that has applied nothing yet may wait for this replica's vote.
    log_entries: u64,
}

impl Answer {
    /// Whether it has no more than the first membership, which every founder writes alike.
    fn is_new(&self) -> bool {
        self.view.applied_index == 0 && self.log_entries <= 1
    }

    fn has_log(&self) -> bool {
        self.view.applied_index > 0 || self.log_entries > 0
    }
}

/// The decision for an empty disk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// All others have answered, and none has more than a group that was founded just now: found it.
    Found,
    /// There is a group: its leader will contact this replica, or an operator will add it.
    Wait,
    /// Answers are missing.
    LookAgain,
    /// This replica was once a member of the group.
    Known,
    /// This replica was a member and was removed.
    Removed,
}

/// Decides by the answers; `others` is the number of other replicas.
fn judge(me: NodeId, join: bool, answers: &BTreeMap<NodeId, Answer>, others: usize, out_of_patience: bool) -> Verdict {
    if answers.values().any(|answer| answer.view.nodes.contains_key(&me)) {
        return Verdict::Known;
    }
    if answers.values().any(|answer| answer.view.removed_nodes.contains(&me)) {
        return Verdict::Removed;
    }
    let exists = answers.values().any(Answer::has_log);
    let (all, majority) = (answers.len() >= others, answers.len() >= others.div_ceil(2));
    // Others may have founded it just now. Who does the same takes part even if they are gone before they say so.
    if all && !join && answers.values().all(Answer::is_new) {
        return Verdict::Found;
    }
    if exists || join {
        return if all || majority && out_of_patience { Verdict::Wait } else { Verdict::LookAgain };
    }
    Verdict::LookAgain
}

/// Founds the group unless one exists, and answers the others' questions once it may.
pub(crate) async fn found(config: &ControlPlaneConfig, proposer: &Proposer) -> Result<(), Fatal> {
    let me = config.node;
    let others: Vec<_> = config.replicas.keys().copied().filter(|&node| node != me).collect();
    let give_up = Instant::now() + LOOK_AROUND_FOR;
    let mut say_at = give_up;
    let mut answers = BTreeMap::new();
    loop {
        // All of them in each round: one that was empty may have founded the group since.
        for &node in &others {
            if let Some(answer) = ask(proposer, node).await {
                answers.insert(node, answer);
            }
        }
        match judge(me, config.join, &answers, others.len(), Instant::now() >= give_up) {
            Verdict::LookAgain => {
                if Instant::now() >= say_at {
                    say_at = Instant::now() + SAY_AGAIN_AFTER;
                    say_who_is_missing(config, &answers);
                }
                sleep(LOOK_AGAIN_AFTER).await;
            }
            Verdict::Known => {
                return Err(Fatal(format!(
                    "scheduler {me} has an empty disk ({}), but the cluster knows it: what it voted for is forgotten. \
                     Give it a new id (symphony members replace {} --with NEW --control HOST:PORT) or its old disk",
                    config.data_dir.display(),
                    me.get()
                )));
            }
            Verdict::Removed => return Err(Fatal(Refusal::NodeRemoved { node: me }.to_string())),
            Verdict::Wait => {
                tracing::info!(node = %me, "waiting to be reached by the control group");
                proposer.group().set_open(true);
                return Ok(());
            }
            Verdict::Found => {
                proposer.group().set_open(true);
                let voters = config.replicas.iter().map(|(&node, addrs)| (node, addrs.control.clone())).collect();
                return proposer.group().found(&voters).await.map_err(|error| Fatal(error.to_string()));
            }
        }
    }
}

/// Logs which replicas a replica with an empty disk waits for, and what to do about it.
fn say_who_is_missing(config: &ControlPlaneConfig, answers: &BTreeMap<NodeId, Answer>) {
    let (me, dir) = (config.node, config.data_dir.display());
    let missing = config.replicas.iter().filter(|&(node, _)| *node != me && !answers.contains_key(node));
    let missing: Vec<_> = missing.map(|(node, addrs)| format!("{node} ({})", addrs.control)).collect();
    let missing = missing.join(", ");
    if config.join {
        tracing::warn!(node = %me, %missing, "a majority of the replicas has not answered yet; this one waits to join them");
    } else if answers.values().any(Answer::has_log) {
        tracing::warn!(node = %me, %missing, "a cluster exists, and a majority of its replicas has not answered yet; this one waits to join them");
    } else {
        tracing::warn!(
            node = %me,
            %missing,
            "the disk of this replica ({dir}) is empty and not all others have answered, so no cluster is founded: one of them may hold its state. \
             Start them; one whose disk is lost too, over an empty directory",
        );
    }
}

/// Lets a replica with data join Raft, unless another replica knows of a boot of it that its disk does not.
pub(crate) async fn rejoin(
    config: &ControlPlaneConfig,
    proposer: &Proposer,
    boot_history: &BootHistory,
) -> Result<(), Fatal> {
    let (group, give_up) = (proposer.group(), Instant::now() + LOOK_BACK_FOR);
    let answer = |node| async move {
        loop {
            match ask(proposer, node).await {
                Some(answer) => return (node, answer.view),
                None => sleep(LOOK_AGAIN_AFTER).await,
            }
        }
    };
    let mut answers: FuturesUnordered<_> = proposer.others().into_iter().map(answer).collect();
    while let Ok(Some((by, view))) = timeout_at(give_up, answers.next()).await {
        if is_behind(config.node, boot_history, group.last_index(), &view) {
            tracing::error!(%by, "another replica knows of a later life of this one");
            group.forget();
            return Err(Fatal::forgotten(config));
        }
    }
    group.set_open(true);
    Ok(())
}

/// Whether the view names a boot of this replica that its disk does not know.
pub(crate) fn names_another(me: NodeId, boot_history: &BootHistory, view: &View) -> bool {
    #[cfg(feature = "planted-faults")]
    if symphony_consensus::planted::is(symphony_consensus::planted::Bug::LivesUnasked) {
        return false;
    }
    let named = view.nodes.get(&me).and_then(|node| node.boot);
    named.is_some_and(|boot| !boot_history.know(boot))
}

/// Whether that boot is a later one. A view no newer than this replica's log can only name earlier ones.
fn is_behind(me: NodeId, boot_history: &BootHistory, last_index: u64, view: &View) -> bool {
    view.applied_index > last_index && names_another(me, boot_history, view)
}

async fn ask(proposer: &Proposer, node: NodeId) -> Option<Answer> {
    let mut client = proposer.client(node).ok()?;
    let answer = timeout(ANSWER_WITHIN, client.get(pb::GetRequest { linearizable: false })).await.ok()?.ok()?;
    let answer = answer.into_inner();
    Some(Answer { log_entries: answer.log_entries, view: View::try_from(answer).ok()? })
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::NodeView;
    use symphony_types::BootId;

    use super::*;

    const ME: NodeId = NodeId::new(3);

    /// From replicas 1, 2 …: the index that each has applied, and the nodes that it knows.
    fn answers(views: &[(u64, &[u64])]) -> BTreeMap<NodeId, Answer> {
        let answer = |&(applied_index, nodes): &(u64, &[u64])| {
            let nodes = nodes.iter().map(|&id| (NodeId::new(id), NodeView::default())).collect();
            Answer { view: View { applied_index, nodes, ..View::default() }, log_entries: applied_index }
        };
        (1..).map(NodeId::new).zip(views.iter().map(answer)).collect()
    }

    #[test]
    fn a_group_is_founded_only_where_nobody_has_one() {
        assert_eq!(judge(ME, false, &answers(&[]), 2, false), Verdict::LookAgain);
        assert_eq!(judge(ME, false, &answers(&[(0, &[])]), 2, false), Verdict::LookAgain, "one has not answered");
        assert_eq!(judge(ME, false, &answers(&[(0, &[]), (0, &[])]), 2, false), Verdict::Found, "all are empty");
        assert_eq!(judge(ME, false, &answers(&[]), 2, true), Verdict::LookAgain, "nobody is there");
        assert_eq!(judge(ME, false, &answers(&[(0, &[])]), 2, true), Verdict::LookAgain, "the third may have one");
        assert_eq!(
            judge(ME, false, &answers(&[(7, &[1])]), 2, false),
            Verdict::LookAgain,
            "the other may know this one"
        );
        assert_eq!(judge(ME, false, &answers(&[(7, &[1])]), 2, true), Verdict::Wait, "a majority, and one has a group");
        assert_eq!(judge(ME, false, &answers(&[(7, &[1])]), 4, true), Verdict::LookAgain, "two of five are none");
        assert_eq!(judge(ME, false, &answers(&[]), 0, false), Verdict::Found, "nobody else shall be there");
        assert_eq!(
            judge(ME, false, &answers(&[(7, &[1]), (0, &[])]), 2, false),
            Verdict::Wait,
            "the others were faster"
        );
    }

    #[test]
    fn a_replica_that_cannot_reach_one_of_the_others_opens_to_a_founder_that_can() {
        let founder = Answer { log_entries: 2, ..Answer::default() };
        let asked = BTreeMap::from([(NodeId::new(1), founder)]);
        assert_eq!(judge(ME, false, &asked, 2, false), Verdict::LookAgain, "the other may know this one");
        assert_eq!(judge(ME, false, &asked, 2, true), Verdict::Wait, "the founder needs this one's vote");
        let founded = |log_entries| Answer { log_entries, ..Answer::default() };
        let both = |entries| BTreeMap::from([(NodeId::new(1), founded(entries)), (NodeId::new(2), founded(0))]);
        assert_eq!(judge(ME, false, &both(1), 2, false), Verdict::Found, "it may be gone before it says more");
        assert_eq!(judge(ME, false, &both(2), 2, false), Verdict::Wait, "there may be more than the first membership");
    }

    #[test]
    fn who_joins_founds_nothing_and_who_was_there_before_does_not_come_back() {
        assert_eq!(judge(ME, true, &answers(&[]), 2, true), Verdict::LookAgain);
        assert_eq!(judge(ME, true, &answers(&[(0, &[])]), 2, true), Verdict::Wait);
        let removed_nodes = [ME].into();
        let without = View { applied_index: 9, removed_nodes, ..View::default() };
        let without = Answer { view: without, log_entries: 10 };
        assert_eq!(judge(ME, true, &[(NodeId::new(1), without)].into(), 2, false), Verdict::Removed);
        assert_eq!(judge(ME, true, &answers(&[(7, &[1, 2])]), 2, true), Verdict::Wait);
        for join in [true, false] {
            assert_eq!(judge(ME, join, &answers(&[(7, &[1, 3])]), 2, false), Verdict::Known, "one word is enough");
        }
    }

    #[test]
    fn who_has_seen_more_and_names_an_unknown_life_shows_that_the_disk_is_an_older_copy() {
        let dir = tempfile::tempdir().unwrap();
        let boot_history = BootHistory::begin(dir.path(), false, BootId::new(7), None).unwrap();
        let view = |applied_index, boot: Option<u64>| {
            let node = NodeView { boot: boot.map(BootId::new), ..NodeView::default() };
            View { applied_index, nodes: [(ME, node)].into(), ..View::default() }
        };
        assert!(is_behind(ME, &boot_history, 20, &view(21, Some(8))));
        assert!(!is_behind(ME, &boot_history, 20, &view(21, Some(7))), "it knows that life");
        assert!(!is_behind(ME, &boot_history, 20, &view(20, Some(8))), "an earlier life, by one who lags");
        assert!(
            !is_behind(ME, &boot_history, 20, &view(21, None)) && !is_behind(ME, &boot_history, 20, &View::default())
        );
    }
}
