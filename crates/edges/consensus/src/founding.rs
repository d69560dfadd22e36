//! Whether a replica with an empty disk may found its group: only if all initial members have answered, and none has
//! one. One that is down may hold the state of a group whose other disks are lost.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use symphony_types::NodeId;
use tokio::time::{Instant, sleep};

use crate::error::StartError;
use crate::group::ControlGroup;

/// How long to wait for all other replicas if a group exists. After that the answers of a majority, this replica
/// included, are enough to join.
const LOOK_AROUND_FOR: Duration = Duration::from_secs(1);

/// How often a waiting replica logs which others it waits for.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Pause between two rounds of questions.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(25);

/// How long one replica may take to answer.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(250);

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
}

impl Past {
    /// Whether it has no more than the first membership, which every founder writes alike.
    const fn is_new(self) -> bool {
        self.applied_index == 0 && self.log_entries <= 1
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
    /// Asks the others until it is clear whether there is a group; founds it if there is none, and takes part.
    ///
    /// # Errors
    /// The group knows this replica or has removed it; it has stopped.
    pub async fn take_part<F>(&self, group: &ControlGroup, ask: impl Fn(NodeId) -> F) -> Result<(), FoundingError>
    where
        F: Future<Output = Option<Past>>,
    {
        let others: Vec<_> = self.voters.keys().copied().filter(|&node| node != self.node).collect();
        let give_up = Instant::now() + LOOK_AROUND_FOR;
        let mut say_at = give_up;
        let mut answers = BTreeMap::new();
        loop {
            // All of them in each round: one that was empty may have founded the group since.
            for &node in &others {
                if let Some(answer) = ask(node).await {
                    answers.insert(node, answer);
                }
            }
            match judge(self.join, &answers, others.len(), Instant::now() >= give_up) {
                Verdict::LookAgain => {
                    if Instant::now() >= say_at {
                        say_at = Instant::now() + SAY_AGAIN_AFTER;
                        self.say_who_is_missing(&answers);
                    }
                    sleep(ASK_AGAIN_AFTER).await;
                }
                Verdict::Known => return Err(FoundingError::Known),
                Verdict::Removed => return Err(FoundingError::Removed),
                Verdict::Wait => {
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

    /// Logs which replicas it waits for, and what to do about it.
    fn say_who_is_missing(&self, answers: &BTreeMap<NodeId, Past>) {
        let (me, dir, what) = (self.node, self.data_dir.display(), self.what);
        let missing = self.voters.iter().filter(|&(node, _)| *node != me && !answers.contains_key(node));
        let missing: Vec<_> = missing.map(|(node, address)| format!("{node} ({address})")).collect();
        let missing = missing.join(", ");
        if self.join {
            tracing::warn!(node = %me, %missing, "a majority of the replicas has not answered yet; this one waits to join them");
        } else if answers.values().any(|answer| answer.has_log()) {
            tracing::warn!(node = %me, %missing, "a {what} exists, and a majority of its replicas has not answered yet; this one waits to join them");
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
fn judge(join: bool, answers: &BTreeMap<NodeId, Past>, others: usize, out_of_patience: bool) -> Verdict {
    #[cfg(feature = "planted-faults")]
    if crate::planted::is(crate::planted::Bug::FoundsUnasked) && !join {
        return Verdict::Found;
    }
    if answers.values().any(|answer| answer.asker == Asker::Known) {
        return Verdict::Known;
    }
    if answers.values().any(|answer| answer.asker == Asker::Removed) {
        return Verdict::Removed;
    }
    let exists = answers.values().any(|answer| answer.has_log());
    let (all, majority) = (answers.len() >= others, answers.len() >= others.div_ceil(2));
    // Others may have founded it just now. Who does the same takes part even if they are gone before they say so.
    if all && !join && answers.values().all(|answer| answer.is_new()) {
        return Verdict::Found;
    }
    if exists || join {
        return if all || majority && out_of_patience { Verdict::Wait } else { Verdict::LookAgain };
    }
    Verdict::LookAgain
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Past = Past { applied_index: 0, log_entries: 0, asker: Asker::New };
    const OLD: Past = Past { applied_index: 7, log_entries: 8, asker: Asker::New };

    /// From replicas 1, 2 ….
    fn answers(answers: &[Past]) -> BTreeMap<NodeId, Past> {
        (1..).map(NodeId::new).zip(answers.iter().copied()).collect()
    }

    #[test]
    fn a_group_is_founded_only_where_nobody_has_one() {
        let judge = |given: &[Past], others, patience_is_out| judge(false, &answers(given), others, patience_is_out);
        assert_eq!(judge(&[], 2, false), Verdict::LookAgain);
        assert_eq!(judge(&[EMPTY], 2, false), Verdict::LookAgain, "one has not answered");
        assert_eq!(judge(&[EMPTY, EMPTY], 2, false), Verdict::Found, "all are empty");
        assert_eq!(judge(&[], 2, true), Verdict::LookAgain, "nobody is there");
        assert_eq!(judge(&[EMPTY], 2, true), Verdict::LookAgain, "the third may have one");
        assert_eq!(judge(&[OLD], 2, false), Verdict::LookAgain, "the other may know this one");
        assert_eq!(judge(&[OLD], 2, true), Verdict::Wait, "a majority, and one has a group");
        assert_eq!(judge(&[OLD], 4, true), Verdict::LookAgain, "two of five are none");
        assert_eq!(judge(&[], 0, false), Verdict::Found, "nobody else shall be there");
        assert_eq!(judge(&[OLD, EMPTY], 2, false), Verdict::Wait, "the others were faster");
    }

    #[test]
    fn a_replica_that_cannot_reach_one_of_the_others_opens_to_a_founder_that_can() {
        let founded = |log_entries| Past { log_entries, ..EMPTY };
        let judge = |given: &[Past], patience_is_out| judge(false, &answers(given), 2, patience_is_out);
        assert_eq!(judge(&[founded(2)], false), Verdict::LookAgain, "the other may know this one");
        assert_eq!(judge(&[founded(2)], true), Verdict::Wait, "the founder needs this one's vote");
        assert_eq!(judge(&[founded(1), EMPTY], false), Verdict::Found, "it may be gone before it says more");
        assert_eq!(judge(&[founded(2), EMPTY], false), Verdict::Wait, "there may be more than the first membership");
    }

    #[test]
    fn who_joins_founds_nothing_and_who_was_there_before_does_not_come_back() {
        let judge = |join, given: &[Past], patience_is_out| judge(join, &answers(given), 2, patience_is_out);
        assert_eq!(judge(true, &[], true), Verdict::LookAgain);
        assert_eq!(judge(true, &[EMPTY], true), Verdict::Wait);
        assert_eq!(judge(true, &[OLD], true), Verdict::Wait);
        for join in [true, false] {
            let by_word_of = |asker| judge(join, &[EMPTY, Past { asker, ..OLD }], false);
            assert_eq!(by_word_of(Asker::Known), Verdict::Known, "one word is enough");
            assert_eq!(by_word_of(Asker::Removed), Verdict::Removed);
        }
    }
}
