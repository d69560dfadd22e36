//! When a replica with an empty disk may take part in its group. It has forgotten what it may have voted for and
//! acknowledged, so it needs proof that it never did: all initial members are as new as it is, or a leader with a
//! quorum of the others behind it does not know it. The answers of some of the others prove nothing: one that fell
//! behind may not know what the rest have agreed on with this replica.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use symphony_types::NodeId;
use tokio::time::{Instant, sleep};

use crate::error::StartError;
use crate::group::ControlGroup;

/// When a waiting replica first logs which others it waits for: others that start with it have answered by then.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// How often it logs that again.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Pause between two rounds of questions.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(25);

/// How long an answer may take: a view can be large, and a replica that answers for a quorum may have to ask the leader
/// first.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// What a replica with an empty disk asks another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What it has itself.
    Replica,
    /// What its group has agreed on, by a linearizable read: only a leader with a quorum behind it can answer.
    Quorum,
}

/// What another replica reports about the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerState {
    /// Log index of the last command that it has applied.
    pub applied_index: u64,
    /// [Of its log](ControlGroup::log_entries), applied or not. A replica that has applied nothing yet may wait for the
    /// asking replica's vote.
    pub log_entries: u64,
    /// Whether its state knows the replica that asks, a newcomer.
    pub newcomer_status: MemberStatus,
}

/// Whether a state knows a replica that has nothing on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberStatus {
    /// Nothing.
    #[default]
    New,
    /// It took part: it has forgotten what it voted for and acknowledged.
    Known,
    /// It was a member, and has been removed for good.
    Removed,
    /// It is not one of the members, and they are fixed.
    Stranger,
}

impl PeerState {
    /// Whether it has no more than what a group begins with: the first membership, which every founder writes alike, or
    /// the state from a backup. No leader was elected and nothing was acknowledged since.
    const fn is_new(self) -> bool {
        self.log_entries <= 1
    }

    const fn is_restored(self) -> bool {
        self.is_new() && self.applied_index > 0
    }

    const fn has_log(self) -> bool {
        self.applied_index > 0 || self.log_entries > 0
    }
}

/// Why a replica with an empty disk takes no part.
#[derive(Debug, thiserror::Error)]
pub enum FoundingError {
    /// The group knows it.
    #[error("its disk is empty, but the group knows it: what it voted for is forgotten")]
    Known,
    /// The group has removed it.
    #[error("it was removed from the group")]
    Removed,
    /// The group has other members.
    #[error("the group was founded without it, and its members are fixed")]
    Stranger,
    /// It was restored from a backup, and another replica was too, or is part of a group.
    #[error(
        "it was restored from a backup, and {node} ({address}) has a log: that one was restored as well, or is of a group that exists; \
         restore on one replica only, and start the others over empty directories"
    )]
    NotAlone {
        /// The other one.
        node: NodeId,
        /// `host:port` of that one's control surface.
        address: String,
    },
    /// The group was not founded.
    #[error(transparent)]
    Group(#[from] StartError),
}

/// A replica with an empty disk. It is [closed](ControlGroup::set_open) to Raft until it may take part.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// The replica.
    pub node: NodeId,
    /// The initial members with their addresses, this one included.
    pub voters: BTreeMap<NodeId, String>,
    /// Whether it comes to a group that exists. If so it never founds one.
    pub join: bool,
    /// Its disk, for the log.
    pub data_dir: PathBuf,
    /// What its group governs, for the log: a cluster, a federation.
    pub what: &'static str,
}

