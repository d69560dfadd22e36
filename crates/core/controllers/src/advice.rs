//! The autoscaler's advice.

use symphony_types::GpuId;

/// Reason of the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No change is needed.
    Enough,
    /// Requests are lost for lack of GPUs.
    BadRate,
    /// So few GPUs are idle that the next rise of the load would lose requests.
    LittleIdle,
    /// GPUs were idle and not needed during the whole long window.
    Idle,
    /// The settings require more GPUs or allow fewer.
    Limits,
    /// Requests are lost although many GPUs are idle: more GPUs would not help, and fewer might hurt.
    BadWhileIdle,
    /// Other kinds serve these sizes of requests better within the budget.
    Fleet,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 7] =
        [Self::Enough, Self::BadRate, Self::LittleIdle, Self::Idle, Self::Limits, Self::BadWhileIdle, Self::Fleet];

    /// The stable label, for metrics and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::BadRate => "bad_rate",
            Self::LittleIdle => "little_idle",
            Self::Idle => "idle",
            Self::Limits => "limits",
            Self::BadWhileIdle => "bad_while_idle",
            Self::Fleet => "fleet",
        }
    }
}

/// What to do with the GPUs of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindAdvice {
    /// The advised number of GPUs, including those on order.
    pub target: u32,
    /// How many to order in addition to those on order.
    pub add: u32,
    /// How many orders to cancel.
    pub cancel: u32,
    /// GPUs to drain and release: those with the highest ids, which serve least where the lowest free GPU is chosen.
    pub release: Vec<GpuId>,
}

/// One piece of advice. The host may follow it; the effect shows in the next measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Which rule led to it.
    pub reason: Reason,
    /// By GPU kind, in the order of the settings.
    pub kinds: Vec<KindAdvice>,
    /// The bad rate of the decision.
    pub bad_rate: f64,
    /// The idle share of the decision.
    pub idle_fraction: f64,
    /// The result of the law before damping and limits, as a difference to the serving capacity: N·r/(1−r) more or N·f
    /// fewer, including the reserve; in the unit of capacity.
    pub pressure: f64,
}

impl Advice {
    /// Whether any change is advised.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.adds() || self.kinds.iter().any(|kind| kind.cancel > 0 || !kind.release.is_empty())
    }

    /// Whether more GPUs are advised.
    #[must_use]
    pub fn adds(&self) -> bool {
        self.kinds.iter().any(|kind| kind.add > 0)
    }

    /// Whether fewer GPUs are advised.
    #[must_use]
    pub fn releases(&self) -> bool {
        self.kinds.iter().any(|kind| !kind.release.is_empty())
    }
}
