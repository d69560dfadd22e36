//! Policies by their names.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use symphony_policy::{
    CLUSTER_POLICY_NAMES, POLICY_NAMES, PolicyError, PolicyOptions, PolicySpec, RegisteredPolicy, UnmergedPolicy,
    is_policy_name,
};

use crate::cluster::facts::ClusterFacts;
use crate::cluster::guard::{BoxedPolicy, GuardedPolicy};
use crate::rivals::{
    Clkwrk, Clockwork, ClockworkSettings, Drs, Kairos, KairosSettings, Nexus, NexusSettings, Ribbon, Shepherd,
    ShepherdSettings,
};

/// Builds a policy, or returns what is wrong with its options.
type Constructor = dyn Fn(&ClusterFacts, &PolicyOptions) -> Built + Send + Sync;
type Built = Result<BoxedPolicy, String>;

/// The policies that a program adds to those that are always there, by their names.
#[derive(Clone, Default)]
pub struct PolicyRegistry {
    constructors: BTreeMap<String, Arc<Constructor>>,
}

/// Why a policy is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Its name is not known.
    #[error("no policy is named `{name}`; this program has {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that are.
        known: String,
    },
    /// Its options are refused.
    #[error("policy `{name}`: {problem}")]
    Options {
        /// The policy.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// It decides for single models, not for a cluster.
    #[error("policy `{name}` decides for each model alone; expected one that decides for a whole sub-cluster: {known}")]
    NotForClusters {
        /// The policy.
        name: String,
        /// The names of those that do.
        known: String,
    },
}

/// By their names: constructors cannot be compared.
impl PartialEq for PolicyRegistry {
    fn eq(&self, other: &Self) -> bool {
        self.names().eq(other.names())
    }
}

impl fmt::Debug for PolicyRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.constructors.keys()).finish()
    }
}

impl PolicyRegistry {
    /// A registry without added policies: those of the rivals are always there.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this policy, in place of one that was added under the same name. The constructor checks the options; it may
    /// be called at any time and many times, also only to check them.
    ///
    /// # Panics
    /// If the name is no name (1 to 63 of a–z, 0–9, `-` and `_`, a letter first), or one that every program has: an
    /// error of the program.
    #[must_use]
    pub fn with<F>(mut self, name: &str, constructor: F) -> Self
    where
        F: Fn(&ClusterFacts, &PolicyOptions) -> Result<BoxedPolicy, String> + Send + Sync + 'static,
    {
        assert!(is_policy_name(name), "`{name}` is no name of a policy");
        assert!(!POLICY_NAMES.contains(&name), "a policy named `{name}` is in every program");
        self.constructors.insert(name.to_owned(), Arc::new(constructor));
        self
    }

    /// The same names; each policy is built by `wrap`, which is given its name and what builds it. For a host that
    /// watches policies from outside.
    #[must_use]
    pub fn wrapped<F>(&self, wrap: F) -> Self
    where
        F: Fn(&str, &dyn Fn() -> Result<BoxedPolicy, String>) -> Result<BoxedPolicy, String> + Send + Sync + 'static,
    {
        let wrap = Arc::new(wrap);
        let wrapped = |(name, constructor): (&String, &Arc<Constructor>)| {
            let (wrap, constructor, known) = (Arc::clone(&wrap), Arc::clone(constructor), name.clone());
            let wrapped: Arc<Constructor> = Arc::new(move |facts: &ClusterFacts, options: &PolicyOptions| -> Built {
                wrap(&known, &|| constructor(facts, options))
            });
            (name.clone(), wrapped)
        };
        Self { constructors: self.constructors.iter().map(wrapped).collect() }
    }