impl Newcomer {
    /// Asks the others until it is clear whether there is a group; founds it if there is none, and takes part. `ask`
    /// gives what a replica answered in time, or why there is no answer.
    ///
    /// # Errors
    /// The group knows this replica, has removed it, or has other members; it has stopped.
    pub async fn take_part<F>(
        &self,
        group: &ControlGroup,
        ask: impl Fn(NodeId, Question) -> F,
    ) -> Result<(), FoundingError>
    where
        F: Future<Output = Result<PeerState, String>>,
    {
        let (others, mut rounds) = (self.others(), Rounds::begin());
        loop {
            // All of them in each round: one that was empty may have founded the group since.
            let answers = ask_each(&others, &ask).await;
            let mut verdict = judge(self.join, &answers, None);
            let (mut peers, mut why) = (answered(&answers).peekable(), String::new());
            // If no replica has a log, there is no leader to wait for.
            if verdict == Verdict::AskAgain && (self.join || peers.peek().is_none() || peers.any(|peer| peer.has_log()))
            {
                match ask_quorum(&others, &ask).await {
                    Ok(of_quorum) => verdict = judge(self.join, &answers, Some(of_quorum)),
                    Err(error) => why = error,
                }
            }
            match verdict {
                Verdict::AskAgain => rounds.next(|| self.say_who_is_missing(&answers, &why)).await,
                Verdict::Known => return Err(FoundingError::Known),
                Verdict::Removed => return Err(FoundingError::Removed),
                Verdict::Stranger => return Err(FoundingError::Stranger),
                Verdict::Join => {
                    tracing::info!(node = %self.node, "waiting to be reached by the control group");
                    group.set_open(true);
                    return Ok(());
                }
                Verdict::Found => {
                    group.set_open(true);
                    return Ok(group.found(&self.voters).await?);
                }
            }
        }
    }

    /// The same for a replica that [begins anew](ControlGroup::begins_anew) with a state from a backup: it takes part
    /// once all others have answered that they have nothing. Two beginnings would be two groups, and one that could not
    /// be asked may be another.
    ///
    /// # Errors
    /// Another replica has a log; this one has taken no part.
    pub async fn begin<F>(&self, group: &ControlGroup, ask: impl Fn(NodeId, Question) -> F) -> Result<(), FoundingError>
    where
        F: Future<Output = Result<PeerState, String>>,
    {
        let (others, mut rounds) = (self.others(), Rounds::begin());
        loop {
            let answers = ask_each(&others, &ask).await;
            match is_alone(&answers) {
                Ok(true) => {
                    group.set_open(true);
                    return Ok(());
                }
                Ok(false) => rounds.next(|| self.say_that_it_begins_alone(&answers)).await,
                Err(node) => {
                    let address = self.voters.get(&node).cloned().unwrap_or_default();
                    return Err(FoundingError::NotAlone { node, address });
                }
            }
        }
    }

    fn others(&self) -> Vec<NodeId> {
        self.voters.keys().copied().filter(|&node| node != self.node).collect()
    }

    /// Logs which replicas a restored replica waits for.
    fn say_that_it_begins_alone(&self, answers: &Answers) {
        tracing::warn!(
            node = %self.node,
            missing = self.missing(answers),
            "this replica was restored from a backup, and begins once all others have answered that they have nothing: start those \
             that are missing, over empty directories, or restore again with a configuration without them",
        );
    }

    /// The replicas that have not answered, and why.
    fn missing(&self, answers: &Answers) -> String {
        let missing = answers.iter().filter_map(|(node, answer)| {
            let address = self.voters.get(node).map_or("", String::as_str);
            answer.as_ref().err().map(|why| format!("{node} ({address}): {why}"))
        });
        missing.collect::<Vec<_>>().join("; ")
    }

    /// Logs which replicas it waits for and why they do not answer, and what to do about it.
    fn say_who_is_missing(&self, answers: &Answers, no_quorum: &str) {
        let (me, dir, what) = (self.node, self.data_dir.display(), self.what);
        let missing = self.missing(answers);
        let restored = answers.iter().filter(|(_, answer)| answer.as_ref().is_ok_and(|peer| peer.is_restored()));
        let restored: Vec<_> = restored.map(|(node, _)| node.to_string()).collect();
        if restored.len() > 1 {
            tracing::warn!(
                node = %me,
                restored = restored.join(", "),
                "more than one replica was restored from a backup, so this one follows none: stop all but one of them, and empty their directories",
            );
        } else if answered(answers).any(|peer| peer.is_restored() && peer.newcomer_status != MemberStatus::New) {
            tracing::warn!(
                node = %me,
                restored = restored.join(", "),
                %missing,
                no_quorum,
                "a replica was restored from a backup with a configuration that leaves this one out, and no {what} with a quorum has answered \
                 yet: if that was a mistake, stop it; else this one is to have another id",
            );
        } else if !restored.is_empty() {
            tracing::warn!(
                node = %me,
                restored = restored.join(", "),
                %missing,
                no_quorum,
                "a replica was restored from a backup, and this one waits until all others have answered and none has more: start those that are \
                 missing, over empty directories, or restore again with a configuration without them",
            );
        } else if self.join {
            tracing::warn!(node = %me, %missing, no_quorum, "no leader with a quorum has answered yet; this replica waits to join");
        } else if answered(answers).any(|peer| peer.has_log()) {
            tracing::warn!(
                node = %me,
                %missing,
                no_quorum,
                "a {what} exists, but no leader with a quorum has answered yet, and this replica ({dir} is empty) may be one that \
                 they rely on: it waits until they have a leader without it",
            );
        } else {
            tracing::warn!(
                node = %me,
                %missing,
                "the disk of this replica ({dir}) is empty and not all others have answered, so no {what} is founded: one of them may hold its state. \
                 Start them; one whose disk is lost too, over an empty directory",
            );
        }
    }
}

