//! The systems that figures compare: a scenario's policy, and its style in every plot.

use symphony_scheduler::rivals::{Nexus, NexusSettings};
use symphony_scheduler::{ClusterFacts, PolicyRegistry};

use crate::plot::{Marker, Style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct System {
    /// Its name in CSV files.
    pub(crate) key: &'static str,
    /// Its name in plots and pages.
    pub(crate) label: &'static str,
    /// The scenario's `policy`, as TOML.
    pub(crate) policy: &'static str,
    colour: &'static str,
    marker: Marker,
}

impl System {
    pub(crate) fn style(&self) -> Style {
        Style::new(self.label, self.colour, self.marker)
    }
}

/// Deferred batch scheduling (the Symphony paper, section 4.3).
pub(crate) const SYMPHONY: System =
    System { key: "symphony", label: "symphony", policy: r#""symphony""#, colour: "#0072B2", marker: Marker::Circle };
/// Chooses trigger and target by itself.
pub(crate) const AUTO: System =
    System { key: "auto", label: "auto", policy: r#""auto""#, colour: "#D55E00", marker: Marker::Diamond };
/// Deferral with the drop rule that the paper's text describes (the Symphony paper, section 4.3, third question).
pub(crate) const SYMPHONY_PRUNE: System = System {
    key: "symphony-prune",
    label: "symphony, pruning",
    policy: r#"{ name = "symphony", drop = "prune" }"#,
    colour: "#7fb2d6",
    marker: Marker::Circle,
};
/// The strongest work-conserving rival.
pub(crate) const EAGER: System =
    System { key: "eager", label: "eager", policy: r#""eager""#, colour: "#009E73", marker: Marker::Up };
/// The paper's own work-conserving policy: ranked by the time at which a batch wanted to start (the Symphony paper,
/// appendix C), drops as in its section 4.3.
pub(crate) const EAGER_PAPER: System = System {
    key: "eager-paper",
    label: "the paper's eager",
    policy: r#"{ name = "eager", ready_order = "start", drop = "prune" }"#,
    colour: "#8a94a0",
    marker: Marker::Up,
};
/// Eager with lazy drops: what the Nexus paper calls lazy dropping, after Clipper.
pub(crate) const CLIPPER: System = System {
    key: "clipper",
    label: "clipper (lazy drop)",
    policy: r#""clipper""#,
    colour: "#7a8793",
    marker: Marker::Square,
};
/// Triton's dynamic batcher with a quarter of the SLO.
pub(crate) const TIMEOUT: System = System {
    key: "timeout",
    label: "timeout, SLO / 4",
    policy: r#"{ name = "timeout", share = 0.25 }"#,
    colour: "#a3acb5",
    marker: Marker::Square,
};
/// The Symphony paper's Clockwork baseline (its reference 6).
pub(crate) const CLOCKWORK: System = System {
    key: "clockwork",
    label: "clockwork",
    policy: r#""clockwork""#,
    colour: "#E69F00",
    marker: Marker::Square,
};
/// The Nexus paper with one frontend.
pub(crate) const NEXUS_1: System = System {
    key: "nexus-1fe",
    label: "nexus, 1 frontend",
    policy: r#"{ name = "nexus", frontends = 1 }"#,
    colour: "#CC79A7",
    marker: Marker::Down,
};
/// The Nexus paper with eight frontends.
pub(crate) const NEXUS_8: System = System {
    key: "nexus-8fe",
    label: "nexus, 8 frontends",
    policy: r#"{ name = "nexus", frontends = 8 }"#,
    colour: "#882255",
    marker: Marker::Down,
};
/// Flex with preemption.
pub(crate) const SHEPHERD: System =
    System { key: "shepherd", label: "shepherd", policy: r#""shepherd""#, colour: "#56B4E9", marker: Marker::Cross };
/// Each waiting request to one GPU by minimum cost (the Kairos paper, section 5.1).
pub(crate) const KAIROS: System =
    System { key: "kairos", label: "kairos", policy: r#""kairos""#, colour: "#0072B2", marker: Marker::Circle };
/// First come, first served, the base kind first (the Kairos paper, section 7).
pub(crate) const RIBBON: System =
    System { key: "ribbon", label: "ribbon", policy: r#""ribbon""#, colour: "#7a8793", marker: Marker::Square };
/// Requests above a threshold of items go to the base kind (the Kairos paper, section 7, after DeepRecSys).
pub(crate) const DRS: System =
    System { key: "drs", label: "drs", policy: r#""drs""#, colour: "#CC79A7", marker: Marker::Down };
/// A queue for each GPU, and requests where they are in time (the Kairos paper, section 7, after Clockwork).
pub(crate) const CLKWRK: System =
    System { key: "clkwrk", label: "clkwrk", policy: r#""clkwrk""#, colour: "#E69F00", marker: Marker::Up };
/// Knows all requests before they come (the Kairos paper, section 7). It is no policy: its rate is computed from a
/// scenario, whose policy does not matter.
pub(crate) const ORACLE: System =
    System { key: "oracle", label: "oracle", policy: KAIROS.policy, colour: "#6b7280", marker: Marker::Cross };

/// Nexus without squishy packing.
pub(crate) const NEXUS_OBLIVIOUS: &str = r#""nexus-oblivious""#;
/// Nexus without squishy packing and early drop.
pub(crate) const NEXUS_LAZY: &str = r#""nexus-lazy""#;

/// Policies of these experiments alone: Nexus with some of its techniques left out.
pub(crate) fn policies() -> PolicyRegistry {
    let nexus = |facts: &ClusterFacts| Nexus::new(facts, NexusSettings { frontends: 1, seed: facts.seed });
    PolicyRegistry::new()
        .with("nexus-oblivious", move |facts, _| Ok(Box::new(nexus(facts).batch_oblivious())))
        .with("nexus-lazy", move |facts, _| Ok(Box::new(nexus(facts).batch_oblivious().dropping_lazily())))
}
