//! Finds words that were replaced by the field's own (docs/concepts/glossary.md): code and docs use one word for one
//! concept.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::metadata::Metadata;
use crate::rust_code::lines_with;
use crate::sources::rust_files;

/// The old word and its replacement.
const OLD_WORDS: [(&str, &str); 107] = [
    ("ModelStanding", "ListedModel"),
    ("RdmaOwner", "RdmaFrontend"),
    ("RingAdmission", "PendingRings"),
    ("herald", "heartbeat state"),
    ("Herald", "HeartbeatState"),
    ("doorkeeper", "frontend reaper"),
    ("Doorkeeper", "FrontendReaper"),
    ("steward", "lead balancer, reconciler"),
    ("Steward", "LeadBalancer, Reconciler"),
    ("Spokesman", "LeadReporter"),
    ("spokesman", "lead reporter"),
    ("Crew", "WorkerGroup"),
    ("crew", "worker group"),
    ("crews", "worker groups"),
    ("doorbell", "thread waker"),
    ("Doorbell", "ThreadWaker"),
    ("AtHand", "FrameInProgress"),
    ("Bearing", "MoveTrigger"),
    ("CarryOffer", "CarrierOffer"),
    ("ComingPlan", "QueuedPlan"),
    ("Deed", "ModelCommand"),
    ("Ears", "CompletionReader"),
    ("Relapses", "RepeatedFailures"),
    ("StateHost", "ClusterStateMachine, FederationStateMachine"),
    ("check_law", "check_names"),
    ("DESIGN", "the page of docs/ that says it"),
    ("re-driven", "redriven"),
    ("ModelBook", "ModelStates"),
    ("BookState", "ModelState"),
    ("LateFrontends", "UnresponsiveFrontends"),
    ("late_frontends", "unresponsive_frontends"),
    ("exec_server", "leader_connections"),
    ("comes_again", "is_reconnect"),
    ("give_orders", "follow_usage"),
    ("led_otherwise", "leadership_changed"),
    ("have_the_turn_on", "are_in_turn_on"),
    ("GpuGate", "GpuFence"),
    ("gpu_gate", "gpu_fence"),
    ("TURN_INPUTS_MAX", "TURN_EVENTS_MAX"),
    ("PlanReceiver", "FederationViewReceiver"),
    ("changes_plan", "changes_assignment"),
    ("HeldSeal", "WaitingSeal"),
    ("held_by_backend", "known_by_backend"),
    ("has_heirs", "has_standbys"),
    ("WordError", "LearntError"),
    ("LedSubcluster", "Lead"),
    ("ReplicaView", "HolderView"),
    ("ReplicaState", "HolderState"),
    ("PlanView", "EpochPlanView"),
    ("plan_view", "epoch_plan_view"),
    ("in_tasks", "task_runner"),
    ("SUBMIT_REQUESTS_MAX", "ANNOUNCED_REQUESTS_MAX"),
    ("Lesson", "LearntChange"),
    ("Lessons", "LearnerHost"),
    ("Judgement", "OutputCheck, DetectorTurn"),
    ("Bell", "PeerWaker"),
    ("Seats", "HostedReplicas"),
    ("take_back", "withdraw_unread, clear_grant, roll_back"),
    ("StaleLife", "StaleBoot"),
    ("FrontendLife", "FrontendBoot"),
    ("a life", "a boot"),
    ("another life", "another boot"),
    ("former life", "former boot"),
    ("later life", "later boot"),
    ("new life", "new boot"),
    ("next life", "next boot"),
    ("same life", "same boot"),
    ("this life", "this boot"),
    ("other lives", "other boots"),
    ("two lives", "two boots"),
    ("symphony_epochs", "symphony_controllers"),
    ("PoolWord", "PoolSignal"),
    ("PastTheDoor", "CallerUnknown"),
    ("hope_ends", "stop_waiting_at"),
    ("hope_max", "early_start_max"),
    ("waits_without_hope", "waits_to_frontrun"),
    ("CarrierWish", "CarrierPreference"),
    ("ClusterWords", "ClusterOptions"),
    ("EdgeWords", "EdgeKeys"),
    ("FirstWords", "HttpVersion"),
    ("FIRST_WORDS_WITHIN", "OPENING_TIMEOUT"),
    ("FromNear", "FromLoopback"),
    ("Homeless", "UnplacedRequests"),
    ("Insistence", "RetryPolicy"),
    ("LevelTold", "WatchedLevel"),
    ("PlacementWords", "PlacementParameters"),
    ("PublicWords", "PublicOptions"),
    ("RepositoryDesk", "RepositoryService"),
    ("repository_desk", "repository_service"),
    ("TellHistory", "HistorySource"),
    ("WhoOfTop", "TopTarget"),
    ("greet_line", "authenticate_line"),
    ("LOOK_EVERY", "what it does: POLL_EVERY, CHECK_EVERY"),
    ("place_the_leaderless", "assign_missing_leaders"),
    ("that_give", "with_quota_shares"),
    ("told_by_whole_log", "known_by_whole_log"),
    ("fn accuse", "what is found: consider_quarantine, report_violation"),
    ("fn believe", "what is set: set_insecure_actor"),
    ("fn company", "fn expected_arrivals"),
    ("fn face", "fn error_status"),
    ("fn heed", "fn report_violation"),
    ("fn look", "what it does: check, poll, find, fetch, update"),
    ("fn speaks_for", "fn check_is_member"),
    ("fn take_in", "fn enqueue"),
    ("fn input_face", "fn input_metadata"),
    ("fn patience", "fn timeout"),
    ("mod door", "mod callers, mod admission"),
];