    /// The names that were added, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.constructors.keys().map(String::as_str)
    }

    /// The policy in a text, among those that every program has and those that were added.
    ///
    /// # Errors
    /// If it names no policy, or contains invalid options for one that every program has.
    pub fn parse(&self, text: &str) -> Result<PolicySpec, PolicyError> {
        PolicySpec::parse_among(text, &self.names().collect::<Vec<_>>())
    }

    /// The policy that decides for a cluster as `spec` says.
    ///
    /// # Errors
    /// If its name is not known here, its options are refused, or it decides for single models.
    pub fn build(&self, spec: &PolicySpec, facts: &ClusterFacts) -> Result<GuardedPolicy, RegistryError> {
        let policy: BoxedPolicy = match spec {
            PolicySpec::Queues(queues) => {
                let name = queues.model.name.label().to_owned();
                return Err(RegistryError::NotForClusters { name, known: self.known() });
            }
            PolicySpec::Clockwork { commit, early } => {
                Box::new(Clockwork::new(facts, ClockworkSettings { commit: *commit, early: *early }))
            }
            PolicySpec::Nexus { frontends } => {
                Box::new(Nexus::new(facts, NexusSettings { frontends: *frontends, seed: facts.seed }))
            }
            PolicySpec::Shepherd { preempt_factor } => {
                Box::new(Shepherd::new(facts, ShepherdSettings { preempt_factor: *preempt_factor }))
            }
            PolicySpec::Unmerged(policy) => match *policy {
                UnmergedPolicy::Kairos { learn } => Box::new(Kairos::new(facts, KairosSettings { learn })),
                UnmergedPolicy::Ribbon => Box::new(Ribbon::new(facts)),
                UnmergedPolicy::Drs { threshold } => Box::new(Drs::new(facts, threshold)),
                UnmergedPolicy::Clkwrk => Box::new(Clkwrk::new(facts)),
            },
            PolicySpec::Registered(RegisteredPolicy { name, options }) => {
                let Some(constructor) = self.constructors.get(name) else {
                    return Err(RegistryError::Unknown { name: name.clone(), known: self.known() });
                };
                let built = catch_unwind(AssertUnwindSafe(|| constructor(facts, options)));
                let built = built.unwrap_or_else(|_| Err("its constructor panicked".to_owned()));
                built.map_err(|problem| RegistryError::Options { name: name.clone(), problem })?
            }
        };
        Ok(GuardedPolicy::new(cluster_name(spec), policy))
    }

    /// The names of all policies that decide for a cluster.
    fn known(&self) -> String {
        CLUSTER_POLICY_NAMES.into_iter().chain(self.names()).collect::<Vec<_>>().join(", ")
    }
}

fn cluster_name(spec: &PolicySpec) -> &str {
    match spec {
        PolicySpec::Queues(queues) => queues.model.name.label(),
        PolicySpec::Clockwork { .. } => "clockwork",
        PolicySpec::Nexus { .. } => "nexus",
        PolicySpec::Shepherd { .. } => "shepherd",
        PolicySpec::Unmerged(policy) => policy.label(),
        PolicySpec::Registered(registered) => &registered.name,
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::Time;

    use super::*;
    use crate::PolicyFault;
    use crate::cluster_policy::{ClusterActions, ClusterInput, ClusterPolicy};

    /// Panics at every input but `Wake`, at which it orders for ever.
    struct Wild;

    impl ClusterPolicy for Wild {
        fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
            assert!(matches!(input, ClusterInput::Wake), "planted");
            loop {
                out.wake_at(now);
            }
        }

        fn waiting(&self) -> usize {
            0
        }
    }

    fn registry() -> PolicyRegistry {
        PolicyRegistry::new().with("wild", |_, options| {
            options.only(&["speed"])?;
            options.number("speed", 1.0, 1.0..=9.0)?;
            Ok(Box::new(Wild))
        })
    }

    fn build(text: &str) -> Result<GuardedPolicy, RegistryError> {
        let spec = PolicySpec::parse_among(text, &["wild", "gone"]).unwrap();
        registry().build(&spec, &ClusterFacts::default())
    }

    #[test]
    fn a_name_is_found_and_what_is_wrong_is_said_in_words() {
        for text in CLUSTER_POLICY_NAMES.into_iter().chain([
            "wild",
            "{ name = 'wild', speed = 3 }",
            "{ name = 'drs', threshold = 9 }",
        ]) {
            assert!(text.contains(build(text).unwrap().name()), "{text}");
        }
        let refusal = |text: &str| build(text).unwrap_err().to_string();
        assert_eq!(
            refusal("gone"),
            "no policy is named `gone`; this program has clockwork, nexus, shepherd, kairos, ribbon, drs, clkwrk, wild"
        );
        assert!(
            refusal("{ name = 'wild', speed = 10 }").contains("policy `wild`: key `speed`: expected a number from 1")
        );
        assert!(refusal("{ name = 'wild', spede = 1 }").contains("key `spede`: expected only speed"));
        assert!(refusal("auto").contains("decides for each model alone"));
    }

    #[test]
    fn a_panic_and_orders_without_end_are_named_and_end_the_policy() {
        let mut out = ClusterActions::default();
        let mut wild = build("wild").unwrap();
        let fault = wild.step(Time::ZERO, ClusterInput::ModelGone(0), &mut out).unwrap_err();
        assert_eq!(fault.to_string(), "policy `wild` panicked at input `model_gone`: planted");
        assert_eq!(wild.step(Time::ZERO, ClusterInput::Wake, &mut out), Err(fault), "it decides nothing more");
        let mut wild = build("wild").unwrap();
        let fault = wild.step(Time::ZERO, ClusterInput::Wake, &mut out).unwrap_err();
        assert!(matches!(fault, PolicyFault::TooManyOrders { .. }) && out.list.is_empty(), "{fault}");
    }

    #[test]
    #[should_panic(expected = "in every program")]
    fn a_name_that_every_program_has_is_not_added() {
        let _ = PolicyRegistry::new().with("nexus", |_, _| Ok(Box::new(Wild)));
    }
}
