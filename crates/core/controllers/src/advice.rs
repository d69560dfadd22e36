//! What the autoscaler says.

use symphony_types::GpuId;

/// Why it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing to change.
    Enough,
    /// Requests are lost for want of GPUs.
    BadRate,
    /// So few GPUs idle that the next rise would lose requests.
    LittleIdle,
    /// GPUs idle for which there was no use for the whole window.
    Idle,
    /// The settings ask for more, or allow fewer.
    Limits,
    /// Requests are lost although many GPUs idle: more GPUs would not help, and fewer might hurt.
    BadWhileIdle,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 6] =
        [Self::Enough, Self::BadRate, Self::LittleIdle, Self::Idle, Self::Limits, Self::BadWhileIdle];

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
        }
    }
}

/// What to do about the GPUs of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindAdvice {
    /// GPUs that there should be, those on order included.
    pub target: u32,
    /// How many to order, besides those on order.
    pub add: u32,
    /// How many of those on order to take back.
    pub cancel: u32,
    /// Which to drain and give back: the highest ids, which serve least where the lowest free one is chosen.
    pub release: Vec<GpuId>,
}

/// One answer. Following it is the host's business; what it does shows in the next window.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Why.
    pub reason: Reason,
    /// By GPU kind, in the order of the settings.
    pub kinds: Vec<KindAdvice>,
    /// The bad rate that was judged.
    pub bad_rate: f64,
    /// The idle share that was judged.
    pub idle_fraction: f64,
    /// What the law asks for before damping and limits, less what serves: N·r/(1−r) more or N·f fewer, with the
    /// reserve; in the unit of capacity.
    pub pressure: f64,
}

impl Advice {
    /// Whether it asks for a change.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.adds() || self.kinds.iter().any(|kind| kind.cancel > 0 || !kind.release.is_empty())
    }

    /// Whether it asks for GPUs.
    #[must_use]
    pub fn adds(&self) -> bool {
        self.kinds.iter().any(|kind| kind.add > 0)
    }

    /// Whether it gives GPUs back.
    #[must_use]
    pub fn releases(&self) -> bool {
        self.kinds.iter().any(|kind| !kind.release.is_empty())
    }
}
