//! Each bug that can be planted is found, as the broken promise that it should be found as.

use symphony_model::{Broken, Mutation, Scope, search};

/// More than any of these searches needs.
const STEPS_MAX: usize = 3_000_000;

#[track_caller]
fn is_found(mutation: Mutation, scope: Scope, expected: Broken) {
    let found = search(scope.with(mutation), 1, Some(STEPS_MAX));
    println!("{mutation:?}: {found}");
    let broken = found.counterexample.as_ref().map(|(broken, _)| *broken);
    assert_eq!(broken, Some(expected), "{mutation:?}: {found}");
}

const ONE_GPU: Scope = Scope { backends: 1, ..Scope::CALM };
const TAKE_OVER: Scope = Scope { node_downs: 1, ..ONE_GPU };
const TWO_REQUESTS: Scope = Scope { requests: 2, ..TAKE_OVER };

macro_rules! found {
    ($($name:ident: $mutation:ident in $scope:expr => $broken:ident;)*) => {
        $(#[test]
        fn $name() {
            is_found(Mutation::$mutation, $scope, Broken::$broken);
        })*

        #[test]
        fn every_mutation_has_its_test() {
            let tested = [$(Mutation::$mutation),*];
            assert!(Mutation::ALL.iter().all(|mutation| tested.contains(mutation)));
        }
    };
}

found! {
    skip_seal: SkipSeal in TWO_REQUESTS => PlannedBlindly;
    seal_only_above: SealOnlyAbove in TAKE_OVER => PromiseNotKept;
    seal_only_up_to: SealOnlyUpTo in TAKE_OVER => LatestLeadNotSealed;
    seal_anything: SealAnything in Scope { cuts: 1, ..TWO_REQUESTS } => OldLeadObeyed;
    seal_again_counts_anew:
        SealAgainCountsAnew in Scope { doubles: 2, unordered: true, ..ONE_GPU } => OrderRunAgain;
    no_seal: NoSeal in TWO_REQUESTS => PlannedBlindly;
    raft_term_as_token: RaftTermAsToken in TAKE_OVER => TokenLedTwice;
    no_boot_check: NoBootCheck in Scope { backend_restarts: 1, ..ONE_GPU } => FencedByNobody;
    no_sequence_check: NoSequenceCheck in Scope { doubles: 1, unordered: true, ..ONE_GPU } => OrderRunAgain;
    restart_without_registration:
        RestartWithoutRegistration in Scope { backend_restarts: 1, ..TWO_REQUESTS } => OldLeadObeyed;
    redrive_without_asking: RedriveWithoutAsking in TAKE_OVER => RunAgainThoughKnown;
    every_result_counts: EveryResultCounts in Scope { doubles: 1, ..ONE_GPU } => TwoOutcomes;
    results_of_former_boots: ResultsOfFormerBoots in Scope { frontend_restarts: 1, ..ONE_GPU } => ForeignAnswer;
    fast_restart_inherits: FastRestartInherits in Scope { node_restarts: 1, ..ONE_GPU } => TokenLedTwice;
    read_without_index: ReadWithoutIndex in Scope { reads: 1, ..TAKE_OVER } => StaleRead;
}
