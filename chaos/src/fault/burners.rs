//! Busy processes that take the cores from all others, for a while.

use std::path::Path;

use anyhow::Result;
use symphony_testkit::{Child, ChildSpec};

/// Processes that do nothing but turn. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Burners {
    children: Vec<Child>,
}

impl Burners {
    /// Starts `per_core` of them for each core. Each ends by itself `seconds_max` later, whatever becomes of this
    /// process.
    pub(crate) fn start(per_core: u32, seconds_max: u64, dir: &Path) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // Looks at the clock now and then; one process, so that nothing is left when it is killed.
        let turn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let script = format!("end=$(($(date +%s) + {seconds_max})); while [ $(date +%s) -lt $end ]; do {turn}; done");
        let children = (0..cores * per_core as usize)
            .map(|n| ChildSpec::new(format!("burner-{n}"), "/bin/sh", ["-c", script.as_str()], dir).spawn());
        Ok(Self { children: children.collect::<Result<_>>()? })
    }

    /// How many still turn.
    pub(crate) fn turning(&mut self) -> Result<usize> {
        let mut turning = 0;
        for child in &mut self.children {
            turning += usize::from(child.ended()?.is_none());
        }
        Ok(turning)
    }
}