/// The pace of questions, and when to log why they go on.
struct Rounds {
    say_at: Instant,
}

impl Rounds {
    fn begin() -> Self {
        Self { say_at: Instant::now() + SAY_AFTER }
    }

    /// Waits until the next round; `say` logs what the last one lacked, if it is time to.
    async fn next(&mut self, say: impl FnOnce()) {
        if Instant::now() >= self.say_at {
            self.say_at = Instant::now() + SAY_AGAIN_AFTER;
            say();
        }
        sleep(ASK_AGAIN_AFTER).await;
    }
}

/// The answers of the others in one round, or why there are none.
type Answers = BTreeMap<NodeId, Result<PeerState, String>>;

fn answered(answers: &Answers) -> impl Iterator<Item = PeerState> + '_ {
    answers.values().filter_map(|answer| answer.as_ref().ok()).copied()
}

/// The report of each of the others on itself.
async fn ask_each<F>(others: &[NodeId], ask: &impl Fn(NodeId, Question) -> F) -> Answers
where
    F: Future<Output = Result<PeerState, String>>,
{
    let answers = others.iter().map(|&node| ask(node, Question::Replica));
    others.iter().copied().zip(join_all(answers).await).collect()
}

/// Whether all others have answered that they have nothing; or one that has a log.
fn is_alone(answers: &Answers) -> Result<bool, NodeId> {
    match answers.iter().find(|(_, answer)| answer.as_ref().is_ok_and(|peer| peer.has_log())) {
        Some((&node, _)) => Err(node),
        None => Ok(answers.values().all(Result::is_ok)),
    }
}

/// What the group says of this replica, by the first of the others that can speak for a quorum; else why none can.
async fn ask_quorum<F>(others: &[NodeId], ask: &impl Fn(NodeId, Question) -> F) -> Result<MemberStatus, String>
where
    F: Future<Output = Result<PeerState, String>>,
{
    let question = |&node: &NodeId| ask(node, Question::Quorum).map(move |answer| (node, answer));
    let mut pending: FuturesUnordered<_> = others.iter().map(question).collect();
    let mut whys = Vec::new();
    while let Some((node, answer)) = pending.next().await {
        match answer {
            Ok(peer) => return Ok(peer.newcomer_status),
            Err(why) => whys.push(format!("{node}: {why}")),
        }
    }
    Err(whys.join("; "))
}

/// The decision for an empty disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All others have answered, and none has more than a group that was founded just now: found it.
    Found,
    /// None of the others relied on this replica. The leader will reach it, or an operator will add it.
    Join,
    /// Nothing is proven.
    AskAgain,
    /// This replica was once a member of the group.
    Known,
    /// This replica was a member and was removed.
    Removed,
    /// The members are others.
    Stranger,
}