/// The words of benches and their figures for threads. Elsewhere the workers on them are meant, which may share one.
const WORDS_OF_BENCHES: [(&str, &str); 3] =
    [("model thread", "model worker"), ("rank thread", "rank worker"), ("rank threads", "rank workers")];

/// Old names of types. As words they are good English, so only their declaration is refused.
const OLD_TYPES: [(&str, &str); 41] = [
    ("Around", "ForksAndJoins"),
    ("Asker", "MemberStatus, OperationOrigin, EchoTrigger, RequestOrigin"),
    ("Brief", "ReportSummary"),
    ("Cargo", "MovedKind"),
    ("Coming", "EnqueueKind"),
    ("Company", "BatchingBenefit"),
    ("Desk", "RequestTable"),
    ("Door", "CallerCheck, PublicAccess"),
    ("Face", "ErrorStatus"),
    ("Farewell", "StopMode"),
    ("Funds", "TemplateBudget"),
    ("Heard", "LastHeard"),
    ("Hears", "PollerGuard"),
    ("Look", "AnnotatedView"),
    ("Me", "ProcessInfo"),
    ("Mouth", "PipelineAdmission"),
    ("Mute", "SilenceSwitch"),
    ("Office", "LeaderContext"),
    ("Outlook", "DemandTimeline, DetectorContext"),
    ("Own", "FrontendIdentity, FederationProcess, OwnRequests"),
    ("Past", "PeerState"),
    ("Patience", "LongestBudget, RetryBudget"),
    ("Posed", "EpochProblem, FederationProblem"),
    ("Pretender", "FakeLeader"),
    ("Road", "RingPair"),
    ("Roll", "HeartbeatRecords"),
    ("Seat", "Slot"),
    ("Sharer", "SharingBackend"),
    ("Shelf", "SnapshotStore"),
    ("Signs", "FrontendPresence"),
    ("Strike", "InjectedFault"),
    ("Sweeper", "Reaper"),
    ("Tie", "ProcessLifetime"),
    ("Told", "HostEvent"),
    ("Traveller", "FederationMover"),
    ("Vacancy", "GpuAvailability"),
    ("Way", "LeaderHandle, ReadPath, StageEdge"),
    ("Whence", "CutLocation"),
    ("Who", "FaultTarget"),
    ("Wish", "HostRequest, DesiredReplicas"),
    ("Word", "LeaderCommand"),
];

/// What declares a type.
const DECLARE: [&str; 4] = ["struct", "enum", "trait", "type"];

/// Where old words may stand: records keep the words of their time.
const HISTORY: [&str; 3] = ["docs/internals/lab", "docs/adr", "CHANGELOG.md"];

/// Where threads are measured.
const BENCHES: [&str; 2] = ["benches", "docs/internals/performance.md"];

/// Places with old words.
pub(crate) fn problems(metadata: &Metadata, root: &Path) -> Result<Vec<String>> {
    let mut paths: Vec<PathBuf> = crate::links::markdown_files(root)?;
    for package in metadata.members() {
        paths.extend(rust_files(package.dir())?);
    }
    paths.sort();
    paths.dedup();
    let mut problems = Vec::new();
    for path in paths {
        let shown = path.strip_prefix(root).unwrap_or(&path);
        let exempt = HISTORY.iter().any(|place| shown.starts_with(place)) || shown.ends_with("xtask/src/old_words.rs");
        if !exempt {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            problems.extend(old_words(shown, &text));
        }
    }
    Ok(problems)
}

fn old_words(path: &Path, text: &str) -> Vec<String> {
    let of_benches = BENCHES.iter().any(|place| path.starts_with(place));
    let of_threads = WORDS_OF_BENCHES.iter().filter(|_| !of_benches);
    let words = OLD_WORDS.iter().chain(of_threads).map(|&(old, new)| (old.to_owned(), new));
    let types = OLD_TYPES.iter().flat_map(|&(old, new)| DECLARE.map(|declare| (format!("{declare} {old}"), new)));
    let mut problems = Vec::new();
    for (old, new) in words.chain(types) {
        let lines = lines_with(text, &old);
        problems.extend(lines.iter().map(|line| format!("{}:{line}: `{old}` is now `{new}`", path.display())));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_word_is_found_where_it_stands_and_parts_of_words_are_not() {
        let found = old_words(Path::new("a.md"), "A crew\nscrews, crewed\n");
        assert_eq!(found, ["a.md:1: `crew` is now `worker group`"]);
        let found = old_words(Path::new("a.md"), "no sign of life\nof its new life\n");
        assert_eq!(found, ["a.md:2: `new life` is now `new boot`"]);
    }

    #[test]
    fn threads_of_workers_are_named_where_they_are_measured_and_nowhere_else() {
        let text = "one model thread, two model threads\n";
        assert_eq!(old_words(Path::new("docs/a.md"), text), ["docs/a.md:1: `model thread` is now `model worker`"]);
        assert_eq!(old_words(Path::new("benches/README.md"), text), Vec::<String>::new());
    }

    #[test]
    fn an_old_type_is_found_where_it_is_declared_and_its_word_may_be_used() {
        let found = old_words(Path::new("a.rs"), "// Own files.\npub(crate) enum Own {\nstruct Owner;\n");
        assert_eq!(found, ["a.rs:2: `enum Own` is now `FrontendIdentity, FederationProcess, OwnRequests`"]);
    }
}
