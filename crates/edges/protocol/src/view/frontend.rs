//! A frontend.

use symphony_types::{BootId, Duty, FrontendId, Level, Nanos};

use super::message::{level_from_message, level_to_message};
use crate::control as pb;

/// A registered frontend: its boot, its addresses, its duty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontendView {
    /// Its name, from its configuration; stable over restarts.
    pub name: String,
    /// The boot that registered last.
    pub boot: BootId,
    /// `host:port` of its data link.
    pub data_addr: String,
    /// `host:port` of its metrics and console.
    pub console_addr: String,
    /// Its duty: serve, cordoned or draining.
    pub duty: Duty,
    /// It takes nothing new and has nothing left to finish.
    pub drained: bool,
    /// This boot has announced its end.
    pub leaving: bool,
    /// How long the Raft leader has seen no sign of life of this boot, zero while it does; none if the answering
    /// replica does not know.
    pub silent: Option<Nanos>,
    /// The newest level that it knows, if it has reported that to the answering replica.
    pub level: Option<Level>,
}

impl FrontendView {
    /// It has announced its end, and has nothing left to finish.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        self.leaving && self.drained
    }
}

impl From<pb::Frontend> for (FrontendId, FrontendView) {
    fn from(frontend: pb::Frontend) -> Self {
        let duty = frontend.duty().into();
        let pb::Frontend { id, name, boot_id, data_addr, console_addr, drained, silent_ns, leaving, level, .. } =
            frontend;
        let (boot, silent, level) = (BootId::new(boot_id), silent_ns.map(Nanos::new), level_from_message(level));
        let view = FrontendView { name, boot, data_addr, console_addr, duty, drained, leaving, silent, level };
        (FrontendId::new(id), view)
    }
}

impl From<(&FrontendId, &FrontendView)> for pb::Frontend {
    fn from((id, frontend): (&FrontendId, &FrontendView)) -> Self {
        Self {
            id: id.get(),
            name: frontend.name.clone(),
            boot_id: frontend.boot.get(),
            data_addr: frontend.data_addr.clone(),
            console_addr: frontend.console_addr.clone(),
            duty: pb::Duty::from(frontend.duty).into(),
            drained: frontend.drained,
            silent_ns: frontend.silent.map(Nanos::get),
            leaving: frontend.leaving,
            level: level_to_message(frontend.level),
        }
    }
}
