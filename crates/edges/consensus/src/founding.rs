//! When a replica with an empty disk may take part in its group. It has forgotten what it may have voted for and
//! acknowledged, so it needs proof that it never did: all initial members are as new as it is, or a leader with a quorum
//! of the others behind it does not know it. What a part of the others say proves nothing: one that fell behind may not
//! know what the rest have agreed on with this replica.

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

/// How long an answer may take: a view can be large, and who speaks for a quorum may have to ask the leader first.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// What a replica with an empty disk asks another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What it has itself.
    Replica,
    /// What its group has agreed on, by a linearizable read: only a leader with a quorum behind it can answer.
    Quorum,
}

/// What another replica says of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Log index of the last command that it has applied.
    pub applied_index: u64,
    /// [Of its log](ControlGroup::log_entries), applied or not. One that has applied nothing yet may wait for the
    /// asking replica's vote.
    pub log_entries: u64,
    /// What its state says of the asking replica.
    pub asker: Asker,
}

/// What a state says of a replica that has nothing on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asker {
    /// Nothing.
    #[default]
    New,
    /// It took part: it has forgotten what it voted for and acknowledged.
    Known,
    /// It was removed.
    Removed,
    /// It is none of the members, and they are fixed.
    Stranger,
}

impl Past {
    /// Whether it has no more than what a group begins with: the first membership, which every founder writes alike, or
    /// the state from a backup. Nobody was elected and nothing was acknowledged since.
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
        F: Future<Output = Result<Past, String>>,
    {
        let others: Vec<_> = self.voters.keys().copied().filter(|&node| node != self.node).collect();
        let mut say_at = Instant::now() + SAY_AFTER;
        loop {
            // All of them in each round: one that was empty may have founded the group since.
            let answers = others.iter().map(|&node| ask(node, Question::Replica));
            let answers: Answers = others.iter().copied().zip(join_all(answers).await).collect();
            let mut verdict = judge(self.join, &answers, None);
            let (mut pasts, mut why) = (answered(&answers).peekable(), String::new());
            // Where nobody has a log there is no leader to wait for.
            if verdict == Verdict::LookAgain
                && (self.join || pasts.peek().is_none() || pasts.any(|past| past.has_log()))
            {
                match ask_quorum(&others, &ask).await {
                    Ok(of_quorum) => verdict = judge(self.join, &answers, Some(of_quorum)),
                    Err(error) => why = error,
                }
            }
            match verdict {
                Verdict::LookAgain => {
                    if Instant::now() >= say_at {
                        say_at = Instant::now() + SAY_AGAIN_AFTER;
                        self.say_who_is_missing(&answers, &why);
                    }
                    sleep(ASK_AGAIN_AFTER).await;
                }
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

    /// Logs which replicas it waits for and why they do not answer, and what to do about it.
    fn say_who_is_missing(&self, answers: &Answers, no_quorum: &str) {
        let (me, dir, what) = (self.node, self.data_dir.display(), self.what);
        let missing = answers.iter().filter_map(|(node, answer)| {
            let address = self.voters.get(node).map_or("", String::as_str);
            answer.as_ref().err().map(|why| format!("{node} ({address}): {why}"))
        });
        let missing = missing.collect::<Vec<_>>().join("; ");
        if self.join {
            tracing::warn!(node = %me, %missing, no_quorum, "no leader with a quorum has answered yet; this replica waits to join");
        } else if answered(answers).any(|past| past.has_log()) {
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

/// What the others said in one round, or why they said nothing.
type Answers = BTreeMap<NodeId, Result<Past, String>>;

fn answered(answers: &Answers) -> impl Iterator<Item = Past> + '_ {
    answers.values().filter_map(|answer| answer.as_ref().ok()).copied()
}

/// What the group says of this replica, by the first of the others that can speak for a quorum; else why none can.
async fn ask_quorum<F>(others: &[NodeId], ask: &impl Fn(NodeId, Question) -> F) -> Result<Asker, String>
where
    F: Future<Output = Result<Past, String>>,
{
    let question = |&node: &NodeId| ask(node, Question::Quorum).map(move |answer| (node, answer));
    let mut asked: FuturesUnordered<_> = others.iter().map(question).collect();
    let mut whys = Vec::new();
    while let Some((node, answer)) = asked.next().await {
        match answer {
            Ok(past) => return Ok(past.asker),
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
    LookAgain,
    /// This replica was once a member of the group.
    Known,
    /// This replica was a member and was removed.
    Removed,
    /// The members are others.
    Stranger,
}

/// Decides by the answers of one round, and by what a quorum knows of this replica, if one has answered.
fn judge(join: bool, answers: &Answers, of_quorum: Option<Asker>) -> Verdict {
    #[cfg(feature = "planted-faults")]
    if crate::planted::is(crate::planted::Bug::FoundsUnasked) && !join {
        return Verdict::Found;
    }
    #[cfg(feature = "planted-faults")]
    if crate::planted::is(crate::planted::Bug::JoinsUnasked) && answered(answers).any(|past| past.has_log()) {
        return Verdict::Join;
    }
    // One word is enough.
    let said: Vec<_> = answered(answers).map(|past| past.asker).chain(of_quorum).collect();
    let refusals =
        [(Asker::Known, Verdict::Known), (Asker::Removed, Verdict::Removed), (Asker::Stranger, Verdict::Stranger)];
    if let Some((_, refusal)) = refusals.into_iter().find(|(asker, _)| said.contains(asker)) {
        return refusal;
    }
    // Others may have founded it just now. Who does the same takes part even if they are gone before they say so.
    if !join && answers.values().all(|answer| answer.as_ref().is_ok_and(|past| past.is_new())) {
        // A state from a backup is what the group begins with, and this one must not begin with less.
        return if answered(answers).any(Past::is_restored) { Verdict::Join } else { Verdict::Found };
    }
    if of_quorum.is_some() { Verdict::Join } else { Verdict::LookAgain }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Past = Past { applied_index: 0, log_entries: 0, asker: Asker::New };
    const OLD: Past = Past { applied_index: 7, log_entries: 8, asker: Asker::New };
    const FOUNDED: Past = Past { log_entries: 1, ..EMPTY };
    const LED: Past = Past { log_entries: 2, ..EMPTY };

    /// By the answers of replicas 1, 2 …; `None` for one that is silent.
    fn judged(join: bool, given: &[Option<Past>], of_quorum: Option<Asker>) -> Verdict {
        let given = given.iter().map(|past| past.ok_or_else(|| "no answer".to_owned()));
        judge(join, &(1..).map(NodeId::new).zip(given).collect(), of_quorum)
    }

    #[test]
    fn a_group_is_founded_only_where_nobody_has_one() {
        let judged = |given: &[Option<Past>]| judged(false, given, None);
        assert_eq!(judged(&[]), Verdict::Found, "nobody else shall be there");
        assert_eq!(judged(&[Some(EMPTY), Some(EMPTY)]), Verdict::Found, "all are empty");
        assert_eq!(judged(&[Some(FOUNDED), Some(EMPTY)]), Verdict::Found, "it may be gone before it says more");
        assert_eq!(judged(&[Some(EMPTY), None]), Verdict::LookAgain, "the third may have one");
        assert_eq!(judged(&[Some(FOUNDED), None]), Verdict::LookAgain, "it may have been left behind by the third");
        assert_eq!(judged(&[Some(LED), Some(EMPTY)]), Verdict::LookAgain, "more than the first membership");
    }

    #[test]
    fn who_comes_to_a_restored_state_joins_it_once_all_are_there() {
        let restored = Some(Past { applied_index: 1 << 50, log_entries: 1, asker: Asker::New });
        assert_eq!(judged(false, &[restored, Some(EMPTY)], None), Verdict::Join);
        assert_eq!(judged(false, &[restored], None), Verdict::Join);
        assert_eq!(judged(false, &[restored, None], None), Verdict::LookAgain, "it may have been left behind since");
    }

    #[test]
    fn a_part_of_the_others_proves_nothing_without_a_quorum_behind_it() {
        for part in [&[Some(LED), None][..], &[Some(OLD), None], &[Some(EMPTY), Some(OLD)], &[None, None]] {
            assert_eq!(judged(false, part, None), Verdict::LookAgain, "{part:?}");
            assert_eq!(judged(false, part, Some(Asker::New)), Verdict::Join, "{part:?}");
            assert_eq!(judged(true, part, None), Verdict::LookAgain, "{part:?}");
            assert_eq!(judged(true, part, Some(Asker::New)), Verdict::Join, "{part:?}");
        }
    }

    #[test]
    fn who_joins_founds_nothing_and_who_is_known_takes_no_part_by_a_single_word() {
        assert_eq!(judged(true, &[Some(EMPTY), Some(EMPTY)], None), Verdict::LookAgain);
        for join in [true, false] {
            for (asker, refusal) in [
                (Asker::Known, Verdict::Known),
                (Asker::Removed, Verdict::Removed),
                (Asker::Stranger, Verdict::Stranger),
            ] {
                let one = Some(Past { asker, ..OLD });
                assert_eq!(judged(join, &[Some(EMPTY), one], Some(Asker::New)), refusal, "{join}");
                assert_eq!(judged(join, &[Some(OLD), None], Some(asker)), refusal, "{join}");
            }
        }
    }
}
