//! The rules of policies that do not explain single decisions, in words that hold for all their batches and drops.

use symphony_explain::PolicyRules;
use symphony_workload::{PolicySpec, UnmergedPolicy};

/// `None` for a policy that explains each decision.
pub(crate) const fn rules(policy: &PolicySpec) -> Option<PolicyRules> {
    Some(match policy {
        PolicySpec::Queues(_) => return None,
        PolicySpec::Unmerged(policy) => of_unmerged(*policy),
        PolicySpec::Registered(_) => PolicyRules {
            batch: "a policy that the program added chose the batch; it gives no reasons",
            dropped: "a policy that the program added dropped it; it gives no reasons",
        },
        PolicySpec::Clockwork { .. } => PolicyRules {
            batch: "clockwork gives a GPU with little work ahead the batch that has to start first, as large as there are requests in time for it",
            dropped: "clockwork drops what could not end in time alone, and what stands before a batch that it would make late",
        },
        PolicySpec::Nexus { .. } => PolicyRules {
            batch: "nexus goes round the models that it has packed on the GPU, and it was this one's turn",
            dropped: "nexus drops what would make the next batch late on the GPU that it was dealt to, and what waits too long for a GPU that is packed for it",
        },
        PolicySpec::Shepherd { .. } => PolicyRules {
            batch: "shepherd gives a GPU the largest batch of which every request ends in time, and a much larger one stops one that runs",
            dropped: "shepherd drops what could not end in time even alone on an idle GPU",
        },
    })
}

/// Every request is a batch of its own.
const fn of_unmerged(policy: UnmergedPolicy) -> PolicyRules {
    match policy {
        UnmergedPolicy::Kairos { .. } => PolicyRules {
            batch: "kairos gives each request the GPU with which all that wait take the least weighted GPU time together",
            dropped: "kairos drops what could not end in time even alone on an idle GPU",
        },
        UnmergedPolicy::Ribbon => PolicyRules {
            batch: "ribbon gives the request that came first the fastest GPU that is free",
            dropped: "ribbon drops what would be late on the GPU whose turn it is",
        },
        UnmergedPolicy::Drs { .. } => PolicyRules {
            batch: "drs gives requests above its threshold of items the fastest kind of GPU, and the others the other kinds",
            dropped: "drs drops what would be late on the GPU whose turn it is",
        },
        UnmergedPolicy::Clkwrk => PolicyRules {
            batch: "clkwrk gives each request, when it comes, the GPU whose queue ends it first",
            dropped: "clkwrk drops what would be late in the queue of every GPU",
        },
    }
}
