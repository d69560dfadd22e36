//! Detects dead replicas: heartbeats over plain TCP from threads of their own, and the detector that evaluates them.

pub(crate) mod addresses;
pub(crate) mod contact;
pub(crate) mod declarations;
pub(crate) mod detector;
pub(crate) mod detector_turn;
pub(crate) mod event_queue;
pub(crate) mod failure_detection;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub(crate) mod heartbeat_receiver;
pub(crate) mod heartbeat_sender;
pub(crate) mod heartbeat_state;
pub(crate) mod message;
pub(crate) mod progress;
pub(crate) mod silence_switch;
pub(crate) mod task_runner;
pub(crate) mod thread_priority;
pub(crate) mod thread_runner;
pub(crate) mod wait;

pub(crate) use addresses::HeartbeatAddresses;
pub(crate) use detector::{Action, Detector, DetectorEvent};
pub(crate) use event_queue::{EventQueue, TimedEvent};
pub(crate) use heartbeat_receiver::{CONNECTIONS_MAX, HeartbeatAcceptor, HeartbeatRecords};
pub(crate) use heartbeat_sender::{HeartbeatSender, refuses};
pub(crate) use heartbeat_state::{ContactState, HeartbeatSources, HeartbeatState};
pub(crate) use message::{ACK_BYTES, HEARTBEAT_BYTES, Heartbeat, cluster_hash};
pub(crate) use progress::Progress;
pub(crate) use silence_switch::{SilenceHold, SilenceSwitch};
pub(crate) use thread_priority::raise as raise_priority;
pub(crate) use wait::wait_until;
