//! Decision threads: the worker groups on them, the order of turns, waking, and the handling of hung threads.

pub(crate) mod clock;
pub(crate) mod decision_thread;
pub(crate) mod decision_threads;
pub(crate) mod hung_threads;
pub(crate) mod inbox;
pub(crate) mod reaper;
pub(crate) mod spin_stretch;
pub(crate) mod turn;
pub(crate) mod turn_order;
pub(crate) mod waker;
pub(crate) mod watchdog;
pub(crate) mod worker;
pub(crate) mod worker_group;
pub(crate) mod worker_groups;