/// Decides by the answers of one round, and by what a quorum knows about this replica, if one has answered.
fn judge(join: bool, answers: &Answers, of_quorum: Option<MemberStatus>) -> Verdict {
    #[cfg(feature = "planted-faults")]
    if crate::planted::is(crate::planted::Bug::FoundsUnasked) && !join {
        return Verdict::Found;
    }
    #[cfg(feature = "planted-faults")]
    if crate::planted::is(crate::planted::Bug::JoinsUnasked) && answered(answers).any(|peer| peer.has_log()) {
        return Verdict::Join;
    }
    // One answer is enough, but not one from a disk of the group before the restored one, nor one from a restored disk
    // unless all say the same: it may have been restored by mistake, beside a group that lives.
    let restored: Vec<_> = answered(answers).filter(|peer| peer.is_restored()).collect();
    let begins_at = restored.iter().map(|peer| peer.applied_index).max().unwrap_or(0);
    let all_say = |status: MemberStatus| {
        answers.values().all(|answer| answer.as_ref().is_ok_and(|peer| peer.newcomer_status == status))
    };
    let counts =
        |peer: &PeerState| peer.applied_index >= begins_at && (!peer.is_restored() || all_say(peer.newcomer_status));
    let words = answered(answers).filter(counts).map(|peer| peer.newcomer_status);
    let statuses: Vec<_> = words.chain(of_quorum).collect();
    let refusals = [
        (MemberStatus::Known, Verdict::Known),
        (MemberStatus::Removed, Verdict::Removed),
        (MemberStatus::Stranger, Verdict::Stranger),
    ];
    if let Some((_, refusal)) = refusals.into_iter().find(|(status, _)| statuses.contains(status)) {
        return refusal;
    }
    if restored.len() > 1 {
        // Whichever it followed, the other one would undo what it had acknowledged.
        return Verdict::AskAgain;
    }
    if answers.values().all(|answer| answer.as_ref().is_ok_and(|peer| peer.is_new())) {
        // A state from a backup is what the group begins with, and this one must not begin with less; nor at all in a
        // group that begins without it.
        if let Some(beginning) = restored.first() {
            return if beginning.newcomer_status == MemberStatus::New { Verdict::Join } else { Verdict::AskAgain };
        }
        // Others may have founded it just now. A replica that does the same takes part even if they are gone before
        // they say so.
        if !join {
            return Verdict::Found;
        }
    }
    if of_quorum.is_some() { Verdict::Join } else { Verdict::AskAgain }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: PeerState = PeerState { applied_index: 0, log_entries: 0, newcomer_status: MemberStatus::New };
    const OLD: PeerState = PeerState { applied_index: 7, log_entries: 8, newcomer_status: MemberStatus::New };
    const FOUNDED: PeerState = PeerState { log_entries: 1, ..EMPTY };
    const LED: PeerState = PeerState { log_entries: 2, ..EMPTY };

    /// By the answers of replicas 1, 2 …; `None` for one that is silent.
    fn judged(join: bool, given: &[Option<PeerState>], of_quorum: Option<MemberStatus>) -> Verdict {
        let given = given.iter().map(|peer| peer.ok_or_else(|| "no answer".to_owned()));
        judge(join, &(1..).map(NodeId::new).zip(given).collect(), of_quorum)
    }

    #[test]
    fn a_group_is_founded_only_where_nobody_has_one() {
        let judged = |given: &[Option<PeerState>]| judged(false, given, None);
        assert_eq!(judged(&[]), Verdict::Found, "nobody else shall be there");
        assert_eq!(judged(&[Some(EMPTY), Some(EMPTY)]), Verdict::Found, "all are empty");
        assert_eq!(judged(&[Some(FOUNDED), Some(EMPTY)]), Verdict::Found, "it may be gone before it says more");
        assert_eq!(judged(&[Some(EMPTY), None]), Verdict::AskAgain, "the third may have one");
        assert_eq!(judged(&[Some(FOUNDED), None]), Verdict::AskAgain, "it may have been left behind by the third");
        assert_eq!(judged(&[Some(LED), Some(EMPTY)]), Verdict::AskAgain, "more than the first membership");
    }

    const RESTORED: PeerState =
        PeerState { applied_index: 1 << 50, log_entries: 1, newcomer_status: MemberStatus::New };

    #[test]
    fn who_comes_to_a_restored_state_joins_it_once_all_are_there() {
        let restored = Some(RESTORED);
        for join in [false, true] {
            assert_eq!(judged(join, &[restored, Some(EMPTY)], None), Verdict::Join, "{join}");
            assert_eq!(judged(join, &[restored], None), Verdict::Join, "{join}");
            let silent = judged(join, &[restored, None], None);
            assert_eq!(silent, Verdict::AskAgain, "it may have been left behind since: {join}");
        }
    }

    #[test]
    fn of_two_restored_ones_none_is_followed() {
        let other = PeerState { applied_index: 1 << 51, ..RESTORED };
        for of_quorum in [None, Some(MemberStatus::New)] {
            assert_eq!(judged(false, &[Some(RESTORED), Some(other)], of_quorum), Verdict::AskAgain);
            assert_eq!(judged(false, &[Some(RESTORED), Some(other), Some(EMPTY)], of_quorum), Verdict::AskAgain);
        }
    }

    #[test]
    fn a_disk_of_the_group_before_the_restored_one_has_no_say() {
        for (status, refusal) in [(MemberStatus::Known, Verdict::Known), (MemberStatus::Removed, Verdict::Removed)] {
            let former = Some(PeerState { newcomer_status: status, ..OLD });
            assert_eq!(judged(false, &[Some(RESTORED), former], None), Verdict::AskAgain, "it waits: {status:?}");
            let newer = Some(PeerState { newcomer_status: status, log_entries: 2, ..RESTORED });
            assert_eq!(judged(false, &[Some(RESTORED), newer], None), refusal, "it has a log since");
        }
    }

    #[test]
    fn one_that_was_restored_by_mistake_ends_no_newcomer() {
        let mistaken = Some(PeerState { newcomer_status: MemberStatus::Removed, ..RESTORED });
        for join in [false, true] {
            for others in [&[mistaken, Some(OLD)][..], &[mistaken, Some(EMPTY)], &[mistaken, None]] {
                assert_eq!(judged(join, others, None), Verdict::AskAgain, "{join} {others:?}");
            }
            let living = [mistaken, Some(OLD)];
            assert_eq!(
                judged(join, &living, Some(MemberStatus::New)),
                Verdict::Join,
                "the group lives beside it: {join}"
            );
            assert_eq!(
                judged(join, &living, Some(MemberStatus::Removed)),
                Verdict::Removed,
                "a quorum says so: {join}"
            );
            assert_eq!(judged(join, &[mistaken], None), Verdict::Removed, "nobody is there to say otherwise: {join}");
            assert_eq!(judged(join, &[mistaken, mistaken], None), Verdict::Removed, "all say so: {join}");
        }
    }

    #[test]
    fn a_restored_one_begins_only_where_all_others_have_answered_that_they_have_nothing() {
        let alone = |given: &[Option<PeerState>]| {
            let given = given.iter().map(|peer| peer.ok_or_else(|| "no answer".to_owned()));
            is_alone(&(1..).map(NodeId::new).zip(given).collect())
        };
        assert_eq!(alone(&[]), Ok(true), "nobody else shall be there");
        assert_eq!(alone(&[Some(EMPTY), Some(EMPTY)]), Ok(true));
        assert_eq!(alone(&[Some(EMPTY), None]), Ok(false), "the other may have been restored too");
        for other in [RESTORED, OLD, LED, FOUNDED] {
            assert_eq!(alone(&[None, Some(other)]), Err(NodeId::new(2)), "{other:?}");
        }
    }

    #[test]
    fn a_part_of_the_others_proves_nothing_without_a_quorum_behind_it() {
        for part in [&[Some(LED), None][..], &[Some(OLD), None], &[Some(EMPTY), Some(OLD)], &[None, None]] {
            assert_eq!(judged(false, part, None), Verdict::AskAgain, "{part:?}");
            assert_eq!(judged(false, part, Some(MemberStatus::New)), Verdict::Join, "{part:?}");
            assert_eq!(judged(true, part, None), Verdict::AskAgain, "{part:?}");
            assert_eq!(judged(true, part, Some(MemberStatus::New)), Verdict::Join, "{part:?}");
        }
    }

    #[test]
    fn who_joins_founds_nothing_and_who_is_known_takes_no_part_by_a_single_word() {
        assert_eq!(judged(true, &[Some(EMPTY), Some(EMPTY)], None), Verdict::AskAgain);
        for join in [true, false] {
            for (status, refusal) in [
                (MemberStatus::Known, Verdict::Known),
                (MemberStatus::Removed, Verdict::Removed),
                (MemberStatus::Stranger, Verdict::Stranger),
            ] {
                let one = Some(PeerState { newcomer_status: status, ..OLD });
                assert_eq!(judged(join, &[Some(EMPTY), one], Some(MemberStatus::New)), refusal, "{join}");
                assert_eq!(judged(join, &[Some(OLD), None], Some(status)), refusal, "{join}");
            }
        }
    }
}
